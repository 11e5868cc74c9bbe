"""Steps of quantised networks of images: convolutions of any kind in chains and with shortcuts, pools, concatenations and
gates between them, one quantised tensor for several of them.

Exact, as quantised.py says, though scales are any: what is quantised lies nowhere near the middle of two.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import NodeProto, TensorProto

from . import images, movement
from .builder import STEPS, Builder, DroppedError, step
from .quantised import I8, U8, dequantise, leave_integers, odd_step, qlinear_conv, quantise_by, quantise_dynamically

KIND = "quantised images"
CHANNELS = (1, 2, 3, 4, 5, 8, 8, 13, 13, 16, 16, 32, 64, 70)
_DRAWN_SCALES = 32  # that are tried
_MARGIN = 4e-4  # of a step, from the middle of two: sums of floats err by less


def start(b: Builder) -> None:
    """A signal, an image or a volume, of bytes or quantised."""
    b.largest = 2.0**60  # less than a pool's of nothing but padding
    rank = b.pick((3, 4, 4, 4, 4, 4, 5))
    shape = (b.pick(b.sizes.batches), b.pick(CHANNELS), *(b.pick(b.sizes.pixels) for _ in range(rank - 2)))
    if math.prod(shape) > b.sizes.most_elements // 4:
        shape = (shape[0], *(min(extent, 8) for extent in shape[1:]))
    if b.chance(0.25):
        b.live.append(b.given(b.data.integers(0, 256, shape).astype(b.pick((I8, U8)))))
        b.live.append(leave_integers(b, b.live[0]))
        return
    b.live.append(b.given((b.data.integers(-40, 41, shape) * 2.0**-4).astype(np.float32)))
    b.attempt(STEPS[KIND]["again"], b.live[0])


def maker(b: Builder, x: str) -> NodeProto | None:
    return next((node for node in b.graph.nodes if x in node.output), None)


def scale_of(b: Builder, x: str) -> float | None:
    """Of all of x, if it is what was quantised."""
    node = maker(b, x)
    if node is None or node.op_type != "DequantizeLinear" or b.graph.values[node.input[1]].size > 1:
        return None
    return float(b.graph.values[node.input[1]].reshape(()))


def quantise(b: Builder, x: str, unit: float | None = None) -> tuple[str, str, str]:
    """x as integers, their scale and zero point, which now and then are those of others."""
    values = b.graph.values[x].astype(np.float64)
    known = [node.input[1:3] for node in b.graph.nodes if node.op_type == "QuantizeLinear"]
    if known and b.chance(0.15):
        scale, point = b.pick(known)
        if is_clear(values / float(b.graph.values[scale].reshape(-1)[0])):
            return quantise_by(b, x, scale, point, margin=_MARGIN)
    dtype = b.pick((I8, U8, U8))
    info = np.iinfo(dtype)
    middle = (info.min + info.max + 1) // 2
    drawn = int(b.data.integers(info.min, info.max, endpoint=True))
    low = info.min if values.min() >= 0 else middle
    point = b.constant(np.array(b.pick((low, low, middle, drawn, drawn, info.min, info.max)), dtype))
    return quantise_by(b, x, b.constant(np.float32(clear_step(b, values, unit))), point, margin=_MARGIN)


def is_clear(quotient: np.ndarray) -> bool:
    return np.abs(quotient - np.floor(quotient) - 0.5).min() >= _MARGIN


def clear_step(b: Builder, values: np.ndarray, unit: float | None) -> float:
    """Of which no value is so and a half; 255 of them are about what the values span."""
    largest = float(np.abs(values).max())
    try:
        drawn = [odd_step(b, values, 127, unit)]
    except DroppedError:
        drawn = []
    drawn += [largest / 127 * factor for factor in b.data.uniform(0.7, 2, _DRAWN_SCALES)]
    for one in map(np.float32, drawn):
        if one > 0 and is_clear(values / float(one)):
            return float(one)
    raise DroppedError("a value lies in the middle of two")


def finished(b: Builder, y: str, unit: float | None = None) -> list[str]:
    """Perhaps between bounds; as integers, and floats of these, one of them or two."""
    way = b.pick(("", "", "", "relu", "relu", "clip", "clip", "max", "leaky"))
    if way == "relu":
        y = b.node("Relu", y)
    if way == "clip":
        part = float(np.abs(b.graph.values[y]).max()) / 2
        low, high = b.pick(((0, 6), (-1, 1), (0, part), (0, part), (-part, part), (part / 4, part)))
        y = b.node("Clip", y, b.constant(np.float32(low)), b.constant(np.float32(high)))
    if way == "max":
        y = b.node("Max", *b.either_way(y, b.constant(np.float32(0))))
    if way == "leaky":
        y = b.node("LeakyRelu", y, alpha=0.125)
    if b.chance(0.1):
        return [y]
    q, scale, point = quantise(b, y, unit)
    if b.chance(0.1):  # by what it has been quantised by
        q = quantise_by(b, dequantise(b, q, scale, point), scale, point)[0]
    return [q, *(dequantise(b, q, scale, point) for _ in range(2 if b.chance(0.05) else 1))]


def filters(b: Builder, shape) -> tuple[str, str]:
    """Weights, small or of all integers that there are, and their scale: one, or one for each filter."""
    dtype = b.pick((I8, I8, U8))
    info = np.iinfo(dtype)
    middle = (info.min + info.max + 1) // 2
    count = () if b.chance(0.4) else (shape[0],)
    way = b.pick(("small", "small", "small", "all", "ends"))
    drawn = b.data.integers(-7, 8, shape) + middle if way == "small" else b.data.integers(info.min, info.max + 1, shape)
    if way == "ends":
        drawn = np.where(b.data.random(shape) < 0.7, b.data.choice((info.min, info.max), shape), drawn)
    points = {
        "middle": np.full(count, middle),
        "zero": np.zeros(count),
        "one": np.full(count, middle + b.data.integers(-5, 6)),
        "each": middle + b.data.integers(-5, 6, count),
    }[b.pick((*["middle"] * 9, "zero", "one", "each"))]
    scale = b.constant(np.float32(2.0) ** b.data.integers(-8, -5, count).astype(np.float32))
    axis = 0 if count else None
    return dequantise(b, b.constant(drawn.astype(dtype)), scale, b.constant(points.astype(dtype)), axis), scale


def convolved(b: Builder, x: str, out: int, kernel, group: int = 1, **attributes) -> tuple[str, float | None]:
    """Also what its values are multiples of, where that is known."""
    w, scale = filters(b, (out, b.shape(x)[1] // group, *kernel))
    by = scale_of(b, x)
    way = b.pick(("none", "floats", "integers", "integers", "integers"))
    biases = []
    if way == "floats":
        biases, by = [b.constant(b.array((out,), 0.3))], None
    elif way == "integers" and by is not None:
        products = np.float32(by) * b.graph.values[scale]
        drawn = b.constant(b.data.integers(*b.pick(((-200, 201), (-20000, 20001))), (out,)).astype(np.int32))
        axis = 0 if products.ndim else None
        biases = [dequantise(b, drawn, b.constant(products), b.constant(np.zeros_like(products, np.int32)), axis)]
    y = b.node("Conv", x, w, *biases, group=group, **attributes)
    return y, None if by is None else by * float(b.graph.values[scale].min())


def same(kernel) -> dict:
    """Pads with which an image keeps its size."""
    return {"pads": [*((k - 1) // 2 for k in kernel), *(k // 2 for k in kernel)]}


def layer(b: Builder, x: str, out: int, kernel, group: int = 1, **attributes) -> list[str]:
    return finished(b, *convolved(b, x, out, kernel, group, **attributes))


def pointwise(b: Builder, x: str, out: int) -> str:
    return layer(b, x, out, [1] * (len(b.shape(x)) - 2))[-1]


@step(3, 4, 5, weight=4, kind=KIND)
def conv(b, x):
    kernel, attributes = images.placed_kernel(b, b.shape(x)[2:], (1, 1, 2, 3, 3, 3, 5, 7))
    return layer(b, x, b.pick(CHANNELS), kernel, **attributes)


@step(3, 4, 5, weight=3, kind=KIND)
def depthwise_conv(b, x):
    c = b.shape(x)[1]
    kernel, attributes = images.placed_kernel(b, b.shape(x)[2:], (1, 2, 3, 3, 3, 5, 7))
    return layer(b, x, c * b.pick((1, 1, 1, 1, 2, 3)), kernel, c, **attributes)


@step(3, 4, 5, weight=1.5, kind=KIND)
def grouped_conv(b, x):
    c = b.shape(x)[1]
    groups = b.pick([g for g in range(1, c + 1) if c % g == 0])
    kernel, attributes = images.placed_kernel(b, b.shape(x)[2:], (1, 2, 3, 3, 5))
    return layer(b, x, groups * b.pick((1, 2, 3, 4, 8, 16)), kernel, groups, **attributes)


@step(3, 4, 5, weight=0.7, kind=KIND)
def pointwise_conv_of_floats(b, x):
    w = b.data.integers(-7, 8, (b.pick(CHANNELS), b.shape(x)[1], *[1] * (len(b.shape(x)) - 2))) / 64
    return finished(b, b.node("Conv", x, b.constant(w.astype(np.float32))))


@step(3, 4, 5, weight=0.7, kind=KIND)
def dynamic_conv(b, x):
    """Quantised by the run's own range."""
    y = quantise_dynamically(b, x)
    scale, point = b.sibling(y, 1), b.sibling(y, 2)
    kernel, attributes = images.placed_kernel(b, b.shape(x)[2:], (1, 2, 3, 3))
    c, depthwise = b.shape(x)[1], b.chance(0.3)
    out = c if depthwise else b.pick(CHANNELS)
    w = b.constant(b.data.integers(-128, 128, (out, 1 if depthwise else c, *kernel)).astype(np.int8))
    y = b.node("ConvInteger", y, w, point, group=c if depthwise else 1, **attributes)
    y = b.node("Cast", y, to=TensorProto.FLOAT)
    y = b.node("Mul", y, b.node("Mul", *b.either_way(scale, b.constant(np.float32(2.0**-9)))))
    if b.chance(0.6):
        y = b.node("Add", y, b.constant(b.array((out, *[1] * len(kernel)), 0.3)))
    return finished(b, y)


@step(3, 4, 5, weight=2, kind=KIND)
def residual_block(b, x):
    """One or two convolutions beside a shortcut, which may have one of its own."""
    out = b.shape(x)[1] if b.chance(0.7) else b.pick(CHANNELS)
    y = x
    for _ in range(b.pick((1, 2, 2))):
        kernel = [b.pick((1, 3, 3))] * (len(b.shape(x)) - 2)
        group = out if b.chance(0.3) and b.shape(y)[1] == out else 1
        y = layer(b, y, out, kernel, group, **same(kernel))[-1]
    short = x if b.shape(x) == b.shape(y) and b.chance(0.8) else pointwise(b, x, out)
    return finished(b, b.node("Add", *b.either_way(y, short)))


@step(3, 4, 5, weight=1.5, kind=KIND)
def joined(b, x):
    """Images of several convolutions of one side by side, and perhaps itself: each quantised, the whole again or not."""
    parts = [pointwise(b, x, b.pick(CHANNELS[:8])) for _ in range(b.pick((1, 2, 2, 3)))]
    parts.append(x if b.chance(0.4) else pointwise(b, x, b.pick(CHANNELS[:8])))
    y = b.node("Concat", *parts, axis=b.pick((1, 1, 1 - len(b.shape(x)))))
    return finished(b, y) if b.chance(0.6) else y


@step(3, 4, 5, weight=1, kind=KIND)
def binary(b, x):
    alike = [y for y in b.live if b.dtype(y) == np.float32 and b.shape(y) == b.shape(x)]
    return finished(b, b.node(b.pick(("Add", "Add", "Sub", "Mul", "Max")), *b.either_way(x, b.pick(alike))))


@step(3, 4, 5, weight=2, kind=KIND)
def pool(b, x):
    y = images.pool(b, x)
    return finished(b, y) if b.chance(0.6) else y


@step(3, 4, 5, weight=0.6, kind=KIND)
def global_pool(b, x):
    axes = b.ints(*range(2, len(b.shape(x))))
    way = b.pick(("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax"))
    y = b.node(way, x) if way.startswith("Global") else b.node(way, x, axes, keepdims=int(b.chance(0.7)))
    return finished(b, y)


@step(3, 4, 5, weight=1.2, kind=KIND)
def squeeze_excite(b, x):
    c = b.shape(x)[1]
    y = b.node("GlobalAveragePool", x)
    y = finished(b, y)[-1] if b.chance(0.8) else y
    y = pointwise(b, pointwise(b, y, b.pick((1, 4, 8, max(1, c // 4)))), c)
    y = b.node(b.pick(("Sigmoid", "HardSigmoid")), y)
    y = finished(b, y)[-1] if b.chance(0.7) else y
    return finished(b, b.node("Mul", *b.either_way(x, y)))


@step(3, 4, 5, weight=5, kind=KIND)
def backbone(b, x):
    """Layers of which only the next one sees the image, most of at least a vector's channels."""
    layers = (conv, depthwise_conv, depthwise_conv, residual_block, residual_block, pool, squeeze_excite)
    for _ in range(b.pick((2, 3, 4, 6))):
        if b.shape(x)[1] < 8 and b.chance(0.8):
            x = pointwise(b, x, b.pick((8, 13, 16, 32, 70)))
        made = b.pick(layers)(b, x)
        x = made if isinstance(made, str) else made[-1]
    return x


@step(3, 4, 5, weight=0.6, kind=KIND)
def smooth(b, x):
    """An activation that no product takes in."""
    return finished(b, b.node(b.pick(("Sigmoid", "HardSwish", "HardSigmoid", "Tanh")), x))


@step(3, 4, 5, weight=0.6, kind=KIND)
def last_and_back(b, x):
    """Transposes around a node or none."""
    rank = len(b.shape(x))
    y = b.node("Transpose", x, perm=[0, *range(2, rank), 1])
    if b.chance(0.7):
        y = finished(b, y)[-1]
    y = b.node("Transpose", y, perm=[0, rank - 1, *range(1, rank - 1)])
    return y if b.chance(0.5) else finished(b, y)


@step(4, weight=0.6, kind=KIND)
def resize(b, x):
    y = images.resize(b, x)
    return finished(b, y) if b.chance(0.7) else y


@step(4, weight=0.4, kind=KIND)
def shuffle(b, x):
    return b.pick((images.shuffle_pixels, images.shuffle_channels))(b, x)


@step(3, 4, 5, weight=0.7, kind=KIND)
def again(b, x):
    return finished(b, x)


@step(3, 4, 5, weight=0.6, kind=KIND, types="iu")
def dequantise_again(b, x):
    """For another user, by the same scale."""
    user = next((node for node in b.graph.nodes if node.op_type == "DequantizeLinear" and node.input[0] == x), None)
    if user is None:
        return leave_integers(b, x)
    return b.node("DequantizeLinear", *user.input)


@step(3, 4, weight=0.3, kind=KIND, types="iu")
def pool_bytes(b, x):
    kernel, attributes = images.placed_kernel(b, b.shape(x)[2:], (2, 3))
    return b.node("MaxPool", x, kernel_shape=kernel, **attributes)


step(3, 4, 5, weight=1, kind=KIND, types="iu")(qlinear_conv)
for _step in (
    movement.transpose, movement.reshape, movement.slice_, movement.concat, movement.split, movement.pad,
):  # fmt: skip
    _one = STEPS["float"][_step.__name__]
    step(*_one.ranks, weight=0.25, kind=KIND, types="fiu")(_step)
