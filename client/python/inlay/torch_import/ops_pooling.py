"""Pooling (windowed and adaptive), and resizing of images."""

from __future__ import annotations

import fractions
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from inlay.ir.dims import ratio
from inlay.ir.ops import windows_within
from inlay.torch_import.ops_nn import per_axis
from inlay.torch_import.registry import Extent, NodeContext, Unsupported, Var, converter, fix, is_float


def _batched(ctx: NodeContext, x: Var, spatial: int) -> tuple[Var, bool]:
    """x with a batch axis, and whether it came without one."""
    return (ctx.reshape(x, [1, *x.shape]), True) if x.rank == spatial + 1 else (x, False)


def _unbatched(ctx: NodeContext, y: Var, lone: bool) -> Var:
    return ctx.reshape(y, y.shape[1:]) if lone else y


# --- Windows ---------------------------------------------------------------------------------------------------------


@converter(*(f"max_pool{n}d.default" for n in (1, 2, 3)))
def max_pool(
    ctx: NodeContext,
    x: Var,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Var:
    n = int(ctx.name[len("max_pool")])
    x, lone = _batched(ctx, x, n)
    strides = per_axis(stride, n) or per_axis(kernel, n)
    sizes, dilations, pads = per_axis(kernel, n), per_axis(dilation, n), per_axis(padding, n) * 2
    if ceil_mode:
        sizes = windows_within(x.shape[2:], sizes, strides, dilations, pads)
    window = {
        "kernel": sizes, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": bool(ceil_mode)
    }  # fmt: skip
    return _unbatched(ctx, ctx.op("max_pool", x, **window), lone)


@converter("max_pool1d_with_indices.default", "max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def max_pool_with_indices(
    ctx: NodeContext,
    x: Var,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple:
    """The indices count in the plane of x: every tap of the window is a strided slice; of these stacked, argmax picks one,
    and its number says where it stood."""
    values = max_pool(ctx, x, kernel, stride, padding, dilation, ceil_mode)
    if not ctx.wants(1):
        return values, None
    n = int(ctx.name[len("max_pool")])
    kernel, steps = per_axis(kernel, n), per_axis(stride, n) or per_axis(kernel, n)
    before, apart = per_axis(padding, n), per_axis(dilation, n)
    if math.prod(kernel) > 64:
        raise Unsupported(f"the indices of windows of {math.prod(kernel)} elements")
    lead, extents, out = x.rank - n, x.shape[x.rank - n :], values.shape[x.rank - n :]
    taps = np.stack(np.meshgrid(*(np.arange(k) for k in kernel), indexing="ij"), -1).reshape(-1, n)
    low = -math.inf if is_float(x) else float(np.iinfo(x.type.numpy).min)
    # In ceil mode the last window may reach over the pads.
    after = [b + (s - 1 if ceil_mode else 0) for b, s in zip(before, steps, strict=True)]
    wide = ctx.op("pad", x, pads=[*[0] * lead, *before, *[0] * lead, *after], value=low)
    parts = []
    for tap in taps:
        part = wide
        for i, t in enumerate(tap):
            part = _every(ctx, part, lead + i, int(t) * apart[i], out[i], steps[i])
        parts.append(ctx.reshape(part, [1, *part.shape]))
    best = ctx.op("argmax", ctx.op("concat", *parts, axis=0), axis=0, keepdims=False)
    # Where the tap that is the best stands in the plane; padding never wins.
    place = None
    for i in range(n):
        begins = ctx.op("iota", shape=[out[i], *[1] * (n - 1 - i)], axis=0, dtype="i64")
        begins = ctx.op("mul", begins, ctx.literal(steps[i], "i64"))
        at = ctx.op("gather", ctx.literal(taps[:, i] * apart[i] - before[i], "i64"), best, axis=0)
        at = ctx.op("add", begins, at)
        place = at if place is None else ctx.op("add", ctx.op("mul", place, ctx.tensor(extents[i], "i64")), at)
    return values, place


def _every(ctx: NodeContext, x: Var, axis: int, begin: int, count: Any, step: int) -> Var:
    """x[begin::step] of an axis, of that `count` elements, which are there."""
    if isinstance(count, Extent):
        at = ctx.op("mul", ctx.op("iota", shape=[count], axis=0, dtype="i64"), ctx.literal(step, "i64"))
        return ctx.op("gather", x, ctx.op("add", at, ctx.literal(begin, "i64")), axis=axis)
    return ctx.slice(x, axis, begin, begin + (count - 1) * step + 1, step)


@converter(*(f"avg_pool{n}d.default" for n in (1, 2, 3)))
def avg_pool(
    ctx: NodeContext, x: Var, kernel: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> Var:  # fmt: skip
    n = int(ctx.name[len("avg_pool")])
    x, lone = _batched(ctx, x, n)
    strides = per_axis(stride, n) or per_axis(kernel, n)
    kernel, dilations, pads = per_axis(kernel, n), [1] * n, per_axis(padding, n) * 2
    if divisor is not None:
        x, pads, ceil_mode = _padded(ctx, x, kernel, strides, pads[:n]), [0] * 2 * n, False
    if ceil_mode:
        kernel = windows_within(x.shape[2:], kernel, strides, dilations, pads)
    window: dict[str, Any] = {
        "kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads,
        "ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad),
    }  # fmt: skip
    if divisor is None:
        return _unbatched(ctx, ctx.op("avg_pool", x, **window), lone)
    mean = ctx.wide(ctx.op("avg_pool", x, **window))
    return _unbatched(ctx, ctx.narrow(ctx.op("mul", mean, ctx.like(math.prod(kernel) / divisor, mean))), lone)


def _padded(ctx: NodeContext, x: Var, kernel: list[int], strides: list[int], before: list[int]) -> Var:
    """x with zeros about it, as far as the windows of the result reach."""
    extents, out = x.shape[-len(kernel) :], ctx.extents(ctx.shape[-len(kernel) :])
    reach = [(o - 1) * s + k for o, s, k in zip(out, strides, kernel, strict=True)]
    after = ctx.ints([r - b - e for r, b, e in zip(reach, before, extents, strict=True)], "a pad")
    return ctx.op("pad", x, pads=[0, 0, *before, 0, 0, *after]) if any(before + after) else x


# --- Adaptive --------------------------------------------------------------------------------------------------------


def _bounds(extent: int, out: int) -> list[tuple[int, int]]:
    return [(i * extent // out, -((-(i + 1) * extent) // out)) for i in range(out)]


@converter(*(f"{p}adaptive_avg_pool{n}d.default" for n in (1, 2, 3) for p in ("", "_") if (p, n) != ("_", 1)))
def adaptive_avg_pool(ctx: NodeContext, x: Var, size: Any) -> Var:
    """A mean where one remains, windows where the extents divide, else a product with a matrix an axis."""
    n = int(ctx.name.partition("pool")[2][0])
    out = _sizes(x, size, n)
    axes = list(range(x.rank - n, x.rank))
    if all(o == 1 for o in out):
        return ctx.op("reduce_mean", x, axes=axes, keepdims=True)
    known = not any(isinstance(v, Extent) for v in (*out, *(x.shape[a] for a in axes)))
    if known and all(o and x.shape[a] % o == 0 for a, o in zip(axes, out, strict=True)):
        kernel = [x.shape[a] // o for a, o in zip(axes, out, strict=True)]
        x, lone = _batched(ctx, x, n)
        y = ctx.op("avg_pool", x, kernel=kernel, strides=kernel, dilations=[1] * n, pads=[0] * 2 * n)
        return _unbatched(ctx, y, lone)
    y = ctx.wide(x)
    for axis, o in zip(axes, out, strict=True):
        if o == x.shape[axis]:
            continue
        perm = [i for i in range(x.rank) if i != axis] + [axis]
        y = ctx.op("matmul", ctx.transpose(y, perm), _means(ctx, x.shape[axis], o, y.dtype))
        y = ctx.transpose(y, [perm.index(i) for i in range(x.rank)])
    return ctx.narrow(y)


def _means(ctx: NodeContext, extent: Any, out: Any, dtype: str) -> Var:
    """[extent, out]: by which a row is multiplied to be the means of `out` windows."""
    if not isinstance(extent, Extent) and not isinstance(out, Extent):
        matrix = np.zeros((extent, out))
        for i, (begin, end) in enumerate(_bounds(extent, out)):
            matrix[begin:end, i] = 1 / (end - begin)
        return ctx.literal(matrix, dtype)
    row = ctx.op("iota", shape=[extent, 1], axis=0, dtype="i64")
    column = ctx.op("iota", shape=[1, out], axis=1, dtype="i64")
    length, count, one = ctx.tensor(extent, "i64"), ctx.tensor(out, "i64"), ctx.literal(1, "i64")
    begin = ctx.op("div", ctx.op("mul", column, length), count)
    reached = ctx.op("mul", ctx.op("add", column, one), length)
    end = ctx.op("div", ctx.op("add", reached, ctx.op("sub", count, one)), count)  # rounded up
    inside = ctx.op("logical_and", ctx.op("greater_equal", row, begin), ctx.op("less", row, end))
    share = ctx.op("reciprocal", ctx.cast(ctx.op("sub", end, begin), dtype))
    return ctx.op("where", inside, share, ctx.like(0, share))


def _sizes(x: Var, size: Any, n: int) -> list[Any]:
    return [x.shape[x.rank - n + i] if s is None else s for i, s in enumerate(per_axis(size, n))]


@converter(*(f"adaptive_max_pool{n}d.default" for n in (1, 2, 3)))
def adaptive_max_pool(ctx: NodeContext, x: Var, size: Any) -> tuple:
    if ctx.wants(1):
        raise Unsupported("the indices of a max pooling")
    n = int(ctx.name.partition("pool")[2][0])
    y = x
    for axis, o in zip(range(x.rank - n, x.rank), _sizes(x, size, n), strict=True):
        windows = [ctx.slice(y, axis, begin, end) for begin, end in _bounds(x.shape[axis], o)]
        tops = [ctx.op("reduce_max", w, axes=[axis], keepdims=True) for w in windows]
        y = tops[0] if len(tops) == 1 else ctx.op("concat", *tops, axis=axis)
    return y, None


# --- Resizing --------------------------------------------------------------------------------------------------------

_KINDS = {
    "upsample_nearest1d": ("nearest", 1), "upsample_nearest2d": ("nearest", 2), "upsample_nearest3d": ("nearest", 3),
    "_upsample_nearest_exact1d": ("exact", 1), "_upsample_nearest_exact2d": ("exact", 2),
    "_upsample_nearest_exact3d": ("exact", 3), "upsample_linear1d": ("linear", 1), "upsample_bilinear2d": ("linear", 2),
    "upsample_trilinear3d": ("linear", 3), "upsample_bicubic2d": ("cubic", 2),
}  # fmt: skip


@converter(*(f"{name}.vec" for name in _KINDS))
def upsample_vec(ctx: NodeContext, x: Var, size: Any, *rest: Any) -> Var:
    """rest: align_corners (of the kinds that have it), then the factors."""
    factors = rest[-1]
    spatial = x.shape[2:]
    out = size if size is not None else [_scaled(d, f) for d, f in zip(spatial, factors, strict=True)]
    return _resize(ctx, x, out, rest[0] if len(rest) == 2 else False, factors if size is None else None)


def _scaled(extent: Any, factor: float) -> Any:
    if not isinstance(extent, Extent):
        return math.floor(extent * factor)
    exact = fractions.Fraction(factor)
    if exact.denominator >= 2**31:
        raise Unsupported(f"{extent} times {factor}, which is no short fraction; {fix(extent)}")
    return extent * exact.numerator // exact.denominator


@converter(*(f"{name}.default" for name in _KINDS))
def upsample(ctx: NodeContext, x: Var, size: Any, *rest: Any) -> Var:
    mode, n = _KINDS[ctx.name.partition(".")[0]]
    align = bool(rest[0]) if mode in ("linear", "cubic") else False
    factors = list(rest[-n:])
    return _resize(ctx, x, size, align, None if any(f is None for f in factors) else factors)


def _resize(ctx: NodeContext, x: Var, size: Sequence[Any], align: bool, factors: Sequence[float] | None) -> Var:
    mode, _ = _KINDS[ctx.name.partition(".")[0]]
    size = ctx.extents(size)
    if factors is None:
        factors = [ratio(o, d) for o, d in zip(size, x.shape[2:], strict=True)]
    scales = [1.0, 1.0, *factors]
    attrs: dict[str, Any] = {"sizes": [*x.shape[:2], *size], "scales": [float(s) for s in scales]}
    if mode == "nearest":
        return ctx.op("resize", x, mode="nearest", coordinate="asymmetric", nearest_mode="floor", **attrs)
    if mode == "exact":
        return ctx.op("resize", x, mode="nearest", coordinate="half_pixel", nearest_mode="round_prefer_ceil", **attrs)
    coordinate = "align_corners" if align else "half_pixel"
    return ctx.op("resize", x, mode=mode, coordinate=coordinate, nearest_mode="floor", **attrs)


@converter(*(f"_upsample_{kind}2d_aa.{form}" for kind in ("bilinear", "bicubic") for form in ("default", "vec")))
def upsample_antialiased(ctx: NodeContext, x: Var, size: Any, align: bool, *scales: Any) -> Var:
    """A product with a matrix an axis, which PyTorch's own kernel makes of the identity."""
    if not is_float(x):
        raise Unsupported("integers, which PyTorch rounds after each axis")
    out = ctx.shape[2:]
    given = scales[0] if ctx.name.endswith("vec") else scales
    factors = [None, None] if given is None else list(given)
    kernel = getattr(torch.ops.aten, ctx.name.partition(".")[0]).default
    y = ctx.wide(x)
    for axis, (o, factor) in enumerate(zip(out, factors, strict=True), start=2):
        extent = x.shape[axis]
        identity = torch.eye(extent, dtype=torch.float64)[None, None]
        matrix = kernel(identity, [extent, int(o)], align, None, factor)[0, 0].numpy()
        perm = [i for i in range(4) if i != axis] + [axis]
        y = ctx.op("matmul", ctx.transpose(y, perm), ctx.like(matrix, y))
        y = ctx.transpose(y, [perm.index(i) for i in range(4)])
    return ctx.narrow(y)


@converter("grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(ctx: NodeContext, x: Var, grid: Var, mode: int, padding: int, align: bool) -> Var:
    """Cubic ones are taken apart before (decompose.py)."""
    y = ctx.op(
        "grid_sample",
        ctx.transpose(x, [0, *range(2, x.rank), 1]),
        grid,
        mode=("linear", "nearest")[mode],
        coordinate="align_corners" if align else "half_pixel",
        padding=("zeros", "border", "reflection")[padding],
    )
    return ctx.transpose(y, [0, y.rank - 1, *range(1, y.rank - 1)])
