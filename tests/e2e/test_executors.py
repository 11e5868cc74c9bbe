"""Every model by every executor, in every way to run it: the same bits, since the same partitions are called."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import pytest
from conftest import inputs_of, run_everywhere
from test_models import SMALL

import inlay
from inlay import models

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
