"""Steps of quantised networks, as exporters write them: pairs of QuantizeLinear and DequantizeLinear around float layers,
and the QLinear and Integer operators.

Exact: floats are small integers times a unit, and what is quantised is an integer times an odd part of its scale, so
that no value lies where rounding could go either way, whatever the order of the sums before it.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from . import movement
from .builder import STEPS, Builder, DroppedError, step

I8, U8, I32 = (np.dtype(name) for name in ("int8", "uint8", "int32"))
_MARGIN = 2e-3  # of a step: no value that is rounded is as near to the middle of two
_FINEST = 2.0**-40  # all units are multiples of it


def start(b: Builder) -> None:
    """An image, tokens or rows; mostly floats, now and then quantised already."""
    b.largest = math.inf
    way = b.pick(("image", "image", "tokens", "matrix"))
    shape = {
        "image": (b.pick(b.sizes.batches), b.pick(b.sizes.channels), b.pick(b.sizes.pixels), b.pick(b.sizes.pixels)),
        "tokens": (b.pick(b.sizes.batches), b.pick(b.sizes.tokens), b.pick(b.sizes.channels)),
        "matrix": (b.pick(b.sizes.tokens), b.pick(b.sizes.channels)),
    }[way]
    if b.chance(0.3):
        b.live.append(b.given(b.data.integers(0, 256, shape).astype(np.uint8)))
        return
    b.live.append(b.given((b.data.integers(-40, 41, shape) * 2.0**-4).astype(np.float32)))
    b.attempt(STEPS["quantised"]["pair"], b.live[0])


def unit_of(values: np.ndarray) -> float:
    """The largest number that all are multiples of."""
    if np.abs(values).max() > 2.0**20:
        raise DroppedError("large values")
    return float(np.gcd.reduce(np.rint(np.asarray(values, np.float64).ravel() / _FINEST).astype(np.int64))) * _FINEST


def odd_step(b: Builder, values: np.ndarray, levels: int, unit: float | None) -> float:
    """A scale that is an odd multiple of their unit, by which the largest has some part of that many levels."""
    unit = unit or unit_of(values)
    if unit == 0:
        return 1.0
    wanted = float(np.abs(values).max()) / unit / (levels * b.pick((0.3, 0.9, 0.9, 1.2)))
    odd = max(1, 2 * round(wanted / 2) + 1)
    if odd > 201:
        raise DroppedError("the values have too many levels")
    return unit * odd


def quantise(b: Builder, x: str, axis: int | None = None, unit: float | None = None) -> tuple[str, str, str]:
    """x as integers; also their scale and zero point. With an axis, each of its indices has its own."""
    values = b.graph.values[x].astype(np.float64)
    dtype = b.pick((I8, U8, U8))
    parts = [values] if axis is None else list(np.moveaxis(values, axis, 0))
    scale = np.array([odd_step(b, part, 127, unit) for part in parts], np.float32)
    point = np.array(b.data.integers(*((0, 256) if dtype == U8 else (-20, 21)), len(parts)), dtype)
    if b.chance(0.3):
        point[:] = 128 if dtype == U8 else 0
    if axis is None:
        scale, point = (v[0] if b.chance(0.8) else v for v in (scale, point))
        point = point.reshape(np.shape(scale))
    return quantise_by(b, x, b.constant(scale), b.constant(point), axis)


def quantise_by(
    b: Builder, x: str, scale: str, point: str, axis: int | None = None, margin: float = _MARGIN
) -> tuple[str, str, str]:
    values, step = b.graph.values[x].astype(np.float64), b.graph.values[scale].astype(np.float64)
    if step.size > 1:
        step = step.reshape([-1 if i == axis else 1 for i in range(values.ndim)])
    quotient = values / step.reshape(()) if step.size == 1 else values / step
    if np.abs(quotient - np.floor(quotient) - 0.5).min() < margin:
        raise DroppedError("a value lies in the middle of two")
    return b.node("QuantizeLinear", x, scale, point, **along(b, x, axis)), scale, point


def along(b: Builder, x: str, axis: int | None) -> dict:
    if axis is None:
        return {}
    return {"axis": axis if b.chance(0.6) else axis - len(b.shape(x))}


def dequantise(b: Builder, x: str, scale: str, point: str, axis: int | None = None) -> str:
    points = [] if not b.graph.values[point].any() and b.chance(0.5) else [point]
    return b.node("DequantizeLinear", x, scale, *points, **along(b, x, axis))


def quantise_dequantise(b: Builder, x: str, axis: int | None = None, unit: float | None = None) -> str:
    return dequantise(b, *quantise(b, x, axis, unit), axis)


def weights(b: Builder, shape, axis: int | None) -> tuple[str, str, str]:
    """Small integers, their scales (of the axis, powers of two) and zero points."""
    dtype = b.pick((I8, I8, U8))
    middle = 128 if dtype == U8 else 0
    drawn = b.constant((b.data.integers(-7, 8, tuple(shape)) + middle).astype(dtype))
    extent = () if axis is None else (shape[axis],)
    scale = b.constant(np.float32(2.0) ** b.data.integers(-7, -4, extent).astype(np.float32))
    return drawn, scale, b.constant(np.full(extent, middle, dtype))


def scale_of(b: Builder, x: str) -> float:
    return unit_of(b.graph.values[x])


def bias(b: Builder, count: int, x: str, scale: str) -> list[str]:
    """i32, whose scale is that of the products."""
    if b.chance(0.3):
        return []
    products = np.float32(scale_of(b, x)) * b.graph.values[scale]
    drawn = b.constant(b.data.integers(-200, 200, (count,)).astype(np.int32))
    return [b.node("DequantizeLinear", drawn, b.constant(products), **({"axis": 0} if products.ndim else {}))]


def finished(b: Builder, y: str, unit: float | None = None) -> str:
    """Perhaps a Relu, perhaps an Add of what has the same shape; then quantised."""
    same = [name for name in b.live if name != y and b.same_type(name, y)]
    if same and unit is None and b.chance(0.3):
        y = b.node("Add", *b.either_way(y, b.pick(same)))
    if b.chance(0.4):
        y = b.node("Relu", y)
    return quantise_dequantise(b, y, unit=unit) if b.chance(0.85) else y


def windows(b: Builder, shape) -> dict:
    k = [min(b.pick((1, 2, 3, 3)), extent) for extent in shape]
    pads = [b.pick((0, size // 2)) for size in k]
    return {"kernel_shape": k, "strides": [b.pick((1, 1, 2))] * len(k), "pads": pads * 2}


@step(2, 3, 4, weight=2, kind="quantised")
def pair(b, x):
    axis = int(b.random.integers(len(b.shape(x)))) if b.chance(0.25) else None
    return quantise_dequantise(b, x, axis)


@step(2, 3, 4, weight=1, kind="quantised")
def leave_quantised(b, x):
    return quantise(b, x)[0]


@step(2, 3, 4, weight=3, kind="quantised", types="iu")
def leave_integers(b, x):
    dtype = b.dtype(x)
    if dtype.itemsize > 1 and dtype != I32:
        raise DroppedError("type")
    axis = int(b.random.integers(len(b.shape(x)))) if b.chance(0.2) else None
    extent = () if axis is None else (b.shape(x)[axis],)
    scale = b.constant(np.float32(2.0) ** b.data.integers(-7, -3, extent).astype(np.float32))
    info = np.iinfo(dtype)
    point = b.data.integers(info.min, info.max, extent, endpoint=True) if dtype != I32 else np.zeros(extent)
    return dequantise(b, x, scale, b.constant(np.asarray(point, dtype)), axis)


@step(3, 4, weight=3, kind="quantised")
def conv(b, x):
    c = b.shape(x)[1]
    group = b.pick([g for g in (1, 1, 1, 2, c) if c % g == 0])
    out = c if group == c else group * b.pick((1, 3, 8, 16))
    attributes = windows(b, b.shape(x)[2:])
    axis = 0 if b.chance(0.6) else None
    w, scale, point = weights(b, (out, c // group, *attributes["kernel_shape"]), axis)
    y = b.node("Conv", x, dequantise(b, w, scale, point, axis), *bias(b, out, x, scale), group=group, **attributes)
    return finished(b, y)


@step(2, 3, weight=3, kind="quantised")
def linear(b, x):
    k, out = b.shape(x)[-1], b.pick(b.sizes.channels)
    if len(b.shape(x)) == 2 and b.chance(0.5):
        turned = b.chance(0.5)
        axis = (0 if turned else 1) if b.chance(0.6) else None
        w, scale, point = weights(b, (out, k) if turned else (k, out), axis)
        y = b.node("Gemm", x, dequantise(b, w, scale, point, axis), *bias(b, out, x, scale), transB=int(turned))
    else:
        axis = 1 if b.chance(0.6) else None
        w, scale, point = weights(b, (k, out), axis)
        y = b.node("MatMul", x, dequantise(b, w, scale, point, axis))
        y = b.node("Add", *b.either_way(y, *b_)) if (b_ := bias(b, out, x, scale)) else y
    return finished(b, y)


@step(2, 3, 4, weight=1, kind="quantised")
def element_by_element(b, x):
    op = b.pick(("Add", "Add", "Mul", "Sub", "Max"))
    same = [y for y in b.live if b.dtype(y) == np.float32 and b.shape(y) == b.shape(x)]
    return finished(b, b.node(op, *b.either_way(x, b.pick(same))))


@step(4, weight=1.5, kind="quantised")
def pool(b, x):
    unit = scale_of(b, x)
    if b.chance(0.3):
        whole = math.prod(b.shape(x)[2:])
        return finished(b, b.node("GlobalAveragePool", x), unit / whole)
    attributes = windows(b, b.shape(x)[2:])
    if b.chance(0.5):
        return finished(b, b.node("MaxPool", x, **attributes))
    y = b.node("AveragePool", x, count_include_pad=1, **attributes)
    return finished(b, y, unit / math.prod(attributes["kernel_shape"]))


@step(2, 3, 4, weight=0.7, kind="quantised")
def bounded(b, x):
    return (
        b.node("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(6))) if b.chance(0.5) else b.node("Relu", x)
    )


def quantise_dynamically(b: Builder, x: str) -> str:
    values = b.graph.values[x].astype(np.float64)
    step_ = np.float32(max(values.max(), 0) - min(values.min(), 0)) / np.float32(255)
    quotient = values / max(float(step_), 1e-30)
    if step_ == 0 or np.abs(quotient - np.floor(quotient) - 0.5).min() < 1e-4:
        raise DroppedError("a value lies in the middle of two")
    return b.node("DynamicQuantizeLinear", x, outputs=3)


@step(2, 3, 4, weight=1, kind="quantised")
def dynamic(b, x):
    """Quantised by the run's own range, for a product of integers."""
    y = quantise_dynamically(b, x)
    scale, point = b.sibling(y, 1), b.sibling(y, 2)
    w, by, w_point = weights(b, (b.shape(x)[-1], b.pick(b.sizes.channels)), 1 if b.chance(0.5) else None)
    y = b.node("MatMulInteger", y, w, point, w_point)
    y = b.node("Cast", y, to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float32)))
    b.node("Mul", y, b.node("Mul", *b.either_way(scale, by)))
    return y


def result_scale(b: Builder, sums: str, product: np.ndarray) -> tuple[str, str]:
    """A scale and a zero point for sums of products whose scales those are."""
    largest = int(np.abs(b.graph.values[sums].astype(np.int64)).max())
    odd = max(1, 2 * round(largest * float(product.max() / product.min()) / b.pick((200, 250, 500))) + 1)
    dtype = b.pick((I8, U8))
    point = np.array(b.data.integers(0, 256) if dtype == U8 else b.data.integers(-128, 128), dtype)
    return b.constant(np.float32(product.min() * odd)), b.constant(point)


@step(3, 4, 5, weight=2, kind="quantised", types="iu")
def qlinear_conv(b, x):
    if b.dtype(x).itemsize > 1:
        raise DroppedError("type")
    c = b.shape(x)[1]
    group = b.pick([g for g in (1, 1, c) if c % g == 0])
    out = group * b.pick((1, 2, 8, 17)) if group == 1 else c
    attributes = windows(b, b.shape(x)[2:])
    w, scale, point = weights(b, (out, c // group, *attributes["kernel_shape"]), 0 if b.chance(0.5) else None)
    x_scale = b.constant(np.float32(b.pick((0.5, 0.25, 0.0078125))))
    x_point = b.constant(np.array(b.data.integers(*((0, 256) if b.dtype(x) == U8 else (-128, 128))), b.dtype(x)))
    before = len(b.graph.nodes)
    if b.dtype(x) == U8:
        plain = b.constant(b.graph.values[w].astype(np.int16) - b.graph.values[point].reshape(-1)[0])
        plain = b.constant(b.graph.values[plain].astype(np.int8))
        sums = b.node("ConvInteger", x, plain, x_point, group=group, **attributes)
    else:
        sums = b.constant(np.array(c // group * 7 * 128))
    del b.graph.nodes[before:]
    product = b.graph.values[x_scale] * b.graph.values[scale].reshape(-1)
    y_scale, y_point = result_scale(b, sums, product)
    if b.dtype(y_point) != b.dtype(x):
        y_point = b.constant(np.zeros((), b.dtype(x)))
    biases = [b.constant(b.data.integers(-500, 500, (out,)).astype(np.int32))] if b.chance(0.6) else []
    return b.node(
        "QLinearConv", x, x_scale, x_point, w, scale, point, y_scale, y_point, *biases, group=group, **attributes
    )


@step(2, 3, 4, weight=2, kind="quantised", types="iu")
def qlinear_matmul(b, x):
    if b.dtype(x).itemsize > 1:
        raise DroppedError("type")
    k, out = b.shape(x)[-1], b.pick(b.sizes.channels)
    w, scale, point = weights(b, (k, out), 1 if b.chance(0.4) else None)
    x_scale = b.constant(np.float32(b.pick((0.5, 0.25, 0.0078125))))
    x_point = b.constant(np.array(b.data.integers(*((0, 256) if b.dtype(x) == U8 else (-128, 128))), b.dtype(x)))
    before = len(b.graph.nodes)
    sums = b.node("MatMulInteger", x, w, x_point, point)
    del b.graph.nodes[before:]
    product = b.graph.values[x_scale] * b.graph.values[scale].reshape(-1)
    y_scale, y_point = result_scale(b, sums, product)
    if b.dtype(y_point) != b.dtype(x):
        y_point = b.constant(np.zeros((), b.dtype(x)))
    return b.node("QLinearMatMul", x, x_scale, x_point, w, scale, point, y_scale, y_point)


for _step in (
    movement.transpose, movement.reshape, movement.slice_, movement.concat, movement.split, movement.unsqueeze,
    movement.squeeze, movement.gather,
):  # fmt: skip
    _one = STEPS["float"][_step.__name__]
    step(*_one.ranks, weight=_one.weight / 3, kind="quantised", types="fiu")(_step)
