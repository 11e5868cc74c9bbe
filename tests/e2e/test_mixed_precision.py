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


class Weights:
    def __init__(self):
        self._random = np.random.default_rng(3)
        self.arrays: dict[str, np.ndarray] = {}

    def weight(self, name: str, *shape: int) -> str:
        values = self._random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        self.arrays[name] = values.astype(np.float32)
        return name

    def conv(self, x: str, y: str, filters: int, channels: int, kernel: int, stride: int = 1, groups: int = 1):
        weight = self.weight(f"{y}.w", filters, channels // groups, kernel, kernel)
        bias = self.weight(f"{y}.b", filters)
        options = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups}
        return helper.make_node("Conv", [x, weight, bias], [y], **options)

    def model(self, nodes: list, x: list, y: list) -> onnx.ModelProto:
        graph = helper.make_graph(
            nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
            [numpy_helper.from_array(v, k) for k, v in self.arrays.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def network(batch: int | str) -> onnx.ModelProto:
    """Convolutions with a residual, depthwise and strided ones, a pool, a linear layer, softmax."""
    w = Weights()
    conv, weight = w.conv, w.weight
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
    return w.model(nodes, [batch, 3, 33, 40], [batch, 10])


def pyramid() -> onnx.ModelProto:
    """Residuals in front of norms, images resized, padded and cut between convolutions, two that meet."""
    w = Weights()
    w.arrays |= {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "begins": np.array([8]), "ends": np.array([40])}
    w.arrays |= {"axes": np.array([1]), "twice": np.array([1, 1, 2, 2], np.float32)}
    nodes = [
        w.conv("x", "c0", 32, 3, 3), helper.make_node("Relu", ["c0"], ["r0"]),
        w.conv("r0", "c1", 32, 32, 3), helper.make_node("Add", ["c0", "c1"], ["s0"]),
        helper.make_node("Relu", ["s0"], ["r1"]), w.conv("r1", "c2", 32, 32, 1),
        helper.make_node("Add", ["c2", "s0"], ["s1"]), w.conv("s1", "c3", 24, 32, 3, 2),
        helper.make_node("Resize", ["c3", "", "twice"], ["u0"], mode="linear"), w.conv("u0", "c4", 24, 24, 1),
        helper.make_node("Resize", ["c3", "", "twice"], ["u1"], mode="nearest", coordinate_transformation_mode="asymmetric",
                         nearest_mode="floor"),
        w.conv("u1", "c5", 24, 24, 1), helper.make_node("Add", ["c4", "c5"], ["m"]),
        helper.make_node("Concat", ["m", "s1"], ["all"], axis=1),
        helper.make_node("Slice", ["all", "begins", "ends", "axes"], ["some"]),
        helper.make_node("Pad", ["some", "pads"], ["padded"]), w.conv("padded", "y", 16, 32, 3),
    ]  # fmt: skip
    return w.model(nodes, [2, 3, 26, 28], [2, 16, 28, 30])


def attention() -> onnx.ModelProto:
    """Its two products are of bf16 as well; positions times frequencies are not."""
    w = Weights()
    w.arrays |= {"heads": np.array([1, 40, 4, 24]), "rows": np.array([40, 96]), "scale": np.array(0.2, np.float32)}
    nodes = []
    for name in "qkv":
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", w.weight(f"{name}.w", 96, 96)], [name]),
            helper.make_node("Reshape", [name, "heads"], [f"{name}.split"]),
            helper.make_node("Transpose", [f"{name}.split"], [f"{name}.heads"], perm=perm),
        ]
    nodes += [
        helper.make_node("MatMul", ["q.heads", "k.heads"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["weights"]),
        helper.make_node("MatMul", ["weights", "v.heads"], ["context"]),
        helper.make_node("Transpose", ["context"], ["turned"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "rows"], ["joined"]),
        helper.make_node("MatMul", ["joined", w.weight("out", 96, 96)], ["y"]),
    ]
    return w.model(nodes, [40, 96], [40, 96])


def outputs(model: onnx.ModelProto, x: np.ndarray, target: str, **options) -> np.ndarray:
    config = inlay.config.CompilationConfig(targets=[target], num_threads=1, **options)
    result = inlay.build(inlay.from_onnx(model), config).jit()["main"](x)
    return as_numpy(result[0] if isinstance(result, (tuple, list)) else result)


class Products(Instrument):
    """The dtypes of products after the last pass."""

    def run_after_pass(self, info):
        lines = [line.split("=")[0] for line in info.ir.splitlines() if "= conv(" in line or "= matmul(" in line]
        self.dtypes = {line.split(":")[1].split("[")[0].strip() for line in lines}


def expected_and_rounded(model: onnx.ModelProto, x: np.ndarray, target: str) -> tuple[np.ndarray, np.ndarray]:
    """onnxruntime's, and by mixed precision, all of whose products are of bf16."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": x})
    products = Products()
    with PassContext(instruments=[products]):
        rounded = outputs(model, x, target, mixed_precision="bf16")
    assert products.dtypes == {"bf16"}
    return expected, rounded


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("batch", [1, 3])
def test_agrees_to_eight_bits(target, batch):
    model = network(batch)
    x = np.random.default_rng(4).standard_normal((batch, 3, 33, 40)).astype(np.float32)
    expected, rounded = expected_and_rounded(model, x, target)
    exact = outputs(model, x, target)
    np.testing.assert_allclose(exact, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rounded, expected, rtol=0.03, atol=1e-3)
    assert rounded.dtype == np.float32
    assert not np.array_equal(rounded, exact)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [pyramid, attention])
def test_what_is_between_products(target, make):
    model = make()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    expected, rounded = expected_and_rounded(model, x, target)
    np.testing.assert_allclose(rounded, expected, rtol=0.03, atol=0.02 * np.abs(expected).max())
    np.testing.assert_allclose(outputs(model, x, target), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


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
