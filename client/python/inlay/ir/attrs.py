"""Attribute values between Python and proto/ir.proto."""

from __future__ import annotations

from typing import Any

import numpy as np

from inlay._proto import ir_pb2
from inlay.ir.types import dtype_name, proto_dtype

_INT64 = range(-(2**63), 2**63)


def encode_attr(value: Any, kind: str | None = None) -> ir_pb2.AttrValue:
    """An AttrValue. kind: "int", "ints", "float", "floats", "number", "string", "strings", "bool", "dtype", or None
    (by the Python type; an empty list is then a list of ints). Raises ValueError or TypeError."""
    attr = ir_pb2.AttrValue()
    kind = kind or _kind_of(value)
    if kind == "number":  # an int stays one, so that large i64 values survive
        kind = "float" if isinstance(value, (float, np.floating)) else "int"
    if kind == "int":
        attr.i = _int(value)
    elif kind == "float":
        attr.f = float(value)
    elif kind == "string":
        attr.s = value
    elif kind == "bool":
        attr.b = bool(value)
    elif kind == "dtype":
        attr.dtype = proto_dtype(dtype_name(value))  # type: ignore[assignment]
    elif kind == "ints":
        attr.ints.SetInParent()
        attr.ints.v.extend(_int(v) for v in value)
    elif kind == "floats":
        attr.floats.SetInParent()
        attr.floats.v.extend(float(v) for v in value)
    elif kind == "strings":
        attr.strings.SetInParent()
        attr.strings.v.extend(value)
    else:
        raise ValueError(f"attribute kind {kind!r}")
    return attr


def decode_attr(attr: ir_pb2.AttrValue) -> Any:
    """The Python value; a dtype comes back as its name, a tensor as the Literal message."""
    kind = attr.WhichOneof("kind")
    if kind is None:
        raise ValueError("an attribute without a value")
    if kind in ("ints", "floats", "strings"):
        return list(getattr(attr, kind).v)
    if kind == "dtype":
        return dtype_name(attr.dtype)
    return getattr(attr, kind)


def _int(value: Any) -> int:
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"{value!r} is not an integer")
    number = int(value)
    if number not in _INT64:
        raise ValueError(f"{number} does not fit into 64 bits")
    return number


def _kind_of(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int"
    if isinstance(value, (float, np.floating)):
        return "float"
    if isinstance(value, str):
        return "string"
    if isinstance(value, (list, tuple)):
        if any(isinstance(v, str) for v in value):
            return "strings"
        return "floats" if any(isinstance(v, (float, np.floating)) for v in value) else "ints"
    raise TypeError(f"no attribute can hold a {type(value).__name__}")
