"""Steps on [N, C, spatial...]."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .activations import ACTIVATIONS, activation
from .builder import Builder, DroppedError, step
from .tokens import layer_norm


def placed_kernel(b: Builder, extents: Sequence[int], kernels: Sequence[int]) -> tuple[list[int], dict]:
    """A kernel of an extent's size at most, and attributes of where it goes."""
    square = b.chance(0.8)
    size = b.pick(kernels)
    kernel = [size if square else b.pick(kernels) for _ in extents]
    dilation = b.pick((1, 1, 1, 1, 2, 3))
    strides = [b.pick((1, 1, 1, 2, 3))] * len(extents)
    if b.chance(0.1):
        strides = [b.pick((1, 2)) for _ in extents]
    begins = [b.pick((k // 2 * dilation, k // 2 * dilation, 0, k // 2)) for k in kernel]
    ends = begins if b.chance(0.85) else [b.pick((0, p, p + 1)) for p in begins]
    for i, extent in enumerate(extents):
        if extent + begins[i] + ends[i] < (kernel[i] - 1) * dilation + 1:
            raise DroppedError("kernel")
    return kernel, {"strides": strides, "dilations": [dilation] * len(extents), "pads": [*begins, *ends]}


def _after_conv(b: Builder, y: str) -> str:
    if b.chance(0.4):
        y = b.batch_norm(y)
    if b.chance(0.15):
        y = b.add_to(y)
    if b.chance(0.6):
        y = activation(b, y)
    return b.add_to(y) if b.chance(0.2) else y


@step(3, 4, 5, weight=3)
def conv(b, x):
    kernel, attributes = placed_kernel(b, b.shape(x)[2:], (1, 2, 3, 3, 3, 5, 7))
    out = b.shape(x)[1] if b.chance(0.3) else b.pick(b.sizes.channels)
    return _after_conv(b, b.conv(x, out, kernel, **attributes))


@step(3, 4, 5, weight=2)
def pointwise_conv(b, x):
    out = b.shape(x)[1] if b.chance(0.3) else b.pick(b.sizes.channels)
    stride = b.pick((1, 1, 1, 2))
    n = len(b.shape(x)) - 2
    return _after_conv(b, b.conv(x, out, [1] * n, strides=[stride] * n))


@step(3, 4, 5, weight=2)
def depthwise_conv(b, x):
    c = b.shape(x)[1]
    kernel, attributes = placed_kernel(b, b.shape(x)[2:], (2, 3, 3, 3, 5, 7))
    return _after_conv(b, b.conv(x, c * b.pick((1, 1, 1, 2)), kernel, group=c, **attributes))


@step(3, 4, weight=1)
def grouped_conv(b, x):
    c = b.shape(x)[1]
    groups = b.pick([g for g in range(1, c + 1) if c % g == 0])
    kernel, attributes = placed_kernel(b, b.shape(x)[2:], (1, 3, 3, 5))
    return _after_conv(b, b.conv(x, groups * b.pick((1, 2, 3, 4, 8)), kernel, group=groups, **attributes))


@step(4, weight=2)
def winograd_conv(b, x):
    """3x3 with stride 1, of many channels, a residual or an activation behind it."""
    wide = b.conv(x, b.pick((16, 32, 33, 64)), [1, 1])
    return _after_conv(b, b.conv(wide, b.pick((16, 32, 48, 64)), [3, 3], pads=[1] * 4))


@step(3, 4, weight=0.7)
def conv_transpose(b, x):
    c, out = b.shape(x)[1], b.pick(b.sizes.channels[:12])
    n = len(b.shape(x)) - 2
    k, s = b.pick((1, 2, 3, 4)), b.pick((1, 2))
    groups = c if c == out and b.chance(0.3) else 1
    w = b.weight((c, out // groups, *[k] * n), 1 / math.sqrt(c * k))
    bias = [b.weight((out,), 0.3)] if b.chance(0.5) else []
    pads = [b.pick((0, (k - 1) // 2))] * (2 * n)
    return b.node("ConvTranspose", x, w, *bias, strides=[s] * n, pads=pads, group=groups)


@step(4, weight=2)
def inverted_residual(b, x):
    c = b.shape(x)[1]
    act = b.pick(list(ACTIVATIONS))

    def norm_act(y):
        y = b.batch_norm(y) if b.chance(0.5) else y
        return ACTIVATIONS[act](b, y) if b.chance(0.9) else y

    wide = norm_act(b.conv(x, c * b.pick((1, 2, 3, 4, 6)), [1, 1]))
    k, s = b.pick((3, 3, 5, 7)), b.pick((1, 1, 2))
    y = norm_act(b.conv(wide, b.shape(wide)[1], [k, k], group=b.shape(wide)[1], strides=[s, s], pads=[k // 2] * 4))
    if b.chance(0.3):
        y = squeeze_excite(b, y)
    y = b.conv(y, c if s == 1 else b.pick(b.sizes.channels), [1, 1])
    y = b.batch_norm(y) if b.chance(0.3) else y
    return b.node("Add", *b.either_way(x, y)) if b.shape(x) == b.shape(y) else y


@step(4, weight=1)
def squeeze_excite(b, x):
    c = b.shape(x)[1]
    if b.chance(0.5):
        y = b.node("GlobalAveragePool", x)
    else:
        y = b.node("ReduceMean", x, b.ints(2, 3), keepdims=1)
    y = b.conv(y, max(1, c // b.pick((1, 2, 4))), [1, 1])
    y = b.conv(activation(b, y), c, [1, 1])
    return b.node("Mul", *b.either_way(x, b.node(b.pick(("Sigmoid", "HardSigmoid")), y)))


@step(3, 4, 5, weight=1.2)
def pool(b, x):
    kernel, attributes = placed_kernel(b, b.shape(x)[2:], (2, 3, 3))
    way = b.pick(("MaxPool", "AveragePool"))
    pads = attributes["pads"]
    n = len(kernel)
    if any(pads[i] >= kernel[i] or pads[i + n] >= kernel[i] for i in range(n)):
        raise DroppedError("pads")
    if way == "AveragePool":
        attributes["count_include_pad"] = int(b.chance(0.5))
        attributes.pop("dilations")
    return b.node(way, x, kernel_shape=kernel, **attributes)


@step(3, 4, 5, weight=0.4)
def global_pool(b, x):
    return b.node(b.pick(("GlobalAveragePool", "GlobalMaxPool")), x)


@step(4, weight=0.6)
def resize(b, x):
    h, w = b.shape(x)[2:]
    size = (2 * h, 2 * w) if b.chance(0.6) else (b.pick(b.sizes.pixels), b.pick(b.sizes.pixels))
    mode = b.pick(("nearest", "linear", "linear"))
    coordinate = b.pick(("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"))
    extra = {"nearest_mode": "floor"} if mode == "nearest" else {}
    if mode == "nearest":  # of other sizes a coordinate's last bit decides
        coordinate, size = "asymmetric", (2 * h, 2 * w)
    sizes = b.ints(*b.shape(x)[:2], *size)
    return b.node("Resize", x, "", "", sizes, mode=mode, coordinate_transformation_mode=coordinate, **extra)


@step(4, weight=0.5)
def shuffle_pixels(b, x):
    c, h, w = b.shape(x)[1:]
    r = b.pick((2, 3))
    if h % r == 0 and w % r == 0 and b.chance(0.5):
        return b.node("SpaceToDepth", x, blocksize=r)
    if c % (r * r) == 0:
        return b.node("DepthToSpace", x, blocksize=r, mode=b.pick(("CRD", "DCR")))
    raise DroppedError("extent")


@step(4, weight=0.6)
def shuffle_channels(b, x):
    n, c, h, w = b.shape(x)
    g = b.pick([g for g in range(1, c + 1) if c % g == 0])
    y = b.node("Transpose", b.reshape(x, n, g, c // g, h, w), perm=[0, 2, 1, 3, 4])
    return b.reshape(y, n, c, h, w)


@step(3, 4, weight=0.8)
def channel_norm(b, x):
    c = b.shape(x)[1]
    scale, bias = b.constant(1 + b.array((c,), 0.2)), b.constant(b.array((c,), 0.2))
    way = b.pick(("instance", "group", "batch"))
    if way == "instance":
        b.check_spread(x, (), c)
        return b.node("InstanceNormalization", x, scale, bias, epsilon=1e-5)
    if way == "batch":
        return b.batch_norm(x)
    groups = b.pick([g for g in range(1, c + 1) if c % g == 0])
    n, spatial = b.shape(x)[0], b.shape(x)[2:]
    b.check_spread(x, (), groups)
    y = b.reshape(x, n, groups, -1)
    ones, zeros = b.constant(np.ones(groups, np.float32)), b.constant(np.zeros(groups, np.float32))
    y = b.reshape(b.node("InstanceNormalization", y, ones, zeros, epsilon=1e-5), n, c, *spatial)
    affine = (c, *[1] * len(spatial))
    y = b.node("Mul", y, b.constant(1 + b.array(affine, 0.2)))
    return b.node("Add", y, b.constant(b.array(affine, 0.2)))


@step(4, weight=0.7)
def channels_last_block(b, x):
    """ConvNeXt's: depthwise, then norm and two linear layers over channels that lie last, and back."""
    c = b.shape(x)[1]
    k = b.pick((3, 5, 7))
    y = b.conv(x, c, [k, k], group=c, pads=[k // 2] * 4)
    y = layer_norm(b, b.node("Transpose", y, perm=[0, 2, 3, 1]))
    y = b.linear(activation(b, b.linear(y, c * b.pick((1, 2, 4)))), c)
    if b.chance(0.5):
        y = b.node("Mul", *b.either_way(y, b.weight((c,), 0.5)))
    y = b.node("Transpose", y, perm=[0, 3, 1, 2])
    return b.node("Add", *b.either_way(x, y)) if b.chance(0.7) else y
