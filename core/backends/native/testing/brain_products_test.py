"""matmul of bf16 through the native backend, against the NumPy evaluator: by dot products of pairs (AVX512-BF16) and by
tile registers (AMX)."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import runnable
from open_dims_test import ROWS, OpenOps, of_n
from ops_test import NUMPY, SPECIAL

TARGETS = runnable([("llvm -mcpu=sapphirerapids", 2), ("llvm -mcpu=cooperlake", 1)])
# A result is rounded to 8 bits; what cancels leaves the error of f32's sums, and that of one bit before.
TOLERANCE = (8e-3, 2e-2)
pytestmark = pytest.mark.skipif(not TARGETS, reason="this processor has no AVX512-BF16")


@pytest.fixture
def s():
    return OpenOps()


def data(s, *shape):
    return s.data("bf16", shape, -1, 1)


def test_shapes(s):
    for m, k, n in (
        (1, 1, 1), (1, 64, 48), (3, 33, 7), (5, 30, 70), (8, 96, 33), (16, 32, 16), (17, 64, 31), (31, 100, 64),
        (33, 31, 65), (48, 256, 40), (64, 160, 96), (129, 70, 130), (200, 513, 50), (20, 1100, 100),
    ):  # fmt: skip
        for transpose_b in (False, True):
            b = (n, k) if transpose_b else (k, n)
            for constant in (1,), ():
                label = f"{transpose_b}_{len(constant)}"
                s.case("matmul", [data(s, m, k), data(s, *b)], TOLERANCE, constant, label, transpose_b=transpose_b)
        s.case("matmul", [data(s, k, m), data(s, k, n)], TOLERANCE, (1,), "left_transposed", transpose_a=True)
        s.case("matmul", [data(s, k, m), data(s, k, n)], TOLERANCE, (), "left_transposed_given", transpose_a=True)
    s.check(TARGETS)


def test_batches_and_vectors(s):
    for a, b in (
        ((2, 3, 17, 40), (40, 50)), ((3, 20, 33), (3, 33, 18)), ((2, 1, 5, 32), (3, 32, 35)), ((50,), (50, 33)),
        ((19, 50), (50,)), ((50,), (50,)), ((4, 0), (0, 5)), ((0, 4), (4, 5)), ((32, 18, 30), (30, 64)),
    ):  # fmt: skip
        s.case("matmul", [data(s, *a), data(s, *b)], TOLERANCE, (1,))
        s.case("matmul", [data(s, *a), data(s, *b)], TOLERANCE, label="given")
    s.check(TARGETS)


def test_what_stands_around_them(s):
    for m, k, n in ((1, 64, 48), (20, 70, 33), (64, 96, 80)):
        x, w, bias, other = data(s, m, k), data(s, n, k), data(s, n), data(s, m, n)

        def linear(b, x, w):
            return b.op("matmul", x, b.op("transpose", w, perm=[1, 0]))

        s.build(
            f"bias_gelu_{m}",
            [x, w, bias],
            lambda b, x, w, c: b.op("gelu", b.op("add", linear(b, x, w), c)),
            (2e-2, 2e-2),
            [1, 2],
        )
        s.build(f"residual_{m}", [x, w, other], lambda b, x, w, y: b.op("add", linear(b, x, w), y), (8e-3, 3e-2), [1])
        s.build(f"of_computed_{m}", [x, w], lambda b, x, w: linear(b, b.op("mul", x, x), w), TOLERANCE, [1])
        s.build(f"to_f32_{m}", [x, w], lambda b, x, w: b.op("cast", linear(b, x, w), dtype="f32"), TOLERANCE, [1])
    heads = data(s, 2, 5, 6, 16)
    s.build("joined_heads", [heads, data(s, 80, 40)], lambda b, x, w: b.op(
        "matmul", b.op("reshape", b.op("transpose", x, perm=[0, 2, 1, 3]), shape=[2, 6, 80]), w), TOLERANCE, [1])  # fmt: skip
    x = data(s, 40, 100)
    s.build("part_of_rows", [x, data(s, 64, 50)], lambda b, x, w: b.op(
        "matmul", b.op("slice", x, begins=[3, 20], ends=[33, 84], steps=[1, 1]), w), TOLERANCE, [1])  # fmt: skip
    s.check(TARGETS)


def test_what_is_not_finite_stays_in_its_row(s):
    for m in 3, 40:
        for k in 64, 50:
            x, w = data(s, m, k), data(s, k, 48)
            w = np.where(w == 0, w + 1, w).astype(w.dtype)
            x[0, 5], x[1, 40], x[2, k - 1] = np.inf, -np.inf, np.nan
            s.case("matmul", [x, w], TOLERANCE, (1,), "rows")
            s.case("matmul", [x, w], TOLERANCE, (), "rows_given")
            x, w = data(s, m, k), data(s, k, 48)
            w[3, 37], w[k - 1, 5] = np.nan, np.nan  # 37: first rows of the panel behind the first one
            s.case("matmul", [x, w], TOLERANCE, (1,), "columns")
            s.case("matmul", [x, w], TOLERANCE, (), "columns_given")
    s.check(TARGETS)


def test_conversions(s):
    values = np.array(
        [*SPECIAL, 1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 3.4e38, -3.4e38, 65504.0, 1.17549435e-38], np.float32
    )
    values = values[(values == 0) | ~(np.abs(values) < 1e-38)]  # what is subnormal becomes 0
    for n in 1, 7, 16, 33, 100:
        x = np.resize(values, n)
        s.case("cast", [x], (0, 0), dtype="bf16", label=f"{n}")
        s.case("cast", [x.astype(NUMPY["bf16"])], (0, 0), dtype="f32", label=f"{n}")
        s.build(f"chain_{n}", [x.astype(NUMPY["bf16"])], lambda b, x: b.op("mul", b.op("add", x, x), x), (0, 0))
    s.check(TARGETS)


def test_open_rows(s):
    def product(b, _, x, y, **attrs):
        return b.op("matmul", x, y, **attrs)

    def with_tail(b, _, x, y):
        return b.op("relu", product(b, _, x, y))

    both = [{"m": m, "n": n} for m in (0, 1, 3) for n in (1, 17)]
    options = {"dtypes": "bf16", "low": -1.0, "high": 1.0, "tolerance": TOLERANCE}
    for constant in ((1,), ()):
        name = "weights" if constant else "given"
        for k, n in ((64, 48), (130, 70), (30, 37), (1, 1), (96, 64)):
            s.open(f"{name}_{k}_{n}", [("n", k), (k, n)], product, of_n(ROWS), constant=constant, **options)
        s.open(f"{name}_batch", [("m", "n", 48), (48, 80)], with_tail, both, constant=constant, **options)
        s.open(f"{name}_transposed", [("m", "n", 30), (40, 30)],
               lambda b, _, x, y: product(b, _, x, y, transpose_b=True), both, constant=constant, **options)  # fmt: skip
        s.open(f"{name}_many", [("n", 3, "m", 20), (3, 20, 33)], product, both, constant=constant, **options)
        s.open(f"{name}_vector", [("n", 48), (48,)], product, of_n(ROWS), constant=constant, **options)
    s.open("left_transposed", [(64, "n"), (64, 48)],
           lambda b, _, x, y: product(b, _, x, y, transpose_a=True), of_n(ROWS), constant=(1,), **options)  # fmt: skip
    s.check(TARGETS)


def conv_attrs(axes, kernel, stride=1, pad=None, groups=1, dilation=1):
    pad = kernel // 2 if pad is None else pad
    return {"strides": [stride] * axes, "dilations": [dilation] * axes, "pads": [pad] * (2 * axes), "groups": groups}


CONVOLUTIONS = [  # x, filters, attributes
    ((2, 13, 7, 7), (37, 13, 1, 1), conv_attrs(2, 1)),
    ((2, 64, 14, 14), (48, 64, 1, 1), conv_attrs(2, 1)),
    ((1, 40, 15, 13), (32, 40, 1, 1), conv_attrs(2, 1, stride=2, pad=0)),
    ((1, 8, 20, 20), (35, 8, 3, 3), conv_attrs(2, 3)),
    ((1, 9, 7, 9), (35, 9, 3, 3), conv_attrs(2, 3, stride=2)),
    ((2, 64, 9, 11), (70, 64, 3, 3), conv_attrs(2, 3)),
    ((1, 32, 28, 28), (64, 32, 3, 3), conv_attrs(2, 3, pad=0)),
    ((1, 3, 30, 31), (16, 3, 7, 7), conv_attrs(2, 7, stride=2)),
    ((1, 16, 12, 12), (24, 16, 3, 3), conv_attrs(2, 3, dilation=2)),
    ((1, 6, 10, 9), (8, 3, 3, 3), conv_attrs(2, 3, groups=2)),
    ((2, 24, 10, 9), (24, 1, 3, 3), conv_attrs(2, 3, groups=24)),
    ((1, 19, 20, 20), (19, 1, 5, 5), conv_attrs(2, 5, stride=2, groups=19)),
    # Lines of pixels in registers: one and two lines a tile, parts of them, blocks of lines and of images.
    ((5, 32, 7, 7), (40, 32, 3, 3), conv_attrs(2, 3)),
    ((3, 24, 5, 28), (33, 24, 3, 3), conv_attrs(2, 3)),
    ((1, 33, 40, 38), (16, 33, 3, 3), conv_attrs(2, 3)),
    ((1, 64, 56, 56), (32, 64, 3, 3), conv_attrs(2, 3)),
    ((2, 160, 23, 29), (32, 160, 3, 3), conv_attrs(2, 3, stride=2)),
    ((1, 32, 30, 30), (48, 32, 3, 3), conv_attrs(2, 3, pad=0)),
    ((1, 64, 21, 21), (40, 64, 1, 1), conv_attrs(2, 1, stride=2, pad=0)),
    ((1, 32, 40, 20), (24, 32, 5, 3), {**conv_attrs(2, 3), "pads": [2, 0, 1, 2], "strides": [3, 1]}),
    ((1, 32, 20, 20), (24, 32, 3, 3), conv_attrs(2, 3, pad=2, dilation=2)),
    ((2, 20, 25), (16, 20, 5), conv_attrs(1, 5)),
    ((1, 10, 5, 6, 7), (12, 10, 3, 3, 3), conv_attrs(3, 3)),
]


@pytest.mark.parametrize("bias", [False, True])
def test_convolutions(s, bias):
    for x, w, attrs in CONVOLUTIONS:
        arrays = [data(s, *x), data(s, *w)] + ([data(s, w[0])] if bias else [])
        label = "_".join(map(str, [*x, *w, *attrs["strides"], *attrs["pads"], bias]))
        weights = [1, 2][: len(arrays) - 1]
        s.case("conv", arrays, TOLERANCE, weights, label, **attrs)
        s.case("conv", arrays, TOLERANCE, (), f"given_{label}", **attrs)
        s.build(f"relu_{label}", arrays, lambda b, *p, a=attrs: b.op("relu", b.op("conv", *p, **a)), TOLERANCE, weights)
        # Channels last: what is given, what is made, both.
        rank = len(x)
        last, first = [0, *range(2, rank), 1], [0, rank - 1, *range(1, rank - 1)]
        turned = [np.ascontiguousarray(arrays[0].transpose(last)), *arrays[1:]]

        def from_last(b, x, *p, attrs=attrs, first=first):
            return b.op("conv", b.op("transpose", x, perm=first), *p, **attrs)

        def both(b, *p, last=last, from_last=from_last):
            y = b.op("mul", b.op("cast", b.op("relu", from_last(b, *p)), dtype="f32"), b.literal(np.float32(3)))
            return b.op("transpose", b.op("cast", y, dtype="bf16"), perm=last)

        def to_last(b, *p, last=last, attrs=attrs):
            return b.op("transpose", b.op("conv", *p, **attrs), perm=last)

        s.build(f"from_last_{label}", turned, from_last, TOLERANCE, weights)
        plain = lambda b, *p, last=last, from_last=from_last: b.op("transpose", from_last(b, *p), perm=last)  # noqa: E731
        s.build(f"plain_{label}", turned, plain, TOLERANCE, weights)
        s.build(f"both_last_{label}", turned, both, (1.6e-2, 4e-2), weights)
        s.build(f"to_last_{label}", arrays, to_last, TOLERANCE, weights)
    s.check(TARGETS)


def test_what_is_not_finite_stays_in_its_window(s):
    for channels, kernel in ((40, 1), (13, 3), (16, 3)):
        x, w = data(s, 1, channels, 9, 9), data(s, 20, channels, kernel, kernel)
        w = np.where(w == 0, w + 1, w).astype(w.dtype)
        x[0, 3, 0, 0], x[0, channels - 1, 8, 8], x[0, 0, 4, 4] = np.nan, np.inf, -np.inf
        w[7, 0, 0, 0], w[19, channels - 1, -1, -1] = np.nan, np.inf
        attrs = conv_attrs(2, kernel)
        s.case("conv", [x, w], TOLERANCE, (1,), f"{channels}", **attrs)
        turned = np.ascontiguousarray(x.transpose([0, 2, 3, 1]))
        s.build(f"last_{channels}", [turned, w], lambda b, x, w, attrs=attrs: b.op("transpose", b.op(
            "conv", b.op("transpose", x, perm=[0, 3, 1, 2]), w, **attrs), perm=[0, 2, 3, 1]), TOLERANCE, [1])  # fmt: skip
    s.check(TARGETS)


def test_pools_and_concats_between_them(s):
    x = data(s, 2, 9, 11, 20)
    pool = {"kernel": [3, 3], "strides": [2, 2], "pads": [1] * 4, "dilations": [1, 1]}
    s.build("pool", [x], lambda b, x: b.op("transpose", b.op(
        "max_pool", b.op("transpose", x, perm=[0, 3, 1, 2]), **pool), perm=[0, 2, 3, 1]), (0, 0))  # fmt: skip
    y = data(s, 2, 9, 11, 13)
    s.build("concat", [x, y], lambda b, x, y: b.op("transpose", b.op("concat", *(
        b.op("transpose", v, perm=[0, 3, 1, 2]) for v in (x, y)), axis=1), perm=[0, 2, 3, 1]), (0, 0))  # fmt: skip
    s.check(TARGETS)


def test_recurrent_cells(s):
    """Products of words where rows are whole ones: of 7 inputs or 19 units they are not."""
    for op, gates, states, attrs in (
        ("lstm", 4, 2, {}), ("gru", 3, 1, {}), ("gru", 3, 1, {"linear_before_reset": True}), ("rnn", 1, 1, {}),
    ):  # fmt: skip
        for steps, batch, inputs, hidden, direction, constant in (
            (5, 3, 7, 20, "forward", (1, 2, 3)), (4, 1, 24, 19, "reverse", (1, 2, 3)), (3, 2, 6, 4, "forward", (1, 2, 3)),
            (20, 1, 64, 48, "bidirectional", (1, 2, 3)), (6, 5, 32, 40, "forward", ()), (3, 4, 30, 130, "reverse", (1, 2)),
        ):  # fmt: skip
            d = 2 if direction == "bidirectional" else 1
            shapes = [(steps, batch, inputs), (d, gates * hidden, inputs), (d, gates * hidden, hidden)]
            shapes += [(d, 2 * gates * hidden)] + [(d, batch, hidden)] * states
            arrays = [
                s.data("bf16", shape, *((-1, 1) if i in (0, 4, 5) else (-0.3, 0.3))) for i, shape in enumerate(shapes)
            ]
            label = f"{steps}_{inputs}_{hidden}_{len(attrs)}"
            s.case(op, arrays, (0.1, 6e-2), constant, label, direction=direction, hidden_size=hidden, **attrs)
    s.check(TARGETS)
