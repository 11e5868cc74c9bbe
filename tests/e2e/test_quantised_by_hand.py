"""Chains that look like QuantizeLinear and DequantizeLinear, and are not quite: what the server makes of those must not
be made of these."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from random_graphs import run_nodes
from random_graphs.builder import make_model

import inlay
from inlay.runtime import as_numpy

BYTES = np.random.default_rng(0).permutation(np.repeat(np.arange(256, dtype=np.uint8), 2)).reshape(1, 8, 8, 8)
MOVERS = {
    "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "Transpose": {"perm": [0, 2, 3, 1]},
}
node = helper.make_node


def check(client, nodes, x, weights) -> None:
    weights = {name: np.asarray(value) for name, value in weights.items()}
    model = make_model(nodes, {"x": x}, {}, weights)
    model.graph.output.append(helper.make_empty_tensor_value_info("y"))
    (wanted,) = run_nodes(model, {"x": x})
    module = inlay.from_onnx(make_model(nodes, {"x": x}, {"y": wanted}, weights))
    executable = inlay.build(module, inlay.config.cpu(search="analytic"), server=client)
    np.testing.assert_array_equal(as_numpy(executable.jit()["main"](x)), wanted)


@pytest.mark.parametrize("mover", MOVERS)
@pytest.mark.parametrize(
    ("source", "wide", "zero"),
    [
        ("uint8", np.int32, 3),
        ("int8", np.int16, -3),
        ("uint8", np.int64, 3),
        ("uint8", np.float32, 0.5),
        ("uint8", np.uint8, 3),  # wraps
        ("int8", np.int8, 3),
        ("uint8", np.int8, 0),  # another number
        ("int8", np.uint8, 0),
        ("uint8", np.bool_, None),
        ("uint8", np.int16, -32700),  # wraps
        ("uint8", np.int64, 2**33),  # no i32
        ("uint8", np.float64, 0.3),
    ],
)
def test_dequantised_by_hand(client, source, wide, zero, mover):
    """(x - zero) * scale, the difference in another type than i32."""
    nodes = [
        node("Cast", ["x"], ["wide"], to=helper.np_dtype_to_tensor_dtype(np.dtype(wide))),
        *([] if zero is None else [node("Sub", ["wide", "zero"], ["difference"])]),
        node("Cast", ["wide" if zero is None else "difference"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["floats", "scale"], ["real"]),
        node(mover, ["real"], ["y"], **MOVERS[mover]),
    ]
    check(client, nodes, BYTES.view(source), {"scale": np.float32(0.1), "zero": np.array(zero or 0, wide)})


def test_integers_have_one_zero(client):
    x = np.linspace(-2, 2, 64, dtype=np.float32)
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["real"]),
        node("Div", ["one", "real"], ["y"]),
    ]
    check(client, nodes, x, {"scale": np.float32(0.7), "zero": np.int8(0), "one": np.float32(1)})
