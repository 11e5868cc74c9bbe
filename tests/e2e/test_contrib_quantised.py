"""onnxruntime's own quantised operators (domain com.microsoft), one by one and in models that its quantisers and its
optimiser write, against onnxruntime. Results may differ by one step of the quantisation where a value lies in the middle
of two, which few do."""

from __future__ import annotations

import logging
import pathlib

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
from inlay.errors import UnsupportedOperatorError
from inlay.models import bert, mobilenet, resnet

MICROSOFT = "com.microsoft"
OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
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

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for name, v in self.inputs.items()
        ]
        constants = [onnx.numpy_helper.from_array(v, name) for name, v in self.constants.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "nodes", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=OPSETS, ir_version=10)

    def check(self, client) -> None:
        model = self.model()
        wanted = run_nodes(model, self.inputs)
        executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(), server=client)
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
    for left, right in [((1,), (1,)), ((13,), ()), ((2, 3, 17, 5), (3, 1, 1)), ((7, 1, 31), (1, 5, 31)), ((64, 65),) * 2]:
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
    for shape, attributes in [
        ((1, 1), {"opset": 13}), ((2, 3, 7), {"opset": 13}), ((5, 129), {"opset": 17, "axis": 1}),
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
    n.node("QLinearConcat", *y, *as_is, *n.tensor((2, 1, 5), dtype, 0.0517, 7), *n.tensor((2, 7, 5), dtype, 0.02, 100), axis=1)
    n.node("QLinearConcat", *y, *n.tensor((1,), dtype, 0.0517, 7), axis=-1)
    for shape, x_shape, y_shape in [((2, 3, 5),) * 3, ((5,), (2, 1, 5), (3, 1)), ((1,), (4, 4), (1,))]:
        where = n.given(n.random.integers(0, 2, shape).astype(bool))
        n.node("QLinearWhere", where, *n.tensor(x_shape, dtype, 0.0517, 7), *n.tensor(y_shape, dtype, 0.0437, 9), *y)
    n.check(client)
