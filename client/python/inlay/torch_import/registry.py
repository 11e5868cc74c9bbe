"""The table of converters, and what a converter gets to work with.

A converter turns one ATen operator into operators of core/ir/OPS.md:

    @converter("celu.default")
    def celu(ctx: NodeContext, x: Var, alpha: float) -> Var:
        ...
        return ctx.op("mul", ctx.op("elu", ctx.op("div", x, scale)), scale)

It is called with the arguments of the operator's schema, defaults filled in, tensors as Vars (or lists of Vars) and the
rest as Python values; keyword-only arguments come by keyword, those that say where and how memory lies (layout, device,
pin_memory, memory_format, non_blocking) not at all. It returns one Var or a tuple, one entry a result (None: not made).
What it does not say exactly it refuses by raising `Unsupported`. The importer compares dtype and shape of what it
returns with what PyTorch says.

An operator with a converter is kept whole: decompose.py leaves everything in this table alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from inlay import ir
from inlay.ir.half import HALF
from inlay.ir.joins import JoiningBuilder
from inlay.ir.module import LITERAL_LIMIT
from inlay.ir.types import FLOATS, INTS, numpy_dtype
from inlay.torch_import.extents import Extent, Undecided, Unsupported, at_least, fix
from inlay.torch_import.numbers import as_data
from inlay.torch_import.slices import MANY, slice_open


class Var(ir.Var):
    """Its extents are ints, and where they are open Extents, which count as ints do."""

    @property
    def shape(self) -> tuple[Any, ...]:
        return tuple(Extent.of(d) for d in self.type.shape)


class Builder(JoiningBuilder):
    var_type = Var


Converter = Callable[..., Any]
CONVERTERS: dict[str, Converter] = {}

_DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.uint8: "u8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.bool: "bool",
}  # fmt: skip
TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


def converter(*names: str):
    """Registers a converter for ATen overloads ("add.Tensor"), or another library's ("library::name.default")."""

    def register(function: Converter) -> Converter:
        for name in names:
            assert name not in CONVERTERS, name
            CONVERTERS[name] = function
        return function

    return register


def ir_dtype(dtype: torch.dtype) -> str:
    """The IR's name of a PyTorch dtype. Raises Unsupported."""
    if dtype not in _DTYPES:
        raise Unsupported(f"dtype {str(dtype).removeprefix('torch.')} is one that the IR lacks")
    return _DTYPES[dtype]


class NodeContext:
    """One node under conversion.

    Attributes:
        name: the operator and overload ("add.Tensor").
        vals: what PyTorch says of the results (fake tensors, or None); their sizes are those of the export. The import's
            are `shape`.
        size: what a size of the program's (a torch.SymInt, or its expression) is here: an int, an Extent, or None where there
            is no form for it.
        meta_args: the arguments as PyTorch saw them (fake tensors in the place of Vars), for type promotion.
    """

    def __init__(
        self,
        builder: Builder,
        name: str,
        vals: Sequence[Any],
        meta_args: Sequence[Any],
        wanted: frozenset[int] | None,
        size: Callable[[Any], Any],
    ):
        self.builder: Any = builder
        self.size = size
        self.name = name
        self.vals = vals
        self.meta_args = meta_args
        self._wanted = wanted

    def wants(self, i: int) -> bool:
        """Whether somebody reads result i."""
        return self._wanted is None or i in self._wanted

    @property
    def dtype(self) -> str:
        """The dtype of the (first) result."""
        return ir_dtype(self.vals[0].dtype)

    @property
    def shape(self) -> tuple[Any, ...]:
        """The extents that PyTorch says the (first) result has; None for one that the importer can't say."""
        return tuple(self.size(d) for d in self.vals[0].shape)

    # --- Constants ---

    def literal(self, value: Any, dtype: str) -> Var:
        """A constant of the program. One that is too large for a literal becomes a weight (its value is then no part of
        any key, which is safe: it follows from the program)."""
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.asarray(value).astype(numpy_dtype(dtype))
        if array.nbytes > LITERAL_LIMIT:
            return self.builder.weight(array)
        return self.builder.literal(array)

    def like(self, value: Any, other: Var) -> Var:
        return self.literal(value, other.dtype)

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Var:
        if dtype == "bool":
            value = bool(value)
        if dtype in INTS or dtype == "bool":
            value = int(value)
        return self.op("full", shape=self.extents(shape), value=value, dtype=dtype)

    @staticmethod
    def extents(values: Sequence[Any], what: str = "an extent") -> list[Any]:
        """Ints and Extents. Raises Unsupported."""
        for v in values:
            if isinstance(v, Var):
                raise Unsupported(f"{what} depends on data")
            if isinstance(v, Undecided):
                v.refuse()
        return [v if isinstance(v, Extent) else int(v) for v in values]

    @staticmethod
    def ints(values: Sequence[Any], what: str = "an extent") -> list[int]:
        """Where open extents will not do. Raises Unsupported."""
        known = NodeContext.extents(values, what)
        for v in known:
            if isinstance(v, Extent):
                raise Unsupported(f"{what} is {str(v)!r}, which is open; {fix(v)}")
        return known

    def require(self, extent: Any) -> None:
        """A run in which it is below 0 is refused. Raises Unsupported where it always is."""
        if isinstance(extent, Extent) and not at_least(extent, 0):
            self.builder.required.append(extent)
        elif extent < 0:
            raise Unsupported(f"it wants {-extent} elements more than there are")

    # --- Emission ---

    def op(self, op_name: str, *args: Var, **attrs: Any) -> Any:
        """Emits an operator; a Var, or a tuple of them for an operator with several results."""
        return self.builder.op(op_name, *args, **attrs)

    def cast(self, x: Var, dtype: str) -> Var:
        return x if x.dtype == dtype else self.op("cast", x, dtype=dtype)

    def tensor(self, value: Any, dtype: str) -> Var:
        """A Var, cast; or a number as a scalar."""
        if isinstance(value, Var):
            return self.cast(value, dtype)
        if isinstance(value, (bool, int, float)):
            return self.literal(value, dtype)
        if isinstance(value, Extent):
            return self.cast(self.reshape(self.builder.extent(value), []), dtype)
        if isinstance(value, Undecided):
            made = as_data(self, value.expression)
            return value.refuse() if made is None else self.cast(made, dtype)
        raise Unsupported(f"a {type(value).__name__} where a number is wanted")

    def wide(self, x: Var) -> Var:
        """x in f32 where it has 16 bits: for formulas of several operators, rounded at their end (`narrow`)."""
        return self.builder.widened(x) if x.dtype in HALF else x

    def narrow(self, y: Var, dtype: str | None = None) -> Var:
        """y as `dtype` (the result's, if None); remembers the f32 value of a 16-bit one."""
        dtype = dtype or self.dtype
        if dtype in HALF and y.dtype == "f32":
            return self.builder.rounded(y, dtype)
        return self.cast(y, dtype)

    def reshape(self, x: Var, shape: Sequence[Any]) -> Var:
        target = self.extents(shape)
        if -1 not in target and x.shape == tuple(target):
            return x
        if -1 in target and 0 in x.shape:  # which extent -1 stands for can't be told from zero elements
            known = math.prod(d for d in target if d != -1)
            target = [(0 if known else 1) if d == -1 else d for d in target]
        return self.op("reshape", x, shape=target)

    def transpose(self, x: Var, perm: Sequence[int]) -> Var:
        return x if list(perm) == list(range(x.rank)) else self.op("transpose", x, perm=list(perm))

    def expand(self, x: Var, shape: Sequence[Any]) -> Var:
        return x if x.shape == tuple(shape) else self.op("expand", x, shape=list(shape))

    def slice(self, x: Var, axis: int, begin: Any, end: Any, step: int = 1) -> Var:
        """x[begin:end:step] along an axis: 0 <= begin <= end, both counted from its start."""
        extent = x.shape[axis]
        if begin == 0 and step == 1 and (end == extent or at_least(end, extent)):
            return x
        if isinstance(extent, Extent) or isinstance(begin, Extent) or isinstance(end, Extent):
            return slice_open(self, x, axis, begin, end, step)
        begins, ends, steps = [0] * x.rank, [d if isinstance(d, int) else MANY for d in x.shape], [1] * x.rank
        begins[axis], ends[axis], steps[axis] = begin, min(end, extent), step
        return self.op("slice", x, begins=begins, ends=ends, steps=steps)

    def select(self, x: Var, axis: int, index: Any) -> Var:
        part = self.slice(x, axis, index, index + 1)
        return self.reshape(part, [d for i, d in enumerate(x.shape) if i != axis])

    def axis(self, value: Any, rank: int) -> int:
        value = int(value)
        if rank == 0 and value in (0, -1):
            return 0
        if not -rank <= value < rank:
            raise Unsupported(f"axis {value} is outside rank {rank}")
        return value + rank if value < 0 else value

    def axes(self, values: Any, rank: int) -> list[int]:
        """Non-negative axes; None and [] mean all."""
        if values is None:
            return list(range(rank))
        values = [values] if isinstance(values, int) else list(values)
        return [self.axis(v, rank) for v in values] if values else list(range(rank))


def is_float(x: Var) -> bool:
    return x.dtype in FLOATS


__all__ = [
    "CONVERTERS", "MANY", "TORCH_DTYPES", "Builder", "Extent", "NodeContext", "Undecided", "Unsupported", "Var",
    "at_least", "converter", "fix", "ir_dtype", "is_float",
]  # fmt: skip
