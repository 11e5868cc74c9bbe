#!/usr/bin/env python3
"""What it is worth that a batch goes through a model a few images at a time: timm's models with batches, as they are
compiled, with all images at once (the same plan pinned so), and onnxruntime, in turns in this process.

    python tests/batch_report.py --threads 1 mobilenetv2_100:8 resnet50:4

A row a model; medians of the rounds in ms, and of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime

import inlay
from inlay._proto import config_pb2
from inlay.bench import random_architectures

REST_SECONDS = 0.2  # onnxruntime's threads spin for 55 ms after a run, longer where the machine is busy


def export(name: str, batch: int) -> onnx.ModelProto:
    random_architectures.repair_torchvision()
    import timm
    import torch

    torch.manual_seed(1)
    network = random_architectures.lively(timm.create_model(name).eval())
    side = network.default_cfg["input_size"][-1]
    return random_architectures.to_onnx(network, (torch.randn(batch, 3, side, side),), ["x"])


def peer(model: onnx.ModelProto, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def ours(executable: inlay.Executable, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    module = executable.jit(num_threads=threads)["main"]
    return lambda x: np.from_dlpack(module(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="NAME:BATCH")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print("| model, images | a few at a time | all at once | onnxruntime | all at once / a few | onnxruntime / a few |")
    print("| --- | --- | --- | --- | --- | --- |")
    for text in options.models:
        name, _, batch = text.partition(":")
        model = export(name, int(batch))
        module = inlay.from_onnx(model)
        config = inlay.CompilationConfig(targets=["llvm -mcpu=native"], num_threads=options.threads, search="analytic")
        few = inlay.build(module, config)
        cover = config_pb2.Cover()
        cover.CopyFrom(few.cover)
        cover.whole_batch = True
        whole = inlay.build(module, config.replace(pinned=cover))
        runs = [ours(few, options.threads), ours(whole, options.threads), peer(model, options.threads)]
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        want = runs[2](x)
        for run in runs[:2]:
            np.testing.assert_allclose(run(x), want, rtol=0, atol=1e-4 * np.abs(want).max())
        ms = np.empty((options.rounds, len(runs)))
        for row in ms:
            for i, run in enumerate(runs):
                if options.threads > 1:
                    time.sleep(REST_SECONDS)
                    run(x)
                start = time.perf_counter()
                run(x)
                row[i] = (time.perf_counter() - start) * 1e3
        cells = [f"{median:.3g}" for median in np.median(ms, axis=0)]
        ratios = [f"{np.median(ms[:, i] / ms[:, 0]):.2f}x" for i in (1, 2)]
        print(f"| {name}, {batch} | {' | '.join(cells + ratios)} |", flush=True)


if __name__ == "__main__":
    main()
