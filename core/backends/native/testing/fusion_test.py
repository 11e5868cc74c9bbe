"""Groups of operators in one partition: what fusion folds together, materialises, aliases and reuses memory for.

.venv/bin/python -m pytest core/backends/native/testing/fusion_test.py
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import runnable
from ops_test import TARGETS, Ops, conv_attrs, pool_attrs


@pytest.fixture
def s():
    return Ops()


def f32(s, *shape):
    return s.data("f32", shape, -1, 1)


def test_resize_tails(s):
    for extent, size in ((7, 14), (20, 40)):
        attrs = {"sizes": [2, 5, size, size], "scales": [1.0, 1.0, size / extent, size / extent], "mode": "linear",
                 "coordinate": "half_pixel", "nearest_mode": "floor"}  # fmt: skip
        x = f32(s, 2, 5, extent, extent)
        for name, shape in {
            "images": (2, 5, size, size),
            "channels": (5, 1, 1),
            "rows": (size, 1),
            "columns": (size,),
        }.items():
            s.build(f"resize_{size}_{name}", [x, f32(s, *shape)], lambda b, x, r: b.op("relu", b.op("add", b.op("resize", x, **attrs), r)))  # fmt: skip
        s.build(f"resize_{size}_of", [x, f32(s, 5, 1, 1)], lambda b, x, r: b.op("resize", b.op("mul", x, r), **attrs))
    s.check()


def test_transpositions(s):
    """Where dimensions stay neighbours, vectors run on over them; squares that share lines are done together."""
    for shape, perm in {
        (2, 24, 7, 7): [0, 2, 3, 1],
        (1, 17, 3, 5): [0, 2, 3, 1],
        (3, 7, 7, 24): [0, 3, 1, 2],
        (2, 19, 3, 3, 5): [0, 2, 3, 4, 1],
        (2, 21, 3, 3, 5): [2, 3, 0, 4, 1],
        (2, 37, 130): [0, 2, 1],
        (1, 40, 6, 8): [0, 2, 3, 1],
        (1, 512, 32): [0, 2, 1],
        (2, 48, 13, 1): [0, 2, 3, 1],
        (12, 5, 1, 16, 1): [1, 3, 4, 2, 0],
    }.items():
        x = f32(s, *shape)
        name = "_".join(str(p) for p in (*shape, *perm))
        s.build(f"short_{name}", [x], lambda b, x: b.op("transpose", x, perm=perm))
        s.build(f"short_tail_{name}", [x], lambda b, x: b.op("exp", b.op("transpose", x, perm=perm)))
        out = [shape[p] for p in perm]
        y, z = f32(s, *out), f32(s, out[-1])
        s.build(f"mixed_{name}", [x, y], lambda b, x, y: b.op("add", b.op("transpose", x, perm=perm), y))
        s.build(
            f"mixed_scaled_{name}",
            [x, y, z, x],
            lambda b, x, y, z, v: b.op(
                "add",
                b.op("mul", b.op("relu", b.op("transpose", x, perm=perm)), z),
                b.op("mul", y, b.op("transpose", b.op("neg", v), perm=perm)),
            ),
        )
        s.build(f"mixed_rows_{name}", [x, f32(s, out[-2], 1)], lambda b, x, r: b.op("mul", b.op("transpose", x, perm=perm), r))  # fmt: skip
        s.build(f"short_of_{name}", [x], lambda b, x: b.op("transpose", b.op("neg", x), perm=perm))
    s.check()


def interleaved(b, x, strides, groups):
    """x [n, groups * prod(strides), ...] with the planes of a group in turns along each spatial axis."""
    n, spatial, axes = x.shape[0], x.shape[2:], len(strides)
    y = b.op("reshape", x, shape=[n, groups, *strides, *spatial])
    turns = [axis for i in range(axes) for axis in (2 + axes + i, 2 + i)]
    y = b.op("transpose", y, perm=[0, 1, *turns])
    return b.op("reshape", y, shape=[n, groups, *(e * s for e, s in zip(spatial, strides, strict=True))])


def test_depth_to_space(s):
    """Planes that take turns along rows: any number of them, rows of any length, cut anywhere, with and without tails."""
    for strides, spatial in {
        (2,): (40,), (3,): (29,), (4,): (5,), (5,): (33,), (8,): (21,), (16,): (9,), (17,): (9,),
        (2, 2): (7, 19), (1, 2): (3, 4), (2, 1): (5, 6), (3, 3): (4, 11), (4, 4): (2, 3), (2, 7): (3, 8),
        (2, 2, 2): (3, 4, 9), (1, 1, 2): (2, 3, 5),
    }.items():  # fmt: skip
        groups, planes = 3, int(np.prod(strides))
        x = f32(s, 2, groups * planes, *spatial)
        out = [e * t for e, t in zip(spatial, strides, strict=True)]
        name = "_".join(str(e) for e in (*strides, *spatial))

        def whole(b, x, strides=strides):
            return interleaved(b, x, strides, 3)

        def cut(b, x, first, last, whole=whole, out=out):
            begins = [min(first, e - 1) for e in out]
            ends = [max(e - last, begin + 1) for e, begin in zip(out, begins, strict=True)]
            return b.op("slice", whole(b, x), begins=[0, 1, *begins], ends=[2, 3, *ends], steps=[1] * (2 + len(out)))

        s.build(f"d2s_{name}", [x], whole)
        s.build(f"d2s_tail_{name}", [x, f32(s, groups, *[1] * len(out)), f32(s, 2, groups, *out)], lambda b, x, c, r, whole=whole: b.op("relu", b.op("add", b.op("add", whole(b, x), c), r)))  # fmt: skip
        s.build(f"d2s_of_{name}", [x], lambda b, x, whole=whole: whole(b, b.op("relu", b.op("neg", x))))
        for first, last in ((1, 1), (3, 0), (0, 2), (5, 4)):
            s.build(f"d2s_cut_{first}_{last}_{name}", [x], lambda b, x, f=first, t=last, cut=cut: b.op("tanh", cut(b, x, f, t)))  # fmt: skip
    x = f32(s, 1, 12, 5, 17)
    s.build("d2s_twice", [x], lambda b, x: (lambda y: [y, b.op("exp", y)])(interleaved(b, x, (2, 2), 3)))
    # The transposition itself is wanted too; what is in turns is not along the last axis; rows of one element.
    moved = [0, 1, 4, 2, 5, 3]
    s.build("d2s_moved", [f32(s, 1, 3, 2, 2, 5, 9)], lambda b, x: (lambda y: [y, b.op("reshape", y, shape=[1, 3, 10, 18])])(b.op("transpose", x, perm=moved)))  # fmt: skip
    s.build("d2s_last", [f32(s, 5, 9, 2, 2, 7)], lambda b, x: b.op("reshape", b.op("transpose", x, perm=[0, 2, 1, 3, 4]), shape=[10, 18, 7]))  # fmt: skip
    s.build("d2s_column", [f32(s, 2, 12, 9, 1)], lambda b, x: interleaved(b, x, (2, 2), 3))
    for dtype in ("f64", "f16", "bf16", "i8", "i64", "bool"):
        x = s.data(dtype, (2, 12, 5, 19))
        s.build(f"d2s_{dtype}", [x], lambda b, x: interleaved(b, x, (2, 2), 3))
        s.build(f"d2s_cut_{dtype}", [x], lambda b, x: b.op("slice", interleaved(b, x, (2, 2), 3), begins=[0, 0, 1, 1], ends=[2, 3, 9, 36], steps=[1] * 4))  # fmt: skip
    s.check()


def test_layer_norm_of_a_transposition(s):
    """Its rows are not contiguous in memory: vectors go across them, and the results are transposed."""
    for shape, perm in {
        (2, 16, 8, 56): [0, 2, 3, 1],
        (1, 37, 3, 21): [0, 2, 3, 1],  # no multiples of a vector
        (1, 5, 3, 40): [0, 2, 3, 1],  # rows shorter than one
        (2, 24, 7, 7): [0, 2, 3, 1],  # vectors that span image rows
        (2, 16, 40, 1): [0, 2, 3, 1],
        (64, 40): [1, 0],
        (3, 20, 30): [2, 0, 1],
    }.items():  # fmt: skip
        channels = shape[perm[-1]]
        rows = [shape[p] for p in perm[:-1]]

        def norm(b, x, g, c):
            return b.op("layer_norm", b.op("transpose", x, perm=perm), g, c, axis=len(perm) - 1)

        inputs = [f32(s, *shape), f32(s, channels), f32(s, channels)]
        s.build(f"across_{len(shape)}_{channels}", inputs, norm)
        s.build(f"across_tail_{len(shape)}_{channels}", [*inputs, f32(s, *rows, channels)], lambda b, x, g, c, r: b.op("add", b.op("relu", norm(b, x, g, c)), r))  # fmt: skip
    x = f32(s, 1, 16, 4, 32)
    x[0, 3, 1, 5], x[0, 2, 2, 9] = np.nan, np.inf  # spoil their rows alone
    s.build("across_nan", [x, f32(s, 16), f32(s, 16)], lambda b, x, g, c: b.op("layer_norm", b.op("transpose", x, perm=[0, 2, 3, 1]), g, c, axis=3))  # fmt: skip
    for dtype in ("f16", "f64"):
        inputs = [s.data(dtype, (1, 24, 2, 32)), s.data(dtype, (24,)), s.data(dtype, (24,))]
        s.build(f"across_{dtype}", inputs, lambda b, x, g, c: b.op("layer_norm", b.op("transpose", x, perm=[0, 2, 3, 1]), g, c, axis=3))  # fmt: skip
    s.check()


def test_contraction_tails(s):
    x, w, bias, residual = f32(s, 1, 8, 14, 14), f32(s, 16, 8, 3, 3), f32(s, 16), f32(s, 1, 16, 14, 14)
    attrs = conv_attrs(2, pads=1)

    def conv_add_relu(b, x, w, bias, r):
        return b.op("relu", b.op("add", b.op("conv", x, w, bias, **attrs), r))

    for constant in ((), (1, 2)):
        s.build(f"conv_add_relu_{len(constant)}", [x, w, bias, residual], conv_add_relu, (1e-4, 1e-4), constant)
    # The tail broadcasts within the image: it can't be indexed by flattened pixels.
    s.build(
        "conv_add_columns",
        [x, w, f32(s, 14)],
        lambda b, x, w, r: b.op("add", b.op("conv", x, w, **attrs), r),
        (1e-4, 1e-4),
        [1],
    )
    s.build(
        "conv_channel",
        [x, w, f32(s, 16, 1, 1)],
        lambda b, x, w, r: b.op("silu", b.op("mul", b.op("conv", x, w, **attrs), r)),
        (1e-4, 1e-4),
        [1],
    )
    dw = conv_attrs(2, 2, pads=1, groups=8)
    s.build(
        "depthwise_clip",
        [x, f32(s, 8, 1, 3, 3), f32(s, 8)],
        lambda b, x, w, c: b.op("clip", b.op("conv", x, w, c, **dw), min=0.0, max=6.0),
        (1e-4, 1e-4),
        [1, 2],
    )
    a, m, v = f32(s, 5, 33, 50), f32(s, 50, 70), f32(s, 70)
    s.build(
        "bias_gelu",
        [a, m, v],
        lambda b, a, m, v: b.op("gelu", b.op("add", b.op("matmul", a, m), v)),
        (1e-4, 1e-4),
        [1, 2],
    )
    s.build(
        "bias_residual",
        [a, m, v, f32(s, 5, 33, 70)],
        lambda b, a, m, v, r: b.op("add", r, b.op("add", b.op("matmul", a, m), v)),
        (1e-4, 1e-4),
        [1, 2],
    )
    # Results of more than L2 holds, in rows pages apart: they are asked for (`AsksForResults`).
    wide, wm, wv, wr = f32(s, 3, 121, 20), f32(s, 20, 5003), f32(s, 5003), f32(s, 3, 121, 5003)
    for name, tail in {
        "wide": lambda b, y, v, r: b.op("add", y, v),
        "wide_residual": lambda b, y, v, r: b.op("gelu", b.op("add", r, b.op("add", y, v))),
        "wide_row": lambda b, y, v, r: b.op(
            "relu", b.op("mul", y, b.op("slice", r, begins=[0, 7, 0], ends=[3, 8, 5003], steps=[1, 1, 1]))
        ),
        "wide_transposed": lambda b, y, v, r: b.op("transpose", b.op("mul", y, v), perm=[2, 0, 1]),
    }.items():
        s.build(
            name,
            [wide, wm, wv, wr],
            lambda b, x, m, v, r, tail=tail: tail(b, b.op("matmul", x, m), v, r),
            (1e-4, 1e-4),
            [1, 2],
        )
    s.build("to_bool", [a, m], lambda b, a, m: b.op("greater", b.op("matmul", a, m), b.literal(0.3, "f32")), None, [1])
    s.build(
        "two_products",
        [a, m, a + 1, m],
        lambda b, a, m, c, d: b.op("add", b.op("matmul", a, m), b.op("matmul", c, d)),
        (1e-4, 1e-4),
        [1, 3],
    )
    # Both the product and its tail leave: nothing may be folded away.
    s.build("both_leave", [a, m], lambda b, a, m: (y := b.op("matmul", a, m), b.op("relu", y)), (1e-4, 1e-4), [1])
    # The product is used by the tail twice, and by something that is not pointwise.
    s.build(
        "used_twice",
        [a, m],
        lambda b, a, m: (lambda y: b.op("mul", y, b.op("sigmoid", y)))(b.op("matmul", a, m)),
        (1e-4, 1e-4),
        [1],
    )
    s.build(
        "tail_and_sum",
        [a, m],
        lambda b, a, m: (lambda y: b.op("sub", y, b.op("reduce_mean", y, axes=[2], keepdims=True)))(
            b.op("matmul", a, m)
        ),
        (1e-4, 1e-4),
        [1],
    )
    s.build(
        "split_heads",
        [a, m],
        lambda b, a, m: b.op(
            "transpose", b.op("reshape", b.op("matmul", a, m), shape=[5, 33, 7, 10]), perm=[0, 2, 1, 3]
        ),
        (1e-4, 1e-4),
        [1],
    )
    s.check()


def test_quantised_chains(s):
    """Rounded and clamped once, whatever the chain says: to the last bit, ties, NaN and what no byte holds included."""
    wild = [0.5, 1.5, 2.5, -0.5, -1.5, 0.49999997, 127.5, 128.5, -128.5, 254.5, 255.5, 1e9, -1e9, 4e6, -4e6, 1e-30]
    wild += [np.inf, -np.inf, np.nan, -0.0, 3.0, *np.linspace(-300, 300, 97)]
    x, other = np.array(wild, dtype=np.float32), s.data("u8", (len(wild),), 0, 255)

    def quantised(b, x, dtype, zero, low, high):
        y = b.op("add", b.op("round", x), b.literal(np.float32(zero)))
        return b.op("cast", b.op("clip", y, min=float(low), max=float(high)), dtype=dtype)

    def dequantised(b, q, zero):
        q = b.op("cast", q, dtype="i32")
        q = b.op("sub", q, b.literal(np.int32(zero))) if zero else q
        return b.op("mul", b.op("cast", q, dtype="f32"), b.literal(np.float32(0.25)))

    for dtype, zero, low, high in (
        ("u8", 0, 0, 255), ("u8", 3, 0, 255), ("u8", 128, 0, 255), ("u8", 7, 5, 100), ("u8", -9, 0, 255),
        ("i8", 0, -128, 127), ("i8", -5, -128, 127), ("i8", 11, -100, -3), ("i8", 127, -127, 127),
    ):  # fmt: skip
        limits = (dtype, zero, low, high)
        name = "_".join(str(v) for v in limits).replace("-", "m")
        s.build(f"quantised_{name}", [x], lambda b, x: quantised(b, x, *limits), tolerance=(0, 0))
        for zero_again in {0, zero}:
            s.build(f"again_{name}_{zero_again}".replace("-", "m"), [x, other],
                    lambda b, x, o: b.op("add", dequantised(b, quantised(b, x, *limits), zero_again), dequantised(b, o, 0)),
                    tolerance=(0, 0))  # fmt: skip
        s.build(f"sign_of_0_{name}", [x], lambda b, x: b.op("div", b.literal(np.float32(1)), dequantised(b, quantised(b, x, *limits), zero)),
                tolerance=(0, 0))  # fmt: skip
        s.build(f"both_{name}", [x], lambda b, x: [q := quantised(b, x, *limits), dequantised(b, q, zero)],
                tolerance=(0, 0))  # fmt: skip
    # What only looks like it: halves of a zero point, no rounding, bounds that no byte has.
    for name, f in {
        "half": lambda b, x: quantised(b, x, "u8", 0.5, 0, 255),
        "fractions": lambda b, x: b.op("cast", b.op("clip", x, min=0.0, max=255.0), dtype="u8"),
        "wide": lambda b, x: quantised(b, x, "u8", 0, -300, 255),
        "bounds": lambda b, x: quantised(b, x, "i8", 1, -1.5, 3.5),
    }.items():
        s.build(f"looks_quantised_{name}", [x], f, tolerance=(0, 0))
    s.check()


def test_byte_tables(s):
    """What is computed of one byte is looked up where the processor can (VBMI)."""

    def quantised(b, x, dtype="u8"):
        low = -128.0 if dtype == "i8" else 0.0
        x = b.op("round", b.op("div", x, b.literal(np.float32(0.03))))
        return b.op("cast", b.op("clip", b.op("add", x, b.literal(np.float32(5))), min=low, max=low + 255), dtype=dtype)

    def dequantised(b, q):
        x = b.op("sub", b.op("cast", q, dtype="i32"), b.literal(np.int32(9)))
        return b.op("mul", b.op("cast", x, dtype="f32"), b.literal(np.float32(0.05)))

    def gelu(b, q, dtype="u8"):
        x = dequantised(b, q)
        erf = b.op("add", b.op("erf", b.op("mul", x, b.literal(np.float32(0.7)))), b.literal(np.float32(1)))
        return quantised(b, b.op("mul", quantised_again(b, x), erf), dtype)

    def quantised_again(b, x):  # a byte between the two ends
        return dequantised(b, quantised(b, x))

    every = np.arange(256, dtype=np.uint8)
    for n in (1, 7, 16, 33, 63, 64, 65, 256, 1000):
        x = np.resize(every, n) if n >= 256 else s.data("u8", (n,), 0, 255)
        s.build(f"gelu_{n}", [x], gelu, tolerance=(0, 0))
        s.build(f"signed_{n}", [x.view(np.int8)], lambda b, q: gelu(b, q, "i8"), tolerance=(0, 0))
    x, y = s.data("u8", (5, 1, 70), 0, 255), s.data("u8", (5, 3, 70), 0, 255)
    s.build("transposed", [y], lambda b, q: gelu(b, b.op("transpose", q, perm=[2, 0, 1])), tolerance=(0, 0))
    s.build("after", [y], lambda b, q: b.op("transpose", gelu(b, q), perm=[0, 2, 1]), tolerance=(0, 0))
    s.build("read_twice", [y], lambda b, q: [g := gelu(b, q), dequantised(b, g)], tolerance=(0, 0))
    s.build("broadcast", [x, y], lambda b, q, r: b.op("add", dequantised(b, gelu(b, q)), dequantised(b, r)), tolerance=(0, 0))  # fmt: skip
    s.build("of_two", [y, y[::-1].copy()], lambda b, q, r: quantised(b, b.op("tanh", b.op("mul", dequantised(b, q), dequantised(b, r)))))  # fmt: skip
    w = s.data("i8", (70, 40), -128, 127)

    def product(b, q, w):
        y = b.op("mul", b.op("cast", b.op("matmul_integer", q, w), dtype="f32"), b.literal(np.float32(2**-12)))
        return gelu(b, quantised(b, y))

    s.build("tail", [y, w], product, constant=(1,))
    s.check(runnable([("llvm -mcpu=icelake-server", 2), ("llvm -mcpu=sapphirerapids", 1)]) or TARGETS)


def test_rows(s):
    x = f32(s, 2, 4, 9, 37)
    mask = np.where(s.random.random((2, 1, 1, 37)) < 0.3, -1e9, 0).astype(np.float32)
    s.build(
        "scale_mask_softmax",
        [x, mask],
        lambda b, x, m: b.op("softmax", b.op("add", b.op("mul", x, b.literal(0.125, "f32")), m), axis=3),
    )
    s.build("softmax_tail", [x, f32(s, 37)], lambda b, x, v: b.op("add", b.op("softmax", x, axis=3), v))
    s.build("softmax_expensive", [x], lambda b, x: b.op("softmax", b.op("exp", b.op("tanh", x)), axis=1))
    h, scale, bias = f32(s, 3, 11, 64), f32(s, 64), f32(s, 64)
    s.build(
        "residual_norm",
        [h, f32(s, 3, 11, 64), scale, bias],
        lambda b, x, r, g, c: b.op("layer_norm", b.op("add", x, r), g, c, axis=2),
        (1e-4, 1e-4),
    )

    for shape in ((2, 5, 7, 9), (2, 3, 8, 16), (1, 4, 40, 41)):  # of planes, with a factor for each
        channels = (shape[1], 1, 1)
        s.build(
            f"instance_norm_{shape[3]}",
            [f32(s, *shape), f32(s, *channels), f32(s, *channels)],
            lambda b, x, g, c: b.op("add", b.op("mul", b.op("layer_norm", x, b.literal(1.0, "f32"), b.literal(0.0, "f32"), axis=2), g), c),
            (1e-4, 1e-4),
        )  # fmt: skip

    def norm_both(b, x, r, g, c):
        y = b.op("add", x, r)
        return y, b.op("gelu", b.op("layer_norm", y, g, c, axis=2))

    s.build("residual_norm_both", [h, f32(s, 3, 11, 64), scale, bias], norm_both, (1e-4, 1e-4))
    s.build(
        "norm_by_hand",
        [h],
        lambda b, x: b.op("div", x, b.op("sqrt", b.op("reduce_mean", b.op("mul", x, x), axes=[2], keepdims=True))),
        (1e-4, 1e-4),
    )
    s.build(
        "sum_of_products",
        [h, f32(s, 64)],
        lambda b, x, v: b.op("reduce_sum", b.op("mul", x, v), axes=[1, 2], keepdims=False),
        (1e-4, 1e-4),
    )
    s.build(
        "sum_of_columns",
        [h, f32(s, 11, 1)],
        lambda b, x, v: b.op("relu", b.op("reduce_sum", b.op("mul", x, v), axes=[0, 1], keepdims=True)),
        (1e-4, 1e-4),
    )
    s.build(
        "mean_of_transposed",
        [h],
        lambda b, x: b.op("reduce_mean", b.op("transpose", x, perm=[2, 0, 1]), axes=[0], keepdims=False),
        (1e-4, 1e-4),
    )
    s.build(
        "max_of_gathered",
        [h, np.array([3, -1, 0], np.int64)],
        lambda b, x, i: b.op("reduce_max", b.op("gather", x, i, axis=2), axes=[2], keepdims=False),
    )
    s.build(
        "pool_of_relu",
        [f32(s, 1, 3, 15, 40)],
        lambda b, x: b.op(
            "add", b.op("max_pool", b.op("relu", x), **pool_attrs([3, 3], [2, 2])), b.literal(1.0, "f32")
        ),
    )
    s.build(
        "argmax_of_sum",
        [h, h[:1]],
        lambda b, x, y: b.op("argmax", b.op("add", x, y), axis=2, keepdims=False, select_last=False),
    )
    s.build(
        "cumsum_cast",
        [s.data("bool", (3, 37))],
        lambda b, x: b.op(
            "sub",
            b.op("cumsum", b.op("cast", x, dtype="i64"), axis=1, exclusive=False, reverse=False),
            b.literal(1, "i64"),
        ),
    )
    s.check()


def test_concatenations_along_rows(s):
    """What is computed from one is a loop for each of its pieces."""

    def gate(b, g, *pieces):
        half = b.op("mul", g, b.op("sigmoid", g))
        return b.op("mul", half, b.op("concat", *pieces, axis=2))

    for widths in [(16, 8), (40, 24, 33), (3, 21), (1, 1, 5), (0, 17), (9, 0), (64, 1)]:
        name = "_".join(str(w) for w in widths)
        inputs = [f32(s, 5, 7, sum(widths))]
        s.build(f"pieces_{name}", inputs + [f32(s, 5, 7, w) for w in widths], gate)
        # As of convolutions among rows of channels: a piece is transposed.
        moved = [f32(s, 5, 7, widths[0])] + [f32(s, w, 5, 7) for w in widths[1:]]
        s.build(
            f"moved_{name}",
            inputs + moved,
            lambda b, g, x, *rest: gate(b, g, x, *[b.op("transpose", r, perm=[1, 2, 0]) for r in rest]),
        )
        s.build(
            f"computed_{name}",
            inputs + moved,
            lambda b, g, x, *rest: gate(
                b, g, b.op("exp", x), *[b.op("neg", b.op("transpose", r, perm=[1, 2, 0])) for r in rest]
            ),
        )
        s.build(
            f"broadcast_{name}",
            [f32(s, sum(widths)), f32(s, 5, 1, sum(widths))] + [f32(s, 5, 7, w) for w in widths],
            lambda b, c, d, *pieces: b.op("add", b.op("mul", b.op("concat", *pieces, axis=2), c), d),
        )
    x, y, g = f32(s, 4, 6, 24), f32(s, 4, 6, 40), f32(s, 4, 6, 64)

    def twice(b, x, y, g):
        z = b.op("concat", x, y, axis=2)
        return b.op("add", b.op("mul", z, g), b.op("tanh", z))

    def turned(b, x, y):
        z = b.op("concat", x, y, axis=1)
        return b.op("add", z, b.op("transpose", z, perm=[0, 2, 1]))

    s.build("piece_used_twice", [x, y, g], twice)
    s.build("whole_turned", [f32(s, 3, 16, 40), f32(s, 3, 24, 40)], turned)
    s.build(
        "rows_of_pieces_too",
        [x, y, g, f32(s, 4, 6, 64)],
        lambda b, x, y, g, h: b.op("mul", b.op("concat", b.op("concat", x, y, axis=2), g, axis=2), b.op("concat", g, h, axis=2)),
    )  # fmt: skip
    s.build(
        "half_turned",
        [f32(s, 2, 5, 64), f32(s, 5, 64), f32(s, 5, 64)],
        lambda b, x, c, d: b.op(
            "add",
            b.op("mul", x, c),
            b.op(
                "mul",
                b.op(
                    "concat",
                    b.op("neg", b.op("split", x, axis=2, sizes=[32, 32])[1]),
                    b.op("split", x, axis=2, sizes=[32, 32])[0],
                    axis=2,
                ),
                d,
            ),
        ),
    )
    s.check()


def test_memory_and_views(s):
    x = f32(s, 4, 6, 33)
    s.build("passes_through", [x], lambda b, x: (x, b.op("relu", x), x))
    s.build("literal_leaves", [x], lambda b, x: (b.literal([1.0, 2.0], "f32"), b.op("relu", x)))
    s.build("reshape_of_input", [x], lambda b, x: b.op("reshape", x, shape=[24, 33]))
    s.build("reshape_of_value", [x], lambda b, x: b.op("reshape", b.op("exp", x), shape=[24, 33]))
    s.build("same_twice", [x], lambda b, x: (lambda y: (y, y, b.op("reshape", y, shape=[792])))(b.op("exp", x)))
    s.build(
        "squeezes",
        [x],
        lambda b, x: b.op(
            "add", b.op("reshape", b.op("exp", x), shape=[4, 1, 6, 33]), b.op("reshape", x, shape=[4, 6, 1, 33])
        ),
    )
    s.build(
        "split_concat",
        [x],
        lambda b, x: (lambda p: b.op("concat", p[2], b.op("relu", p[0]), p[1], axis=1))(
            b.op("split", x, axis=1, sizes=[1, 2, 3])
        ),
    )
    s.build(
        "rotate_half",
        [f32(s, 2, 5, 64)],
        lambda b, x: (lambda p: b.op("concat", b.op("neg", p[1]), p[0], axis=2))(
            b.op("split", x, axis=2, sizes=[32, 32])
        ),
    )
    s.build("concat_inlined", [x, x], lambda b, x, y: b.op("mul", b.op("concat", x, y, axis=2), b.literal(2.0, "f32")))
    s.build("concat_axis1_tail", [x, x], lambda b, x, y: b.op("relu", b.op("concat", x, b.op("exp", y), x, axis=1)))
    s.build(
        "transposes",
        [x],
        lambda b, x: b.op(
            "transpose", b.op("add", b.op("transpose", x, perm=[2, 1, 0]), b.literal(1.0, "f32")), perm=[2, 0, 1]
        ),
    )
    s.build(
        "pad_slice",
        [x],
        lambda b, x: b.op(
            "slice",
            b.op("pad", b.op("exp", x), pads=[0, 1, 2, 0, 1, 2], mode="constant", value=3.0),
            begins=[0, 0, 1],
            ends=[4, 8, 36],
            steps=[1, 1, 1],
        ),
    )
    s.build(
        "causal",
        [f32(s, 2, 9, 9)],
        lambda b, x: b.op(
            "softmax",
            b.op(
                "where",
                b.op(
                    "cast",
                    b.op("trilu", b.op("full", shape=[9, 9], value=1, dtype="i32"), upper=False, k=0),
                    dtype="bool",
                ),
                x,
                b.literal(-1e9, "f32"),
            ),
            axis=2,
        ),
    )
    s.build("broadcast_expensive", [f32(s, 33), x], lambda b, v, x: b.op("add", b.op("erf", b.op("exp", v)), x))
    s.build(
        "masks",
        [x, x + 0.1],
        lambda b, x, y: b.op(
            "cast", b.op("logical_and", b.op("less", x, y), b.op("isnan", b.op("log", x))), dtype="f32"
        ),
    )
    s.build(
        "i8_to_f32",
        [s.data("i8", (5, 100), -100, 100)],
        lambda b, x: b.op("mul", b.op("cast", x, dtype="f32"), b.literal(0.1, "f32")),
    )
    s.build(
        "wide_and_narrow",
        [s.data("f64", (5, 100))],
        lambda b, x: b.op("add", b.op("cast", x, dtype="f16"), b.literal(1.0, "f16")),
    )

    def chain(b, x):  # many temporaries that live at different times
        kept = []
        for i in range(6):
            y = b.op("transpose", b.op("softmax", x, axis=2), perm=[0, 1, 2])
            kept.append(b.op("cumsum", y, axis=i % 3, exclusive=False, reverse=False))
            x = b.op("add", b.op("cumsum", x, axis=2, exclusive=i % 2 == 0, reverse=False), y)
        total = kept[0]
        for k in kept[1:]:
            total = b.op("mul", total, k)
        return x, b.op("tanh", total)

    s.build("temporaries", [x * 0.1], chain, (1e-3, 1e-3))

    def deep(b, x):  # longer than one expression may be
        for i in range(100):
            x = b.op("add", b.op("mul", x, b.literal(0.99, "f32")), b.literal(0.01 * (i % 7), "f32"))
        return x

    s.build("deep", [x], deep, (1e-4, 1e-4))

    def doubling(b, x):  # each value used twice: must not be computed 2^20 times
        for _ in range(20):
            x = b.op("mul", b.op("add", x, x), b.literal(0.5, "f32"))
        return x

    s.build("doubling", [x], doubling)
    s.check()


def test_models(s):
    """An attention block and a convolutional block, as one partition each."""
    heads, length, width = 2, 9, 32

    def attention(b, x, wq, wk, wv, wo, g, c):
        def split(w):
            return b.op(
                "transpose",
                b.op("reshape", b.op("matmul", x, w), shape=[1, length, heads, width // heads]),
                perm=[0, 2, 1, 3],
            )

        scores = b.op("matmul", split(wq), split(wk), transpose_b=True)
        weights = b.op("softmax", b.op("mul", scores, b.literal(0.25, "f32")), axis=3)
        context = b.op("transpose", b.op("matmul", weights, split(wv)), perm=[0, 2, 1, 3])
        y = b.op("matmul", b.op("reshape", context, shape=[1, length, width]), wo)
        return b.op("layer_norm", b.op("add", x, y), g, c, axis=2)

    square = [f32(s, width, width) * 0.2 for _ in range(4)]
    for constant in ((), (1, 2, 3, 4)):
        s.build(
            f"attention_{len(constant)}",
            [f32(s, 1, length, width), *square, f32(s, width), f32(s, width)],
            attention,
            (1e-3, 1e-4),
            constant,
        )

    def block(b, x, w1, w2, w3, bias):
        y = b.op("relu", b.op("conv", x, w1, bias, **conv_attrs(2)))
        y = b.op("relu", b.op("conv", y, w2, bias, **conv_attrs(2, pads=1)))
        y = b.op("relu", b.op("add", b.op("conv", y, w3, bias, **conv_attrs(2)), x))
        return b.op("reshape", b.op("reduce_mean", y, axes=[2, 3], keepdims=True), shape=[1, 16])

    weights = [f32(s, 16, 16, 1, 1) * 0.3, f32(s, 16, 16, 3, 3) * 0.1, f32(s, 16, 16, 1, 1) * 0.3, f32(s, 16)]
    s.build("block", [f32(s, 1, 16, 13, 13), *weights], block, (1e-3, 1e-4), [1, 2, 3, 4])
    s.check()
