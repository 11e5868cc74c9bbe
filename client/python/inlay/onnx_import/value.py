"""What the importer knows of one ONNX value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from inlay.ir import Var
from inlay.ir.dims import Dim, Shape
from inlay.ir.types import TensorType, dtype_name, numpy_dtype

if TYPE_CHECKING:
    from inlay.onnx_import.integer_products import Quantised

# More than any axis has: from here on a slice's bound means "to the end", as exporters write it (INT32_MAX, ...).
MANY_ELEMENTS = 2**31 - 2


class Unsupported(Exception):
    """Raised by a converter: this node is beyond what inlay's IR says exactly.

    needs: names of graph inputs whose values would have to be known at compile time.
    """

    def __init__(self, why: str, needs: frozenset[str] = frozenset()):
        super().__init__(why)
        self.needs = needs


class Poisoned(Exception):
    """The node depends on the result of one that was already reported."""


class Value:
    """A tensor of the model: its type, and any of
      - a Var of the function under construction,
      - a compile-time array (at once, or a function that computes it: `shape` says of what, where the IR lacks its dtype),
      - the extents that it lists, some of them symbolic (`extents`, an object array).

    weight: the array is trained data (or comes from it): its value must stay out of the program.
    roots: the graph inputs whose data it depends on.
    quantised: what DequantizeLinear made it of, where it did.
    """

    __slots__ = ("_array", "_shape", "_thunk", "extents", "name", "quantised", "roots", "type", "var", "weight")

    def __init__(
        self,
        name: str,
        type_: TensorType | None = None,
        var: Var | None = None,
        array: np.ndarray | None = None,
        thunk: Callable[[], np.ndarray] | None = None,
        extents: np.ndarray | None = None,
        weight: bool = False,
        roots: frozenset[str] = frozenset(),
        shape: Shape | None = None,
    ):
        self.name = name
        self.var = var
        self._array = array
        self._thunk = thunk
        self._shape = shape
        self.extents = extents
        self.weight = weight
        self.roots = roots
        self.quantised: Quantised | None = None
        if type_ is None and var is not None:
            type_ = var.type
        if type_ is None and array is not None:
            type_ = type_of_array(array)
        self.type = type_  # None: a constant of a dtype that the IR lacks

    @property
    def constant(self) -> bool:
        return self._array is not None or self._thunk is not None

    @property
    def array(self) -> np.ndarray:
        """The compile-time value; only where `constant`."""
        if self._array is None:
            assert self._thunk is not None
            self._array = np.asarray(self._thunk())
        return self._array

    def once(self) -> np.ndarray:
        """The same, for who needs it once: what a function computes is not kept."""
        if self._array is not None:
            return self._array
        assert self._thunk is not None
        return np.asarray(self._thunk())

    def transposed(self) -> Value:
        """Of a constant matrix, when somebody asks."""
        turned = self.shape[::-1]
        type_ = None if self.type is None else TensorType(self.type.dtype, turned)
        return Value(self.name, type_, thunk=lambda: self.once().T, weight=self.weight, shape=turned)

    @property
    def shape(self) -> Shape:
        if self.type is not None:
            return self.type.shape
        return tuple(self.array.shape) if self._shape is None else self._shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> int:
        """How many; only where the shape is static."""
        return math.prod(int(d) for d in self.shape)

    @property
    def dtype(self) -> str:
        if self.type is None:
            raise Unsupported(f"{self.name!r} is {self.array.dtype}, a dtype that the IR lacks")
        return self.type.dtype

    @property
    def is_float(self) -> bool:
        return self.dtype in ("f32", "f64", "f16", "bf16")

    @property
    def is_unsigned(self) -> bool:
        return self.dtype == "u8"


class SequenceValue:
    """A sequence of tensors whose length is known at compile time."""

    def __init__(self, name: str, items: list[Value]):
        self.name = name
        self.items = items


class AbsentValue:
    """An empty optional."""

    def __init__(self, name: str = ""):
        self.name = name


class PoisonValue:
    """The result of an unsupported node."""

    def __init__(self, name: str):
        self.name = name


def type_of_array(array: np.ndarray) -> TensorType | None:
    try:
        return TensorType.of(dtype_name(array.dtype), array.shape)
    except ValueError:
        return None


def constant_value(name: str, array: np.ndarray, weight: bool = False) -> Value:
    return Value(name, array=np.asarray(array), weight=weight)


def extents_value(name: str, extents, dtype: str = "i64") -> Value:
    """A value listing dims: a plain constant where all are numbers. extents: nested lists or an object array."""
    listed = np.asarray(extents, dtype=object)
    if all(not isinstance(d, str) for d in listed.reshape(-1)):
        return constant_value(name, listed.astype(numpy_dtype(dtype)))
    return Value(name, type_=TensorType(dtype, tuple(listed.shape)), extents=listed)


def dim_list(values) -> list[Dim]:
    return [d if isinstance(d, str) else int(d) for d in values]
