"""The table of converters, and what a converter gets to work with.

A converter turns one ONNX node into operators of core/ir/OPS.md:

    @converter("Celu", since=12)
    def celu(ctx: NodeContext) -> Value:
        alpha = ctx.attr("alpha", 1.0)
        ...
        return ctx.op("maximum", x, y)

It is called with the node's opset version at or above `since` and below the next converter of the same operator. It
returns one Value or a tuple, one entry an output (None: not made). What it does not say exactly it refuses by raising
`Unsupported`; attributes and inputs that a converter never looked at are refused for it, so that nothing passes silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from inlay.ir.dims import Dim
from inlay.ir.types import TensorType, dtype_name, numpy_dtype
from inlay.onnx_import.value import (
    AbsentValue,
    Poisoned,
    PoisonValue,
    SequenceValue,
    Unsupported,
    Value,
    constant_value,
    dim_list,
)

if TYPE_CHECKING:
    from inlay.onnx_import.importer import GraphImporter

MICROSOFT = "com.microsoft"  # the domain of onnxruntime's own operators

Converter = Callable[["NodeContext"], Any]
_CONVERTERS: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converter(*op_types: str, since: int = 1, domain: str = ""):
    """Registers a converter for operators from opset version `since` on."""

    def register(function: Converter) -> Converter:
        for op_type in op_types:
            _CONVERTERS.setdefault((domain, op_type), []).append((since, function))
        return function

    return register


def contrib(*op_types: str):
    """Registers a converter for operators of onnxruntime's own domain: of version 1, which a model need not import."""
    return converter(*op_types, since=0, domain=MICROSOFT)


def find_converter(domain: str, op_type: str, version: int) -> Converter | None:
    """The converter with the highest `since` not above the version."""
    found = [entry for entry in _CONVERTERS.get((domain, op_type), []) if entry[0] <= version]
    return max(found, key=lambda entry: entry[0])[1] if found else None


class NodeContext:
    """One node under conversion."""

    def __init__(self, graph: GraphImporter, node: onnx.NodeProto, opset: int, scope: dict[str, Any]):
        self.graph = graph
        self.node = node
        self.opset = opset
        self.scope = scope
        self.inputs = [graph.lookup(scope, name, node) if name else None for name in node.input]
        self._attrs = {a.name: a for a in node.attribute}
        self._seen_attrs: set[str] = set()
        self._seen_inputs: set[int] = set()

    # --- Inputs ---

    def __len__(self) -> int:
        return len(self.inputs)

    def has(self, i: int) -> bool:
        """Whether the optional input is there (an absent one needs no handling)."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def any(self, i: int) -> Value | SequenceValue | AbsentValue:
        """Input i, a tensor or a sequence."""
        self._seen_inputs.add(i)
        value: Any = self.inputs[i] if self.has(i) else None
        if value is None:
            raise Unsupported(f"input {i} is missing")
        if isinstance(value, PoisonValue):
            raise Poisoned(value.name)
        return value

    def __getitem__(self, i: int) -> Value:
        """Input i, a tensor."""
        value = self.any(i)
        if not isinstance(value, Value):
            raise Unsupported(f"input {i} ({value.name!r}) is not a tensor")
        return value

    def get(self, i: int) -> Value | None:
        return self[i] if self.has(i) else None

    def all(self) -> list[Value]:
        return [self[i] for i in range(len(self.inputs))]

    def const(self, i: int, what: str) -> np.ndarray:
        """The compile-time value of input i. Raises Unsupported saying which graph inputs it depends on."""
        value = self[i]
        if value.constant:
            return value.array
        if value.extents is not None:
            symbols = [d for d in value.extents.reshape(-1) if isinstance(d, str)]
            raise Unsupported(f"{what} depends on the symbolic dimension {symbols[0]!r}; fix it with shape=")
        raise Unsupported(f"{what} ({value.name!r}) is not known at compile time", value.roots)

    def ints(self, i: int, what: str) -> list[int]:
        return [int(v) for v in self.const(i, what).reshape(-1)]

    def extents(self, i: int, what: str) -> list[Dim]:
        """Like ints, but symbolic extents are let through."""
        value = self[i]
        if value.extents is not None and not value.constant:
            return dim_list(value.extents.reshape(-1))
        return list(self.ints(i, what))

    # --- Attributes ---

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute's Python value (str for bytes), or the default."""
        self._seen_attrs.add(name)
        if name not in self._attrs:
            return default
        proto = self._attrs[name]
        value = onnx.helper.get_attribute_value(proto)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            return [v.decode("utf-8", "replace") for v in value]
        return list(value) if proto.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value

    def required(self, name: str) -> Any:
        value = self.attr(name)
        if value is None:
            raise Unsupported(f"attribute {name} is missing")
        return value

    def has_attr(self, name: str) -> bool:
        return name in self._attrs

    def ignore(self, *names: str) -> None:
        """These attributes are known to make no difference here."""
        self._seen_attrs.update(names)

    def wants(self, i: int) -> bool:
        """Whether output i has a name."""
        return i < len(self.node.output) and bool(self.node.output[i])

    def unhandled(self) -> str | None:
        """What no converter looked at, if anything."""
        names = sorted(set(self._attrs) - self._seen_attrs)
        if names:
            return f"attribute {', '.join(names)} is not supported"
        left = [i for i, v in enumerate(self.inputs) if v is not None and i not in self._seen_inputs]
        return f"input {left[0]} is not supported" if left else None

    # --- Emission ---

    def op(self, op_name: str, *args: Value, **attrs: Any) -> Any:
        """Emits an operator; a Value, or a tuple of them for an operator with several results."""
        return self.graph.emit(op_name, args, attrs)

    def literal(self, value, dtype: str) -> Value:
        """A compile-time constant of the given dtype ("f32")."""
        with np.errstate(over="ignore", invalid="ignore"):
            return constant_value("", np.asarray(value).astype(numpy_dtype(dtype)))

    def like(self, value, other: Value) -> Value:
        return self.literal(value, other.dtype)

    def cast(self, x: Value, dtype) -> Value:
        dtype = dtype_name(dtype)
        return x if x.dtype == dtype else self.op("cast", x, dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Reshape to extents, symbolic ones among them."""
        target = list(shape)
        if x.shape == tuple(target):
            return x
        symbolic = [i for i, d in enumerate(target) if isinstance(d, str)]
        if len(symbolic) == 1 and -1 not in target:
            target[symbolic[0]] = -1  # what remains
        return self.op("reshape", x, shape=target)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        return x if list(perm) == list(range(x.rank)) else self.op("transpose", x, perm=list(perm))

    def static_shape(self, x: Value, what: str) -> list[int]:
        """x's shape; Unsupported where it is symbolic."""
        for dim in x.shape:
            if isinstance(dim, str):
                raise Unsupported(f"{what} needs the symbolic dimension {dim!r}; fix it with shape=")
        return [int(d) for d in x.shape]

    def axis(self, value: int, rank: int) -> int:
        if not -rank <= value < rank:
            raise Unsupported(f"axis {value} is outside rank {rank}")
        return value + rank if value < 0 else value

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        return [self.axis(int(v), rank) for v in values]

    def numel(self, x: Value, what: str = "this node") -> int:
        return math.prod(self.static_shape(x, what))


def tensor_attr(tensor: onnx.TensorProto) -> np.ndarray:
    return numpy_helper.to_array(tensor)


def onnx_dtype(elem_type: int) -> str:
    """The IR's name of an ONNX element type. Raises Unsupported."""
    try:
        return dtype_name(onnx.helper.tensor_dtype_to_np_dtype(elem_type))
    except (ValueError, KeyError, TypeError):
        name = (
            onnx.TensorProto.DataType.Name(elem_type) if elem_type in onnx.TensorProto.DataType.values() else elem_type
        )
        raise Unsupported(f"dtype {name} is one that the IR lacks") from None


__all__ = [
    "MICROSOFT",
    "NodeContext",
    "TensorType",
    "Unsupported",
    "Value",
    "contrib",
    "converter",
    "find_converter",
    "onnx_dtype",
    "tensor_attr",
]
