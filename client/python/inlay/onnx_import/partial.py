"""Arithmetic on lists of extents of which some are symbolic (the sub-graphs Shape -> Gather -> Mul -> Concat -> Reshape)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from inlay.ir import dims
from inlay.onnx_import.value import MANY_ELEMENTS, Value, constant_value, extents_value


def _arrays(inputs: list[Value | None]) -> list[np.ndarray | None]:
    result: list[np.ndarray | None] = []
    for value in inputs:
        if value is None:
            result.append(None)
        elif value.constant:
            result.append(value.array)
        else:
            result.append(value.extents)
    return result


def _elementwise(function: Callable) -> Callable:
    ufunc = np.frompyfunc(lambda a, b: function(_dim(a), _dim(b)), 2, 1)
    return lambda node, a: np.asarray(ufunc(a[0].astype(object), a[1].astype(object)), dtype=object)


def _mod(node: onnx.NodeProto, a: list) -> np.ndarray:
    if _attr(node, "fmod", 0):
        raise ValueError("the sign is the dividend's")
    return _elementwise(dims.mod)(node, a)


def _dim(value) -> dims.Dim:
    return value if isinstance(value, str) else int(value)


def _attr(node: onnx.NodeProto, name: str, default):
    for attr in node.attribute:
        if attr.name == name:
            return onnx.helper.get_attribute_value(attr)
    return default


def _slice(node: onnx.NodeProto, a: list) -> np.ndarray:
    if len(a) == 1:  # opset < 10
        starts, ends = _attr(node, "starts", []), _attr(node, "ends", [])
        axes, steps = _attr(node, "axes", list(range(len(starts)))), [1] * len(starts)
    else:
        starts, ends = (_ints(v) for v in a[1:3])
        axes = _ints(a[3]) if len(a) > 3 and a[3] is not None else list(range(len(starts)))
        steps = _ints(a[4]) if len(a) > 4 and a[4] is not None else [1] * len(starts)
    where = [slice(None)] * a[0].ndim
    for axis, start, end, step in zip(axes, starts, ends, steps):
        # Whoever counts down to before the first element writes a very small number.
        where[axis] = slice(start, None if step < 0 and end < -MANY_ELEMENTS else end, step)
    return a[0][tuple(where)]


def _ints(array: np.ndarray) -> list[int]:
    return [int(v) for v in array.reshape(-1)]  # raises ValueError on a symbol


def _squeeze(node: onnx.NodeProto, a: list) -> np.ndarray:
    return a[0].reshape(()) if a[0].size == 1 else a[0]


def _unsqueeze(node: onnx.NodeProto, a: list) -> np.ndarray:
    axes = _attr(node, "axes", None) or _ints(a[1])
    if len(axes) != 1 or a[0].ndim != 0:
        raise ValueError("not a list")
    return a[0].reshape(1)


def _reshape(node: onnx.NodeProto, a: list) -> np.ndarray:
    return a[0].reshape([int(v) for v in a[1]])


def _gather(node: onnx.NodeProto, a: list) -> np.ndarray:
    if a[0].ndim != 1:
        raise ValueError("not a list")
    return np.asarray(np.take(a[0], a[1].astype(np.int64)), dtype=object)


def _prod(node: onnx.NodeProto, a: list) -> np.ndarray:
    total = dims.product([_dim(v) for v in a[0].reshape(-1)])
    return np.asarray([total] if _attr(node, "keepdims", 1) else total, dtype=object)


def _same(a: dims.Dim, b: dims.Dim) -> bool:
    """Raises ValueError where only a run knows. What an extent is called stands for 0 or more, so for no negative number."""
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return a == b
    if any(isinstance(d, int) and d < 0 for d in (a, b)):
        return False
    raise ValueError("only a run knows")


def _equal(node: onnx.NodeProto, a: list) -> np.ndarray:
    ufunc = np.frompyfunc(lambda x, y: _same(_dim(x), _dim(y)), 2, 1)
    return np.asarray(ufunc(a[0].astype(object), a[1].astype(object)), dtype=bool)


def _where(node: onnx.NodeProto, a: list) -> np.ndarray:
    return np.where(a[0], a[1].astype(object), a[2].astype(object))


_RULES: dict[str, Callable] = {
    "Add": _elementwise(dims.add),
    "Sub": _elementwise(dims.sub),
    "Mul": _elementwise(dims.mul),
    "Div": _elementwise(dims.floordiv),
    "Mod": _mod,
    "Cast": lambda node, a: a[0],
    "Identity": lambda node, a: a[0],
    "Concat": lambda node, a: np.concatenate([v.astype(object) for v in a]),
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Transpose": lambda node, a: np.transpose(a[0], _attr(node, "perm", None)),
    "Gather": _gather,
    "Equal": _equal,
    "Where": _where,
    "ReduceProd": _prod,
}


# What an extent as a float goes through: what divides it would leave a rest.
_OF_FLOATS = {"Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape", "Gather"}
_CASTS = {onnx.TensorProto.INT64: "i64", onnx.TensorProto.INT32: "i32", onnx.TensorProto.FLOAT: "f32"}


def propagate(node: onnx.NodeProto, inputs: list[Value | None]) -> Value | None:
    """The output where every input lists extents or is constant and a rule covers the node; else None."""
    if node.op_type not in _RULES or not any(v is not None and v.extents is not None for v in inputs):
        return None
    if any(v is not None and not v.constant and v.extents is None for v in inputs):
        return None
    dtype = next(v.dtype for v in inputs if v is not None and v.extents is not None)
    if node.op_type not in _OF_FLOATS and any(v is not None and v.type is not None and v.is_float for v in inputs):
        return None
    if node.op_type == "Cast":
        to = _attr(node, "to", 0)
        if to not in _CASTS:
            return None
        dtype = _CASTS[to]
    try:
        made = _RULES[node.op_type](node, _arrays(inputs))
    except (ValueError, TypeError, IndexError):
        return None
    return constant_value(node.output[0], made) if made.dtype == bool else extents_value(node.output[0], made, dtype)
