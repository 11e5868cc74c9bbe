"""gather_matmul through the native backend, against the NumPy evaluator: data says which matrix a row meets."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import runnable
from open_dims_test import OpenOps
from ops_test import TARGETS

ALL_TARGETS = runnable([*TARGETS, ("llvm -mcpu=sapphirerapids", 1), ("llvm -mcpu=alderlake", 2)])
# rows, matrices, k, n
SHAPES = [(1, 1, 1, 1), (8, 16, 64, 48), (37, 4, 100, 33), (130, 8, 30, 7), (256, 3, 64, 200), (700, 2, 40, 50)]
SHAPES += [(5, 128, 16, 24), (64, 7, 600, 70), (3, 2, 1500, 17)]


@pytest.fixture
def s():
    return GatherOps()


class GatherOps(OpenOps):
    def which(self, rows, matrices, kind):
        return {
            "sorted": lambda: np.arange(rows) * matrices // max(rows, 1),
            "random": lambda: self.random.integers(0, matrices, rows),
            "one": lambda: np.full(rows, matrices // 2),
            "negative": lambda: self.random.integers(-matrices, 0, rows),
            "far": lambda: self.random.integers(-(2**31), 2**31, rows),
        }[kind]()

    def operands(self, rows, matrices, k, n, kind, transposed=False, dtype="f32", index="i64"):
        b = (matrices, n, k) if transposed else (matrices, k, n)
        which = self.which(rows, matrices, kind).astype(index.replace("i", "int"))
        return [self.data(dtype, (rows, k), -1, 1), self.data(dtype, b, -1, 1), which]

    def product(self, shape, kind, transposed=False, dtype="f32", index="i64", constant=(1,)):
        arrays = self.operands(*shape, kind, transposed, dtype, index)
        label = "_".join(map(str, [*shape, kind, transposed, dtype, index, len(constant)]))
        self.case("gather_matmul", arrays, tolerance(dtype, shape[2]), constant, label, transpose_b=transposed)


def tolerance(dtype, k):
    most = k**0.5
    return {
        "f64": (1e-13, 1e-14 * most),
        "f32": (1e-5, 1e-6 * most),
        "f16": (4e-3, 1e-3 * most),
        "bf16": (3e-2, 8e-3 * most),
    }[dtype]


def test_shapes(s):
    for shape in SHAPES:
        for kind in "sorted", "random", "one":
            for transposed in False, True:
                s.product(shape, kind, transposed)
    s.check(ALL_TARGETS)


def test_indices_count_from_the_end_and_are_clamped(s):
    for shape in SHAPES:
        for kind in "negative", "far":
            for index in "i32", "i64":
                s.product(shape, kind, index=index)
                s.product(shape, kind, index=index, constant=())
    s.check(ALL_TARGETS)


def test_dtypes_and_matrices_that_are_no_constants(s):
    for dtype in "f64", "f32", "f16", "bf16":
        for shape in (8, 16, 64, 48), (37, 4, 100, 33), (130, 3, 300, 40):
            for transposed in False, True:
                s.product(shape, "random", transposed, dtype)
                s.product(shape, "random", transposed, dtype, constant=())
    s.check(ALL_TARGETS)


def test_nothing(s):
    s.product((0, 3, 8, 5), "random")
    s.product((7, 3, 0, 5), "random")
    s.product((7, 3, 8, 0), "random")
    s.check(TARGETS)


def test_what_is_not_finite_stays_in_its_row(s):
    arrays = s.operands(20, 4, 64, 40, "random")
    arrays[0][0, 5], arrays[0][9, 40], arrays[0][19, 63] = np.inf, -np.inf, np.nan
    s.case("gather_matmul", arrays, (1e-5, 1e-4), (1,), "special")
    arrays = s.operands(20, 4, 64, 40, "one")
    arrays[1][[0, 1, 3]] = np.nan  # matrices that no row meets
    s.case("gather_matmul", arrays, (1e-5, 1e-4), (1,), "unread")
    s.check(TARGETS)


def test_what_is_computed_around_it(s):
    """Rows that are gated halves, a bias of each row's own matrix, and a weight of each row behind it."""
    for rows, matrices, k, n in (9, 4, 64, 48), (70, 8, 64, 34), (300, 3, 34, 64), (5, 2, 3, 5):
        x, w, which = s.operands(rows, matrices, k, n, "random")
        halves, bias, each = s.data("f32", (rows, 2 * k)), s.data("f32", (matrices, n)), s.data("f32", (rows, 1))

        def make(b, halves, w, which, bias, each, k=k):
            gate, up = b.op("split", halves, axis=1, sizes=[k, k])
            y = b.op("gather_matmul", b.op("mul", b.op("silu", gate), up), w, which)
            return b.op("mul", b.op("add", y, b.op("gather", bias, which, axis=0)), each)

        s.build(f"gated_{rows}", [halves, w, which, bias, each], make, (1e-4, 1e-4), (1, 3))
        tokens = s.data("f32", (rows, 1, k))

        def repeated(b, tokens, w, which, rows=rows, k=k):
            x = b.op("reshape", b.op("expand", tokens, shape=[rows, 2, k]), shape=[2 * rows, k])
            return b.op("gather_matmul", x, w, b.op("concat", which, which, axis=0), transpose_b=False)

        s.build(f"repeated_{rows}", [tokens, w, which], repeated, (1e-4, 1e-4), (1,))
    s.check(ALL_TARGETS)


def test_open_rows(s):
    for matrices, k, n in (4, 64, 48), (16, 100, 33), (3, 700, 24):
        for kind in "random", "far":

            def make(b, _, x, w, which):
                return b.op("add", b.op("gather_matmul", x, w, which), b.literal(np.float32(0.5)))

            def data(lookup, shape=(matrices, k, n), kind=kind):
                return s.operands(lookup("m"), *shape, kind)

            shapes = [("m", k), (matrices, k, n), ("m",)]
            for constant in (1,), ():
                s.open(
                    f"{matrices}_{k}_{n}_{kind}_{len(constant)}", shapes, make, [{"m": m} for m in (0, 1, 2, 5, 33, 200)],
                    ["f32", "f32", "i64"], tolerance("f32", k), constant, data=data,
                )  # fmt: skip
    s.check(ALL_TARGETS)
