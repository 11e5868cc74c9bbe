"""Matmul, conv and conv_transpose through the native backend, against the NumPy evaluator: shapes that are no multiple
of anything, views as operands, tails folded in, constant and computed operands, one and several threads.

Run: .venv/bin/python -m pytest core/backends/native/contractions_test.py   (after building testing:compile_main)
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "testing"))
from harness import FunctionBuilder, Suite, runnable

TARGETS = runnable(["llvm -mcpu=x86-64-v4", "llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v2"])
random = np.random.default_rng(5)


def values(shape, dtype="f32"):
    """Small integers: sums are exact whatever their order."""
    array = random.integers(-4, 5, shape)
    if dtype in ("f16", "bf16"):
        import ml_dtypes

        return array.astype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    return array.astype(
        {"f32": np.float32, "f64": np.float64}.get(dtype) or dtype.replace("i", "int").replace("u", "uint")
    )


def matmul(suite, a, b, dtype="f32", constant=False, tail=None, **attrs):
    f = FunctionBuilder()
    x, y = f.param("a", dtype, a), f.param("b", dtype, b)
    inputs = [values(a, dtype), values(b, dtype)]
    z = f.op("matmul", x, y, **attrs)
    if tail:
        z = tail(f, z, inputs)
    suite.add(f"matmul {a} {b} {dtype} {attrs}", f.finish([z]), inputs, constant=(1,) if constant else ())


def bias(f, z, inputs):
    n = z.shape[-1]
    inputs.append(values((n,)))
    return f.op("relu", f.op("add", z, f.param("bias", "f32", (n,))))


def long_tail(f, z, inputs):
    z = bias(f, z, inputs)
    inputs.append(values(tuple(z.shape)))
    return f.op("add", f.op("gelu", z), f.param("residual", "f32", tuple(z.shape)))


def matmuls(suite):
    for constant in (False, True):
        for m in (1, 3, 37):
            for n in (1, 33, 100):
                matmul(suite, (m, 29), (29, n), constant=constant)
        matmul(suite, (70, 29), (40, 29), constant=constant, transpose_b=True)
        matmul(suite, (29, 70), (29, 41), constant=constant, transpose_a=True)
        matmul(suite, (29, 70), (41, 29), constant=constant, transpose_a=True, transpose_b=True)
        matmul(suite, (2, 3, 17, 9), (9, 45), constant=constant)
        matmul(suite, (2, 3, 17, 9), (3, 9, 45), constant=constant)
        matmul(suite, (3, 17, 9), (2, 1, 9, 45), constant=constant)
        matmul(suite, (9,), (9, 45), constant=constant)
        matmul(suite, (17, 9), (9,), constant=constant)
        matmul(suite, (2, 17, 9), (9,), constant=constant)
        matmul(suite, (9,), (9,), constant=constant)
        matmul(suite, (5, 0), (0, 7), constant=constant)
        matmul(suite, (50, 64), (64, 96), constant=constant, tail=bias)
        matmul(suite, (2, 25, 64), (64, 97), constant=constant, tail=long_tail)
        matmul(suite, (13, 700), (700, 50), constant=constant)
        matmul(suite, (50, 700), (700, 50), constant=constant)
        matmul(suite, (2, 1000, 70), (2, 70, 10), constant=constant)
        for dtype in ("f64", "i8", "u8", "i16", "i32", "i64", "f16", "bf16"):
            matmul(suite, (2, 11, 29), (29, 70), dtype, constant=constant)
            matmul(suite, (2, 11, 29), (2, 70, 29), dtype, constant=constant, transpose_b=True)
        for dtype in ("f16", "bf16"):  # few rows, whose weights stay narrow
            for m in (1, 3, 8):
                matmul(suite, (m, 29), (29, 70), dtype, constant=constant)
                matmul(suite, (3, m, 300), (3, 130, 300), dtype, constant=constant, transpose_b=True)
        for dtype in ("f16", "bf16"):  # widened for all panels
            matmul(suite, (3, 17, 9), (2, 1, 9, 145), dtype, constant=constant)
            matmul(suite, (29, 70), (29, 141), dtype, constant=constant, transpose_a=True)
            matmul(suite, (9,), (9, 145), dtype, constant=constant)


def heads(f, x, batch, rows, number, width):
    return f.op("transpose", f.op("reshape", x, shape=[batch, rows, number, width]), perm=[0, 2, 1, 3])


def attention(suite):
    batch, rows, number, width = 2, 19, 3, 8
    size = number * width
    for layout in ("three", "split", "scaled"):
        f = FunctionBuilder()
        if layout == "split":
            qkv = f.param("qkv", "f32", (batch, rows, 3 * size))
            q, k, v = f.op("split", qkv, axis=2, sizes=[size] * 3)
            inputs = [values((batch, rows, 3 * size)) / 8]
        else:
            q, k, v = (f.param(name, "f32", (batch, rows, size)) for name in "qkv")
            inputs = [values((batch, rows, size)) / 8 for _ in range(3)]
        q, k, v = (heads(f, t, batch, rows, number, width) for t in (q, k, v))
        if layout == "scaled":
            k = f.op("mul", k, f.literal(np.float32(0.5)))
        scores = f.op("matmul", q, f.op("transpose", k, perm=[0, 1, 3, 2]))
        mask = f.param("mask", "f32", (batch, 1, 1, rows))
        inputs.append(values((batch, 1, 1, rows)))
        scores = f.op("softmax", f.op("add", f.op("mul", scores, f.literal(np.float32(0.25))), mask), axis=-1)
        y = f.op("transpose", f.op("matmul", scores, v), perm=[0, 2, 1, 3])
        y = f.op("reshape", y, shape=[batch, rows, size])
        suite.add(f"attention {layout}", f.finish([y]), inputs)


def views(suite):
    f = FunctionBuilder()
    x, w = f.param("x", "f32", (10, 40)), f.param("w", "f32", (30, 20))
    y = f.op(
        "matmul",
        f.op("slice", x, begins=[1, 3], ends=[10, 40], steps=[2, 2]),
        f.op("slice", w, begins=[11, 2], ends=[30, 20], steps=[1, 1]),
    )
    suite.add("matmul of slices", f.finish([y]), [values((10, 40)), values((30, 20))])
    f = FunctionBuilder()
    x, w = f.param("x", "f32", (1, 6, 7)), f.param("w", "f32", (4, 7, 5))
    y = f.op("matmul", f.op("expand", x, shape=[4, 6, 7]), w)
    suite.add("matmul of expand", f.finish([y]), [values((1, 6, 7)), values((4, 7, 5))])
    f = FunctionBuilder()
    x, w = f.param("x", "f32", (6, 7, 3)), f.param("w", "f32", (5, 7))
    y = f.op("matmul", f.op("transpose", x, perm=[2, 0, 1]), f.op("transpose", w, perm=[1, 0]))
    suite.add("matmul of transposes", f.finish([y]), [values((6, 7, 3)), values((5, 7))])
    suite.add("the same with constant b", f.finish([y]), [values((6, 7, 3)), values((5, 7))], constant=(1,))


def conv(suite, x, w, constant=True, with_bias=False, tail=None, op="conv", winograd=0, dtype="f32", **attrs):
    f = FunctionBuilder()
    args = [f.param("x", dtype, x), f.param("w", dtype, w)]
    inputs = [values(x, dtype), values(w, dtype)]
    if with_bias:
        channels = w[1] * attrs.get("groups", 1) if op == "conv_transpose" else w[0]
        args.append(f.param("bias", dtype, (channels,)))
        inputs.append(values((channels,), dtype))
    axes = len(x) - 2
    attrs = {"strides": [1] * axes, "dilations": [1] * axes, "pads": [0] * (2 * axes), "groups": 1} | attrs
    if op == "conv_transpose":
        attrs = {"output_padding": [0] * axes} | attrs
    y = f.op(op, *args, **attrs)
    if tail:
        y = tail(f, y, inputs)
    suite.add(
        f"{op} {x} {w} {dtype} {attrs} {winograd}",
        f.finish([y]),
        inputs,
        tolerance=(2e-5, 2e-3) if winograd else None,  # of sums of 600 products, magnitudes 3000 together
        constant=tuple(range(1, len(args))) if constant else (),
        attrs={"winograd": winograd},
    )


def residual(f, y, inputs):
    inputs.append(values(tuple(y.shape)))
    return f.op("relu", f.op("add", y, f.param("residual", "f32", tuple(y.shape))))


def silu(f, y, inputs):
    return f.op("silu", y)


def per_row(f, y, inputs):
    shape = (y.shape[2], 1)
    inputs.append(values(shape))
    return f.op("mul", y, f.param("rows", "f32", shape))


def convs(suite):
    for extent in (7, 14, 20):
        for stride in (1, 2):
            conv(
                suite,
                (2, 5, extent, extent),
                (37, 5, 3, 3),
                strides=[stride] * 2,
                pads=[1] * 4,
                with_bias=True,
                tail=residual,
            )
            conv(suite, (1, 5, extent, extent), (70, 5, 1, 1), strides=[stride] * 2, tail=silu)
            conv(
                suite,
                (1, 5, extent, extent),
                (5, 1, 3, 3),
                strides=[stride] * 2,
                pads=[1] * 4,
                groups=5,
                with_bias=True,
            )
    # Results that L2 does not hold are asked for ahead.
    for tail in (residual, silu, None):
        conv(suite, (2, 7, 59, 61), (130, 7, 1, 1), with_bias=True, tail=tail)
        conv(suite, (1, 9, 13, 13), (1700, 9, 1, 1), tail=tail)
        conv(suite, (1, 3, 61, 59), (97, 3, 3, 3), pads=[1] * 4, constant=False, tail=tail)
    # Few pixels of many channels are copied for the tiles of AVX2, and widened.
    for dtype in ("f32", "f16"):
        for strides in ([1, 1], [2, 1]):
            conv(suite, (2, 303, 9, 7), (210, 303, 1, 1), strides=strides, dtype=dtype, with_bias=True, tail=silu)
            conv(suite, (1, 606, 14, 13), (404, 303, 1, 1), strides=strides, dtype=dtype, groups=2)
    conv(suite, (1, 3, 30, 30), (8, 3, 7, 7), strides=[2, 2], pads=[3] * 4, constant=False)
    conv(suite, (1, 3, 9, 11), (8, 3, 3, 3), tail=per_row)
    conv(suite, (2, 6, 10, 9), (8, 3, 3, 3), groups=2, dilations=[2, 1], pads=[2, 1, 1, 0])
    for channels in (4, 12, 16, 32):
        x, w = (2, 2 * channels, 15, 14), (2 * channels, channels, 3, 3)
        conv(suite, x, w, groups=2, pads=[1] * 4, with_bias=True, tail=residual)
        conv(suite, x, w, groups=2, pads=[1] * 4, strides=[2, 2], tail=silu)
        conv(suite, x, w, groups=2, pads=[1] * 4, strides=[2, 2], constant=False, tail=per_row)
    conv(suite, (1, 4, 25), (6, 4, 5), pads=[2, 2], tail=residual)
    conv(suite, (1, 2, 5, 6, 7), (4, 2, 2, 3, 3), strides=[1, 2, 1], with_bias=True)
    conv(
        suite,
        (1, 4, 6, 5),
        (4, 3, 3, 3),
        op="conv_transpose",
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
        with_bias=True,
    )
    conv(suite, (1, 4, 6, 5), (4, 3, 4, 4), op="conv_transpose", groups=2, strides=[2, 2], tail=residual)
    conv(suite, (1, 4, 9), (4, 3, 3), op="conv_transpose", constant=False)
    # In depth alone: as rows.
    conv(suite, (2, 4, 7, 5, 3), (6, 4, 3, 1, 1), strides=[2, 1, 1], pads=[1, 0, 0, 0, 0, 0], with_bias=True)
    conv(suite, (1, 6, 9, 5, 3), (6, 1, 3, 1, 1), groups=6, dilations=[3, 1, 1], pads=[3, 0, 0, 3, 0, 0], tail=residual)
    conv(suite, (1, 4, 7, 5, 3), (6, 4, 3, 1, 1), pads=[1, 0, 1, 1, 0, 1], with_bias=True)
    conv(suite, (1, 4, 5, 3, 2), (4, 3, 4, 1, 1), op="conv_transpose", strides=[2, 1, 1], with_bias=True)


def winograd(suite):
    for tile in (2, 4, 6, -1):
        for extent in (1, 2, 3, 5, 7, 13):
            conv(suite, (1, 17, extent, extent), (20, 17, 3, 3), pads=[1] * 4, tail=residual, winograd=tile)
        conv(suite, (3, 65, 7, 9), (17, 65, 3, 3), pads=[1, 0, 2, 1], with_bias=True, tail=residual, winograd=tile)
        conv(suite, (2, 16, 11, 6), (3, 16, 3, 3), with_bias=True, tail=silu, winograd=tile)
        conv(suite, (1, 16, 20, 20), (16, 16, 3, 3), pads=[1] * 4, tail=per_row, winograd=tile)
        conv(suite, (2, 32, 56, 56), (32, 32, 3, 3), pads=[1] * 4, tail=residual, winograd=tile)
        conv(suite, (1, 3, 6, 300), (16, 3, 3, 3), pads=[1] * 4, with_bias=True, winograd=tile)
        twice = {"strides": [2, 2], "winograd": tile}
        for extent in (1, 2, 5, 8, 14):
            conv(suite, (1, 17, extent, extent), (20, 17, 3, 3), pads=[1] * 4, tail=residual, **twice)
        conv(suite, (3, 65, 7, 9), (17, 65, 3, 3), pads=[1, 0, 2, 1], with_bias=True, tail=residual, **twice)
        conv(suite, (2, 16, 11, 6), (3, 16, 3, 3), with_bias=True, tail=silu, **twice)
        conv(suite, (2, 64, 56, 56), (64, 64, 3, 3), pads=[1] * 4, tail=residual, **twice)
        conv(suite, (1, 3, 6, 300), (16, 3, 3, 3), pads=[0, 0, 1, 1], with_bias=True, **twice)
        for stride in (1, 2):
            parts = {"strides": [stride] * 2, "winograd": tile}
            conv(suite, (1, 4, 9, 9), (6, 2, 3, 3), groups=2, **parts)
            conv(suite, (2, 48, 14, 11), (72, 16, 3, 3), groups=3, pads=[1] * 4, with_bias=True, tail=residual, **parts)
        for taps, size in ((3, tile), (5, min(tile, 4)), (2, tile + 1 if tile > 0 else tile)):
            line = {"winograd": size}
            after = {"pads": [1, taps - 2]}
            conv(suite, (2, 17, 53), (20, 17, taps), tail=residual, **after, **line)
            conv(suite, (1, 33, 1, 700), (16, 33, 1, taps), pads=[0, 0, 0, taps - 1], with_bias=True, **line)
            conv(suite, (2, 17, 67), (20, 17, taps), dilations=[7], pads=[3, 9], with_bias=True, tail=residual, **line)
            conv(suite, (1, 16, 9, 17), (24, 16, taps, 1), tail=silu, **line)
            conv(suite, (2, 16, 9, 30), (24, 16, 1, taps), dilations=[1, 3], with_bias=True, tail=per_row, **line)
            conv(suite, (1, 16, 6, 5, 4), (24, 16, taps, 1, 1), pads=[1, 0, 0, 1, 0, 0], tail=residual, **line)
    # As others of stride 1, and squares of other sizes.
    for tile in (3, 5, -1):
        split = {"strides": [2, 2], "winograd": tile}
        conv(suite, (2, 17, 15, 22), (20, 17, 4, 4), pads=[1] * 4, with_bias=True, tail=residual, **split)
        conv(suite, (1, 3, 40, 37), (24, 3, 7, 7), pads=[3, 2, 3, 3], tail=silu, **split)
        conv(suite, (2, 16, 14, 15), (24, 8, 4, 4), pads=[0, 1, 2, 0], groups=2, tail=per_row, **split)
        conv(suite, (1, 17, 6, 70), (20, 17, 2, 4), strides=[1, 2], pads=[0, 0, 1, 2], winograd=tile)
        conv(suite, (2, 17, 17, 12), (20, 17, 2, 2), pads=[1] * 4, with_bias=True, tail=residual, winograd=tile)
        conv(suite, (2, 17, 17, 12), (20, 17, 4, 4), pads=[1] * 4, with_bias=True, tail=residual, winograd=tile)
    for tile in (2, 4, -1):
        conv(suite, (2, 17, 14, 31), (20, 17, 5, 5), pads=[2] * 4, strides=[2, 2], tail=residual, winograd=tile)
        conv(suite, (1, 5, 40, 40), (20, 5, 6, 6), pads=[2] * 4, strides=[2, 2], with_bias=True, winograd=tile)
        conv(suite, (2, 17, 333), (20, 17, 17), pads=[8, 8], strides=[4], tail=residual, winograd=tile)
        conv(suite, (1, 33, 9, 40), (20, 33, 9, 1), pads=[4, 0, 4, 0], strides=[3, 1], with_bias=True, winograd=tile)
    for tile in (2, 4, -1):
        # Not of Winograd's form, or with weights that are not constant: direct whatever is asked for.
        conv(suite, (1, 4, 9, 9), (4, 1, 3, 3), groups=4, winograd=tile)
        conv(suite, (1, 4, 9, 9), (6, 4, 3, 3), strides=[2, 1], winograd=tile)
        conv(suite, (1, 16, 9, 9), (16, 16, 3, 3), constant=False, winograd=tile)


def depthwise_block(
    suite, x, hidden, kernel, bands, tail=None, act="clip", constant=True, pads=None, read_twice=False, **attrs
):
    """A pointwise convolution with bias and `act`, and the depthwise one that reads it."""
    f = FunctionBuilder()
    attrs = {"strides": [1, 1], "dilations": [1, 1], "pads": pads or [kernel // 2] * 4} | attrs
    shapes = [x, (hidden, x[1], 1, 1), (hidden,), (hidden, 1, kernel, kernel), (hidden,)]
    p = [f.param(f"p{i}", "f32", shape) for i, shape in enumerate(shapes)]
    inputs = [values(shape) for shape in shapes]
    plain = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, "groups": 1}
    y = f.op("conv", p[0], p[1], p[2], **plain)
    if act == "clip":  # not 0 where its argument is: the padding shows
        y = f.op("clip", y, min=1.0, max=60.0)
    elif act == "hard_swish":
        y = f.op("mul", y, f.op("hard_sigmoid", y))
    elif act == "add":  # another image
        inputs.append(values(tuple(y.shape)))
        y = f.op("add", y, f.param("image", "f32", tuple(y.shape)))
    z = f.op("conv", y, p[3], p[4], **attrs, groups=hidden)
    if tail:
        z = tail(f, z, inputs)
    suite.add(
        f"block {x} {hidden} {kernel} {bands} {attrs} {act} {tail}",
        f.finish([z, y] if read_twice else [z]),
        inputs,
        tolerance=(2e-5, 1e-3),
        constant=(1, 2, 3, 4) if constant else (),
        attrs={"depthwise_block": bands},
    )


def depthwise_blocks(suite):
    for bands in (1, 2, 3, 100):
        for extent in (1, 2, 7, 13, 20):
            for stride in (1, 2):
                depthwise_block(suite, (2, 5, extent, extent), 34, 3, bands, strides=[stride] * 2)
                depthwise_block(suite, (1, 3, extent, 17), 6, 5, bands, strides=[stride] * 2, tail=residual)
        depthwise_block(suite, (1, 16, 21, 33), 48, 7, bands, act="hard_swish", tail=silu)
        depthwise_block(suite, (1, 8, 24, 32), 32, 3, bands, act="add")  # planes of whole pages
        depthwise_block(suite, (1, 4, 19, 10), 37, 3, bands)  # a prime number of channels: no blocks
        depthwise_block(suite, (1, 4, 19, 10), 20, 3, bands, dilations=[2, 3], pads=[2, 3, 2, 3])
        depthwise_block(suite, (1, 4, 19, 10), 20, 3, bands, strides=[3, 1], pads=[0, 1, 2, 0], act=None)
        depthwise_block(suite, (1, 4, 16, 10), 20, 5, bands, strides=[2, 2], pads=[4, 0, 1, 3])
        depthwise_block(suite, (1, 4, 19, 10), 20, 3, bands, pads=[0, 0, 0, 0], tail=per_row)
        # Not one kernel: its result is wanted as well; weights that each call brings.
        depthwise_block(suite, (1, 4, 19, 10), 20, 3, bands, read_twice=True)
        depthwise_block(suite, (1, 4, 19, 10), 20, 3, bands, constant=False)
    depthwise_block(suite, (1, 16, 112, 112), 96, 3, -1, strides=[2, 2])  # by the rule


def depthwise_tokens(
    suite, extents, channels, kernel, batch=1, act=None, tail=None, flat=True, merged=None, with_bias=True, constant=True,
    read_twice=False, **attrs
):  # fmt: skip
    """[batch, h * w, channels] (or, not flat, [batch, h, w, channels]) as an image, a depthwise convolution of it and
    `act`, and back; `merged`: what the pixels of the result are reshaped to."""
    f = FunctionBuilder()
    attrs = {"strides": [1, 1], "dilations": [1, 1], "pads": [kernel // 2] * 4} | attrs
    shapes = [(batch, extents[0] * extents[1], channels) if flat else (batch, *extents, channels)]
    shapes += [(channels, 1, kernel, kernel), (channels,)][: 1 + with_bias]
    p = [f.param(f"p{i}", "f32", shape) for i, shape in enumerate(shapes)]
    inputs = [values(shape) for shape in shapes]
    y = f.op("transpose", p[0], perm=[0, 2, 1] if flat else [0, 3, 1, 2])
    if flat:
        y = f.op("reshape", y, shape=[batch, channels, *extents])
    y = image = f.op("conv", y, *p[1:], **attrs, groups=channels)
    if act:
        y = f.op(act, y)
    if flat or merged:
        y = f.op("reshape", y, shape=[batch, channels, *(merged or [y.shape[2] * y.shape[3]])])
    y = f.op("transpose", y, perm=[0, *range(2, len(y.shape)), 1])
    if tail:
        y = tail(f, y, inputs)
    suite.add(
        f"tokens {extents} {channels} {kernel} {batch} {act} {tail} {flat} {merged} {with_bias} {constant} {attrs}",
        f.finish([y, image] if read_twice else [y]),
        inputs,
        tolerance=(2e-5, 1e-3),
        constant=tuple(range(1, len(p))) if constant else (),
    )


def tokens(suite):
    for channels in (8, 9, 16, 40, 129, 300):
        for extents in ((1, 1), (1, 7), (7, 2), (5, 9), (14, 14)):
            depthwise_tokens(suite, extents, channels, 3, batch=2, tail=long_tail)
    for kernel in (1, 2, 5, 7):
        for stride in (1, 2, 3):
            depthwise_tokens(suite, (13, 11), 24, kernel, strides=[stride, stride], tail=silu)
            depthwise_tokens(suite, (6, 18), 19, kernel, strides=[3, stride], flat=False, with_bias=False)
    depthwise_tokens(suite, (9, 16), 33, 3, act="gelu", flat=False, batch=3)
    depthwise_tokens(suite, (9, 16), 33, 3, act="relu", flat=False, merged=[2, 72], tail=silu)
    depthwise_tokens(suite, (9, 16), 33, 3, act="silu", merged=[3, 4, 12])
    depthwise_tokens(suite, (9, 16), 33, 3, pads=[2, 0, 1, 3], act="tanh", tail=residual)
    depthwise_tokens(suite, (9, 16), 20, 3, pads=[0, 4, 5, 6])
    # Pixels that lie a multiple of L1's ways apart are copied, each row once.
    for channels in (512, 1024):
        for kernel, strides in ((3, [1, 1]), (5, [2, 1]), (3, [3, 2]), (2, [4, 3])):
            depthwise_tokens(suite, (9, 7), channels, kernel, batch=3, strides=strides, act="gelu", flat=kernel != 5)
    depthwise_tokens(suite, (6, 5), 1024, 3, pads=[0, 4, 5, 6], tail=residual)
    depthwise_tokens(suite, (300, 3), 512, 7, pads=[3, 0, 3, 6])
    # Not one kernel: dilated, too many taps, few channels, weights of each call, an image that is wanted as well.
    depthwise_tokens(suite, (9, 16), 20, 3, dilations=[1, 2], pads=[1, 2, 1, 2])
    depthwise_tokens(suite, (9, 16), 20, 9)
    depthwise_tokens(suite, (9, 16), 3, 3)
    depthwise_tokens(suite, (9, 16), 20, 3, constant=False)
    depthwise_tokens(suite, (9, 16), 20, 3, read_twice=True)


@pytest.mark.parametrize("flat", [True, False])
def test_the_image_of_tokens_is_in_no_memory(flat):
    for kernel, inside in ((3, True), (9, False)):  # the latter has too many taps
        suite = Suite()
        depthwise_tokens(suite, (14, 14), 64, kernel, flat=flat, act="gelu")
        assert suite.run(TARGETS[0]) == []
        workspace = suite.workspace_bytes.popitem()[1]
        assert (workspace < 14 * 14 * 64 * 4) == inside


def test_the_image_in_a_depthwise_block_is_in_no_memory():
    """By the rule where it is large; what is in it of weights is elsewhere."""
    for extent, inside in ((112, True), (14, False)):
        sizes = []
        for bands in (-1, 0):
            suite = Suite()
            depthwise_block(suite, (1, 16, extent, extent), 96, 3, bands)
            assert suite.run(TARGETS[0]) == []
            sizes.append(suite.workspace_bytes.popitem()[1])
        image = 96 * extent * extent * 4
        assert sizes[1] >= image
        assert (sizes[0] < image) == inside


def loops_of_products(code: pathlib.Path) -> list[list[str]]:
    """The innermost loops with 16 vectors of multiply-adds and more, as lines of disassembly."""
    text = subprocess.run(["llvm-objdump-19", "-d", "--no-show-raw-insn", code], capture_output=True, text=True).stdout
    lines = re.findall(r"^ *([0-9a-f]+):\s+(.*)$", text, re.MULTILINE)
    places = {int(place, 16): i for i, (place, _) in enumerate(lines)}
    loops: list[tuple[int, int]] = []
    for end, (place, line) in enumerate(lines):
        jump = re.match(r"j\w+\s+0x([0-9a-f]+)", line)
        begin = places.get(int(jump[1], 16)) if jump and int(jump[1], 16) < int(place, 16) else None
        if begin is not None and not any(begin <= b for b, _ in loops[-3:]):
            loops.append((begin, end))
    bodies = [[line for _, line in lines[begin : end + 1]] for begin, end in loops]
    return [body for body in bodies if sum("vfmadd" in line and "zmm" in line for line in body) >= 16]


def test_constants_of_a_tail_leave_registers_to_accumulators():
    """The first tile copies its pixels, so that its tail stands in front of the loop over the others."""
    suite = Suite()
    conv(suite, (1, 50, 56, 56), (96, 50, 1, 1), with_bias=True, tail=lambda f, y, _: f.op("gelu", y))
    with tempfile.TemporaryDirectory() as directory:
        suite.compile("llvm -mcpu=emeraldrapids", directory)
        (code,) = pathlib.Path(directory).glob("*.o")
        loops = loops_of_products(code)
    assert len(loops) >= 2
    for loop in loops:
        assert not [line for line in loop if re.match(r"vmov\w+\s+%zmm\d+, (0x[0-9a-f]+)?\(%rsp\)", line)]


def test_winograd_choice_is_checked():
    suite = Suite()
    conv(suite, (1, 4, 9, 9), (4, 4, 3, 3), winograd=8)
    (failure,) = suite.run(TARGETS[0])
    assert "INVALID_ARGUMENT" in failure and "the attribute 'winograd' is 8, not 0 or 2 to 7" in failure


def test_depthwise_block_choice_is_checked():
    suite = Suite()
    depthwise_block(suite, (1, 4, 9, 9), 8, 3, -2)
    (failure,) = suite.run(TARGETS[0])
    assert "INVALID_ARGUMENT" in failure and "the attribute 'depthwise_block' is -2, not a number of bands" in failure


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", [matmuls, attention, views, convs, winograd, depthwise_blocks, tokens])
@pytest.mark.parametrize("threads", [3])
def test_contractions(target, group, threads):
    suite = Suite()
    group(suite)
    assert suite.run(target, threads) == []
