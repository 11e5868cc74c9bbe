"""Softmax and reductions over rows and columns of open size, long ones above all: each compiled once and run at many
sizes, compared with the NumPy evaluator on a module of those sizes."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from open_dims_test import OpenOps, of_n
from ops_test import NUMPY

INF, NAN = np.inf, np.nan
# Nothing, one, around vectors and four of them, primes; around the rows that a stack has room for (32768).
SHORT = [0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37, 61, 64, 67, 97, 127, 128, 129, 131, 257, 1009]
LONG = [32767, 32768, 32769, 32771, 32797, 32800, 40001, 65536]
TOLERANCE = {"f32": (2e-5, 1e-9), "f64": (1e-10, 1e-14), "f16": (4e-3, 1e-7), "bf16": (2e-2, 1e-7)}
LOG_TOLERANCE = {"f32": (1e-5, 1e-5), "f64": (1e-10, 1e-10), "f16": (4e-3, 4e-3), "bf16": (2e-2, 2e-2)}


@pytest.fixture
def s():
    return OpenOps()


def tolerance_of(op, dtype):
    return (LOG_TOLERANCE if op == "log_softmax" else TOLERANCE)[dtype]


def rows(sizes, m=2):
    return [{"m": m, "n": n} for n in sizes]


def softmaxes(s, name, shape, sizes, make, dtypes=("f32",), inputs=1, **kwargs):
    """make(b, op, *inputs) of each of the two operators and each type."""
    for op in ("softmax", "log_softmax"):
        for dtype in dtypes:
            s.open(
                f"{op}_{name}_{dtype}",
                [shape] * inputs,
                lambda b, _, *x, op=op: make(b, op, *x),
                sizes,
                dtype,
                tolerance=tolerance_of(op, dtype),
                **kwargs,
            )


def test_softmax_along_rows(s):
    softmaxes(s, "row", ("n",), of_n(SHORT + LONG), lambda b, op, x: b.op(op, x, axis=0), ("f32", "f64", "f16", "bf16"))
    softmaxes(s, "rows", ("m", "n"), rows(SHORT + LONG, 3), lambda b, op, x: b.op(op, x, axis=1))
    softmaxes(s, "no_rows", ("m", "n"), rows([0, 5, 40, 40001], 0), lambda b, op, x: b.op(op, x, axis=1))
    softmaxes(s, "merged", (2, "m", "n"), rows([1, 37, 32769], 3), lambda b, op, x: b.op(op, x, axis=2))
    softmaxes(s, "joined", (2, "m", "n"), [{"m": 3, "n": 5}, {"m": 200, "n": 173}], lambda b, op, x: b.op(op, b.op("reshape", x, shape=[2, -1]), axis=1))  # fmt: skip
    s.check()


def test_softmax_of_what_is_computed(s):
    """What is evaluated by the passes, and what is done with the result, where that has and where it has no room."""

    def scaled(b, op, x):
        return b.op(op, b.op("mul", x, b.literal(0.5, "f32")), axis=1)

    def long_expression(b, op, x):
        return b.op(op, b.op("tanh", b.op("exp", b.op("sin", x))), axis=1)

    def tail(b, op, x, y):
        return b.op("mul", b.op(op, x, axis=1), y)

    def both(b, op, x, y):
        return b.op("sub", b.op("relu", b.op(op, b.op("add", x, y), axis=1)), y)

    def narrow(b, op, x):
        return b.op("cast", scaled(b, op, x), dtype="f16")

    def narrow_long(b, op, x):
        return b.op("cast", long_expression(b, op, x), dtype="bf16")

    sizes = rows(SHORT[1:] + LONG, 3)
    softmaxes(s, "scaled", ("m", "n"), sizes, scaled)
    softmaxes(s, "long_expression", ("m", "n"), sizes, long_expression)
    softmaxes(s, "tail", ("m", "n"), sizes, tail, inputs=2)
    softmaxes(s, "both", ("m", "n"), sizes, both, inputs=2)
    for op in ("softmax", "log_softmax"):
        s.open(f"{op}_f16_of_f32", [("m", "n")], lambda b, _, x, op=op: narrow(b, op, x), sizes, tolerance=(4e-3, 4e-3 if op == "log_softmax" else 1e-7))  # fmt: skip
        s.open(f"{op}_bf16_of_f32", [("m", "n")], lambda b, _, x, op=op: narrow_long(b, op, x), sizes, tolerance=(2e-2, 2e-2 if op == "log_softmax" else 1e-7))  # fmt: skip
        s.open(f"{op}_masked", [(2, "m", "n"), ("n",)], lambda b, _, x, y, op=op: b.op(op, b.op("add", x, y), axis=2), sizes, tolerance=tolerance_of(op, "f32"))  # fmt: skip
        s.open(f"{op}_transposed", [("n", "m")], lambda b, _, x, op=op: b.op(op, b.op("transpose", x, perm=[1, 0]), axis=1), rows([1, 17, 64, 32771], 9), tolerance=tolerance_of(op, "f32"))  # fmt: skip
        # The result is needed twice.
        s.open(f"{op}_twice", [("m", "n")], lambda b, _, x, op=op: [y := b.op(op, x, axis=1), b.op("neg", y)], sizes, tolerance=tolerance_of(op, "f32"))  # fmt: skip
    s.check()


def test_softmax_of_known_rows_too_long_for_the_stack(s):
    x = s.data("f32", (2, 300007))
    for op in ("softmax", "log_softmax"):
        for label, make in (
            ("plain", lambda b, op, x: b.op(op, x, axis=1)),
            ("computed", lambda b, op, x: b.op("neg", b.op(op, b.op("mul", x, b.literal(0.5, "f32")), axis=1))),
        ):
            s.build(f"{op}_{label}", [x], lambda b, x, op=op, make=make: make(b, op, x), tolerance_of(op, "f32"))
        s.build(f"{op}_narrow", [x], lambda b, x, op=op: b.op("cast", b.op(op, x, axis=1), dtype="bf16"), tolerance_of(op, "bf16"))  # fmt: skip
    s.check()


def not_finite(n):
    """Rows of which single elements, all but one, or all are no numbers; first, last, in the last vector."""
    x = np.random.default_rng(3).uniform(-3, 3, (13, n)).astype(np.float32)
    x[0, :] = -INF
    x[1, 0], x[2, -1], x[3, n // 2], x[4, max(n - 5, 0)] = NAN, NAN, NAN, NAN
    x[5, 0], x[6, -1] = INF, INF
    x[7, :-1], x[8, 1:], x[9, : n // 2] = -INF, -INF, -INF
    x[10, -1], x[10, 0] = NAN, INF
    x[11, -1], x[12, 0] = 1e30, 88.0
    return x


def test_softmax_of_what_is_not_finite(s):
    sizes = of_n([z for z in SHORT + LONG if z > 0])
    for op in ("softmax", "log_softmax"):
        for label, dtype in (("", "f32"), ("bf16", "bf16")):

            def data(d, dtype=dtype):
                return [not_finite(d("n")).astype(NUMPY[dtype])]

            s.open(f"{op}_{label}", [(13, "n")], lambda b, _, x, op=op: b.op(op, x, axis=1), sizes, dtype, data=data, tolerance=tolerance_of(op, dtype))  # fmt: skip
            s.open(f"{op}_{label}_columns", [("n", 13)], lambda b, _, x, op=op: b.op(op, x, axis=0), sizes, dtype, data=lambda d, data=data: [np.ascontiguousarray(data(d)[0].T)], tolerance=tolerance_of(op, dtype))  # fmt: skip
        s.open(f"{op}_computed", [(13, "n")], lambda b, _, x, op=op: b.op(op, b.op("mul", x, b.literal(0.5, "f32")), axis=1), sizes, data=lambda d: [not_finite(d("n"))], tolerance=tolerance_of(op, "f32"))  # fmt: skip
        s.open(f"{op}_narrow", [(13, "n")], lambda b, _, x, op=op: b.op("cast", b.op(op, x, axis=1), dtype="bf16"), sizes, data=lambda d: [not_finite(d("n"))], tolerance=tolerance_of(op, "bf16"))  # fmt: skip
    s.check()


def test_the_maximum_is_where_vectors_end(s):
    """exp overflows unless every element counts for the maximum, and each counts once in the sum."""

    def peak(n, at):
        x = np.full((3, n), -60.0, np.float32)
        x[:, at] = 300.0
        x[1] = 0.25  # equal: 1 / n
        x[2] = np.linspace(-4, 4, n)
        return [x]

    for op in ("softmax", "log_softmax"):
        for name, make in (
            ("plain", lambda b, op, x: b.op(op, x, axis=1)),
            ("computed", lambda b, op, x: b.op(op, b.op("add", x, b.literal(1.0, "f32")), axis=1)),
            ("narrow", lambda b, op, x: b.op("cast", b.op(op, x, axis=1), dtype="f16")),
        ):
            for at in (0, -1, -2):
                tolerance = {"narrow": (4e-3, 4e-3 if op == "log_softmax" else 1e-7)}.get(name, tolerance_of(op, "f32"))
                s.open(f"{op}_{name}_{at}", [(3, "n")], lambda b, _, x, op=op, make=make: make(b, op, x), of_n([2, 9, 15, 33, 39, 63, 32769, 32775, 40003]), data=lambda d, at=at: peak(d("n"), at), tolerance=tolerance)  # fmt: skip
    s.check()


def test_softmax_along_columns(s):
    widths = [1, 3, 7, 8, 9, 16, 31, 32, 33, 41, 63, 64, 65, 100, 131]
    sizes = [{"n": n, "m": m} for n in (0, 1, 2, 5, 40) for m in [0, *widths]] + [{"n": 5001, "m": m} for m in (3, 37)]
    for dtype in ("f32", "f64", "f16", "bf16"):
        softmaxes(s, "first", ("n", "m"), sizes, lambda b, op, x: b.op(op, x, axis=0), (dtype,))
        softmaxes(s, "middle", (3, "n", "m"), sizes[::3], lambda b, op, x: b.op(op, x, axis=1), (dtype,))
    for width in widths:
        softmaxes(s, f"first_{width}", ("n", width), of_n([0, 1, 2, 40, 3001]), lambda b, op, x: b.op(op, x, axis=0))
    # Dimensions behind the axis are one, unless what broadcasts between them keeps them apart.
    images = [{"h": h, "w": w} for h in (0, 1, 3, 7, 12) for w in (1, 7, 16, 45)]
    softmaxes(s, "channels", (2, 5, "h", "w"), images, lambda b, op, x: b.op(op, x, axis=1))
    softmaxes(s, "channels_known", (2, 5, 7, 7), of_n([1]), lambda b, op, x: b.op(op, x, axis=1))
    for op in ("softmax", "log_softmax"):
        s.open(f"{op}_apart", [(2, "h", 5, "w"), ("w",)], lambda b, _, x, y, op=op: b.op(op, b.op("add", x, y), axis=1), images, tolerance=tolerance_of(op, "f32"))  # fmt: skip
        s.open(f"{op}_tail", [(2, 5, "h", "w"), ("h", 1)], lambda b, _, x, y, op=op: b.op("mul", b.op(op, x, axis=1), y), images, tolerance=tolerance_of(op, "f32"))  # fmt: skip
        s.open(f"{op}_narrow", [(2, 5, "h", "w")], lambda b, _, x, op=op: b.op("cast", b.op(op, b.op("abs", x), axis=1), dtype="f16"), images, tolerance=(4e-3, 4e-3 if op == "log_softmax" else 1e-7))  # fmt: skip
    s.check()


def exp_of_difference(b, x, axis):
    m = b.op("reduce_max", x, axes=[axis], keepdims=True)
    return b.op("exp", b.op("sub", x, m)), m


def log_sum_exp(b, x, axis):
    y, m = exp_of_difference(b, x, axis)
    return b.op("add", b.op("log", b.op("reduce_sum", y, axes=[axis], keepdims=True)), m)


def l2_norm(b, x, axis):
    return b.op("sqrt", b.op("reduce_sum", b.op("mul", x, x), axes=[axis]))


def variance(b, x, axis):
    d = b.op("sub", x, b.op("reduce_mean", x, axes=[axis], keepdims=True))
    return b.op("reduce_mean", b.op("mul", d, d), axes=[axis])


# Elements that take long: several vectors are computed side by side.
def sum_of_long(b, x, axis):
    return b.op("reduce_sum", b.op("sigmoid", b.op("exp", x)), axes=[axis])


def largest_of_long(b, x, axis):
    return b.op("reduce_max", b.op("tanh", b.op("mul", x, x)), axes=[axis], keepdims=True)


def all_below(b, x, axis):
    return b.op("reduce_min", b.op("cast", b.op("less", b.op("sin", x), b.literal(0.9, "f32")), dtype="i32"), axes=[axis])  # fmt: skip


def mean_of_numbers(b, x, axis):
    return b.op("reduce_mean", b.op("cast", b.op("floor", b.op("exp", x)), dtype="i32"), axes=[axis])


MADE = [log_sum_exp, l2_norm, variance, sum_of_long, largest_of_long, all_below, mean_of_numbers]


def test_reductions_along_rows(s):
    sizes = [z for z in SHORT + LONG if z > 0]
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min"):
        for dtype in ("f32", "f64", "bf16", "i32"):
            tolerance = {"f32": (1e-4, 1e-3), "f64": (1e-10, 1e-9), "bf16": (2e-2, 1e-1)}.get(dtype)
            s.open(f"{op}_{dtype}", [("m", "n")], lambda b, _, x, op=op: b.op(op, x, axes=[1]), rows(sizes), dtype, low=-1, high=2, tolerance=tolerance)  # fmt: skip
    for op in ("argmax", "argmin"):
        for last in (False, True):
            s.open(f"{op}_{last}", [("m", "n")], lambda b, _, x, op=op, last=last: b.op(op, x, axis=1, select_last=last), rows(sizes))  # fmt: skip
            s.open(f"{op}_{last}_of_equal", [("m", "n")], lambda b, _, x, op=op, last=last: b.op(op, x, axis=1, select_last=last), rows(sizes), "i32", low=0, high=3)  # fmt: skip
    for make in MADE:
        s.open(make.__name__, [("m", "n")], lambda b, _, x, make=make: make(b, x, 1), rows(sizes), tolerance=(1e-4, 1e-3) if make not in (all_below, mean_of_numbers) else None)  # fmt: skip
        s.open(f"{make.__name__}_of_planes", [(2, "m", 3, "n")], lambda b, _, x, make=make: make(b, x, 1), rows([1, 37, 100], 5), tolerance=(1e-4, 1e-3) if make not in (all_below, mean_of_numbers) else None)  # fmt: skip
    # Two reduced dimensions that are not neighbours: a loop around the vectors.
    s.open("apart", [("m", 3, "n")], lambda b, _, x: b.op("reduce_sum", b.op("exp", x), axes=[0, 2]), rows([1, 31, 32, 37, 200], 5), tolerance=(1e-4, 1e-3))  # fmt: skip
    s.open("known", [("m", 100)], lambda b, _, x: b.op("reduce_sum", b.op("exp", x), axes=[1]), rows([1], 5), tolerance=(1e-4, 1e-3))  # fmt: skip
    s.check()


def test_reductions_not_finite(s):
    sizes = of_n([z for z in SHORT + LONG if z > 0])
    for op in ("reduce_sum", "reduce_max", "reduce_min"):
        s.open(op, [(13, "n")], lambda b, _, x, op=op: b.op(op, x, axes=[1]), sizes, data=lambda d: [not_finite(d("n"))], tolerance=(1e-4, 1e-2))  # fmt: skip
        s.open(f"{op}_of_long", [(13, "n")], lambda b, _, x, op=op: b.op(op, b.op("atan", x), axes=[1]), sizes, data=lambda d: [not_finite(d("n"))], tolerance=(1e-4, 1e-2))  # fmt: skip
        s.open(f"{op}_columns", [("n", 13)], lambda b, _, x, op=op: b.op(op, x, axes=[0]), sizes, data=lambda d: [np.ascontiguousarray(not_finite(d("n")).T)], tolerance=(1e-4, 1e-2))  # fmt: skip
    for op in ("argmax", "argmin"):
        s.open(op, [(13, "n")], lambda b, _, x, op=op: b.op(op, x, axis=1), sizes, data=lambda d: [not_finite(d("n"))])
    s.check()


def test_reductions_along_columns(s):
    widths = [1, 3, 7, 8, 9, 16, 31, 32, 33, 41, 63, 64, 65, 100, 131]
    sizes = [{"n": n, "m": m} for n in (1, 2, 5, 40) for m in [0, *widths]] + [{"n": 5001, "m": m} for m in (3, 37)]
    for op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"):
        for dtype in ("f32", "f64", "bf16", "i32"):
            tolerance = {"f32": (1e-4, 1e-3), "f64": (1e-10, 1e-9), "bf16": (2e-2, 1e-1)}.get(dtype)
            s.open(f"{op}_{dtype}", [("n", "m")], lambda b, _, x, op=op: b.op(op, x, axes=[0]), sizes, dtype, low=-1, high=1, tolerance=tolerance)  # fmt: skip
            s.open(f"{op}_{dtype}_middle", [(3, "n", "m")], lambda b, _, x, op=op: b.op(op, x, axes=[1], keepdims=True), sizes, dtype, low=-1, high=1, tolerance=tolerance)  # fmt: skip
    for make in MADE:
        s.open(make.__name__, [("n", "m")], lambda b, _, x, make=make: make(b, x, 0), sizes, tolerance=(1e-4, 1e-3) if make not in (all_below, mean_of_numbers) else None)  # fmt: skip
    # What the sums become, with an operand of their own shape.
    s.open("tail", [("n", "m"), ("m",)], lambda b, _, x, y: b.op("mul", b.op("reduce_mean", x, axes=[0]), y), sizes, tolerance=(1e-4, 1e-3))  # fmt: skip
    s.check()
