"""Every model by every executor, in every way to run it: the same bits, since the same partitions are called."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess

import numpy as np
import pytest
import tvm_ffi
import tvm_ffi.libinfo
from conftest import inputs_of, run_everywhere
from test_models import SMALL

import inlay
from inlay import models
from inlay.ir import FunctionBuilder

EXECUTORS = ["aot", "vm"]


def outputs_of(model, executor, client, folder, **options) -> dict[str, list[bytes]]:
    """By each way to run."""
    config = inlay.config.cpu(executor=executor, **options)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    results = run_everywhere(executable, inputs_of(executable), folder)
    return {way: [np.from_dlpack(array).tobytes() for array in arrays] for way, arrays in results.items()}


def check_same(model, client, folder, **options):
    want = outputs_of(model, "graph", client, folder, **options)["memory"]
    for executor in EXECUTORS:
        for way, got in outputs_of(model, executor, client, folder, **options).items():
            assert got == want, f"{executor}, {way}"


@pytest.mark.parametrize("backends", [["native"], []], ids=["native", "mix"])
@pytest.mark.parametrize("name", SMALL)
def test_small(name, backends, client, tmp_path):
    check_same(SMALL[name](), client, tmp_path, num_threads=1, backends=backends)


def test_two_threads(client, tmp_path):
    check_same(SMALL["resnet"](), client, tmp_path, num_threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.NAMES)
def test_real(name, client, tmp_path):
    check_same(models.build(name), client, tmp_path, num_threads=1)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_many_callers_at_once(executor, client):
    model = SMALL["mlp"]()
    config = inlay.config.cpu(executor=executor, num_threads=1)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    module = executable.jit()
    inputs = [inputs_of(executable, seed) for seed in range(8)]
    want = [np.from_dlpack(module["main"](**i)).tobytes() for i in inputs]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            got = list(pool.map(lambda i: np.from_dlpack(module["main"](**i)).tobytes(), inputs))
            assert got == want


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_second_compile_runs_nothing(executor, client):
    """The code of an executor is cached as a partition's is: also for another checkpoint of the same model."""
    module = inlay.from_onnx(SMALL["mlp"]())
    config = inlay.config.cpu(executor=executor, num_threads=1)
    inlay.build(module, config, server=client)
    assert inlay.build(module, config, server=client).report.actions_run == 0


@pytest.mark.parametrize("executor", EXECUTORS)
def test_profile(executor, client):
    config = inlay.config.cpu(executor=executor, num_threads=1)
    executable = inlay.build(inlay.from_onnx(SMALL["mlp"]()), config, server=client)
    times = executable.jit().profile(inputs_of(executable), 3)
    assert times.shape[0] == 3 and times.shape[1] >= 1 and (times > 0).any()


MAIN_C = r"""
#include <stdio.h>
#include <string.h>
#include "model.h"
int main(int argc, char** argv) {
  static float x[4 * 8], y[4 * 8];
  for (int i = 0; i < 32; ++i) x[i] = (float)(i - 16) / 4;
  struct inlay_model_inputs in = {x};
  struct inlay_model_outputs out = {y};
  if (argc > 1 && inlay_model_load(argv[1]) != 0) return printf("%s\n", inlay_model_error()), 1;
  struct inlay_model_inputs none = {0};
  if (inlay_model_run(&none, &out) == 0 || strstr(inlay_model_error(), "input 'x' is NULL") == 0) return 2;
  for (int run = 0; run < 2; ++run) {
    if (inlay_model_run(&in, &out) != 0) return printf("%s\n", inlay_model_error()), 1;
  }
  for (int i = 0; i < 32; ++i) printf("%.9g\n", y[i]);
  return INLAY_MODEL_WORKSPACE_SIZE < 0;
}
"""


def test_the_c_interface(client, tmp_path):
    """A program in C that knows the library and its header alone."""
    builder = FunctionBuilder()
    x = builder.param("x", "f32", (4, 8))
    w = builder.weight(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), "w")
    module = builder.finish([builder.op("softmax", builder.op("matmul", x, w), axis=-1)], ["for"])
    config = inlay.CompilationConfig(executor=inlay.Executor("aot", {"interface-api": "c"}), num_threads=1)
    executable = inlay.build(module, config, server=client)
    library = executable.export_library(tmp_path / "model.so")
    header = (tmp_path / "model.h").read_text()
    assert "const float* x; /* f32[4, 8] */" in header and "float* for_0;" in header
    (tmp_path / "main.c").write_text(MAIN_C)
    runtime = tvm_ffi.libinfo.find_libtvm_ffi()
    program = tmp_path / "main"
    for flags in (["-x", "c", "-std=c11"], ["-x", "c++"]):
        command = [
            "gcc",
            *flags,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-Wno-missing-field-initializers",
            "main.c",
        ]
        subprocess.run([*command, "-x", "none", library, runtime, "-o", program], cwd=tmp_path, check=True)
        rpath = {"LD_LIBRARY_PATH": f"{tmp_path}:{os.path.dirname(runtime)}"}
        text = subprocess.run([program], env=rpath, check=True, capture_output=True, text=True).stdout
        inputs = ((np.arange(32) - 16) / 4).astype(np.float32).reshape(4, 8)
        want = np.from_dlpack(inlay.load_library(library)["main"](inputs)).reshape(-1)
        np.testing.assert_array_equal(np.array(text.split(), np.float32), want)
    # Without it, the library has no such symbols.
    other = inlay.build(module, config.replace(executor="aot"), server=client).export_library(tmp_path / "plain.so")
    assert b"inlay_model_run" not in other.read_bytes() and not (tmp_path / "plain.h").exists()
