"""Resize and Upsample.

What the IR's resize says goes there. Antialiasing, tf_crop_and_resize and reading beyond the image are linear in every
axis too, with weights that are known now: those axes become one matmul with a constant matrix each. Symbolic extents go
to the IR's resize, as they are, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from inlay.ir import dims
from inlay.ir.dims import Dim
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _emit(ctx: NodeContext, x: Value, sizes, scales, mode: str, coordinate: str, nearest: str, **more) -> Value:
    return ctx.op(
        "resize", x, sizes=list(sizes), scales=[float(s) for s in scales], mode=mode, coordinate=coordinate,
        nearest_mode=nearest, **more,
    )  # fmt: skip


def _scaled(shape: Sequence[Dim], scales: Sequence[float]) -> list[Dim]:
    """The extents times the scales, rounded down."""
    if len(scales) != len(shape) or any(s <= 0 for s in scales):
        raise Unsupported(f"scales {list(scales)} for {list(shape)}")
    sizes = []
    for scale, extent in zip(scales, shape):
        exact = Fraction(float(scale))
        if isinstance(extent, str) and exact.denominator >= 2**31:
            raise Unsupported(f"the scale {scale} of {_symbolic(extent)}")
        sizes.append(dims.floordiv(dims.mul(extent, exact.numerator), exact.denominator))
    return sizes


def _symbolic(extent: Dim) -> str:
    return f"the symbolic dimension {extent!r}; fix it with shape="


@converter("Upsample", since=7)
def upsample_attributes(ctx: NodeContext) -> Value:
    return _upsample(ctx, ctx.required("scales"))


@converter("Upsample", since=9)
def upsample(ctx: NodeContext) -> Value:
    return _upsample(ctx, ctx.const(1, "the scales").reshape(-1).tolist())


@converter("Resize", since=10)
def resize_10(ctx: NodeContext) -> Value:
    return _upsample(ctx, ctx.const(1, "the scales").reshape(-1).tolist())


def _upsample(ctx: NodeContext, scales) -> Value:
    mode = ctx.attr("mode", "nearest")
    if mode not in ("nearest", "linear"):
        raise Unsupported(f"mode {mode!r}")
    sizes = _scaled(ctx[0].shape, scales)
    return _emit(ctx, ctx[0], sizes, scales, mode, "asymmetric", "floor")


def _policy(sizes: list[Dim], extents: list[Dim], policy: str) -> tuple[list[Dim], list[float]]:
    """The sizes, and the scales; 0: what a run's extents say. keep_aspect_ratio_policy: one scale for all axes, sizes
    rounded (halves up)."""
    if policy == "stretch":
        return sizes, [dims.ratio(s, e) for s, e in zip(sizes, extents)]
    if policy not in ("not_larger", "not_smaller"):
        raise Unsupported(f"keep_aspect_ratio_policy {policy!r}")
    for dim in dims.symbols([*sizes, *extents]):
        raise Unsupported(f"keep_aspect_ratio_policy {policy!r} needs {_symbolic(dim)}")
    ratios = [dims.ratio(s, e) for s, e in zip(sizes, extents)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [math.floor(scale * int(e) + 0.5) for e in extents], [scale] * len(sizes)


@converter("Resize", since=11)
def resize(ctx: NodeContext) -> Value:
    x = ctx[0]
    shape = list(x.shape)
    axes = ctx.axes(ctx.attr("axes") or range(x.rank), x.rank)
    given = ctx.const(2, "the scales").reshape(-1).tolist() if ctx.has(2) else []
    policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
    sizes, scales = list(shape), [1.0] * x.rank
    exact = not given and policy == "stretch"
    if given:
        if len(given) != len(axes):
            raise Unsupported(f"{len(given)} scales for {len(axes)} axes")
        picked = _scaled([shape[a] for a in axes], given)
    else:
        wanted = ctx.extents(3, "the sizes")
        if len(wanted) != len(axes) or any(shape[a] == 0 for a in axes):
            raise Unsupported(f"sizes {wanted} for {len(axes)} axes of {shape}")
        picked, given = _policy(wanted, [shape[a] for a in axes], policy)
    for axis, size, scale in zip(axes, picked, given):
        sizes[axis], scales[axis] = size, scale
    coordinate = ctx.attr("coordinate_transformation_mode", "half_pixel")
    mode, nearest = ctx.attr("mode", "nearest"), ctx.attr("nearest_mode", "round_prefer_floor")
    cubic, exclude = ctx.attr("cubic_coeff_a", -0.75), bool(ctx.attr("exclude_outside", 0))
    antialias, outside = bool(ctx.attr("antialias", 0)), ctx.attr("extrapolation_value", 0.0)
    if mode not in ("nearest", "linear", "cubic"):
        raise Unsupported(f"mode {mode!r}")
    crop = None
    if coordinate == "tf_crop_and_resize":
        crop = _crop(ctx, axes, x.rank)
    elif coordinate not in _COORDINATES:
        raise Unsupported(f"coordinate_transformation_mode {coordinate!r}")
    elif ctx.has(1):
        ctx.any(1)  # a region makes a difference only to tf_crop_and_resize
    if crop is None and not (antialias and mode != "nearest"):
        if coordinate == "align_corners" and not exact and any(map(_leaves_rest, scales, shape, sizes)):
            coordinate, scales = "asymmetric", [_corner_scale(s, e) for s, e in zip(scales, shape)]
        return _emit(
            ctx, x, sizes, scales, mode, coordinate, nearest, cubic_coeff=cubic, exclude_outside=exclude
        )  # fmt: skip
    if antialias and crop is not None:
        raise Unsupported("antialias together with tf_crop_and_resize")
    return _by_matrices(ctx, x, sizes, scales, crop, mode, coordinate, nearest, cubic, exclude, antialias, outside)


def _leaves_rest(scale: float, extent: Dim, size: Dim) -> bool:
    return scale % 1 != 0 if isinstance(extent, str) else scale * extent != size


def _corner_scale(scale: float, extent: Dim) -> float:
    """align_corners reads i * (extent - 1) / (scale * extent - 1), with the product not rounded down to the size where
    scales were given; the IR's form of it has the size, so it is said as i / scale'."""
    if scale == 1.0 or extent in (0, 1):
        return 1.0
    if isinstance(extent, str):
        raise Unsupported(f"align_corners by the scale {scale} needs {_symbolic(extent)}")
    return (scale * extent - 1) / (extent - 1) if scale * extent > 1 else 1e30


def _crop(ctx: NodeContext, axes: list[int], rank: int) -> list[tuple[float, float]]:
    """(start, end) of the region in each axis, normalised to [0, 1]."""
    roi = ctx.const(1, "the region").reshape(-1).astype(np.float64).tolist()
    if len(roi) != 2 * len(axes):
        raise Unsupported(f"a region of {len(roi)} numbers for {len(axes)} axes")
    region = [(0.0, 1.0)] * rank
    for at, axis in enumerate(axes):
        region[axis] = (roi[at], roi[len(axes) + at])
    return region


def _by_matrices(ctx, x, sizes, scales, crop, mode, coordinate, nearest, cubic, exclude, antialias, outside) -> Value:
    if not x.is_float:
        raise Unsupported(f"{mode} resizing of {x.dtype} with antialias or a region")
    y, inside = x, None
    for axis, (size, scale) in enumerate(zip(sizes, scales)):
        extent = x.shape[axis]
        region = crop[axis] if crop is not None else None
        if size == extent and scale == 1.0 and region in (None, (0.0, 1.0)):
            continue
        for dim in dims.symbols([extent, size]):
            raise Unsupported(f"resizing with antialias or a region needs {_symbolic(dim)}")
        weights, valid = _matrix(extent, size, scale, region, mode, coordinate, nearest, cubic, exclude, antialias)
        y = _apply(ctx, y, axis, weights)
        shape = [size if i == axis else 1 for i in range(x.rank)]
        if not valid.all():
            mask = ctx.literal(valid.reshape(shape), "bool")
            inside = mask if inside is None else ctx.op("logical_and", inside, mask)
    return y if inside is None else ctx.op("where", inside, y, ctx.like(outside, y))


def _apply(ctx: NodeContext, x: Value, axis: int, weights: np.ndarray) -> Value:
    """Contracts an axis with a constant matrix [out, in]."""
    order = [i for i in range(x.rank) if i != axis] + [axis]
    moved = ctx.op("matmul", ctx.transpose(x, order), ctx.literal(weights.T, x.dtype))
    return ctx.transpose(moved, [order.index(i) for i in range(x.rank)])


def _matrix(extent, size, scale, region, mode, coordinate, nearest, cubic, exclude, antialias):
    """The weights [size, extent] of every input element in every output element, and which outputs lie in the image."""
    weights, valid = np.zeros((size, extent)), np.ones(size, bool)
    for i in range(size):
        at = _coordinate(i, extent, size, scale, region, coordinate)
        if region is not None and not 0 <= at <= extent - 1:
            valid[i] = False
        for k, w in _taps(at, scale, mode, nearest, cubic, antialias, exclude, extent):
            weights[i, min(max(k, 0), extent - 1)] += w
    return weights, valid


def _coordinate(i: int, extent: int, size: int, scale: float, region, coordinate: str) -> float:
    if region is not None:
        start, end = region
        if size == 1:
            return 0.5 * (start + end) * (extent - 1)
        return start * (extent - 1) + i * (end - start) * (extent - 1) / (size - 1)
    if coordinate == "asymmetric":
        return i / scale
    if coordinate == "align_corners":
        return i / _corner_scale(scale, extent)
    if coordinate == "pytorch_half_pixel" and size == 1:
        return 0.0
    if coordinate == "half_pixel_symmetric":
        return extent / 2 * (1 - size / (scale * extent)) + (i + 0.5) / scale - 0.5
    return (i + 0.5) / scale - 0.5


def _round(at: float, nearest: str) -> int:
    if nearest == "round_prefer_floor":
        return math.ceil(at - 0.5)
    if nearest == "round_prefer_ceil":
        return math.floor(at + 0.5)
    return math.floor(at) if nearest == "floor" else math.ceil(at)


def _taps(at, scale, mode, nearest, cubic, antialias, exclude, extent) -> list[tuple[int, float]]:
    """(index, weight) of the elements around a coordinate; with antialias the filter is stretched by 1/scale."""
    if mode == "nearest":
        return [(_round(at, nearest), 1.0)]
    stretch = min(scale, 1.0) if antialias else 1.0
    reach = (1.0 if mode == "linear" else 2.0) / stretch
    low, high = math.floor(at - reach) + 1, math.ceil(at + reach) - 1
    if mode == "linear":
        low, high = min(low, math.floor(at)), max(high, math.floor(at) + 1)
    taps = [(k, _filter((k - at) * stretch, mode, cubic)) for k in range(low, high + 1)]
    if exclude or antialias:
        if exclude:
            taps = [(k, w if 0 <= k < extent else 0.0) for k, w in taps]
        total = sum(w for _, w in taps)
        taps = [(k, w / total) for k, w in taps]
    return taps


def _filter(s: float, mode: str, a: float) -> float:
    s = abs(s)
    if mode == "linear":
        return max(0.0, 1.0 - s)
    if s <= 1:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1
    return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a if s < 2 else 0.0
