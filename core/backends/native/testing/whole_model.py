"""A whole model as one native partition: checked against onnxruntime and timed beside it, one thread, no daemon.

    .venv/bin/python core/backends/native/testing/whole_model.py resnet50 [--target "llvm -mcpu=..."] [--rounds 20] [--winograd 0]

Needs //core/passes:inlay_opt and //core/backends/native/testing:compile_main built. For finding out what a change of the
kernels or of fusion does to real models; the figures that count are those of `inlay bench`.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import pathlib
import subprocess
import tempfile
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import onnxruntime
from harness import ROOT, Kernel, artifact_pb2
from reference.evaluator import evaluate

from inlay import from_onnx, models
from inlay._proto import ir_pb2

OPT = os.environ.get("INLAY_OPT", str(ROOT / "bazel-bin/core/passes/inlay_opt"))
COMPILER = os.environ.get("INLAY_NATIVE_COMPILER", str(ROOT / "bazel-bin/core/backends/native/testing/compile_main"))


def weights_as_params(module: ir_pb2.IRModule) -> list[bytes]:
    """Makes main's weights parameters behind those it has, as partitioning does; returns their constants' indices."""
    main = module.functions["main"]
    first = {}  # constant -> var

    def visit(operand):
        if operand.WhichOneof("kind") != "constant":
            return
        index = operand.constant
        if module.constants[index].WhichOneof("value") != "digest":
            return
        if index not in first:
            var = main.vars.add()
            var.type.tensor.CopyFrom(module.constants[index].type)
            main.params.append(len(main.vars) - 1)
            first[index] = len(main.vars) - 1
        operand.var = first[index]

    for binding in main.body.bindings:
        for operand in binding.args:
            visit(operand)
    return list(first)


def prepare(name: str, directory: pathlib.Path):
    """(module of main alone, values of its constant parameters, the ONNX model)."""
    model = models.build(name)
    imported = from_onnx(model)
    source, target = directory / "in.bin", directory / "out.bin"
    source.write_bytes(imported.proto.SerializeToString())
    subprocess.run([OPT, f"--proto_out={target}", str(source)], check=True)
    module = ir_pb2.IRModule.FromString(target.read_bytes())
    inputs = len(imported.proto.functions["main"].params)
    values = []
    if "transform_params" in module.functions:
        transform = ir_pb2.IRModule()
        transform.CopyFrom(module)
        transform.functions["main"].CopyFrom(module.functions["transform_params"])
        del transform.functions["transform_params"]
        values += evaluate(transform, imported.weights, [])
        del module.functions["transform_params"]
    for index in weights_as_params(module):
        constant = module.constants[index]
        shape = [d.value for d in constant.type.dims]
        values.append(np.asarray(imported.weights[constant.digest]).reshape(shape))
    module.functions["main"].attrs["constant_params"].ints.v.extend(range(inputs, inputs + len(values)))
    return module, values, model


def compile_native(module, target: str, directory: pathlib.Path) -> tuple[Kernel, float]:
    (directory / "t_model.pb").write_bytes(module.SerializeToString())
    done = subprocess.run([COMPILER, target, str(directory)], capture_output=True, text=True, check=True)
    error = directory / "t_model.error"
    if error.exists():
        raise RuntimeError(error.read_text())
    shared = directory / "model.so"
    subprocess.run(
        ["ld.lld-19", "-shared", "-o", str(shared), str(directory / "t_model.o"), "-lc", "-lm"]
        + ["-L/lib/x86_64-linux-gnu", "-z", "defs"],
        check=True,
    )
    manifest = artifact_pb2.StaticLibraryManifest.FromString((directory / "t_model.manifest").read_bytes())
    return Kernel(ctypes.CDLL(str(shared)), manifest, 1), float(done.stdout.split()[1])


def seconds() -> float:
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--target", default="llvm -mcpu=x86-64-v4")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--winograd", type=int, choices=[-1, 0, *range(2, 8)], default=-1, help="-1: where estimated faster"
    )
    args = parser.parse_args()
    for name in args.model:
        with tempfile.TemporaryDirectory() as directory:
            module, constants, model = prepare(name, pathlib.Path(directory))
            module.functions["main"].attrs["winograd"].i = args.winograd
            kernel, compile_ms = compile_native(module, args.target, pathlib.Path(directory))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        random = np.random.default_rng(0)
        feeds = {}
        for i in session.get_inputs():
            shape = [d if isinstance(d, int) else 1 for d in i.shape]
            integer = "int" in i.type
            feeds[i.name] = np.ones(shape, np.int64) if integer else random.standard_normal(shape).astype(np.float32)
        kernel.init(list(feeds.values()) + constants)
        want = session.run(None, feeds)
        kernel.run()
        error = max(float(np.abs(g - w).max()) for g, w in zip(kernel.results(), want))
        best = [1e9, 1e9]
        for _ in range(args.rounds):
            for which, call in enumerate((kernel.run, lambda: session.run(None, feeds))):
                start = seconds()
                call()
                best[which] = min(best[which], seconds() - start)
        print(
            f"{name:14s} native {best[0] * 1e3:8.2f} ms, onnxruntime {best[1] * 1e3:8.2f} ms, "
            f"{best[1] / best[0]:5.2f}x, max abs error {error:.1e}, compiled in {compile_ms:.0f} ms"
        )


if __name__ == "__main__":
    main()
