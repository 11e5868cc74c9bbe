"""The ONNX Backend API with the reference evaluator, on a sample of onnx's own cases (all of them where slow)."""

import numpy as np
import onnx
import onnx_backend_report as suite
import pytest
from onnx import TensorProto, helper

import inlay.onnx_backend as backend
from inlay import UnsupportedOperatorError


def _model(nodes, inputs, outputs):
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


RESHAPE = _model(
    [helper.make_node("Reshape", ["x", "s"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
    {"x": (TensorProto.FLOAT, [2, 6]), "s": (TensorProto.INT64, [2])},
    ["z"],
)


def test_prepare_and_run_specialises_to_values_that_decide_shapes():
    rep = backend.prepare(RESHAPE, executor=suite.evaluator_executor)
    x = np.arange(12, dtype=np.float32).reshape(2, 6) - 5
    for target in ([3, 4], [12, 1], [3, 4]):
        (z,) = rep.run([x, np.array(target)])
        np.testing.assert_array_equal(z, np.maximum(x, 0).reshape(target))
    assert rep.specialized == ("s",)
    assert rep.run({"x": x, "s": np.array([4, 3])}).z.shape == (4, 3)


def test_unsupported_models_are_refused_by_prepare():
    model = _model([helper.make_node("NonZero", ["x"], ["y"])], {"x": (TensorProto.FLOAT, [2])}, ["y"])
    assert not backend.is_compatible(model)
    with pytest.raises(UnsupportedOperatorError, match="depends on data"):
        backend.prepare(model)
    assert backend.is_compatible(RESHAPE)
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")


def test_symbolic_extents_follow_the_inputs():
    model = _model([helper.make_node("Relu", ["x"], ["y"])], {"x": (TensorProto.FLOAT, ["n", 2])}, ["y"])
    rep = backend.prepare(model, executor=suite.evaluator_executor)
    assert rep.run([np.ones((3, 2), np.float32)]).y.shape == (3, 2)
    assert rep.run([np.ones((5, 2), np.float32)]).y.shape == (5, 2)


def test_wrong_numbers_of_inputs_are_named():
    rep = backend.prepare(RESHAPE, executor=suite.evaluator_executor)
    with pytest.raises(ValueError, match=r"1 inputs, the model has 2: \['x', 's'\]"):
        rep.run([np.zeros((2, 6), np.float32)])


def _run(cases):
    results = {"passed": [], "refused": [], "wrong": [], "crashed": []}
    for _, name, model, data_sets, rtol, atol in cases:
        status, detail, _ = suite.run_case(model, data_sets, rtol, atol, suite.evaluator_executor)
        results[status].append((name, detail))
    return results


@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_onnx_own_cases():
    every = list(suite.load_cases(["node", "simple", "pytorch-operator"]))
    results = _run(every[::6])
    assert not results["crashed"]
    assert not results["wrong"]
    assert len(results["passed"]) > 0.78 * len(every[::6])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_all_of_onnx_own_cases():
    results = _run(suite.load_cases(suite.KINDS))
    assert not results["crashed"]
    assert not results["wrong"]
    assert sum(len(r) for r in results.values()) >= 2033
    assert len(results["passed"]) >= 1690


@pytest.mark.slow
def test_benchmark_models_agree_with_onnxruntime():
    import models

    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    for name in models.model_names():
        path = models.build_model(name)
        feeds = models.sample_inputs(path)
        wanted = onnxruntime.InferenceSession(str(path)).run(None, feeds)
        rep = backend.prepare(onnx.load(str(path)), executor=suite.evaluator_executor)
        got = rep.run(feeds)
        for a, b in zip(got, wanted):
            assert np.std(b) > 1e-3, name
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4, err_msg=name)
