"""matmul_nbits through the native backend, against the NumPy evaluator: weights in blocks of 2, 4 and 8 bits."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import runnable
from open_dims_test import OpenOps
from ops_test import TARGETS

# Vectors of 16 and 8 whose lanes look numbers up, of 4 and 2 that convert them.
ALL_TARGETS = runnable([*TARGETS, ("llvm -mcpu=sapphirerapids", 1), ("llvm -mcpu=alderlake", 2)])
ROWS = [0, 1, 2, 3, 4, 5, 8, 9, 16, 33, 129]
# bits, k, n, block
SHAPES = [(4, 64, 48, 32), (4, 100, 33, 32), (4, 30, 7, 16), (4, 1, 1, 16), (4, 600, 70, 128), (8, 70, 40, 16)]
SHAPES += [(8, 37, 5, 64), (2, 96, 64, 16), (2, 55, 19, 64), (4, 1100, 34, 512), (8, 900, 20, 296), (4, 64, 200, 64)]


@pytest.fixture
def s():
    return NbitsOps()


class NbitsOps(OpenOps):
    def operands(self, rows, bits, k, n, block, zeros=None, dtype="f32"):
        """zeros: None, or the dtype of the zero points."""
        blocks = -(-k // block)
        numbers = self.random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        arrays = [self.data(dtype, (*rows, k), -1, 1), numbers, self.data(dtype, (n, blocks), -0.1, 0.2)]
        if zeros == "u8":
            arrays.append(self.random.integers(0, 2**bits, (n, blocks)).astype(np.uint8))
        elif zeros:
            arrays.append(self.data(zeros, (n, blocks), 0, 2**bits))
        return arrays

    def nbits(self, rows, shape, zeros=None, dtype="f32", constant=(1, 2, 3)):
        arrays = self.operands(rows, *shape, zeros, dtype)
        constant = [i for i in constant if i < len(arrays)]
        label = "_".join(map(str, [*rows, "r", *shape, zeros, dtype, len(constant)]))
        self.case("matmul_nbits", arrays, tolerance(dtype, shape), constant, label, bits=shape[0])


def tolerance(dtype, shape):
    bits, k, *_ = shape
    most = 2 ** (bits - 1) * k**0.5
    return {"f32": (1e-5, 2e-6 * most), "f16": (4e-3, 1e-3 * most), "bf16": (3e-2, 8e-3 * most)}[dtype]


def test_shapes(s):
    for shape in SHAPES:
        for rows in (), (1,), (3,), (7,), (40,), (2, 1, 9), (130,):
            for zeros in (None, "u8"):
                s.nbits(rows, shape, zeros)
    s.check(ALL_TARGETS)


def test_nothing(s):
    s.nbits((3,), (4, 0, 5, 32))
    s.nbits((0,), (4, 40, 5, 32))
    s.nbits((3,), (4, 40, 0, 32))
    s.check(TARGETS)


def test_dtypes_and_operands_that_are_no_constants(s):
    for dtype in ("f32", "f16", "bf16"):
        for rows in (1,), (2, 3), (20,):
            for shape in (4, 100, 33, 32), (8, 64, 48, 64):
                s.nbits(rows, shape, "u8", dtype)
                s.nbits(rows, shape, dtype, dtype)
                s.nbits(rows, shape, "u8", dtype, constant=())
                s.nbits(rows, shape, None, dtype, constant=(1,))
    s.check(ALL_TARGETS)


def test_what_is_not_finite_stays_in_its_row(s):
    for zeros in (None, "u8"):
        for rows in 3, 20:
            arrays = s.operands((rows,), 4, 64, 40, 32, zeros)
            arrays[1] |= 0x11  # no number is its zero point, whose product with Inf would be NaN
            if zeros:
                arrays[3] &= 0xE
            else:
                arrays[1] = np.where(arrays[1] & 0x0F == 8, arrays[1] + 1, arrays[1]).astype(np.uint8)
            arrays[0][0, 5], arrays[0][1, 40], arrays[0][2, 63] = np.inf, -np.inf, np.nan
            s.case("matmul_nbits", arrays, (1e-5, 1e-4), (1, 2, 3)[: len(arrays) - 1], f"special_{rows}", bits=4)
    s.check(ALL_TARGETS)


def test_tails(s):
    for rows in (1,), (2, 7), (30,):
        for n in 48, 33:
            arrays = s.operands(rows, 4, 64, n, 32)
            other = s.data("f32", (*rows, n))

            def make(b, x, w, scales, bias, other):
                y = b.op("add", b.op("matmul_nbits", x, w, scales, bits=4), bias)
                return b.op("mul", b.op("silu", y), other)

            bias = s.data("f32", (n,))
            s.build(f"gated_{rows}_{n}", [*arrays, bias, other], make, (1e-4, 1e-4), (1, 2))
    s.check(ALL_TARGETS)


def test_open_rows(s):
    both = [{"m": m, "n": n} for m in (0, 1, 3) for n in (1, 17)]
    for bits, k, n, block in SHAPES:
        blocks = -(-k // block)
        for zeros in (False, True):
            for rows, sizes in ((("n",), [{"n": r} for r in ROWS]), (("m", "n"), both)):
                shapes = [(*rows, k), (n, blocks, block * bits // 8), (n, blocks), (n, blocks)][: 4 if zeros else 3]

                def make(b, _, *params, bits=bits):
                    return b.op("add", b.op("matmul_nbits", *params, bits=bits), b.literal(np.float32(0.5)))

                def data(lookup, rows=rows, shape=(bits, k, n, block), zeros=zeros):
                    return s.operands([lookup(name) for name in rows], *shape, "u8" if zeros else None)

                dtypes, constant = ["f32", "u8", "f32", "u8"][: len(shapes)], (1, 2, 3)[: len(shapes) - 1]
                label = f"{bits}_{k}_{n}_{block}_{zeros}_{len(rows)}"
                s.open(label, shapes, make, sizes, dtypes, tolerance("f32", (bits, k)), constant, data=data)
    s.check(ALL_TARGETS)
