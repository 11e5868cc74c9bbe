"""Sizes that are open: the texts of inlay.ir.dims with a number's arithmetic, so that one converter serves any size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from inlay.ir import dims
from inlay.ir.dims import Dim


class Unsupported(Exception):
    """Raised by a converter: this node is beyond what inlay's IR says exactly."""


class Extent(str):
    """An open extent ("s77", "2*s77+1"), which + - * // % and comparisons take as the number that a run gives it.

    Whatever must know that number (a float's arithmetic, range, an order that is not the same for all sizes) raises
    Unsupported. It is equal to the same text alone: code that tells 1 from other sizes takes the way of the others.
    """

    __slots__ = ()

    @staticmethod
    def of(dim: Dim) -> Any:
        """An int or an Extent."""
        return Extent(dim) if isinstance(dim, str) else int(dim)

    def _refuse(self, *_: Any) -> NoReturn:
        raise Unsupported(f"it wants the number that {str(self)!r} is; {fix(self)}")

    __int__ = __index__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = _refuse  # type: ignore[assignment]

    def _with(self, compute: Callable[[Dim, Dim], Dim], other: Any, turned: bool = False) -> Any:
        if not isinstance(other, (int, str)):
            self._refuse()
        try:
            return Extent.of(compute(other, self) if turned else compute(self, other))
        except ValueError as error:
            raise Unsupported(f"{error}; {fix(self)}") from None

    def __add__(self, other: Any) -> Any:
        return self._with(dims.add, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(dims.sub, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(dims.sub, other, turned=True)

    def __mul__(self, other: Any) -> Any:  # type: ignore[override]
        return self._with(dims.mul, other)

    __rmul__ = __mul__  # type: ignore[assignment]

    def __floordiv__(self, other: Any) -> Any:
        return self._with(dims.floordiv, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(dims.floordiv, other, turned=True)

    def __mod__(self, other: Any) -> Any:
        return self._with(dims.mod, other)

    def __rmod__(self, other: Any) -> Any:
        return self._with(dims.mod, other, turned=True)

    def __neg__(self) -> Any:
        return 0 - self

    def _ordered(self, other: Any, compare: Callable[[int, int], bool]) -> bool:
        """compare(self, other), where it is the same for all sizes."""
        least, most = (dims.bound(self - other, upper) for upper in (False, True))
        far = 2**63
        for end, beyond in ((least, far if most is None else most), (most, -far)):
            if end is not None and compare(end, 0) == compare(beyond, 0):
                return compare(end, 0)
        raise Unsupported(f"it depends on whether {str(self)!r} is more than {str(other)!r}; {fix(self)}")

    def __lt__(self, other: Any) -> bool:
        return self._ordered(other, operator.lt)

    def __le__(self, other: Any) -> bool:
        return self._ordered(other, operator.le)

    def __gt__(self, other: Any) -> bool:
        return self._ordered(other, operator.gt)

    def __ge__(self, other: Any) -> bool:
        return self._ordered(other, operator.ge)


def broadcast(*shapes: Sequence[Dim]) -> tuple[Any, ...]:
    """The common shape by NumPy's rule, of ints and Extents. Raises ValueError."""
    return tuple(map(Extent.of, dims.broadcast(*shapes)))


def fix(extent: str) -> str:
    """What a user can do about it."""
    name = next(iter(dims.names_in(str(extent))), str(extent))
    return f"fix it with shape={{{name!r}: ...}}"


def at_least(a: Any, b: Any) -> bool:
    """Whether a >= b for all sizes."""
    try:
        return a >= b
    except Unsupported:
        return False


class Undecided:
    """A number or a truth that the program makes of open sizes, as its sympy expression. It may become data
    (numbers.py); code that must know it refuses."""

    def __init__(self, expression: Any):
        self.expression = expression

    def refuse(self, *_: Any) -> NoReturn:
        raise Unsupported(f"it depends on {self.expression}, which is open; fix its symbols with shape=")

    __bool__ = __int__ = __index__ = __float__ = refuse
