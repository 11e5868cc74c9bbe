"""Pad, also by amounts that a run alone knows: to a multiple of what a network divides by."""

from __future__ import annotations

from inlay.ir import dims
from inlay.onnx_import.ops_shape import reverse, slice_axis
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


@converter("Pad", since=2)
def pad_attributes(ctx: NodeContext) -> Value:
    mode = ctx.attr("mode", "constant")
    value = ctx.attr("value", 0.0)
    return _wide_pad(ctx, ctx[0], ctx.required("pads"), _mode(mode), value if mode == "constant" else 0.0)


@converter("Pad", since=11)
def pad(ctx: NodeContext) -> Value:
    x, given = ctx[0], ctx.extents(1, "pads")
    mode = _mode(ctx.attr("mode", "constant"))
    axes = ctx.axes(ctx.ints(3, "axes"), x.rank) if ctx.has(3) else list(range(x.rank))
    if len(given) != 2 * len(axes):
        raise Unsupported(f"{len(given)} pads for {len(axes)} axes")
    pads: list[dims.Dim] = [0] * (2 * x.rank)
    for at, axis in enumerate(axes):
        pads[axis], pads[x.rank + axis] = given[at], given[len(axes) + at]
    filler = ctx.get(2)
    if filler is None or mode != "constant":
        return _wide_pad(ctx, x, pads, mode, 0.0)
    if filler.constant:
        value = filler.array.reshape(-1)[0]
        if x.is_float or abs(int(value)) <= 2**53:
            return _wide_pad(ctx, x, pads, mode, float(value))
    # The value is only known at run time (or no double holds it): pad a mask alongside, then choose.
    inside = ctx.op("full", shape=x.shape, value=1, dtype="u8")
    mask = ctx.cast(_wide_pad(ctx, inside, pads, "constant", 0.0), "bool")
    wide = _wide_pad(ctx, x, pads, mode, 0.0)
    return ctx.op("where", mask, wide, ctx.reshape(filler, []))


def _wide_pad(ctx: NodeContext, x: Value, pads: list[dims.Dim], mode: str, value: float) -> Value:
    for axis in range(x.rank):
        before, after = pads[axis], pads[x.rank + axis]
        if isinstance(before, str) or isinstance(after, str):
            x = _open_pad(ctx, x, axis, before, after, mode, value)
            pads = [0 if i % x.rank == axis else p for i, p in enumerate(pads)]
    known = [int(p) for p in pads]
    if not any(known):
        return x
    if mode in ("reflect", "wrap"):
        for axis, extent in enumerate(x.shape):
            room = extent if mode == "wrap" else (extent - 1 if isinstance(extent, int) else extent)
            most = max(known[axis], known[x.rank + axis])
            if isinstance(room, int) and most > room:
                raise Unsupported(f"{mode} padding of {most} over extent {extent}")
    return ctx.op("pad", x, pads=known, mode=mode, value=value)


def _open_pad(
    ctx: NodeContext, x: Value, axis: int, before: dims.Dim, after: dims.Dim, mode: str, value: float
) -> Value:
    """Of one axis, by amounts of which one is symbolic: what it says is 0 or more, or a run is refused."""
    known = [p if isinstance(p, int) else 0 for p in (before, after)]
    x = _pad_axis(ctx, x, axis, [min(p, 0) for p in known], mode, value)  # what is cropped is not copied from
    y = _pad_axis(ctx, x, axis, [max(p, 0) for p in known], mode, value)
    front = [_border(ctx, x, axis, before, mode, value, at_end=False)] if isinstance(before, str) else []
    back = [_border(ctx, x, axis, after, mode, value, at_end=True)] if isinstance(after, str) else []
    return ctx.op("concat", *front, y, *back, axis=axis)


def _pad_axis(ctx: NodeContext, x: Value, axis: int, amounts: list[int], mode: str, value: float) -> Value:
    if not any(amounts):
        return x
    pads = [0] * (2 * x.rank)
    pads[axis], pads[x.rank + axis] = amounts
    return ctx.op("pad", x, pads=pads, mode=mode, value=value)


def _border(ctx: NodeContext, x: Value, axis: int, count: str, mode: str, value: float, at_end: bool) -> Value:
    """`count` elements that come before or after x: of x there must be those that they are copied from."""
    shape = [count if i == axis else d for i, d in enumerate(x.shape)]
    if mode == "constant":
        return ctx.op("full", shape=shape, value=value if x.is_float else int(value), dtype=x.dtype)
    if mode == "edge":
        nearest = slice_axis(ctx, x, axis, -1) if at_end else slice_axis(ctx, x, axis, 0, 1)
        return ctx.op("expand", nearest, shape=shape)
    # The nearest ones but for the first, mirrored; or those from the other end.
    turned = at_end == (mode == "reflect")
    part = slice_axis(ctx, reverse(ctx, x, axis) if turned else x, axis, int(mode == "reflect"), taken=count)
    return part if at_end else reverse(ctx, part, axis)


def _mode(mode: str) -> str:
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {mode!r}")
    return mode
