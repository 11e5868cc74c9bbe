"""Arguments whose open extents are equal only in runs whose sizes leave no rests.

"((h+3)/4)" and "((h+1)/4)" (a residual's two ways to a quarter), "2*((h)/2)" and "h" (a U-Net's down and up again): other
runtimes see when they run whether these fit. The IR wants extents that are equal in every run, so one argument is sliced
to the other's, which is all of it in a run where they are equal, and main has to require that they are:

    %2 = add(%0: f32[2*((h)/2)], %1: f32[h])      becomes      %2 = slice(%1, begins=[0], dims=["2*((h)/2)"])
                                                               %3 = add(%0, %2)    required: 2*((h)/2)-h and h-2*((h)/2)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlay.ir import dims
from inlay.ir.builder import Var
from inlay.ir.dims import Dim
from inlay.ir.half import HalfBuilder

_BROADCAST = frozenset([
    "add", "sub", "mul", "div", "mod", "pow", "minimum", "maximum", "where", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "shift_left", "shift_right",
])  # fmt: skip
_TO_THE_END = 2**63 - 1


class JoiningBuilder(HalfBuilder):
    """A builder that joins such arguments of operators that broadcast and of concat.

    Attributes:
        required: expressions that must be 0 or more in a run, for `IRModule.with_required_extents`.
        preferred: the extents that are kept where arguments have them; else the simplest one is.
    """

    def __init__(self, name: str = "main"):
        super().__init__(name)
        self.required: list[Dim] = []
        self.preferred: frozenset[Dim] = frozenset()
        self._symbols: set[str] = set()  # of main's inputs

    def param(self, name: str, dtype, shape: Sequence[Dim]) -> Var:
        self._symbols.update(symbol for d in dims.symbols(shape) for symbol in dims.names_in(d))
        return super().param(name, dtype, shape)

    def op(self, op_name: str, *args: Var, **attrs: Any) -> Any:
        # What a branch or a loop's body wants, main can't require: a run may never come to it.
        axes = [] if self.in_body else _common_axes(op_name, args, attrs)
        taken = {axis: self._joined({_extent(arg, axis) for arg in args} - {1}) for axis in axes}
        return super().op(op_name, *(self._sliced(arg, taken) for arg in args), **attrs)

    def _joined(self, extents: set[Dim]) -> str:
        """The one that all of them become; "": they stay, being equal, or not to be joined, as inference will say."""
        if len(extents) < 2:
            return ""
        chosen, *others = sorted(extents, key=lambda d: (d not in self.preferred, *_simplicity(d)))
        if not all(self._may_be_equal(chosen, other) for other in others):
            return ""
        for other in others:
            self.required += [dims.sub(chosen, other), dims.sub(other, chosen)]
        return str(chosen)

    def _may_be_equal(self, a: Dim, b: Dim) -> bool:
        # Whatever is not of main's inputs (how many elements a nonzero finds) a run knows too late to refuse it.
        return (
            isinstance(a, str)
            and isinstance(b, str)
            and self._symbols.issuperset([*dims.names_in(a), *dims.names_in(b)])
            and dims.differ_by_rests(a, b)
        )

    def _sliced(self, x: Var, taken: dict[int, str]) -> Var:
        names = [taken.get(axis, "") if d != 1 else "" for axis, d in zip(range(-x.rank, 0), x.type.shape)]
        names = ["" if name == d else name for name, d in zip(names, x.type.shape)]
        if not any(names):
            return x
        rank = x.rank
        return super().op("slice", x, begins=[0] * rank, ends=[_TO_THE_END] * rank, steps=[1] * rank, dims=names)


def _common_axes(op_name: str, args: Sequence[Var], attrs: dict[str, Any]) -> list[int]:
    """Those along which the arguments' extents must agree, counted from the end."""
    ranks = [arg.rank for arg in args]
    if op_name in _BROADCAST:
        return list(range(-max(ranks, default=0), 0))
    if op_name == "concat" and len(set(ranks)) == 1 and -ranks[0] <= attrs["axis"] < ranks[0]:
        return [axis for axis in range(-ranks[0], 0) if axis % ranks[0] != attrs["axis"] % ranks[0]]
    return []


def _extent(arg: Var, axis: int) -> Dim:
    return arg.type.shape[axis] if -axis <= arg.rank else 1


def _simplicity(extent: Dim) -> tuple[int, int, str]:
    """Fewer divisions, then a shorter text."""
    text = str(extent)
    return text.count("/"), len(text), text


__all__ = ["JoiningBuilder"]
