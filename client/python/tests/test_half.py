"""float16 graphs keep f32 between operators, and round where the graph says so."""

import numpy as np
import onnx
from onnx import TensorProto, helper

import inlay


def _ops(nodes, inputs, initializers=()):
    half = TensorProto.FLOAT16
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, half, s) for n, s in inputs],
        [helper.make_tensor_value_info("y", half, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in initializers],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    body = inlay.from_onnx(model).proto.functions["main"].body
    return [b.call.op for b in body.bindings]


def test_a_chain_is_widened_once_and_rounded_once():
    nodes = [
        helper.make_node("MatMul", ["a", "b"], ["t"]),
        helper.make_node("Softmax", ["t"], ["u"]),
        helper.make_node("Transpose", ["u"], ["v"], perm=[1, 0]),
        helper.make_node("MatMul", ["v", "b"], ["y"]),
    ]
    ops = _ops(nodes, [("a", [4, 4]), ("b", [4, 4])])
    assert ops == ["cast", "cast", "matmul", "softmax", "transpose", "matmul", "cast"]


def test_the_graph_s_own_cast_rounds():
    nodes = [
        helper.make_node("Exp", ["a"], ["t"]),
        helper.make_node("Cast", ["t"], ["u"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["u"], ["v"], to=TensorProto.FLOAT16),
        helper.make_node("Exp", ["v"], ["y"]),
    ]
    # t is rounded before it is cast: whoever looks at it as a float must see a float16's value.
    assert _ops(nodes, [("a", [4])]) == ["cast", "exp", "cast", "cast", "cast", "cast", "exp", "cast"]


def test_weights_stay_narrow():
    weight = np.ones((4, 4), np.float16)
    ops = _ops([helper.make_node("MatMul", ["a", "w"], ["y"])], [("a", [4, 4])], [("w", weight)])
    assert ops == ["matmul"]


def test_what_a_product_with_weights_has_rounded_is_so_for_those_behind_it():
    weight = np.ones((4, 4), np.float16)
    nodes = [
        helper.make_node("Exp", ["a"], ["t"]),
        helper.make_node("MatMul", ["t", "w"], ["u"]),
        helper.make_node("Add", ["u", "t"], ["y"]),
    ]
    # t is widened again for the sum: it does not lie in memory as both.
    ops = _ops(nodes, [("a", [4, 4])], [("w", weight)])
    assert ops == ["cast", "exp", "cast", "matmul", "cast", "cast", "add", "cast"]
