"""Evaluates nodes whose inputs are all known, with onnx's own reference implementation (NumPy)."""

from __future__ import annotations

import contextlib
import io
import math
import warnings

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from inlay.onnx_import.value import Unsupported, Value

LIMIT = 1 << 26  # elements: beyond it a node is compiled, not folded

# Their meaning is not a function of their inputs, or they hold graphs (handled by control.py).
_NEVER = {
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli",
    "If", "Loop", "Scan", "SequenceMap",
}  # fmt: skip

# What the reference implementation itself gets wrong: windows and pools that are not of two axes or not padded alike,
# grouped transposed convolutions, the type of a sum of int32, logarithms of what is small.
_WRONG = {"ConvTranspose", "GlobalMaxPool", "LogSoftmax", "MaxPool", "QLinearConv", "ReduceSumSquare"}


def foldable(node: onnx.NodeProto) -> bool:
    if node.op_type in _NEVER | _WRONG or node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Dropout" and len(node.input) > 2:
        return False
    return not any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute)


def too_big(node: onnx.NodeProto, arrays: list[np.ndarray | None]) -> bool:
    """Whether the result of a node that can grow its input would exceed LIMIT elements."""
    try:
        if node.op_type in ("ConstantOfShape", "Expand", "Tile") and arrays:
            factor = math.prod(int(v) for v in np.asarray(arrays[-1]).reshape(-1))
            base = 1 if node.op_type != "Tile" or arrays[0] is None else int(arrays[0].size)
            return factor * base > LIMIT
        if node.op_type == "Range":
            start, limit, delta = (float(np.asarray(a).reshape(-1)[0]) for a in arrays)  # type: ignore[arg-type]
            return delta != 0 and (limit - start) / delta > LIMIT
    except (ValueError, IndexError, TypeError):
        return True
    return sum(int(np.size(a)) for a in arrays if a is not None) > LIMIT


def evaluate(node: onnx.NodeProto, arrays: list[np.ndarray | None], opset: int) -> list[np.ndarray]:
    """The outputs, in order. Raises ValueError where the reference implementation does not take the node."""
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    bare.input[:] = [f"i{i}" if array is not None else "" for i, array in enumerate(arrays)]
    bare.output[:] = [f"o{i}" if name else "" for i, name in enumerate(node.output)]
    infos = [
        onnx.helper.make_tensor_value_info(f"i{i}", onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for i, array in enumerate(arrays)
        if array is not None
    ]
    names = [name for name in bare.output if name]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    graph = onnx.helper.make_graph([bare], "fold", infos, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {f"i{i}": np.array(array) for i, array in enumerate(arrays) if array is not None}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # noqa: BLE001 - the reference raises anything; whatever it is, this node is not folded
        raise ValueError(f"cannot be evaluated: {error}") from None
    made = dict(zip(names, results))
    return [np.asarray(made[name]) if name else np.empty(0) for name in bare.output]


def evaluate_values(node: onnx.NodeProto, inputs: list[Value | None], opset: int) -> list[np.ndarray]:
    """The same of compile-time values. Raises Unsupported."""
    try:
        return evaluate(node, [None if v is None else v.array for v in inputs], opset)
    except ValueError as error:
        raise Unsupported(str(error)) from None
