"""A sample of onnx's own backend cases through the daemon, and wrong answers that the whole suite has found."""

from __future__ import annotations

import numpy as np
import onnx_backend_report as suite
import pytest
from reference.evaluator import evaluate

import inlay
from inlay.onnx_backend import build_executor


@pytest.mark.filterwarnings("ignore")
def test_sample_of_onnx_own_cases(client):
    executor = build_executor(server=client, remote=True)
    results = {"passed": [], "refused": [], "wrong": [], "crashed": []}
    cases = list(suite.load_cases(["node", "pytorch-operator"]))[::25]
    for _, name, model, data_sets, rtol, atol in cases:
        status, detail, _ = suite.run_case(model, data_sets, rtol, atol, executor)
        results[status].append((name, detail))
    assert not results["crashed"]
    assert not results["wrong"]
    assert len(results["passed"]) > 0.7 * len(cases)


@pytest.mark.parametrize("shape", [(3, 2, 2), (3, 2, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("axis", [1, -1])
def test_tensor_read_before_and_after_a_reduction(client, shape, axis):
    """sum(x - m) + m: m is indexed by x's dimensions before the reduction and by the result's after it."""
    builder = inlay.FunctionBuilder()
    x = builder.param("x", "f32", shape)
    m = builder.param("m", "f32", tuple(1 if i == axis % len(shape) else d for i, d in enumerate(shape)))
    total = builder.op("reduce_sum", builder.op("sub", x, m), axes=[axis], keepdims=True)
    module = builder.finish([builder.op("add", total, m)], ["y"])
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(t.shape).astype(np.float32) for _, t in module.inputs()]
    (wanted,) = evaluate(module.proto, module.weights, inputs)
    executable = inlay.build(module, inlay.config.cpu(backends=["native"]), server=client)
    with executable.jit(remote=True) as loaded:
        np.testing.assert_allclose(loaded["main"](*inputs), wanted, rtol=1e-4, atol=1e-5)
