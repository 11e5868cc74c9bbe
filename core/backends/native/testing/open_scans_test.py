"""Sorting, the largest few, and scans along axes of open size: each compiled once and run at many sizes, compared with
the NumPy evaluator on a module of those sizes. Scans along known ones as well, whose code is the same."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from open_dims_test import OpenOps, of_n
from ops_test import NUMPY, F, N

INF, NAN = np.inf, np.nan
# Nothing, one, around vectors, primes.
SIZES = [0, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 97, 131, 257]
LONG = [1009, 10007]
SUMS = {"f32": (1e-4, 1e-4), "f64": (1e-10, 1e-10), "f16": (2e-2, 2e-2), "bf16": (1e-1, 1e-1)}


@pytest.fixture
def s():
    return OpenOps()


def at_least(k, sizes=SIZES):
    return of_n([size for size in sizes if size >= k])


def both(m_sizes, n_sizes):
    return [{"m": m, "n": n} for m in m_sizes for n in n_sizes]


def rows_with_ties(dtype, rows, n, kind=0):
    """Few different values; of floats NaN and infinities in the first, last and middle places, and a row of nothing
    else."""
    x = np.random.default_rng(n + kind).integers(0, 5, (rows, n)).astype(NUMPY[dtype])
    if dtype in F and n > 0:
        x[0, :: max(n // 3, 1)] = NAN
        x[1, -1], x[1, 0] = NAN, INF
        x[2] = NAN
        x[3, : n // 2] = -INF
        x[4, n // 2 :] = INF
    return x


def test_largest_few_of_open_rows(s):
    for dtype in N:
        for largest in (True, False):
            for k in (1, 5) if dtype in ("f32", "i8") else (3,):

                def topk(b, _, x, k=k, largest=largest):
                    return b.op("topk", x, k=k, axis=-1, largest=largest)

                s.open(f"rows_{dtype}_{largest}_{k}", [(6, "n")], topk, at_least(k), dtype, data=lambda d, dtype=dtype: [rows_with_ties(dtype, 6, d("n"))])  # fmt: skip
    s.open("bool", [(3, "n")], lambda b, _, x: b.op("topk", x, k=4, axis=1), at_least(4), "bool")
    s.open("long", [(2, "n")], lambda b, _, x: b.op("topk", x, k=8, axis=1), of_n(LONG))
    # More than a stack has room for.
    s.open("many", [("m", "n")], lambda b, _, x: b.op("topk", x, k=90001, axis=1), [{"m": 2, "n": 90001}, {"m": 1, "n": 90100}])  # fmt: skip
    s.open("none", [(3, "n")], lambda b, _, x: b.op("topk", x, k=0, axis=1), of_n([0, 1, 9]))
    s.check()


def test_largest_few_along_other_open_axes(s):
    sizes = both([0, 1, 3, 17], [4, 5, 31, 64])
    for axis, shape in ((0, ("n", "m")), (1, (2, "n", "m")), (-2, ("m", "n", 3))):
        s.open(f"axis_{axis}", [shape], lambda b, _, x, axis=axis: b.op("topk", x, k=4, axis=axis, largest=axis != 0), sizes)  # fmt: skip
    s.open("sum_of_sizes", [("n+2", "m")], lambda b, _, x: b.op("topk", x, k=2, axis=0), both([1, 3], [0, 1, 40]))
    s.open("computed", [("m", "n"), ("n",)], lambda b, _, x, y: b.op("topk", b.op("add", x, y), k=4, axis=1), sizes)
    s.open("transposed", [("n", "m")], lambda b, _, x: b.op("topk", b.op("transpose", x, perm=[1, 0]), k=4, axis=1), sizes)  # fmt: skip
    s.open("used", [("m", "n")], lambda b, _, x: b.op("reduce_sum", b.op("topk", x, k=3, axis=1)[0], axes=[1]), sizes)
    s.check()


def test_sorting_open_rows(s):
    for dtype in N:
        for largest in (True, False):

            def sort(b, lookup, x, largest=largest):
                return b.op("topk", x, k=lookup("n"), axis=1, largest=largest)

            s.open(f"rows_{dtype}_{largest}", [(5, "n")], sort, of_n(SIZES), dtype, data=lambda d, dtype=dtype: [rows_with_ties(dtype, 5, d("n"), 1)])  # fmt: skip
    s.open("bool", [(3, "n")], lambda b, d, x: b.op("topk", x, k=d("n"), axis=1), of_n(SIZES), "bool")
    s.open("long", [("n",)], lambda b, d, x: b.op("topk", x, k=d("n"), axis=0, largest=False), of_n(LONG))
    s.open("columns", [("n", "m")], lambda b, d, x: b.op("topk", x, k=d("n"), axis=-2), both([0, 1, 3, 17], [0, 1, 2, 31, 64]))  # fmt: skip
    s.open("two_axes", [("m", "n")], lambda b, d, x: b.op("topk", x, k=d("m"), axis=1), [{"m": m, "n": n} for n in (1, 8, 31, 97) for m in (0, 1, 7, 8, 31) if m <= n])  # fmt: skip
    s.check()


def scans(s, label, shape, sizes, dtypes, axis, **kwargs):
    for dtype in dtypes:
        if dtype in F:
            s.open(f"logcumsumexp_{label}_{dtype}", [shape], lambda b, _, x: b.op("logcumsumexp", x, axis=axis), sizes, dtype, tolerance=SUMS[dtype], **kwargs)  # fmt: skip
        for op in ("cummax", "cummin"):
            s.open(f"{op}_{label}_{dtype}", [shape], lambda b, _, x, op=op: b.op(op, x, axis=axis), sizes, dtype, **kwargs)  # fmt: skip
        for exclusive, reverse in ((False, False), (True, True), (False, True), (True, False)):

            def cumprod(b, _, x, exclusive=exclusive, reverse=reverse):
                return b.op("cumprod", x, axis=axis, exclusive=exclusive, reverse=reverse)

            near_one = {"low": 0.95, "high": 1.05} if dtype in F else {}
            s.open(f"cumprod_{label}_{dtype}_{exclusive}_{reverse}", [shape], cumprod, sizes, dtype, tolerance=SUMS.get(dtype), **{**near_one, **kwargs})  # fmt: skip


def test_scans_along_open_rows(s):
    scans(s, "rows", (3, "n"), of_n(SIZES), N, axis=-1)
    scans(s, "long", ("n",), of_n(LONG), ["f32", "i64"], axis=0)
    s.check()


def test_scans_along_open_columns(s):
    """Vectors of neighbours, fewer of them than a vector holds, and with a rest."""
    scans(s, "columns", ("n", "m"), both([0, 1, 5, 17, 64, 131], [0, 1, 2, 37]), N, axis=0)
    scans(s, "middle", (2, "n", 19), of_n([0, 1, 2, 37]), ["f32", "i8", "bf16"], axis=-2)
    scans(s, "long_columns", ("n", 3), of_n(LONG), ["f32"], axis=0)
    s.check()


def test_scans_of_equals_and_of_what_is_not_finite(s):
    dtypes = ["f32", "f64", "f16", "bf16", "i8", "u8", "i64"]
    for dtype in dtypes:
        for axis in (0, 1):

            def data(d, dtype=dtype, axis=axis):
                x = rows_with_ties(dtype, 5, d("n"), 2)
                return [x if axis else np.ascontiguousarray(x.T)]

            shape = (5, "n") if axis else ("n", 5)
            for op in ["cummax", "cummin"] + ["logcumsumexp"] * (dtype in F):
                s.open(f"{op}_{dtype}_{axis}", [shape], lambda b, _, x, op=op, axis=axis: b.op(op, x, axis=axis), of_n(SIZES), dtype, data=data, tolerance=SUMS.get(dtype) if op == "logcumsumexp" else None)  # fmt: skip
    s.check()


def test_log_of_sums_of_exponentials_that_overflow(s):
    """Up and down by more than exp has room for, from -Inf on, and to Inf and on from there."""
    x = np.array([[-INF, -INF, -1000, -1000, 1000, 1000, -1000, 999.5], [90, 89, INF, 3, -INF, INF, 0, -90]], np.float32)  # fmt: skip
    for axis, at in ((1, x), (0, np.ascontiguousarray(x.T))):
        s.open(f"axis_{axis}", [tuple("n" if i == axis else d for i, d in enumerate(at.shape))], lambda b, _, x, axis=axis: b.op("logcumsumexp", x, axis=axis), [{"n": 8}], data=lambda _, at=at: [at], tolerance=(1e-6, 1e-6))  # fmt: skip
    s.check()


def test_scans_among_other_operators(s):
    """What they are made of is folded in; both results of an extreme, or one, go on."""
    sizes = both([1, 17], [0, 1, 31, 64])
    for axis in (0, 1):
        s.open(f"product_{axis}", [("m", "n"), ("n",)], lambda b, _, x, y, axis=axis: b.op("tanh", b.op("cumprod", b.op("add", x, y), axis=axis)), sizes, low=0.3, high=0.6, tolerance=(1e-4, 1e-4))  # fmt: skip
        s.open(f"extreme_{axis}", [("m", "n")], lambda b, _, x, axis=axis: (lambda v, i: [b.op("neg", v), b.op("add", i, i)])(*b.op("cummax", b.op("neg", x), axis=axis)), sizes)  # fmt: skip
        s.open(f"places_{axis}", [("m", "n")], lambda b, _, x, axis=axis: b.op("cummin", x, axis=axis)[1], sizes)
        s.open(f"values_{axis}", [("m", "n")], lambda b, _, x, axis=axis: b.op("cummin", x, axis=axis)[0], sizes)
    s.check()


def test_scans_of_known_sizes(s):
    for dtype in N:
        for shape in ((3, 5, 18), (1, 300), (2, 0, 3), (7,)):
            for axis in range(-len(shape), 0):
                x = s.data(dtype, shape, 0, 3)
                s.case("cummax", [x], axis=axis, label=str(axis))
                s.case("cummin", [x], axis=axis, label=str(axis))
                s.case("cumprod", [s.data(dtype, shape, -1.2, 1.2)], axis=axis, label=str(axis), tolerance=SUMS.get(dtype))  # fmt: skip
                if dtype in F:
                    s.case("logcumsumexp", [x], axis=axis, label=str(axis), tolerance=SUMS[dtype])
    s.check()
