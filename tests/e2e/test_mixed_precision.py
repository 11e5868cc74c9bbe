"""mixed_precision="bf16": f32 models whose products are computed of that, against onnxruntime in f32."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.passes import Instrument, PassContext
from inlay.runtime import as_numpy

TARGETS = ["llvm -mcpu=native", "llvm -mcpu=x86-64-v3"]


def network(batch: int | str) -> onnx.ModelProto:
    """Convolutions with a residual, depthwise and strided ones, a pool, a linear layer, softmax."""
    random = np.random.default_rng(3)
    weights = {}

    def weight(name: str, *shape: int) -> str:
        weights[name] = (random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        return name

    def conv(x: str, y: str, filters: int, channels: int, kernel: int, stride: int = 1, groups: int = 1):
        inputs = [x, weight(f"{y}.w", filters, channels // groups, kernel, kernel), weight(f"{y}.b", filters, 1)]
        weights[f"{y}.b"] = weights[f"{y}.b"].reshape(filters)
        pads = [kernel // 2] * 4
        return helper.make_node("Conv", inputs, [y], strides=[stride] * 2, pads=pads, group=groups)

    nodes = [
        conv("x", "c0", 32, 3, 7, 2), helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("MaxPool", ["r0"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
        conv("p", "c1", 64, 32, 1), helper.make_node("Relu", ["c1"], ["r1"]),
        conv("r1", "c2", 64, 64, 3, groups=64), helper.make_node("Relu", ["c2"], ["r2"]),
        conv("r2", "c3", 32, 64, 3), helper.make_node("Add", ["c3", "p"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["g"]), helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", weight("fc", 10, 32), weight("bias", 1, 10)], ["l"], transB=1),
        helper.make_node("Softmax", ["l"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, 33, 40])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 10])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs(model: onnx.ModelProto, x: np.ndarray, target: str, **options) -> np.ndarray:
    config = inlay.config.CompilationConfig(targets=[target], num_threads=1, **options)
    result = inlay.build(inlay.from_onnx(model), config).jit()["main"](x)
    return as_numpy(result[0] if isinstance(result, (tuple, list)) else result)


class Products(Instrument):
    """The dtypes of products after the last pass."""

    def run_after_pass(self, info):
        lines = [line.split("=")[0] for line in info.ir.splitlines() if "= conv(" in line or "= matmul(" in line]
        self.dtypes = {line.split(":")[1].split("[")[0].strip() for line in lines}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("batch", [1, 3])
def test_agrees_to_eight_bits(target, batch):
    model = network(batch)
    x = np.random.default_rng(4).standard_normal((batch, 3, 33, 40)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    products = Products()
    with PassContext(instruments=[products]):
        rounded = outputs(model, x, target, mixed_precision="bf16")
    assert products.dtypes == {"bf16"}
    exact = outputs(model, x, target)
    np.testing.assert_allclose(exact, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rounded, expected, rtol=0.03, atol=1e-3)
    assert rounded.dtype == np.float32
    assert not np.array_equal(rounded, exact)


def test_open_batches():
    model = network("n")
    config = inlay.config.CompilationConfig(targets=TARGETS[:1], num_threads=1, executor="vm", mixed_precision="bf16")
    main = inlay.build(inlay.from_onnx(model), config).jit()["main"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in 1, 2, 5:
        x = np.random.default_rng(batch).standard_normal((batch, 3, 33, 40)).astype(np.float32)
        result = main(x)
        result = as_numpy(result[0] if isinstance(result, (tuple, list)) else result)
        np.testing.assert_allclose(result, session.run(None, {"x": x})[0], rtol=0.03, atol=1e-3)


def test_other_precisions_are_refused():
    with pytest.raises(ValueError, match="mixed_precision 'fp8' is not one of bf16"):
        inlay.config.cpu(mixed_precision="fp8")
