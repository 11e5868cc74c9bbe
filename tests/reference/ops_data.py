"""Operators that move data (see OPS.md)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from reference.evaluator import op
from reference.ops_core import narrow, wide

op("reshape")(lambda a, t: a[0].reshape(t["shape"]))
op("transpose")(lambda a, t: np.transpose(a[0], t["perm"]))
op("concat")(lambda a, t: np.concatenate(a, axis=t["axis"]))
op("tile")(lambda a, t: np.tile(a[0], t["repeats"]))
op("expand")(lambda a, t: np.broadcast_to(a[0], np.broadcast_shapes(a[0].shape, tuple(t["shape"]))))
op("full")(lambda a, t: np.full(t["shape"], t["value"]).astype(t["dtype"]))


@op("split")
def _split(args, attrs):
    ends = np.cumsum(attrs["sizes"]).tolist()
    if ends and ends[-1] != args[0].shape[attrs["axis"]]:
        raise ValueError(f"sizes {attrs['sizes']} of extent {args[0].shape[attrs['axis']]}")
    return tuple(np.split(args[0], ends[:-1], axis=attrs["axis"]))


@op("slice")
def _slice(args, attrs):
    index = []
    for begin, end, step in zip(attrs["begins"], attrs["ends"], attrs["steps"], strict=True):
        index.append(slice(begin, None if step < 0 and end == -(2**63) else end, step))
    if len(index) != args[0].ndim:
        raise ValueError(f"{len(index)} slices for rank {args[0].ndim}")
    return args[0][tuple(index)]


@op("pad")
def _pad(args, attrs):
    x, pads, rank = args[0], attrs["pads"], args[0].ndim
    crop = [slice(max(0, -pads[i]), x.shape[i] - max(0, -pads[rank + i])) for i in range(rank)]
    x = x[tuple(crop)]
    widths = [(max(0, pads[i]), max(0, pads[rank + i])) for i in range(rank)]
    mode = attrs.get("mode", "constant")
    if mode == "constant":
        return np.pad(
            x,
            widths,
            constant_values=np.asarray(attrs.get("value", 0.0)).astype(x.dtype),
        )
    return np.pad(x, widths, mode=mode)


def _clamped(indices, extent):
    indices = np.where(indices < 0, indices.astype(np.int64) + extent, indices)
    return np.clip(indices, 0, extent - 1)


@op("gather")
def _gather(args, attrs):
    axis = attrs.get("axis", 0)
    return np.take(args[0], _clamped(args[1], args[0].shape[axis]), axis=axis)


@op("gather_elements")
def _gather_elements(args, attrs):
    x, axis = args[0], attrs.get("axis", 0) % args[0].ndim
    indices = _clamped(args[1], x.shape[axis])
    out = np.empty(indices.shape, x.dtype)
    for at in np.ndindex(indices.shape):
        out[at] = x[(*at[:axis], indices[at], *at[axis + 1 :])]
    return out


@op("gather_nd")
def _gather_nd(args, attrs):
    x, indices, b = args[0], args[1], attrs.get("batch_dims", 0)
    depth = indices.shape[-1]
    out = np.empty((*indices.shape[:-1], *x.shape[b + depth :]), x.dtype)
    for at in np.ndindex(indices.shape[:-1]):
        where = tuple(int(_clamped(np.asarray(v), x.shape[b + i])) for i, v in enumerate(indices[at]))
        out[at] = x[(*at[:b], *where)]
    return out


def _combine(reduction, old, new):
    return {
        "none": lambda: new, "add": lambda: wide(old) + wide(new), "mul": lambda: wide(old) * wide(new),
        "max": lambda: np.maximum(old, new), "min": lambda: np.minimum(old, new),
    }[reduction]()  # fmt: skip


@op("scatter_elements")
def _scatter_elements(args, attrs):
    x, indices, updates = args
    axis = attrs.get("axis", 0) % x.ndim
    out = np.array(x)
    indices = _clamped(indices, x.shape[axis])
    for at in np.ndindex(indices.shape):
        where = (*at[:axis], indices[at], *at[axis + 1 :])
        out[where] = _combine(attrs.get("reduction", "none"), out[where], updates[at])
    return out


@op("scatter_nd")
def _scatter_nd(args, attrs):
    x, indices, updates = args
    out = np.array(x)
    for at in np.ndindex(indices.shape[:-1]):
        where = tuple(int(_clamped(np.asarray(v), x.shape[i])) for i, v in enumerate(indices[at]))
        out[where] = _combine(attrs.get("reduction", "none"), out[where], updates[at])
    return out


@op("trilu")
def _trilu(args, attrs):
    keep = (np.triu if attrs.get("upper", True) else np.tril)(np.ones(args[0].shape[-2:], bool), attrs.get("k", 0))
    return np.where(keep, args[0], np.zeros((), args[0].dtype))


@op("iota")
def _iota(args, attrs):
    shape, axis = attrs["shape"], attrs["axis"]
    line = np.arange(shape[axis]).reshape([-1 if i == axis % len(shape) else 1 for i in range(len(shape))])
    return np.broadcast_to(line, shape).astype(attrs["dtype"])


@op("grid_sample")
def _grid_sample(args, attrs):
    x, grid = (wide(a) for a in args)
    attrs = {"mode": "linear", "coordinate": "half_pixel", "padding": "zeros", **attrs}
    axes, aligned = x.ndim - 2, attrs["coordinate"] == "align_corners"
    taps = []  # for each axis: [(pixel, weight)], pixel -1 outside
    for axis, e in enumerate(x.shape[1:-1]):
        g = grid[..., axes - 1 - axis]
        one, e = g.dtype.type(1), g.dtype.type(e)
        scale, shift = ((e - one) / 2, 0) if aligned else (e / 2, one / 2)
        at = g if attrs["coordinate"] == "pixel" else (g + one) * scale - shift
        if attrs["padding"] == "reflection":
            low, span = (0, e - 1) if aligned else (-0.5, e)
            with np.errstate(invalid="ignore", divide="ignore"):
                over = np.abs(at.astype(np.float64) - low)
                rest, turns = np.fmod(over, span), np.floor(over / span)
            at = (np.where(turns % 2 == 0, rest, span - rest) + low).astype(g.dtype)
        if attrs["padding"] != "zeros":
            at = np.clip(np.where(np.isnan(at), 0, at), 0, e - one).astype(g.dtype)
        low = np.rint(at) if attrs["mode"] == "nearest" else np.floor(at)
        with np.errstate(invalid="ignore"):
            part = (at - low).astype(np.float64)
        each = [(low, None)] if attrs["mode"] == "nearest" else [(low, 1 - part), (low + one, part)]
        inside = [(place >= 0) & (place <= e - one) for place, _ in each]
        taps.append([(np.where(k, p, -1).astype(np.int64), w) for (p, w), k in zip(each, inside, strict=True)])
    batch = np.arange(len(x)).reshape(-1, *[1] * (grid.ndim - 2))
    total = np.zeros((*grid.shape[:-1], x.shape[-1]))
    for corner in itertools.product(*taps):
        pixels = x[(batch, *(p for p, _ in corner))].astype(np.float64)
        pixels = np.where(np.all([p >= 0 for p, _ in corner], axis=0)[..., None], pixels, 0)
        for _, w in corner:
            pixels = pixels if w is None else pixels * w[..., None]
        total = total + pixels
    return narrow(total, args[0].dtype)


@op("reverse_sequence")
def _reverse_sequence(args, attrs):
    x, lengths = args
    batch_axis, time_axis = attrs.get("batch_axis", 1), attrs.get("time_axis", 0)
    out = np.array(x)
    for b, length in enumerate(lengths):
        source = np.take(x, b, axis=batch_axis)
        axis = time_axis - (batch_axis < time_axis)
        order = [
            *range(int(length) - 1, -1, -1),
            *range(int(length), x.shape[time_axis]),
        ]
        index = [slice(None)] * x.ndim
        index[batch_axis] = b
        out[tuple(index)] = np.take(source, order, axis=axis)
    return out


# --- Resize: along one axis after another, as every mode is separable --------------------------------------------------


def _source(i: int, scale: float, size_in: int, size_out: int, coordinate: str) -> float:
    if coordinate == "asymmetric":
        return i / scale
    if coordinate == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if coordinate == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if size_out > 1 else 0.0
    if coordinate == "align_corners":
        return 0.0 if size_out == 1 else i * (size_in - 1) / (size_out - 1)
    if coordinate == "half_pixel_symmetric":
        adjustment = size_out / (scale * size_in)
        return size_in / 2 * (1 - adjustment) + (i + 0.5) / scale - 0.5
    raise ValueError(f"coordinate {coordinate!r}")


def _nearest(x: float, mode: str) -> int:
    if mode == "round_prefer_floor":
        return math.ceil(x - 0.5)
    if mode == "round_prefer_ceil":
        return math.floor(x + 0.5)
    return math.floor(x) if mode == "floor" else math.ceil(x)


def _cubic(s: float, a: float) -> float:
    s = abs(s)
    if s <= 1:
        return (a + 2) * s**3 - (a + 3) * s**2 + 1
    return a * s**3 - 5 * a * s**2 + 8 * a * s - 4 * a if s < 2 else 0.0


def _weights(i, scale, size_in, size_out, attrs) -> list[tuple[int, float]]:
    """(source index, weight) of the elements that make up output element i."""
    x = _source(i, scale, size_in, size_out, attrs["coordinate"])
    low = math.floor(x)
    if attrs["mode"] == "nearest":
        taps = [(_nearest(x, attrs["nearest_mode"]), 1.0)]
    elif attrs["mode"] == "linear":
        taps = [(low, 1 - (x - low)), (low + 1, x - low)]
    else:
        taps = [(low + k, _cubic(x - (low + k), attrs.get("cubic_coeff", -0.75))) for k in range(-1, 3)]
    if attrs.get("exclude_outside", False):
        taps = [(k, w if 0 <= k < size_in else 0.0) for k, w in taps]
        total = sum(w for _, w in taps)
        taps = [(k, w / total) for k, w in taps]
    return [(min(max(k, 0), size_in - 1), w) for k, w in taps]


@op("resize")
def _resize(args, attrs):
    x = args[0]
    y = wide(x).astype(np.float64) if attrs["mode"] != "nearest" else x
    for axis, (size, scale) in enumerate(zip(attrs["sizes"], attrs["scales"])):
        scale = scale or size / max(x.shape[axis], 1)
        if size == y.shape[axis] and scale == 1.0:
            continue
        rows = []
        for i in range(size):
            taps = _weights(i, scale, x.shape[axis], size, attrs)
            if attrs["mode"] == "nearest":
                rows.append(np.take(y, taps[0][0], axis=axis))
            else:
                rows.append(sum(np.take(y, k, axis=axis) * w for k, w in taps))
        y = np.stack(rows, axis=axis) if rows else np.zeros((*y.shape[:axis], 0, *y.shape[axis + 1 :]), y.dtype)
    return narrow(y, x.dtype)
