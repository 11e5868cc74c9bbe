"""Slices of open extents. The IR's count by numbers from either end, or take as many from a number as an extent says; a run
in which that many are not there is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inlay.ir import dims
from inlay.torch_import.extents import Extent, Unsupported, fix

if TYPE_CHECKING:
    from inlay.torch_import.registry import NodeContext, Var

MANY = 2**63 - 1  # as an end: all that there is


def slice_open(ctx: NodeContext, x: Var, axis: int, begin: Any, end: Any, step: int) -> Var:
    """x[begin:end:step] along an axis, both counted from its start, where one of them or the extent is open."""
    extent = x.shape[axis]
    begin, end = (Extent.of(dims.from_end(place, extent)) for place in (begin, end))
    if not isinstance(begin, Extent) and not isinstance(end, Extent):
        count = _count(begin, end)
        if step != 1 or count is None or dims.slice_extent(extent, begin, end, 1) == count:
            return _sliced(ctx, x, axis, begin, end, step)
        return _gathered(ctx, x, axis, begin if begin >= 0 else extent + begin, count)
    if step != 1:
        raise Unsupported(f"slices from {begin} to {end} by {step} of {extent}; {fix(extent)}")
    if not isinstance(begin, Extent) and begin >= 0:
        return _sliced(ctx, x, axis, begin, MANY, taken=end - begin)
    begin, end = from_start(begin, extent), from_start(end, extent)
    count = end - begin
    if not isinstance(count, Extent):
        return _gathered(ctx, x, axis, begin, count)
    last = _turned(ctx, ctx.slice(x, axis, 0, end), axis)
    return _turned(ctx, _sliced(ctx, last, axis, 0, MANY, taken=count), axis)


def _count(begin: int, end: int) -> int | None:
    """How many, where both count from the same end and that many are there."""
    if begin < 0:
        return -begin if end == MANY else end - begin if end < 0 else None
    return end - begin if 0 <= end < MANY else None


def from_start(place: Any, extent: Any) -> Any:
    """Where a slice begins or ends, counted from the start."""
    return Extent.of(dims.from_start(place, extent))


def _sliced(ctx: NodeContext, x: Var, axis: int, begin: int, end: int, step: int = 1, taken: str = "") -> Var:
    begins, ends, steps = [0] * x.rank, [MANY] * x.rank, [1] * x.rank
    begins[axis], ends[axis], steps[axis] = begin, end, step
    names = [str(taken) if i == axis else "" for i in range(x.rank)]
    return ctx.op("slice", x, begins=begins, ends=ends, steps=steps, dims=names if taken else None)


def _gathered(ctx: NodeContext, x: Var, axis: int, begin: Any, count: int) -> Var:
    # An index behind the end would read the last element. PyTorch's guards say the same, but for sizes of 0 and 1.
    ctx.require(begin)
    ctx.require(x.shape[axis] - begin - count)
    at = ctx.op("iota", shape=[count], axis=0, dtype="i64")
    if begin != 0:
        at = ctx.op("add", at, ctx.tensor(begin, "i64"))
    return ctx.op("gather", x, at, axis=axis)


def _turned(ctx: NodeContext, x: Var, axis: int) -> Var:
    return _sliced(ctx, x, axis, -1, -(2**63), step=-1)


__all__ = ["MANY", "from_start", "slice_open"]
