"""matmul_integer and conv_integer through the native backend, against the NumPy evaluator, to the last bit: by dot
products of bytes (VNNI of 512 and of 256 bits) and of shorts, with all values that 8 bits have.

Run: .venv/bin/python -m pytest core/backends/native/integer_products_test.py   (after building testing:compile_main)
"""

import itertools
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "testing"))
from harness import FunctionBuilder, Suite, runnable

CPUS = ("sapphirerapids", "cascadelake", "alderlake", "x86-64-v4", "x86-64-v3", "x86-64-v2")
TARGETS = runnable([f"llvm -mcpu={cpu}" for cpu in CPUS])
random = np.random.default_rng(7)
SIGNS = list(itertools.product(("i8", "u8"), repeat=2))


def values(shape, dtype):
    info = np.iinfo({"i8": np.int8, "u8": np.uint8}[dtype])
    return random.integers(info.min, info.max + 1, shape).astype(info.dtype)


def requantised(f, y, inputs, axis=None):
    """As QLinearMatMul and QLinearConv go on: a scale for each channel, rounded, saturated."""
    if axis is None:
        axis = -1 if len(y.shape) < 3 else 1
    shape = (y.shape[axis], *[1] * (len(y.shape) - 2 if axis == 1 else 0))
    inputs.append(random.uniform(1e-5, 1e-3, shape).astype(np.float32))
    y = f.op("mul", f.op("cast", y, dtype="f32"), f.param("scale", "f32", shape))
    return f.op("cast", f.op("clip", f.op("round", y), min=-128.0, max=127.0), dtype="i8")


def quantised(f, x):
    """u8 from an f32 that is computed on the way to the product."""
    y = f.op("add", f.op("round", f.op("mul", x, f.literal(np.float32(8)))), f.literal(np.float32(100)))
    return f.op("cast", f.op("clip", y, min=0.0, max=255.0), dtype="u8")


def product(suite, op, x, w, signs, constant, tail, prepare, attrs):
    """prepare: makes the first operand, of 8 bits, from an f32 input."""
    f = FunctionBuilder()
    inputs = [values(x, signs[0]), values(w, signs[1])]
    if prepare:
        inputs[0] = random.integers(-20, 30, x).astype(np.float32)
        left = prepare(f, f.param("x", "f32", x))
    else:
        left = f.param("x", signs[0], x)
    y = f.op(op, left, f.param("w", signs[1], w), **attrs)
    if tail:
        y = tail(f, y, inputs)
    suite.add(f"{op} {x} {w} {signs} {constant} {attrs}", f.finish([y]), inputs, constant=(1,) if constant else ())


def matmul(suite, a, b, signs, constant=True, tail=None, prepare=None, **attrs):
    product(suite, "matmul_integer", a, b, signs, constant, tail, prepare, attrs)


def matmuls(suite):
    for signs, constant in itertools.product(SIGNS, (True, False)):
        for m, n, k in ((1, 1, 1), (3, 5, 7), (1, 100, 64), (37, 33, 30), (20, 70, 29), (64, 48, 128), (5, 7, 0)):
            matmul(suite, (m, k), (k, n), signs, constant)
        matmul(suite, (70, 29), (40, 29), signs, constant, transpose_b=True)
        matmul(suite, (29, 70), (29, 41), signs, constant, transpose_a=True)
        matmul(suite, (30, 70), (41, 30), signs, constant, transpose_a=True, transpose_b=True)
        matmul(suite, (2, 3, 17, 9), (9, 45), signs, constant)
        matmul(suite, (2, 3, 17, 9), (3, 9, 45), signs, constant, tail=None)
        matmul(suite, (3, 17, 9), (2, 1, 9, 45), signs, constant)
        matmul(suite, (2, 4, 17, 12), (2, 4, 19, 12), signs, constant, transpose_b=True)
        matmul(suite, (9,), (9, 45), signs, constant)
        matmul(suite, (2, 17, 9), (9,), signs, constant)
        matmul(suite, (9,), (9,), signs, constant)
        matmul(suite, (13, 3000), (3000, 50), signs, constant)
        matmul(suite, (50, 64), (64, 97), signs, constant, tail=requantised)
        matmul(suite, (128, 257), (257, 100), signs, constant, tail=requantised)
        matmul(suite, (3, 45, 200), (200, 130), signs, constant, tail=requantised)  # 135 rows: no whole tiles
    for b in ("i8", "u8"):
        matmul(suite, (21, 50), (50, 40), ("u8", b), tail=requantised, prepare=quantised)
        matmul(suite, (2, 21, 52), (52, 40), ("u8", b), prepare=quantised)


def conv(suite, x, w, signs, constant=True, tail=None, prepare=None, **attrs):
    axes = len(x) - 2
    attrs = {"strides": [1] * axes, "dilations": [1] * axes, "pads": [0] * (2 * axes), "groups": 1} | attrs
    if signs[0] == "i8" and "x_zero" in attrs:
        attrs["x_zero"] -= 128
    product(suite, "conv_integer", x, w, signs, constant, tail, prepare, attrs)


def padded(f, x):
    y = quantised(f, x)
    return f.op("pad", y, pads=[0, 0, 1, 1, 0, 0, 1, 1], value=100.0)


def convs(suite):
    for signs, constant in itertools.product(SIGNS, (True, False)):
        for extent in (1, 7, 14, 20):
            conv(suite, (2, 13, extent, extent), (37, 13, 1, 1), signs, constant, tail=requantised)
            for stride in (1, 2):
                conv(suite, (1, 8, extent, extent), (35, 8, 3, 3), signs, constant, pads=[1] * 4, strides=[stride] * 2)
        for zero in (1, 200):  # which stands for the padding too
            for extent, stride in ((7, 1), (20, 2)):
                attrs = {"pads": [1, 1, 2, 1], "strides": [stride] * 2, "x_zero": zero}
                conv(suite, (1, 9, extent, extent), (35, 9, 3, 3), signs, constant, tail=requantised, **attrs)
                conv(suite, (2, 18, extent, extent), (18, 1, 3, 3), signs, constant, groups=18, **attrs)
            conv(suite, (1, 40, 14, 14), (16, 40, 1, 1), signs, constant, x_zero=zero)
            conv(suite, (1, 6, 9, 9), (8, 3, 3, 3), signs, constant, groups=2, pads=[1] * 4, x_zero=zero)
        conv(suite, (1, 64, 9, 11), (70, 64, 3, 3), signs, constant, tail=requantised)
        conv(suite, (2, 70, 14, 14), (83, 70, 1, 1), signs, constant, x_zero=7, tail=requantised)
        conv(suite, (1, 1210, 7, 7), (203, 1210, 1, 1), signs, constant, x_zero=7, tail=requantised)
        conv(suite, (1, 80, 15, 15), (64, 40, 3, 3), signs, constant, groups=2, strides=[2, 2], pads=[1] * 4, x_zero=7)
        conv(suite, (1, 16, 28, 28), (64, 16, 3, 3), signs, constant, pads=[0, 1, 2, 1], tail=requantised)
        conv(suite, (1, 3, 30, 31), (16, 3, 7, 7), signs, constant, strides=[2, 2], pads=[3] * 4, tail=requantised)
        conv(suite, (2, 6, 10, 9), (8, 3, 3, 3), signs, constant, groups=2, dilations=[2, 1], pads=[2, 1, 1, 0])
        conv(suite, (2, 24, 10, 9), (32, 12, 3, 3), signs, constant, groups=2, tail=requantised)
        for extent, kernel, stride in ((5, 3, 1), (20, 3, 2), (33, 5, 1)):  # depthwise
            pads, strides = [kernel // 2] * 4, [stride] * 2
            conv(suite, (1, 19, extent, extent), (19, 1, kernel, kernel), signs, constant, groups=19, pads=pads,
                 strides=strides, tail=requantised)  # fmt: skip
        conv(suite, (1, 3, 40, 40), (3, 1, 30, 30), signs, constant, groups=3)  # more than an f32 holds exactly
        conv(suite, (2, 4, 25), (6, 4, 5), signs, constant, pads=[2, 2])
        conv(suite, (1, 5, 5, 6, 7), (4, 5, 2, 3, 3), signs, constant, strides=[1, 2, 1])
        conv(suite, (0, 5, 3, 7), (4, 5, 1, 1), signs, constant)
    for w in ("i8", "u8"):
        for prepare in (quantised, padded):
            conv(suite, (2, 9, 12, 14), (20, 9, 3, 3), ("u8", w), prepare=prepare, tail=requantised)
            conv(suite, (1, 8, 5, 5), (8, 1, 3, 3), ("u8", w), groups=8, prepare=prepare)


def conv_last(suite, x, w, signs, x_is_last=True, added=False, **attrs):
    """Of [N, spatial, C] to the same, as convolutions between partitions are that agree on it; `added`: what else is
    done to the result reads another such image."""
    f = FunctionBuilder()
    axes = len(x) - 2
    attrs = {"strides": [1] * axes, "dilations": [1] * axes, "pads": [0] * (2 * axes), "groups": 1} | attrs
    to_first, to_last = [0, axes + 1, *range(1, axes + 1)], [0, *range(2, axes + 2), 1]
    inputs = [values(x, signs[0]), values(w, signs[1])]
    if x_is_last:
        inputs[0] = np.ascontiguousarray(inputs[0].transpose(to_last))
    left = f.param("x", signs[0], inputs[0].shape)
    if x_is_last:
        left = f.op("transpose", left, perm=to_first)
    y = f.op("conv_integer", left, f.param("w", signs[1], w), **attrs)
    y = requantised(f, f.op("transpose", y, perm=to_last), inputs, axis=-1)
    if added:
        inputs.append(random.normal(0, 30, y.shape).astype(np.float32))
        y = f.op("add", f.op("cast", y, dtype="f32"), f.param("other", "f32", y.shape))
    suite.add(f"last {x} {w} {signs} {x_is_last} {attrs}", f.finish([y]), inputs, constant=(1,))


def convs_last(suite):
    for signs in SIGNS:
        for zero in (0, 200):
            attrs = {"x_zero": zero - (128 if zero and signs[0] == "i8" else 0)}
            for x, w in (((2, 13, 5, 7), (37, 13)), ((1, 64, 14, 14), (70, 64)), ((3, 80, 7, 7), (64, 80))):
                conv_last(suite, x, (*w, 1, 1), signs, **attrs)
                conv_last(suite, x, (*w, 1, 1), signs, added=True, strides=[2, 2], **attrs)
                conv_last(suite, x, (*w, 3, 3), signs, pads=[1] * 4, **attrs)
            conv_last(suite, (2, 20, 9, 12), (33, 20, 3, 3), signs, pads=[0, 1, 2, 3], strides=[2, 1], **attrs)
            conv_last(suite, (1, 128, 9, 12), (33, 128, 2, 5), signs, pads=[1, 2, 0, 2], dilations=[2, 3], **attrs)
            conv_last(suite, (1, 3, 30, 31), (16, 3, 7, 7), signs, x_is_last=False, strides=[2, 2], pads=[3] * 4,
                      **attrs)  # fmt: skip
            for channels, extent, kernel, stride in ((19, 5, 3, 1), (40, 20, 3, 2), (144, 9, 5, 1), (1024, 6, 5, 1)):
                conv_last(suite, (2, channels, extent, extent + 2), (channels, 1, kernel, kernel), signs, added=True,
                          groups=channels, pads=[kernel // 2] * 4, strides=[stride] * 2, **attrs)  # fmt: skip
        conv_last(suite, (2, 7, 25), (9, 7, 5), signs, pads=[2, 2])
        conv_last(suite, (1, 5, 5, 6, 7), (16, 5, 2, 3, 3), signs, strides=[1, 2, 1], pads=[0, 1, 1, 1, 1, 0])
        conv_last(suite, (2, 4, 6, 6), (8, 4, 1, 1), signs, x_is_last=False)
        conv_last(suite, (1, 512, 7, 7), (64, 512, 3, 3), signs, pads=[1] * 4, x_zero=9)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", [matmuls, convs, convs_last])
def test_integer_products(target, group):
    suite = Suite()
    group(suite)
    assert suite.run(target, threads=3) == []
