"""onnxruntime's own quantised operators (domain com.microsoft), one by one and in models that its quantisers and its
optimiser write, against onnxruntime. Results may differ by one step of the quantisation where a value lies in the middle
of two, which few do."""

from __future__ import annotations

import pathlib

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from quantised_models import RandomInputs
from random_graphs import run_nodes

import inlay
from inlay import cpu
from inlay.errors import UnsupportedOperatorError
from inlay.models import bert, mobilenet, resnet

MICROSOFT = "com.microsoft"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
PRODUCTS = ("QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "DynamicQuantizeMatMul")
# Without VNNI onnxruntime adds two products of u8 by i8 in 16 bits, which saturate: weights have seven bits there.
SUMS_ARE_WHOLE = bool(cpu.features() & {"avx512vnni", "avxvnni"})
LARGEST_WEIGHT = 90 if SUMS_ARE_WHOLE else 63
EIGHT_BITS = pytest.mark.parametrize("dtype", [np.uint8, np.int8])


class Nodes:
    """A model of nodes that do not know of each other: one compilation for all."""

    def __init__(self, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.outputs: list[str] = []

    def values(self, shape, dtype) -> np.ndarray:
        """Of all values that integers have; normal floats."""
        if np.issubdtype(dtype, np.floating):
            return self.random.standard_normal(shape).astype(dtype)
        bounds = np.iinfo(dtype)
        return self.random.integers(bounds.min, bounds.max + 1, shape).astype(dtype)

    def given(self, value: np.ndarray) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = value
        return name

    def constant(self, value, dtype=np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def tensor(self, shape, dtype, scale: float, zero: int | None) -> list[str]:
        """An input of the model, its scale, and its zero point (None: absent)."""
        point = "" if zero is None else self.constant(zero, dtype)
        return [self.given(self.values(shape, dtype)), self.constant(scale), point]

    def result(self, dtype, scale: float, zero: int | None) -> list[str]:
        return [self.constant(scale), "" if zero is None else self.constant(zero, dtype)]

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> None:
        names = [f"y{len(self.outputs) + i}" for i in range(outputs)]
        self.outputs += names
        self.nodes.append(helper.make_node(op, inputs, names, domain=MICROSOFT, **attributes))

    def model(self, open_batch: bool = False) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(v.dtype), ["batch", *v.shape[1:]] if open_batch else v.shape
            )
            for name, v in self.inputs.items()
        ]
        constants = [onnx.numpy_helper.from_array(v, name) for name, v in self.constants.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "nodes", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)

    def check(self, client, open_batch: bool = False) -> None:
        model = self.model(open_batch)
        wanted = run_nodes(model, self.inputs)
        config = inlay.config.cpu(executor="vm" if open_batch else "graph")
        executable = inlay.build(inlay.from_onnx(model), config, server=client)
        with executable.jit(remote=True) as loaded:
            got = loaded["main"](**self.inputs)
        got = got if isinstance(got, list | tuple) else [got]
        for name, ours, theirs in zip(self.outputs, got, wanted, strict=True):
            by = next(n for n in self.nodes if name in n.output)
            check_close(np.asarray(ours), theirs, f"{name} of {by.op_type} {[self.shape(i) for i in by.input if i]}")

    def shape(self, name: str):
        return {**self.inputs, **self.constants}[name].shape


def check_close(got: np.ndarray, wanted: np.ndarray, what: str, atol: float = 1e-4) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), what
    if np.issubdtype(wanted.dtype, np.floating):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=atol, err_msg=what)
        return
    steps = np.abs(got.astype(int) - wanted.astype(int))
    assert steps.max(initial=0) <= 1, f"{what}: {steps.max()} steps"
    assert np.count_nonzero(steps) <= 0.01 * steps.size + 1, f"{what}: {np.count_nonzero(steps)} of {steps.size} differ"
    assert steps.size < 50 or len(np.unique(wanted)) > 3, f"{what}: nothing to compare"


@EIGHT_BITS
def test_arithmetic(client, dtype):
    n = Nodes()
    a, b, y = (3, -5, 7) if dtype == np.int8 else (130, 120, 127)
    for left, right in [
        ((1,), (1,)),
        ((13,), ()),
        ((2, 3, 17, 5), (3, 1, 1)),
        ((7, 1, 31), (1, 5, 31)),
        ((64, 65),) * 2,
    ]:
        for op, scale in (("QLinearAdd", 0.031), ("QLinearMul", 0.11)):
            n.node(op, *n.tensor(left, dtype, 0.021, a), *n.tensor(right, dtype, 0.017, b), *n.result(dtype, scale, y))
    n.node("QLinearAdd", *n.tensor((5, 17), dtype, 0.02, a), *n.tensor((17,), dtype, 0.03, b), n.constant(0.07))
    n.check(client)


@EIGHT_BITS
def test_activations(client, dtype):
    n = Nodes(1)
    zero = 3 if dtype == np.int8 else 131
    for shape in [(1,), (3, 17, 5), (1024,)]:
        x = n.tensor(shape, dtype, 0.04, zero)
        n.node("QLinearSigmoid", *x, *n.result(dtype, 1 / 256, -128 if dtype == np.int8 else 0))
        n.node("QLinearSigmoid", x[0], x[1], "", *n.result(dtype, 0.01, None))
        n.node("QLinearLeakyRelu", *x, *n.result(dtype, 0.023, zero), alpha=0.3)
        n.node("QLinearLeakyRelu", *x, *n.result(dtype, 0.051, None))
    n.check(client)


@EIGHT_BITS
def test_softmax(client, dtype):
    n = Nodes(2)
    least = -128 if dtype == np.int8 else 0
    for shape, attributes in [  # rows of one element overflow in onnxruntime
        ((1, 2), {"opset": 13}), ((2, 3, 7), {"opset": 13}), ((5, 129), {"opset": 17, "axis": 1}),
        ((2, 7, 3, 5), {"opset": 13, "axis": -3}), ((3, 4, 5), {"opset": 11}), ((3, 4, 5), {"opset": 12, "axis": 2}),
        ((3, 4, 5), {"opset": 12, "axis": 0}),
    ]:  # fmt: skip
        n.node("QLinearSoftmax", *n.tensor(shape, dtype, 0.03, 5), *n.result(dtype, 1 / 256, least), **attributes)
    n.check(client)


@EIGHT_BITS
@pytest.mark.parametrize("channels_last", [0, 1])
def test_pooling(client, dtype, channels_last):
    n = Nodes(3)
    zero = -7 if dtype == np.int8 else 120

    def image(*shape: int) -> list[str]:
        shape = (shape[0], *shape[2:], shape[1]) if channels_last else shape
        return n.tensor(shape, dtype, 0.0517, zero)

    for shape in [(1, 1, 1, 1), (2, 17, 7, 5), (1, 3, 13)]:
        n.node("QLinearGlobalAveragePool", *image(*shape), *n.result(dtype, 0.02, 3), channels_last=channels_last)
    for shape, attributes in [
        ((1, 5, 7, 9), {"kernel_shape": [2, 3]}),
        ((2, 3, 11, 13), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 3, 11, 13), {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "count_include_pad": 1}),
        ((1, 4, 10, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
        ((1, 4, 10, 9), {"kernel_shape": [3, 2], "strides": [2, 1], "auto_pad": "SAME_UPPER"}),
        ((1, 4, 17), {"kernel_shape": [5]}),
    ]:
        n.node(
            "QLinearAveragePool", *image(*shape), *n.result(dtype, 0.03, 1), channels_last=channels_last, **attributes
        )
    n.check(client)


@EIGHT_BITS
def test_moves(client, dtype):
    n = Nodes(4)
    y = n.result(dtype, 0.0437, 9)
    as_is = [n.given(n.values((2, 3, 5), dtype)), *y]
    n.node(
        "QLinearConcat",
        *y,
        *as_is,
        *n.tensor((2, 1, 5), dtype, 0.0517, 7),
        *n.tensor((2, 7, 5), dtype, 0.02, 100),
        axis=1,
    )
    n.node("QLinearConcat", *y, *n.tensor((1,), dtype, 0.0517, 7), axis=-1)
    for shape, x_shape, y_shape in [((2, 3, 5),) * 3, ((5,), (2, 1, 5), (3, 1)), ((1,), (4, 4), (1,))]:
        where = n.given(n.random.integers(0, 2, shape).astype(bool))
        n.node("QLinearWhere", where, *n.tensor(x_shape, dtype, 0.0517, 7), *n.tensor(y_shape, dtype, 0.0437, 9), *y)
    n.check(client)


def test_mean_over_axes(client):
    """QLinearReduceMean, of which onnxruntime has the definition but no kernel."""
    n = Nodes(5)
    x = n.values((3, 5, 7), np.uint8)
    n.inputs["x"] = x
    scale, zero, y_scale, y_zero = (
        n.constant(0.0517),
        n.constant(7, np.uint8),
        n.constant(0.03),
        n.constant(9, np.uint8),
    )
    n.node("QLinearReduceMean", "x", scale, zero, y_scale, y_zero, axes=[0, -1], keepdims=0)
    n.node("QLinearReduceMean", "x", scale, zero, y_scale, y_zero, keepdims=1)
    executable = inlay.build(inlay.from_onnx(n.model()), inlay.config.cpu(), server=client)
    with executable.jit(remote=True) as loaded:
        got = loaded["main"](x)
    for ours, axes, keep in zip(got, [(0, 2), None], [False, True], strict=True):
        mean = (x.astype(np.float64) - 7).mean(axes, keepdims=keep)
        wanted = np.clip(np.rint(mean * np.float64(np.float32(0.0517)) / np.float32(0.03)) + 9, 0, 255).astype(np.uint8)
        np.testing.assert_array_equal(np.asarray(ours), wanted)


def weights(n: Nodes, shape, dtype, columns: bool, axis: int = -1) -> tuple[str, str, str]:
    """Integers, scales and zero points of one element or one an index of the axis."""
    extent = (shape[axis],) if columns else ()
    middle = 128 if dtype == np.uint8 else 0
    drawn = n.random.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT + 1, shape) + middle
    zero = n.random.integers(-5, 6, extent) + middle
    return n.constant(drawn, dtype), n.constant(n.random.uniform(0.01, 0.02, extent)), n.constant(zero, dtype)


@pytest.mark.parametrize("a_dtype, b_dtype", [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
def test_qgemm(client, a_dtype, b_dtype):
    n = Nodes(6)
    for m, k, columns in [(1, 1, 1), (7, 67, 33)]:
        for case in range(8):
            trans_a, trans_b, per_column = case & 1, case >> 1 & 1, bool(case >> 2)
            a = n.tensor((k, m) if trans_a else (m, k), a_dtype, 0.013, 11)
            b = weights(n, (columns, k) if trans_b else (k, columns), b_dtype, per_column, 0 if trans_b else 1)
            c_shape = [(columns,), (m, 1), (m, columns), (1, columns), (1,)][case % 5]
            c = n.constant(n.random.integers(-3000, 3000, c_shape), np.int32)
            attributes = {"transA": trans_a, "transB": trans_b, "alpha": 0.7 if case % 3 else 1.0}
            n.node("QGemm", *a, *b, c, *n.result(a_dtype, 0.17, 13), **attributes)
            n.node("QGemm", *a, *b, c if case % 2 else "", **attributes)
    n.check(client)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products_to_float(client, dtype):
    n = Nodes(7)
    for left, right in [((1, 1), (1, 1)), ((5, 31), (31, 17)), ((2, 3, 13, 32), (32, 64)), ((3, 4, 7), (3, 7, 5))]:
        for columns in (False, True) if len(right) == 2 else (False,):
            a, a_scale, a_zero = n.tensor(left, np.uint8, 0.02, 117)
            b, b_scale, b_zero = weights(n, right, dtype, columns)
            bias = n.constant(n.random.standard_normal(right[-1]))
            real = n.given(n.values(left, np.float32) + np.float32(n.random.choice([-3, 0, 3])))
            n.node("MatMulIntegerToFloat", a, b, a_scale, b_scale, a_zero, b_zero, bias)
            n.node("MatMulIntegerToFloat", a, b, a_scale, b_scale)
            n.node("DynamicQuantizeMatMul", real, b, b_scale, b_zero, bias)
            n.node("DynamicQuantizeMatMul", real, b, b_scale)
    n.node("DynamicQuantizeMatMul", n.given(np.zeros((2, 31), np.float32)), *weights(n, (31, 3), dtype, False))
    n.check(client)


@pytest.mark.parametrize(
    "dtype, w_dtype, w_zero",
    [(np.uint8, np.int8, 0), (np.int8, np.int8, 0), (np.uint8, np.uint8, 128), (np.uint8, np.uint8, 117)],
)
def test_convolution(client, dtype, w_dtype, w_zero):
    n = Nodes(8)
    for shape, w_shape, attributes in [
        ((1, 1, 1, 1), (1, 1, 1, 1), {}),
        ((2, 6, 7, 5), (4, 3, 3, 3), {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}),
        ((1, 8, 9, 9), (8, 1, 3, 3), {"group": 8, "pads": [1, 1, 1, 1]}),
        ((1, 17, 11, 13), (5, 17, 2, 3), {"strides": [1, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 3, 11, 13), (5, 3, 2, 3), {"dilations": [2, 1]}),
        ((2, 5, 4, 7), (3, 5, 1, 1), {}),
    ]:
        for channels_last in (0, 1):
            x = n.tensor((shape[0], *shape[2:], shape[1]) if channels_last else shape, dtype, 0.02, 5)
            w = n.constant(n.random.integers(-LARGEST_WEIGHT, LARGEST_WEIGHT + 1, w_shape) + w_zero, w_dtype)
            w_scale = n.constant(n.random.uniform(0.01, 0.02, w_shape[0]))
            bias = n.constant(n.random.integers(-3000, 3000, w_shape[0]), np.int32)
            args = [*x, w, w_scale, n.constant([w_zero] * w_shape[0], w_dtype), *n.result(dtype, 0.19, 3), bias]
            n.node("QLinearConv", *args, channels_last=channels_last, **attributes)
    n.check(client)


def test_quantize_and_dequantize(client):
    """Also of 16 and 4 bits, where these are constants: the IR has no such tensors but i16."""
    n = Nodes(9)
    x = n.given(n.values((3, 5, 7), np.float32))
    for dtype in (np.uint8, np.int8, np.int16):
        scales, zeros = n.constant(n.random.uniform(0.01, 0.03, 5)), n.constant(n.random.integers(0, 9, 5), dtype)
        n.node("QuantizeLinear", x, scales, zeros, axis=1)
        n.node("QuantizeLinear", x, n.constant(0.0173), n.constant(3, dtype))
        y = n.given(n.values((3, 5, 7), dtype))
        n.node("DequantizeLinear", y, scales, zeros, axis=-2)
        n.node("DequantizeLinear", y, n.constant(0.0173), n.constant(3, dtype))
        n.node("DequantizeLinear", y, n.constant(0.0173))
    for dtype in (np.uint16, ml_dtypes.int4, ml_dtypes.uint4):
        y = n.constant(n.random.integers(0, 8, (5, 300)), dtype)
        n.node("DequantizeLinear", y, n.constant(n.random.uniform(0.01, 0.03, 5)), n.constant([1] * 5, dtype), axis=0)
    n.node("QuantizeLinear", x, n.constant(0.0173))
    n.node("DequantizeLinear", n.given(n.values((7, 5), np.int32)), n.constant(0.0173))
    n.check(client)


def attention_inputs(n: Nodes, batch: int, length: int, width: int, heads: int, size: int, columns: bool = False):
    """Of QAttention, up to the weights' scale; and the zero points."""
    x, x_scale, x_zero = n.tensor((batch, length, width), np.uint8, 0.02, 117)
    w, w_scale, w_zero = weights(n, (width, 3 * heads * size), np.int8, columns)
    if columns:
        n.constants[w_zero][:] = 0  # onnxruntime reads the first of signed ones for all
    return [x, w, n.constant(n.random.standard_normal(3 * heads * size)), x_scale, w_scale], [x_zero, w_zero]


def test_attention_masks(client):
    n = Nodes(10)
    batch, length, width, heads, size = 2, 5, 12, 3, 4
    masks = {
        "": None,
        "lengths": [5, 2],
        "ends and begins": [5, 4, 1, 0],
        "tokens": n.random.integers(0, 2, (batch, length)) | [1, 0, 0, 0, 0],
        "pairs": n.random.integers(0, 2, (batch, length, length)) | np.eye(length, dtype=int),
        "none": np.zeros((batch, 1)),
    }
    for mask in masks.values():
        for attributes in ({}, {"unidirectional": 1}, {"scale": 0.3, "mask_filter_value": -3.5}):
            inputs, zeros = attention_inputs(n, batch, length, width, heads, size)
            given = "" if mask is None else n.given(np.asarray(mask, np.int32))
            n.node("QAttention", *inputs, given, *zeros, num_heads=heads, **attributes)
    n.check(client)


def test_attention_with_a_past(client):
    n = Nodes(11)
    for batch, length, past, heads, size in [(1, 1, 1, 1, 1), (1, 1, 17, 2, 8), (2, 3, 4, 5, 7)]:
        for unidirectional in (0, 1):
            inputs, zeros = attention_inputs(n, batch, length, 11, heads, size, columns=True)
            state = n.given(n.values((2, batch, heads, past, size), np.float32))
            mask = n.given(
                n.random.integers(0, 2, (batch, past + length)).astype(np.int32)
                if size > 7
                else np.ones((batch, past + length), np.int32)
            )
            attributes = {"num_heads": heads, "unidirectional": unidirectional}
            n.node("QAttention", *inputs, mask, *zeros, state, outputs=2, **attributes)
            n.node("QAttention", *inputs, "", *zeros, state, **attributes, outputs=2)
            n.node("QAttention", *inputs, "", *zeros, **attributes, outputs=2)
    n.check(client)


@EIGHT_BITS
def test_embeddings(client, dtype):
    n = Nodes(12)
    for batch, length, width in [(1, 1, 8), (3, 7, 33)]:
        ids, kinds, mask = (
            n.given(n.random.integers(0, most, (batch, length)).astype(np.int32)) for most in (40, 2, 2)
        )
        tables = [n.constant(n.values((rows, width), dtype), dtype) for rows in (40, 16, 2)]
        vectors = [n.constant(n.values(width, dtype), dtype) for _ in range(2)]
        scales = [n.constant(s) for s in (0.011, 0.017, 0.013, 0.02, 0.05)]
        zeros = [n.constant(z, dtype) for z in (1, 2, 3, 4, 5)]
        n.node(
            "QEmbedLayerNormalization", ids, kinds, *tables, *vectors, mask, *scales, *zeros, outputs=2, epsilon=1e-3
        )
        tables[2] = scales[2] = zeros[2] = ""
        n.node("QEmbedLayerNormalization", ids, "", *tables, *vectors, "", *scales, *zeros, outputs=2)
    n.check(client)


def test_open_batch(client):
    n = Nodes(13)
    zeros = n.result(np.uint8, 0.19, 3)
    for trans_b in (0, 1):
        b = weights(n, (5, 17) if trans_b else (17, 5), np.uint8, True, 0 if trans_b else 1)
        n.node("QGemm", *n.tensor((3, 17), np.uint8, 0.02, 7), *b, "", *zeros, transB=trans_b)
    n.node("DynamicQuantizeMatMul", n.given(n.values((3, 4, 7), np.float32)), *weights(n, (7, 5), np.int8, False))
    image = n.tensor((3, 4, 5, 7), np.uint8, 0.0517, 7)
    n.node("QLinearConv", *image, *weights(n, (6, 4, 3, 3), np.int8, False), *zeros, pads=[1, 1, 1, 1])
    n.node("QLinearAdd", *image, *image, *zeros)
    n.node("QLinearAveragePool", *image, *zeros, kernel_shape=[2, 3])
    n.node("QLinearGlobalAveragePool", *image, *zeros)
    n.node("QLinearConcat", *zeros, *image, *image, axis=1)
    n.node("QLinearSoftmax", *image, *n.result(np.uint8, 1 / 256, 0), opset=12, axis=2)
    inputs, points = attention_inputs(n, 3, 5, 8, 2, 4)
    for mask in ([5, 3, 1], np.tri(3, 5, 1)):
        n.node("QAttention", *inputs, n.given(np.asarray(mask, np.int32)), *points, num_heads=2, unidirectional=1)
    n.check(client, open_batch=True)


MODELS = {
    "resnet": lambda: resnet.build(resnet.TINY),
    "mobilenet": lambda: mobilenet.build(mobilenet.TINY),
    "bert": lambda: bert.build(bert.TINY, batch=2, length=13),
}


@pytest.fixture(scope="module", params=MODELS)
def prepared(request, tmp_path_factory) -> pathlib.Path:
    """A small real architecture with seeded weights, prepared for quantisation."""
    folder = tmp_path_factory.mktemp(request.param)
    onnx.save(MODELS[request.param](), folder / "plain.onnx")
    quant_pre_process(folder / "plain.onnx", folder / "prepared.onnx", skip_symbolic_shape=True)
    return folder / "prepared.onnx"


def static(source: pathlib.Path, target: pathlib.Path, activations: QuantType, weights_: QuantType, **options) -> None:
    inputs = RandomInputs(onnx.load(source))
    options.update(activation_type=activations, weight_type=weights_, reduce_range=not SUMS_ARE_WHOLE)
    quantize_static(source, target, inputs, **options)


def optimised(source: pathlib.Path, target: pathlib.Path) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    providers = ["CPUExecutionProvider"]
    onnxruntime.InferenceSession(str(source), options, providers)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["u8", "i8 per channel", "u8 weights", "optimised QDQ", "optimised dynamic"])
def test_model(client, prepared, tmp_path, form):
    path, before = tmp_path / "quantised.onnx", tmp_path / "before.onnx"
    operator = {"quant_format": QuantFormat.QOperator}
    if form == "u8":
        static(prepared, path, QuantType.QUInt8, QuantType.QInt8, **operator)
    elif form == "u8 weights":
        static(prepared, path, QuantType.QUInt8, QuantType.QUInt8, **operator)
    elif form == "i8 per channel":
        static(prepared, path, QuantType.QInt8, QuantType.QInt8, per_channel=True, **operator)
    elif form == "optimised QDQ":
        static(prepared, before, QuantType.QUInt8, QuantType.QInt8)
        optimised(before, path)
    else:
        quantize_dynamic(prepared, before, weight_type=QuantType.QInt8, reduce_range=not SUMS_ARE_WHOLE)
        optimised(before, path)
    model = onnx.load(path)
    kinds = {n.op_type for n in model.graph.node if n.domain == MICROSOFT}
    assert kinds & {"QGemm", "DynamicQuantizeMatMul"}
    module = inlay.from_onnx(model)
    products = sum(n.op_type.startswith(PRODUCTS) for n in model.graph.node)
    depthwise = str(module).count(" conv(")  # by weights of zero points that a run knows
    assert str(module).count("_integer(") + depthwise >= products
    assert form == "u8 weights" or "f64" not in str(module)
    inputs = RandomInputs(model).get_next()
    executable = inlay.build(module, inlay.config.cpu(), server=client)
    with executable.jit(remote=True) as loaded:
        got = np.asarray(loaded["main"](**inputs))
    (wanted,) = run_nodes(model, inputs)
    assert got.shape == wanted.shape
    apart, largest = np.abs(got - wanted), np.abs(wanted).max()
    assert wanted.std() > 0.1 * largest
    assert apart.max() < 0.03 * largest  # a step or two
    assert apart.mean() < 0.002 * largest


def test_refusals():
    def refused(why: str, op: str, *inputs: str, **attributes) -> None:
        n.node(op, *inputs, **attributes)
        with pytest.raises(UnsupportedOperatorError, match=why):
            inlay.from_onnx(n.model())
        n.nodes.pop()
        n.outputs.pop()

    n = Nodes()
    x, y = n.tensor((2, 3, 8), np.uint8, 0.1, 3), n.result(np.uint8, 0.1, 3)
    many = n.constant([0.1, 0.2, 0.3])
    refused(r"scale \(input 1\) of shape \[3\]; one element", "QLinearAdd", x[0], many, x[2], *x, *y)
    refused(
        r"zero point \(input 2\) of shape \[3\]; one", "QLinearSigmoid", *x[:2], n.constant([1, 2, 3], np.uint8), *y
    )
    refused("input 0 of f32; i8 and u8", "QLinearLeakyRelu", n.given(n.values((2, 3), np.float32)), *x[1:], *y)
    refused("quantisation to uint16|dtype that the IR lacks", "QuantizeLinear", many, y[0], n.constant(1, np.uint16))
    refused("quantised anew by each step", "DynamicQuantizeLSTM", many)
    refused("no converter for this operator of onnxruntime", "QMoE", many)
    a, b = n.tensor((2, 8), np.uint8, 0.1, 3), weights(n, (8, 4), np.int8, True)
    refused("input 7.*input 8.*alone; both or none", "QGemm", *a, *b, "", y[0])
    refused("scale for each row", "MatMulIntegerToFloat", a[0], b[0], n.constant([0.1, 0.2]), b[1])
    inputs, zeros = attention_inputs(n, 2, 3, 8, 2, 4)
    mask = n.constant(np.ones((2, 1, 5, 5)), np.int32)
    refused(r"mask_index.*\[2, 1, 5, 5\]; \[batch\]", "QAttention", *inputs, mask, *zeros, num_heads=2)
    refused("do_rotary=1; 0 is supported", "QAttention", *inputs, "", *zeros, num_heads=2, do_rotary=1)
