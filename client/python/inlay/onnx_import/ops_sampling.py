"""Reading an image at fractional places: GridSample, RoiAlign, DeformConv. All read rows of the channels-last image."""

from __future__ import annotations

import itertools
import math

import numpy as np

from inlay.ir.types import numpy_dtype
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


class Image:
    """x [N, C, spatial...] laid out as rows of channels, to be gathered by integer coordinates."""

    def __init__(self, ctx: NodeContext, x: Value):
        self.ctx = ctx
        self.batch, self.channels, *self.spatial = ctx.static_shape(x, "sampling")
        order = [0, *range(2, x.rank), 1]
        self.rows = ctx.reshape(ctx.transpose(x, order), [self.batch * math.prod(self.spatial), self.channels])

    def at(self, batch: Value, coordinates: list[Value]) -> Value:
        """The pixels [places..., C]; batch and coordinates (i64, in range) broadcast to the places."""
        ctx, flat = self.ctx, batch
        for extent, index in zip(self.spatial, coordinates):
            flat = ctx.op("add", ctx.op("mul", flat, ctx.like(extent, flat)), index)
        return ctx.op("gather", self.rows, flat, axis=0)


def _clip(ctx: NodeContext, x: Value, low: float, high: float) -> Value:
    return ctx.op("clip", x, min=float(low), max=float(high))


def _between(ctx: NodeContext, x: Value, low: float, high: float) -> Value:
    return ctx.op(
        "logical_and", ctx.op("greater_equal", x, ctx.like(low, x)), ctx.op("less_equal", x, ctx.like(high, x))
    )  # fmt: skip


def _reflect(ctx: NodeContext, x: Value, low: float, high: float) -> Value:
    """Folds x back into [low, high] at its borders, as often as it takes."""
    span = high - low
    if span <= 0:
        return ctx.op("mul", x, ctx.like(0, x))
    lower, upper = ctx.like(low, x), ctx.like(high, x)
    below = ctx.op("less", x, lower)
    over = ctx.op("where", below, ctx.op("sub", lower, x), ctx.op("maximum", ctx.op("sub", x, upper), ctx.like(0, x)))
    turns = ctx.op("floor", ctx.op("div", over, ctx.like(span, x)))
    rest = ctx.op("sub", over, ctx.op("mul", turns, ctx.like(span, x)))
    even = ctx.op("equal", ctx.op("mod", turns, ctx.like(2, x), fmod=True), ctx.like(0, x))
    # From below an even number of turns ends rising from the lower border, from above falling from the upper one.
    rising = ctx.op("equal", even, below)
    folded = ctx.op("where", rising, ctx.op("add", lower, rest), ctx.op("sub", upper, rest))
    return ctx.op("where", _between(ctx, x, low, high), x, folded)


def _cubic_weight(ctx: NodeContext, s: Value, tap: int) -> Value:
    """Keys' kernel with a = -0.75 for the tap at floor + `tap`, s = the fraction in [0, 1)."""
    a = -0.75
    distance = {-1: lambda: _shift(ctx, s, 1.0), 0: lambda: s, 1: lambda: _minus(ctx, 1.0, s),
                2: lambda: _minus(ctx, 2.0, s)}[tap]()  # fmt: skip

    def polynomial(*coefficients: float) -> Value:
        total = ctx.like(coefficients[0], distance)
        for c in coefficients[1:]:
            total = ctx.op("add", ctx.op("mul", total, distance), ctx.like(c, distance))
        return total

    return polynomial(a + 2, -(a + 3), 0, 1) if tap in (0, 1) else polynomial(a, -5 * a, 8 * a, -4 * a)


def _shift(ctx: NodeContext, x: Value, by: float) -> Value:
    return ctx.op("add", x, ctx.like(by, x))


def _minus(ctx: NodeContext, a: float, x: Value) -> Value:
    return ctx.op("sub", ctx.like(a, x), x)


@converter("GridSample")
def grid_sample(ctx: NodeContext) -> Value:
    x, grid = ctx[0], ctx[1]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(ctx.attr("mode", "linear"), ctx.attr("mode", "linear"))
    padding, align = ctx.attr("padding_mode", "zeros"), bool(ctx.attr("align_corners", 0))
    if mode not in ("linear", "nearest", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise Unsupported(f"mode {mode!r}, padding_mode {padding!r}")
    if not x.is_float:
        raise Unsupported(f"sampling of {x.dtype}")
    count = x.rank - 2
    if not 1 <= count <= 3 or grid.rank != x.rank or grid.shape[-1] != count or grid.shape[0] != x.shape[0]:
        raise Unsupported(f"a grid of shape {list(grid.shape)} for {list(x.shape)}")
    if mode == "cubic":
        return _cubic_sample(ctx, x, grid, padding, align)
    dtype = max(x.dtype, grid.dtype, key=lambda name: numpy_dtype(name).itemsize)
    rows = ctx.cast(ctx.transpose(x, [0, *range(2, x.rank), 1]), dtype)
    coordinate = "align_corners" if align else "half_pixel"
    y = ctx.op("grid_sample", rows, ctx.cast(grid, dtype), mode=mode, coordinate=coordinate, padding=padding)
    return ctx.transpose(ctx.cast(y, x.dtype), [0, y.rank - 1, *range(1, y.rank - 1)])


def _cubic_sample(ctx: NodeContext, x: Value, grid: Value, padding: str, align: bool) -> Value:
    image, places = Image(ctx, x), ctx.static_shape(grid, "GridSample")
    count = len(image.spatial)
    parts = ctx.op("split", grid, axis=len(places) - 1, sizes=[1] * count) if count > 1 else (grid,)
    axes = []  # for each spatial axis: [(integer coordinate, weight, mask or None)]
    for extent, part in zip(image.spatial, reversed(parts)):
        place = ctx.reshape(part, places[:-1])
        axes.append(_cubic_taps(ctx, place, extent, padding, align))
    batch = ctx.op("iota", shape=[places[0], *[1] * count], axis=0, dtype="i64")
    total: Value | None = None
    for taps in itertools.product(*axes):
        pixel = image.at(batch, [t[0] for t in taps])
        for _, weight, mask in taps:
            if mask is not None:
                pixel = ctx.op("where", _last(ctx, mask), pixel, ctx.like(0, pixel))
            pixel = ctx.op("mul", pixel, _last(ctx, ctx.cast(weight, x.dtype)))
        total = pixel if total is None else ctx.op("add", total, pixel)
    assert total is not None
    return ctx.transpose(total, [0, total.rank - 1, *range(1, total.rank - 1)])


def _last(ctx: NodeContext, x: Value) -> Value:
    """With an axis of 1 at the end, for the channels."""
    return ctx.reshape(x, [*x.shape, 1])


def _cubic_taps(ctx: NodeContext, place: Value, extent: int, padding: str, align: bool) -> list[tuple]:
    """The pixels that count along one axis. place: normalised to [-1, 1]."""
    low, high = (0.0, extent - 1.0) if align else (-0.5, extent - 0.5)
    # [-1, 1] maps to [low, high].
    at = ctx.op("mul", _shift(ctx, place, 1.0), ctx.like((high - low) / 2, place))
    at = _shift(ctx, at, low)
    if padding == "border":
        at = ctx.op("where", _between(ctx, at, low, high), at, _clip(ctx, at, 0, extent - 1))
    elif padding == "reflection":
        at = _reflect(ctx, at, low, high)
    floor = ctx.op("floor", at)
    part = ctx.op("sub", at, floor)
    taps = []
    for tap in (-1, 0, 1, 2):
        index = _shift(ctx, floor, float(tap)) if tap else floor
        mask = _between(ctx, index, 0, extent - 1) if padding == "zeros" else None
        if padding == "reflection":
            index = _reflect(ctx, index, low, high)
        # Clipped as a float: a place far outside (or NaN) must not overflow the integer.
        index = ctx.cast(_clip(ctx, index, 0, extent - 1), "i64")
        taps.append((index, _cubic_weight(ctx, part, tap), mask))
    return taps


@converter("DeformConv")
def deform_conv(ctx: NodeContext) -> Value:
    """Every tap of the kernel reads the image (bilinear, zeros outside) at its place plus an offset; then a matmul."""
    x, w, offset = ctx[0], ctx[1], ctx[2]
    n, channels, *extents = ctx.static_shape(x, "DeformConv")
    weights = ctx.static_shape(w, "DeformConv")
    filters, kernel = weights[0], weights[2:]
    if len(kernel) != 2 or ctx.attr("kernel_shape", kernel) != kernel:
        raise Unsupported(f"a kernel of {kernel}")
    strides, dilations = ctx.attr("strides") or [1, 1], ctx.attr("dilations") or [1, 1]
    pads, groups, parts = ctx.attr("pads") or [0] * 4, ctx.attr("group", 1), ctx.attr("offset_group", 1)
    out = ctx.static_shape(offset, "DeformConv")[2:]
    taps, pixels = kernel[0] * kernel[1], out[0] * out[1]
    shape = [n, parts, *kernel, 2, *out]
    if math.prod(shape) != ctx.numel(offset) or channels % parts or channels % groups:
        raise Unsupported(f"offsets {list(offset.shape)} in {parts} groups for {list(x.shape)}")
    moved = ctx.transpose(ctx.reshape(offset, shape), [0, 1, 5, 6, 2, 3, 4])  # [n, parts, *out, *kernel, y and x]
    starts = np.stack(np.meshgrid(*(np.arange(o) * s - p for o, s, p in zip(out, strides, pads)), indexing="ij"), -1)
    steps = np.stack(np.meshgrid(*(np.arange(k) * d for k, d in zip(kernel, dilations)), indexing="ij"), -1)
    places = ctx.op("add", ctx.op("add", moved, ctx.like(steps, moved)), ctx.like(starts[:, :, None, None], moved))
    y_last = ctx.op("concat", *reversed(ctx.op("split", places, axis=6, sizes=[1, 1])), axis=6)
    rows = ctx.transpose(ctx.reshape(x, [n, parts, channels // parts, *extents]), [0, 1, 3, 4, 2])
    columns = ctx.op("grid_sample", ctx.reshape(rows, [n * parts, *extents, channels // parts]),
                     ctx.reshape(y_last, [n * parts, *out, taps, 2]), coordinate="pixel")  # fmt: skip
    if ctx.has(4):
        mask = ctx.transpose(ctx.reshape(ctx[4], [n, parts, taps, *out]), [0, 1, 3, 4, 2])
        columns = ctx.op("mul", columns, ctx.reshape(mask, [n * parts, *out, taps, 1]))
    columns = ctx.transpose(ctx.reshape(columns, [n, parts, pixels, taps, channels // parts]), [0, 2, 3, 1, 4])
    columns = ctx.transpose(ctx.reshape(columns, [n, pixels, taps, groups, channels // groups]), [0, 3, 1, 2, 4])
    rows_of_w = ctx.transpose(ctx.reshape(w, [groups, filters // groups, channels // groups, taps]), [0, 3, 2, 1])
    depth = taps * (channels // groups)
    y = ctx.op("matmul", ctx.reshape(columns, [n, groups, pixels, depth]),
               ctx.reshape(rows_of_w, [groups, depth, filters // groups]))  # fmt: skip
    if ctx.has(3):
        y = ctx.op("add", y, ctx.reshape(ctx[3], [groups, 1, filters // groups]))
    return ctx.reshape(ctx.transpose(y, [0, 1, 3, 2]), [n, filters, *out])


@converter("RoiAlign")
def roi_align(ctx: NodeContext) -> Value:
    """Averages (or takes the largest of) bilinear samples on a regular grid inside each bin of each region."""
    x, rois, batch = ctx[0], ctx[1], ctx.cast(ctx[2], "i64")
    mode, ratio, scale = ctx.attr("mode", "avg"), ctx.attr("sampling_ratio", 0), ctx.attr("spatial_scale", 1.0)
    bins = [ctx.attr("output_height", 1), ctx.attr("output_width", 1)]
    half = ctx.attr("coordinate_transformation_mode", "half_pixel" if ctx.opset >= 16 else "output_half_pixel")
    if half not in ("half_pixel", "output_half_pixel") or mode not in ("avg", "max"):
        raise Unsupported(f"mode {mode!r}, coordinate_transformation_mode {half!r}")
    if ratio <= 0:
        raise Unsupported("sampling_ratio 0: the number of samples depends on data")
    image, count = Image(ctx, x), ctx.static_shape(rois, "RoiAlign")[0]
    corners = [
        ctx.op("slice", rois, begins=[0, i], ends=[count, i + 1], steps=[1, 1]) for i in range(4)
    ]  # x1 y1 x2 y2, each [count, 1]
    shift = -0.5 if half == "half_pixel" else 0.0
    corners = [_shift(ctx, ctx.op("mul", c, ctx.like(scale, c)), shift) for c in corners]
    taps = []
    for i, (start, end) in enumerate(((corners[1], corners[3]), (corners[0], corners[2]))):
        span = ctx.op("sub", end, start)
        if half != "half_pixel":
            span = ctx.op("maximum", span, ctx.like(1, span))
        step = ctx.op("div", span, ctx.like(bins[i] * ratio, span))
        index = _shift(ctx, ctx.op("iota", shape=[1, bins[i] * ratio], axis=1, dtype=x.dtype), 0.5)
        at = ctx.op("add", start, ctx.op("mul", index, step))  # [count, bins * ratio]
        shape = [count, bins[i] * ratio, 1] if i == 0 else [count, 1, bins[i] * ratio]
        taps.append(_roi_taps(ctx, ctx.reshape(at, shape), image.spatial[i]))
    where = ctx.reshape(batch, [count, 1, 1])
    terms = [
        ctx.op("mul", image.at(where, [iy, ix]), _last(ctx, ctx.op("mul", wy, wx)))
        for (iy, wy), (ix, wx) in itertools.product(*taps)
    ]
    op_name = "add" if mode == "avg" else "maximum"  # ONNX's max is over the weighted neighbours, not over samples
    total = terms[0]
    for term in terms[1:]:
        total = ctx.op(op_name, total, term)
    grid = ctx.reshape(total, [count, bins[0], ratio, bins[1], ratio, image.channels])
    reduce = "reduce_mean" if mode == "avg" else "reduce_max"
    return ctx.transpose(ctx.op(reduce, grid, axes=[2, 4], keepdims=False), [0, 3, 1, 2])


def _roi_taps(ctx: NodeContext, at: Value, extent: int) -> list[tuple[Value, Value]]:
    """Places up to one pixel outside read the border, beyond they count as 0."""
    inside = _between(ctx, at, -1.0, float(extent))
    at = _clip(ctx, at, 0, extent - 1)
    floor = ctx.op("floor", at)
    part = ctx.op("sub", at, floor)
    taps = []
    for index, weight in ((floor, _minus(ctx, 1.0, part)), (_shift(ctx, floor, 1.0), part)):
        weight = ctx.op("where", inside, weight, ctx.like(0, weight))
        taps.append((ctx.cast(_clip(ctx, index, 0, extent - 1), "i64"), weight))
    return taps
