"""Products whose weights are narrower than f32, beside a peer in one process, in turns: the fastest of each, in ms.

    taskset -c 1 python tests/narrow_weights_report.py bits      # MatMulNBits, onnxruntime
    taskset -c 1 python tests/narrow_weights_report.py model     # a token, and 128, of 4-bit weights, onnxruntime
    taskset -c 1 python tests/narrow_weights_report.py bf16      # torch's Linear, torch

One thread. `accuracy_level` 4 lets onnxruntime round activations to 8 bits.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.runtime import as_numpy

TURNS = 9


def seconds(call: Callable[[], object], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return (time.perf_counter() - start) / times


def report(name: str, ours: Callable[[], object], theirs: Callable[[], object], error: float) -> None:
    times = max(1, int(0.02 / min(seconds(ours, 1) for _ in range(3))))
    turns = [(seconds(ours, times), seconds(theirs, times)) for _ in range(TURNS)]
    a, b = (min(column) * 1e3 for column in zip(*turns, strict=True))
    print(f"{name:44} inlay {a:8.3f}  peer {b:8.3f}  {b / a:5.2f}x  difference {error:.1e}", flush=True)


def first(result) -> np.ndarray:
    return as_numpy(result[0] if isinstance(result, (tuple, list)) else result)


def beside_onnxruntime(name: str, model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> None:
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(num_threads=1, search="analytic"))
    main = executable.jit()["main"]
    arguments = [feeds[spec[0]] for spec in executable.inputs]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    got, want = first(main(*arguments)), session.run(None, feeds)[0]
    error = float(np.abs(got - want).max() / np.abs(want).max())
    report(name, lambda: main(*arguments), lambda: session.run(None, feeds), error)


def bits() -> None:
    random = np.random.default_rng(0)
    for rows, size, bits, block, level in (
        *((rows, 4096, 4, 32, level) for rows in (1, 4, 16, 128) for level in (0, 4)),
        (1, 4096, 8, 32, 4), (128, 2048, 8, 256, 4),
    ):  # fmt: skip
        blocks = size // block
        weights = {
            "b": random.integers(0, 256, (size, blocks, block * bits // 8)).astype(np.uint8),
            "s": random.uniform(0.001, 0.01, (size, blocks)).astype(np.float32),
        }
        node = helper.make_node(
            "MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", N=size, K=size, bits=bits, block_size=block,
            accuracy_level=level,
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "product",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, size])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, size])],
            [numpy_helper.from_array(v, k) for k, v in weights.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        x = random.standard_normal((rows, size)).astype(np.float32)
        beside_onnxruntime(f"{rows}x{size}x{size}, {bits} bits by {block}, level {level}", model, {"x": x})


def model() -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).parent / "e2e"))
    import contrib_language_model as of

    of.VOCABULARY, of.WIDTH, of.HEADS, of.KV_HEADS, of.SIZE, of.INNER = 16000, 1024, 16, 4, 64, 2816
    of.LAYERS, of.POSITIONS, of.BLOCK = 8, 512, 32
    cached, random = 64, np.random.default_rng(1)
    for new in (1, 128):
        for level in (0, 4):
            language_model = of.LanguageModel(4)
            proto = language_model.model(new, cached)
            for node in proto.graph.node:
                if node.op_type == "MatMulNBits":
                    node.attribute.append(helper.make_attribute("accuracy_level", level))
            caches = [
                random.standard_normal((1, of.KV_HEADS, cached, of.SIZE)).astype(np.float32)
                for _ in range(2 * of.LAYERS)
            ]
            feeds = language_model.inputs(random.integers(0, of.VOCABULARY, (1, new)), caches)
            beside_onnxruntime(f"{new} new, {cached} cached, level {level}", proto, feeds)


def bf16() -> None:
    import torch

    torch.set_num_threads(1)
    for rows, k, n in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (512, 1024, 1024), (16, 1024, 1024), (1, 4096, 4096)):  # fmt: skip
        layer, x = torch.nn.Linear(k, n).bfloat16().eval(), torch.randn(rows, k).bfloat16()
        with torch.no_grad():
            module = inlay.from_torch(torch.export.export(layer, (x,)))
            main = inlay.build(module, inlay.config.cpu(num_threads=1, search="analytic")).jit()["main"]
            result = main(x)
            got = torch.from_dlpack(result[0] if isinstance(result, (tuple, list)) else result).float()
            want = layer(x).float()
            error = float((got - want).abs().max() / want.abs().max())
            report(f"{rows}x{k} to {n}", lambda main=main, x=x: main(x), lambda layer=layer, x=x: layer(x), error)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["bits", "model", "bf16"])
    {"bits": bits, "model": model, "bf16": bf16}[parser.parse_args().what]()
