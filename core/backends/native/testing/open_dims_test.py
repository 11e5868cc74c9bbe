"""Operators and fused groups with open dimensions: each compiled once and run at many sizes, compared with the NumPy
evaluator on a module of those sizes."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import FunctionBuilder, runnable
from ops_test import TARGETS, Ops, special

from inlay.ir import dims

# Nothing, one, around the vectors' widths, primes, several tiles.
SIZES = [0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33, 64, 97, 130]
FEW = [0, 1, 6, 17, 64, 131]
ROWS = [*FEW, 16, 32, 36, 37]
INTEGER_TARGETS = runnable(
    [("llvm -mcpu=sapphirerapids", 2), ("llvm -mcpu=cascadelake", 1), ("llvm -mcpu=alderlake", 2), *TARGETS]
)


class OpenOps(Ops):
    def open(
        self, label, shapes, make, sizes, dtypes="f32", tolerance=None, constant=(), low=-3.0, high=3.0, data=None
    ):
        """make(builder, lookup, *params) -> results. An extent is a number or a name (or an expression over names).
        sizes: values by name. data(lookup) -> the inputs, else random ones."""
        dtypes = [dtypes] * len(shapes) if isinstance(dtypes, str) else list(dtypes)

        def build(lookup):
            def shape_of(shape):
                names = [lookup(e) if isinstance(e, str) and e.isidentifier() else e for e in shape]
                return [
                    e if not isinstance(e, str) or not numbers else eval(e.replace("/", "//"), {}, Numbers(lookup))
                    for e in names
                ]

            numbers = not isinstance(lookup("n"), str)
            concrete = [shape_of(s) for s in shapes]
            b = FunctionBuilder()
            params = [b.param(f"p{i}", d, s) for i, (d, s) in enumerate(zip(dtypes, concrete))]
            result = make(b, lookup, *params)
            module = b.finish(list(result) if isinstance(result, (tuple, list)) else [result])
            if not numbers:
                return module, None
            inputs = data(lookup) if data else [self.data(d, s, low, high) for d, s in zip(dtypes, concrete)]
            return module, [np.asarray(i) for i in inputs]

        self.add_open(label, build, [{"n": 1, **s} for s in sizes], tolerance, constant)


class Numbers(dict):
    """Names of an expression, looked up."""

    def __init__(self, lookup):
        super().__init__()
        self.lookup = lookup

    def __missing__(self, name):
        return self.lookup(name)


def of_n(values=SIZES):
    return [{"n": v} for v in values]


@pytest.fixture
def s():
    return OpenOps()


def test_pointwise(s):
    for dtype in ["f32", "f64", "f16", "bf16", "i8", "i32", "i64"]:
        s.open(f"chain_{dtype}", [("n", 7), ("n", 7)], lambda b, _, x, y: b.op("relu", b.op("mul", b.op("add", x, y), x)), of_n(), dtype)  # fmt: skip
    s.open("flat", [("n",)], lambda b, _, x: b.op("exp", x), of_n())
    s.open("rows", [("n", 768)], lambda b, _, x: b.op("gelu", x), of_n(FEW))
    s.open("columns", [(3, "n")], lambda b, _, x: b.op("tanh", x), of_n())
    s.open("both", [("m", "n")], lambda b, _, x: b.op("neg", x), [{"m": m, "n": n} for m in FEW for n in FEW])
    s.open("three", [("m", 3, "n")], lambda b, _, x: b.op("sqrt", b.op("abs", x)), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    s.open("special", [("n",)], lambda b, _, x: [b.op("exp", x), b.op("isnan", x), b.op("relu", x)], [{"n": len(special("f32"))}], data=lambda _: [special("f32")])  # fmt: skip
    s.open("bias", [("m", "n", 5), (5,)], lambda b, _, x, y: b.op("add", x, y), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    s.open("row_bias", [("m", "n"), ("n",)], lambda b, _, x, y: b.op("sub", x, y), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    s.open("column_bias", [("m", "n"), ("m", 1)], lambda b, _, x, y: b.op("mul", x, y), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    s.open("outer", [("m", 1), ("n",)], lambda b, _, x, y: b.op("maximum", x, y), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    s.open("compare", [("n", 3), ("n", 3)], lambda b, _, x, y: b.op("where", b.op("less", x, y), x, y), of_n())
    s.open("bools", [("n",), ("n",)], lambda b, _, x, y: b.op("logical_and", x, y), of_n(), "bool")
    s.open("cast", [("n", 3)], lambda b, _, x: b.op("cast", x, dtype="i64"), of_n())
    s.open("polynomials", [("2*n", "m"), ("2*n", "m")], lambda b, _, x, y: b.op("add", x, y), [{"m": m, "n": n} for m in FEW for n in FEW])  # fmt: skip
    # Long enough for threads.
    s.open("large", [("n", 3)], lambda b, _, x: b.op("exp", x), of_n([200000, 100003]))
    s.check()


def matmul(b, _, x, y, **attrs):
    return b.op("matmul", x, y, **attrs)


def test_few_rows_by_open_keys_and_values(s):
    of_n = [{"n": n} for n in SIZES + [300]]

    def scores(b, _, x, y):
        return matmul(b, _, x, y, transpose_b=True)

    for rows, size in ((1, 64), (2, 21), (4, 40), (7, 8), (9, 64)):
        tolerance = (1e-4, 1e-4)
        s.open(f"keys_{rows}_{size}", [(3, rows, size), (3, "n", size)], scores, of_n, low=-1, high=1, tolerance=tolerance)  # fmt: skip
        s.open(f"values_{rows}_{size}", [(3, rows, "n"), (3, "n", size)], matmul, of_n, low=-1, high=1, tolerance=tolerance)  # fmt: skip
    s.open("batch", [("n", 1, 40), ("n", 40, 30)], matmul, of_n, low=-1, high=1, tolerance=(1e-4, 1e-4))
    s.open("shared", [(2, 1, 40), ("n", 40)], scores, of_n, low=-1, high=1, tolerance=(1e-4, 1e-4))
    # Heads that share keys and values, of several rows, or of more than are few.
    for group, rows in ((3, 1), (2, 3), (5, 4)):
        s.open(f"group_keys_{group}_{rows}", [(2, 3, group, rows, 40), (2, 3, 1, "n", 40)], scores, of_n, low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
        s.open(f"group_values_{group}_{rows}", [(2, 3, group, rows, "n"), (2, 3, 1, "n", 40)], matmul, of_n, low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
        s.open(f"open_heads_{group}_{rows}", [("n", group, rows, 40), ("n", 1, 30, 40)], scores, of_n, low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    for dtype in ("f16", "bf16"):
        s.open(f"keys_{dtype}", [(2, 1, 40), (2, "n", 40)], scores, of_n, dtype, low=-1, high=1, tolerance=(1e-1, 1e-1))
        s.open(f"values_{dtype}", [(2, 1, "n"), (2, "n", 40)], matmul, of_n, dtype, low=-1, high=1, tolerance=(1e-1, 1e-1))  # fmt: skip
    s.check()


def test_matmul_with_open_rows(s):
    for k, n in [(1, 1), (5, 3), (64, 64), (33, 50), (256, 96), (300, 257), (4, 1000)]:
        s.open(f"weights_{k}_{n}", [("n", k), (k, n)], matmul, of_n(), constant=(1,), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
        s.open(f"given_{k}_{n}", [("n", k), (k, n)], matmul, of_n(FEW), low=-1, high=1, tolerance=(1e-4, 1e-4))
    for dtype in ["f64", "f16", "bf16", "i32"]:
        tolerance = {"f16": (2e-2, 2e-2), "bf16": (1e-1, 1e-1), "f64": (1e-9, 1e-9)}.get(dtype)
        s.open(f"type_{dtype}", [("n", 40), (40, 37)], matmul, of_n(FEW), dtype, constant=(1,), tolerance=tolerance)
        s.open(f"given_{dtype}", [("n", 40), (40, 37)], matmul, of_n(FEW), dtype, tolerance=tolerance)
    # Few columns are dot products.
    for k, n in [(8, 1), (21, 2), (100, 3), (64, 4)]:
        s.open(f"few_{k}_{n}", [("n", k), (k, n)], matmul, of_n(range(10)), constant=(1,), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
        s.open(f"few_given_{k}_{n}", [("n", k), (n, k)], lambda b, _, x, y: matmul(b, _, x, y, transpose_b=True), of_n(range(10)), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    # Of tiles of every size, and of two sizes.
    for k, n in [(40, 80), (24, 48)]:
        s.open(f"every_count_{n}", [("n", k), (k, n)], matmul, of_n(range(68)), constant=(1,), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    both = [{"m": m, "n": n} for m in (0, 1, 3) for n in (0, 1, 5, 33)]
    s.open("batch", [("m", "n", 48), (48, 80)], matmul, both, constant=(1,), tolerance=(1e-4, 1e-4))
    s.open("batch_few", [("m", "n", 48), (48, 2)], matmul, both, constant=(1,), tolerance=(1e-4, 1e-4))
    s.open("batch_f16", [("m", "n", 48), (48, 80)], matmul, both, "f16", constant=(1,), tolerance=(1e-2, 1e-2))
    s.open("transposed", [("m", "n", 48), (80, 48)], lambda b, _, x, y: matmul(b, _, x, y, transpose_b=True), both, constant=(1,), tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("a_transposed", [("m", 48, "n"), (48, 80)], lambda b, _, x, y: matmul(b, _, x, y, transpose_a=True), both, constant=(1,), tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("many_weights", [("n", 3, "m", 20), (3, 20, 33)], matmul, both, constant=(1,), tolerance=(1e-4, 1e-4))
    s.open("vector", [("n", 48), (48,)], matmul, of_n(FEW), constant=(1,), tolerance=(1e-4, 1e-4))
    s.open("rows_beyond_a_block", [("n", 700), (700, 40)], matmul, of_n([150, 191, 383]), constant=(1,), low=-1, high=1, tolerance=(1e-3, 1e-3))  # fmt: skip

    def gelu(b, _, x, w, bias, residual):
        return b.op("add", b.op("gelu", b.op("add", b.op("matmul", x, w), bias)), residual)

    s.open("wide", [("m", "n", 12), (12, 5003), (5003,), ("m", "n", 5003)], gelu, [*both, {"m": 2, "n": 70}], constant=(1, 2), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("tail", [("m", "n", 64), (64, 128), (128,), ("m", "n", 128)], gelu, both, constant=(1, 2), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("few_tail", [("m", "n", 64), (64, 2), (2,), ("m", "n", 2)], gelu, both, constant=(1, 2), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("row_tail", [("m", "n", 64), (64, 40), (40,), ("m", 1, 40)], gelu, both, constant=(1, 2), low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.check()


def test_integer_products_with_open_rows(s):
    def product(b, _, x, y, **attrs):
        return b.op("matmul_integer", x, y, **attrs)

    def scaled(b, _, x, y):
        return b.op("mul", b.op("cast", product(b, _, x, y), dtype="f32"), b.literal(np.float32(0.01)))

    both = [{"m": m, "n": n} for m in (0, 1, 3) for n in (1, 17)]
    limits = {"low": -100, "high": 100}
    for signs in ("u8", "i8"), ("i8", "i8"), ("u8", "u8"):
        for constant in ((1,), ()):
            name = "_".join((*signs, "weights" if constant else "given"))
            for k, n in ((64, 48), (130, 70), (30, 37), (1, 1)):
                s.open(f"{name}_{k}_{n}", [("n", k), (k, n)], product, of_n(ROWS), signs, constant=constant, **limits)
            s.open(f"{name}_batch", [("m", "n", 48), (48, 80)], scaled, both, signs, constant=constant, **limits)
            s.open(f"{name}_transposed", [("m", "n", 30), (40, 30)],
                   lambda b, _, x, y: product(b, _, x, y, transpose_b=True), both, signs, constant=constant, **limits)  # fmt: skip
            s.open(f"{name}_many", [("n", 3, "m", 20), (3, 20, 33)], product, both, signs, constant=constant, **limits)
            s.open(f"{name}_vector", [("n", 48), (48,)], product, of_n(ROWS), signs, constant=constant, **limits)
    s.check(INTEGER_TARGETS)


def test_integer_convolutions_of_open_batches(s):
    for x_type, zero in (("u8", 0), ("u8", 7), ("i8", -5)):
        for shape, w, attrs in (
            ((9, 7, 8), (20, 9, 3, 3), {"pads": [1] * 4, "strides": [2, 1]}),
            ((64, 6, 6), (33, 64, 1, 1), {}),
            ((12, 9, 9), (12, 1, 3, 3), {"pads": [1] * 4, "groups": 12}),
            ((8, 20), (10, 4, 5), {"groups": 2}),
        ):
            axes = len(shape) - 1
            attrs = {"strides": [1] * axes, "dilations": [1] * axes, "pads": [0] * 2 * axes, "groups": 1} | attrs
            s.open(f"{x_type}_{zero}_{w}", [("n", *shape), w],
                   lambda b, _, x, w, attrs=attrs, zero=zero: b.op("conv_integer", x, w, x_zero=zero, **attrs),
                   of_n([0, 1, 3]), (x_type, "i8"), constant=(1,), low=-100, high=100)  # fmt: skip
    s.check(INTEGER_TARGETS)


def test_matmul_with_open_everything(s):
    sizes = [{"n": n, "m": m, "k": k} for n in (0, 1, 7, 33, 64) for m in (0, 1, 9, 40) for k in (0, 1, 5, 64, 300)]
    s.open("all", [("m", "k"), ("k", "n")], matmul, sizes, low=-1, high=1, tolerance=(1e-4, 1e-4))
    s.open("b_transposed", [("m", "k"), ("n", "k")], lambda b, _, x, y: matmul(b, _, x, y, transpose_b=True), sizes, low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("a_transposed", [("k", "m"), ("k", "n")], lambda b, _, x, y: matmul(b, _, x, y, transpose_a=True), sizes, low=-1, high=1, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("batched", [(2, "m", "k"), (2, "k", "n")], matmul, sizes, low=-1, high=1, tolerance=(1e-4, 1e-4))
    s.open("one_matrix", [("n", "m", "k"), ("k", "n")], matmul, sizes[::3], low=-1, high=1, tolerance=(1e-4, 1e-4))
    s.open("two_vectors", [("n",), ("n",)], matmul, of_n(FEW), tolerance=(1e-3, 1e-3))
    s.open("vector_matrix", [("k",), ("k", "n")], matmul, sizes[::3], low=-1, high=1, tolerance=(1e-4, 1e-4))
    s.open("bf16", [("m", "k"), ("k", "n")], matmul, sizes[::5], "bf16", low=-1, high=1, tolerance=(1e-1, 1e-1))
    s.check()


END, THROUGH_FIRST = 2**63 - 1, -(2**63)
SLICES = [(1, 5, 1), (1, 5, 2), (-3, END, 1), (0, 1, 1), (-1, END, 1), (END, THROUGH_FIRST, -1)]
SLICES += [(-2, THROUGH_FIRST, -3), (0, -1, 1), (40, 50, 1), (4, 1, -1)]
SLICES += [(0, END, 2), (2, END, 3), (7, END, 3), (-1, THROUGH_FIRST, -1), (3, END, 1), (2, -2, 1)]
# Those that drop elements, or take one, want to have them.
LEAST = {(0, 1, 1): 1, (-1, END, 1): 1, (0, -1, 1): 1, (3, END, 1): 3, (2, -2, 1): 4}


def sliced(s, begin, end, step, axis):
    """A slice of an open axis, whose extent may be a name of its own: "slice(n,1,5,2)"."""

    def build(lookup):
        shape = [3, 3]
        shape[axis] = lookup("n")
        lists = {"begins": [0, 0], "ends": [3, 3], "steps": [1, 1]}
        for name, value in zip(lists, (begin, end, step)):
            lists[name][axis] = value
        b = FunctionBuilder()
        x = b.param("x", "f32", shape)
        module = b.finish([b.op("slice", x, **lists)])
        return module, [s.data("f32", shape)] if lookup("n") != "n" else None

    return build


def test_moving_data(s):
    both = [{"m": m, "n": n} for m in FEW for n in FEW]
    for dtype in ["f32", "bf16", "i8", "bool", "i64"]:
        s.open(f"transpose_{dtype}", [("m", "n")], lambda b, _, x: b.op("transpose", x, perm=[1, 0]), both, dtype)
        s.open(f"heads_{dtype}", [("m", "n", 4, 8)], lambda b, _, x: b.op("transpose", x, perm=[0, 2, 1, 3]), both, dtype)  # fmt: skip
        s.open(f"keys_{dtype}", [(2, "n", 4, 8)], lambda b, _, x: b.op("transpose", x, perm=[0, 2, 3, 1]), of_n(FEW), dtype)  # fmt: skip
        s.open(f"concat_{dtype}", [("m", 3), ("n", 3)], lambda b, _, x, y: b.op("concat", x, y, axis=0), both, dtype)
        if dtype != "bool":
            s.open(f"of_concat_{dtype}", [("m", 24), ("m", 19), ("m", 5)], lambda b, _, g, x, y: b.op("mul", g, b.op("concat", x, y, axis=1)), both, dtype)  # fmt: skip
            s.open(f"of_moved_{dtype}", [("m", 5, 24), ("m", 5, 8), ("m", 16, 5)], lambda b, _, g, x, y: b.op("mul", g, b.op("concat", x, b.op("transpose", y, perm=[0, 2, 1]), axis=2)), both, dtype)  # fmt: skip
            s.open(f"of_moved_rows_{dtype}", [("m", 24), ("m", 8), (16, "m")], lambda b, _, g, x, y: b.op("mul", g, b.op("concat", x, b.op("transpose", y, perm=[1, 0]), axis=1)), both, dtype)  # fmt: skip
            s.open(f"of_concat_open_{dtype}", [(3, "m"), (3, "n")], lambda b, _, x, y: b.op("abs", b.op("concat", x, y, axis=1)), both, dtype)  # fmt: skip
        s.open(f"concat_last_{dtype}", [(3, "m"), (3, "n"), (3, 2)], lambda b, _, *x: b.op("concat", *x, axis=1), both, dtype)  # fmt: skip
        s.open(f"split_{dtype}", [("n", 24)], lambda b, _, x: b.op("split", x, axis=1, sizes=[8, 9, 7]), of_n(FEW), dtype)  # fmt: skip
        s.open(f"first_{dtype}", [("n", 7)], lambda b, _, x: b.op("slice", x, begins=[0, 2], ends=[2**63 - 1, 5], steps=[1, 1]), of_n(), dtype)  # fmt: skip
        s.open(f"tile_{dtype}", [("n", 3)], lambda b, _, x: b.op("tile", x, repeats=[2, 3]), of_n(FEW), dtype)
        s.open(f"pad_{dtype}", [("m", "n")], lambda b, _, x: b.op("pad", x, pads=[1, 2, 0, 3], value=1.0), both, dtype)
        s.open(f"flatten_{dtype}", [("n", 4, 8)], lambda b, _, x: b.op("reshape", x, shape=[-1, 32]), of_n(), dtype)
        s.open(f"join_{dtype}", [("n", 4, 8)], lambda b, _, x: b.op("reshape", b.op("transpose", x, perm=[1, 0, 2]), shape=[-1]), of_n(FEW), dtype)  # fmt: skip
    for begin, end, step in SLICES:
        for axis in (0, 1):
            s.add_open(f"slice_{axis}_{begin}_{end}_{step}", sliced(s, begin, end, step, axis), of_n(z for z in SIZES if z >= LEAST.get((begin, end, step), 0)))  # fmt: skip
    s.open("crop", [("n", 9)], lambda b, _, x: b.op("pad", x, pads=[-1, 0, -1, -2]), of_n([2, 3, 7, 33]))
    s.open("trilu", [("n", "n")], lambda b, _, x: b.op("trilu", x, upper=False), of_n())
    s.open("trilu_up", [("m", "n")], lambda b, _, x: b.op("trilu", x, k=2), both)
    s.check()


def test_pads(s):
    """By what is copied in: rows of every kind, in vectors and element by element, and as part of what follows."""
    both = [{"h": h, "w": w} for h in (4, 5, 9) for w in (4, 5, 8, 17, 40, 131)]
    for mode in ("constant", "reflect", "edge", "wrap"):
        pads = {
            "both": [0, 0, 2, 3, 0, 0, 1, 2],
            "rows": [0, 0, 2, 0, 0, 0, 1, 0],
            "columns": [0, 0, 0, 1, 0, 0, 0, 3],
            "crop": [0, 0, -1, 2, 0, 0, 2, -1],
        }
        for name, amounts in pads.items():

            def pad(b, x, mode=mode, amounts=amounts):
                return b.op("pad", x, pads=amounts, mode=mode, value=1.5)

            for dtype in ("f32", "bf16", "i8"):
                s.open(f"{mode}_{name}_{dtype}", [(2, 3, "h", "w")], lambda b, _, x, pad=pad: pad(b, x), both, dtype)
            s.open(f"{mode}_{name}_of", [(2, 3, "h", "w")], lambda b, _, x, pad=pad: b.op("add", pad(b, b.op("exp", x)), b.literal(np.float32(1))), both)  # fmt: skip
            s.open(f"{mode}_{name}_known", [(2, 3, "h", 9)], lambda b, _, x, pad=pad: pad(b, x), [{"h": h} for h in (4, 7)])  # fmt: skip
            s.open(f"{mode}_{name}_wide", [(2, 3, 8, "w")], lambda b, _, x, pad=pad: pad(b, x), of_w(4, 7, 300))
        # Neighbours that are not padded, of a known number and of an open one.
        s.open(f"{mode}_channels_last", [("n", "h", "w", 5)], lambda b, _, x, mode=mode: b.op("pad", x, pads=[0, 2, 1, 0, 0, 0, 3, 0], mode=mode), [{"n": 2, **z} for z in both])  # fmt: skip
        s.open(f"{mode}_outer", [("h", 4, "w")], lambda b, _, x, mode=mode: b.op("pad", x, pads=[3, 1, 0, 0, 2, 0], mode=mode), both)  # fmt: skip
        # Nothing to copy, and less than is asked for (a run of the vm refuses it): no place outside is read.
        nothing = [{"h": h, "w": w} for h in (0, 1, 2) for w in (0, 1, 2)]
        for name, amounts in pads.items():
            if name != "crop":
                s.open(f"{mode}_{name}_small", [(2, 3, "h", "w")], lambda b, _, x, mode=mode, a=amounts: b.op("mul", b.op("pad", x, pads=a, mode=mode), b.literal(np.float32(0))), [z for z in nothing if mode == "constant" or 0 not in z.values()])  # fmt: skip
    s.check()


def of_w(*values):
    return [{"w": w} for w in values]


def test_indexing(s):
    sizes = [{"m": m, "n": n} for m in (0, 1, 5, 33) for n in (1, 6, 17)]

    def table(lookup):
        return [s.data("f32", (50, 24)), s.random.integers(-50, 50, (lookup("m"), lookup("n")))]

    s.open("embedding", [(50, 24), ("m", "n")], lambda b, _, x, i: b.op("gather", x, i, axis=0), sizes, ["f32", "i64"], data=table)  # fmt: skip

    def long_rows(lookup):
        return [s.data("f32", (50, 150)), s.random.integers(-50, 50, (lookup("m"), lookup("n")))]

    s.open("long_rows", [(50, 150), ("m", "n")], lambda b, _, x, i: b.op("gather", x, i, axis=0), sizes, ["f32", "i64"], data=long_rows)  # fmt: skip

    def open_table(lookup):
        n = lookup("n")
        return [s.data("f32", (n, 5)), s.random.integers(-n, n, (lookup("m"),))]

    s.open("open_table", [("n", 5), ("m",)], lambda b, _, x, i: b.op("gather", x, i, axis=0), sizes, ["f32", "i64"], data=open_table)  # fmt: skip
    s.open("one", [("n", 5), ()], lambda b, _, x, i: b.op("gather", x, i, axis=0), of_n([1, 5]), ["f32", "i64"], data=lambda d: [s.data("f32", (d("n"), 5)), np.asarray(-1)])  # fmt: skip
    s.open("elements", [("n", 5), ("n", 3)], lambda b, _, x, i: b.op("gather_elements", x, i, axis=1), of_n(FEW), ["f32", "i64"],
           data=lambda d: [s.data("f32", (d("n"), 5)), s.random.integers(-5, 5, (d("n"), 3))])  # fmt: skip
    s.open("nd", [("n", 5, 7), ("m", 2)], lambda b, _, x, i: b.op("gather_nd", x, i), sizes, ["f32", "i64"],
           data=lambda d: [s.data("f32", (d("n"), 5, 7)), np.stack([s.random.integers(0, d("n"), d("m")), s.random.integers(-5, 5, d("m"))], -1)])  # fmt: skip
    s.open("scatter", [("n", 5), ("m", 1), ("m", 5)], lambda b, _, x, i, u: b.op("scatter_nd", x, i, u, reduction="add"), sizes, ["f32", "i64", "f32"],
           data=lambda d: [s.data("f32", (d("n"), 5)), s.random.integers(0, d("n"), (d("m"), 1)), s.data("f32", (d("m"), 5))])  # fmt: skip
    s.check()


def test_reductions(s):
    both = [{"m": m, "n": n} for m in FEW for n in FEW]
    for op in ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]:
        sizes = [z for z in both if z["m"] > 0 and z["n"] > 0]
        for axes in ([0], [1], [0, 1], []):
            s.open(f"{op}_{axes}", [("m", "n")], lambda b, _, x, op=op, axes=axes: b.op(op, x, axes=axes, keepdims=True), sizes, low=-1, high=1, tolerance=(1e-3, 1e-3))  # fmt: skip
        s.open(f"{op}_static_rows", [("n", 768)], lambda b, _, x, op=op: b.op(op, x, axes=[1]), of_n(FEW), low=-1, high=1, tolerance=(1e-3, 1e-3))  # fmt: skip
        s.open(f"{op}_middle", [("m", "n", 5)], lambda b, _, x, op=op: b.op(op, x, axes=[1]), sizes, low=-1, high=1, tolerance=(1e-3, 1e-3))  # fmt: skip
    for op, identity in [("reduce_sum", 0), ("reduce_prod", 1), ("reduce_max", -np.inf), ("reduce_min", np.inf)]:
        del identity
        s.open(f"{op}_of_nothing", [(3, "n")], lambda b, _, x, op=op: b.op(op, x, axes=[1]), of_n([0, 1]))
    s.open("mean_i32", [("m", "n")], lambda b, _, x: b.op("reduce_mean", x, axes=[1]), [z for z in both if z["n"] > 0], "i32")  # fmt: skip
    s.open("tail", [("m", "n")], lambda b, _, x: b.op("sub", x, b.op("reduce_mean", b.op("mul", x, x), axes=[1], keepdims=True)), [z for z in both if z["n"] > 0], tolerance=(1e-4, 1e-4))  # fmt: skip
    for op in ["argmax", "argmin"]:
        for dtype in ["f32", "i8", "i64", "bf16"]:
            sizes = [z for z in both if z["m"] > 0 and z["n"] > 0]
            s.open(f"{op}_{dtype}_last", [("m", "n")], lambda b, _, x, op=op: b.op(op, x, axis=1, keepdims=True), sizes, dtype)  # fmt: skip
            s.open(f"{op}_{dtype}_first", [("m", "n")], lambda b, _, x, op=op: b.op(op, x, axis=0), sizes, dtype)
    s.open("topk", [("m", "n", 40)], lambda b, _, x: b.op("topk", x, k=5, axis=2), both[::4])
    s.open("topk_first", [(7, "n")], lambda b, _, x: b.op("topk", x, k=3, axis=0), of_n(FEW))
    s.open("cumsum", [("m", "n")], lambda b, _, x: b.op("cumsum", x, axis=1), both, tolerance=(1e-3, 1e-3))
    s.open("cumsum_first", [("m", "n")], lambda b, _, x: b.op("cumsum", x, axis=0, reverse=True, exclusive=True), both, tolerance=(1e-3, 1e-3))  # fmt: skip
    s.check()


def test_softmax_and_norms(s):
    both = [{"m": m, "n": n} for m in FEW for n in FEW]
    for op in ["softmax", "log_softmax"]:
        for dtype in ["f32", "f64", "bf16"]:
            tolerance = {"f32": (1e-4, 1e-5), "bf16": (3e-2, 2e-2)}.get(dtype)
            s.open(f"{op}_{dtype}", [("m", 3, "n")], lambda b, _, x, op=op: b.op(op, x, axis=2), both, dtype, tolerance=tolerance)  # fmt: skip
            s.open(f"{op}_{dtype}_first", [("m", "n")], lambda b, _, x, op=op: b.op(op, x, axis=0), both, dtype, tolerance=tolerance)  # fmt: skip
            s.open(f"{op}_{dtype}_static", [("m", 77)], lambda b, _, x, op=op: b.op(op, x, axis=1), both[::6], dtype, tolerance=tolerance)  # fmt: skip
    s.open("masked", [(2, "n", "n"), ("n",)], lambda b, _, x, mask: b.op("softmax", b.op("add", b.op("mul", x, b.literal(0.125, "f32")), mask), axis=2), of_n(FEW), tolerance=(1e-4, 1e-5))  # fmt: skip
    s.open("long", [("m", "n")], lambda b, _, x: b.op("softmax", x, axis=1), [{"m": 2, "n": 32768}, {"m": 1, "n": 40001}], tolerance=(1e-3, 1e-6))  # fmt: skip
    for dtype in ["f32", "f64", "bf16"]:
        tolerance = {"f32": (1e-3, 1e-3), "bf16": (6e-2, 6e-2)}.get(dtype)
        s.open(f"layer_norm_{dtype}", [("m", "n", 96), (96,), (96,)], lambda b, _, *x: b.op("layer_norm", *x, axis=-1), both, dtype, tolerance=tolerance)  # fmt: skip
        sizes = [z for z in both if z["n"] > 0]
        s.open(f"layer_norm_open_{dtype}", [("m", "n"), ("n",), ("n",)], lambda b, _, *x: b.op("layer_norm", *x, axis=-1), sizes, dtype, tolerance=tolerance)  # fmt: skip
        s.open(f"layer_norm_two_{dtype}", [("m", "n", 5), ("n", 5), ("n", 5)], lambda b, _, *x: b.op("layer_norm", *x, axis=1), sizes, dtype, tolerance=tolerance)  # fmt: skip
    far = [{"m": 2, "n": n} for n in (3, 32768, 32769, 40001)]
    s.open(
        "norm_far",
        [("m", "n"), (1,), (1,)],
        lambda b, _, *x: b.op("layer_norm", *x, axis=-1),
        far,
        tolerance=(1e-3, 1e-3),
    )
    s.open(
        "norm_far_bf16",
        [("m", "n"), ("n",), ("n",)],
        lambda b, _, *x: b.op("layer_norm", *x, axis=-1),
        far,
        "bf16",
        tolerance=(6e-2, 6e-2),
    )
    s.open("residual_norm_far", [("m", "n"), ("m", "n"), (1,), (1,)], lambda b, _, x, r, w, c: b.op("relu", b.op("layer_norm", b.op("add", x, r), w, c, axis=-1)), far, tolerance=(1e-3, 1e-3))  # fmt: skip
    s.open("norm_of_images", [(2, 4, "h", "w"), (1,), (1,)], lambda b, _, x, w, c: b.op("layer_norm", b.op("reshape", x, shape=[2, -1]), w, c, axis=-1), [{"h": 7, "w": 5}, {"h": 100, "w": 91}], tolerance=(1e-3, 1e-3))  # fmt: skip
    s.open("residual_norm", [("m", "n", 96), ("m", "n", 96), (96,), (96,)], lambda b, _, x, r, w, c: b.op("layer_norm", b.op("add", x, r), w, c, axis=-1), both, tolerance=(1e-3, 1e-3))  # fmt: skip

    def batch_norm(b, _, x, scale, bias, mean, var):
        return b.op("relu", b.op("batch_norm", x, scale, bias, mean, b.op("abs", var)))

    s.open("batch_norm", [("m", 6, "n"), (6,), (6,), (6,), (6,)], batch_norm, both, tolerance=(1e-3, 1e-3))
    s.check()


def attention(heads, size, mask):
    def make(b, d, x, wq, wk, wv, *rest):
        def split(w):
            y = b.op("reshape", b.op("matmul", x, w), shape=[-1, 1, heads, size])
            return b.op("transpose", b.op("reshape", y, shape=[1, -1, heads, size]), perm=[0, 2, 1, 3])

        q, k, v = split(wq), split(wk), split(wv)
        scores = b.op("mul", b.op("matmul", q, b.op("transpose", k, perm=[0, 1, 3, 2])), b.literal(0.25, "f32"))
        if mask:
            scores = b.op("add", scores, rest[0])
        context = b.op("matmul", b.op("softmax", scores, axis=3), v)
        return b.op("reshape", b.op("transpose", context, perm=[0, 2, 1, 3]), shape=[-1, heads * size])

    return make


def test_attention(s):
    shapes = [("n", 32), (32, 32), (32, 32), (32, 32)]
    s.open("plain", shapes, attention(2, 16, False), of_n(), constant=(1, 2, 3), low=-1, high=1, tolerance=(1e-3, 1e-3))
    s.open("masked", [*shapes, ("n", "n")], attention(4, 8, True), of_n(), constant=(1, 2, 3), low=-1, high=1, tolerance=(1e-3, 1e-3))  # fmt: skip
    s.check()


def conv(b, _, x, w, bias, **attrs):
    full = {"strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1], "groups": 1, **attrs}
    return b.op("relu", b.op("conv", x, w, bias, **full))


def test_images_in_any_number(s):
    def case(label, x, w, constant=(1, 2), dtype="f32", **attrs):
        s.open(f"{label}_{dtype}", [("n", *x), w, (w[0],)], lambda b, d, *t: conv(b, d, *t, **attrs), of_n([0, 1, 3, 7]), dtype,
               constant=constant, low=-1, high=1, tolerance={"bf16": (1e-1, 1e-1)}.get(dtype, (2e-3, 2e-3)))  # fmt: skip

    for constant in ((1, 2), ()):
        given = "" if constant else "_given"
        case("direct" + given, (3, 17, 13), (8, 3, 5, 5), constant, pads=[2, 2, 2, 2], strides=[2, 2])
        case("winograd" + given, (32, 14, 14), (64, 32, 3, 3), constant)
        case("winograd_by_2" + given, (32, 56, 56), (64, 32, 3, 3), constant, strides=[2, 2])
        case("winograd_dilated" + given, (32, 14, 13), (64, 32, 3, 3), constant, dilations=[2, 3], pads=[2, 3, 2, 3])
        case("winograd_by_phases" + given, (24, 30, 29), (48, 24, 4, 4), constant, strides=[2, 2])
        line = {"strides": [1], "pads": [2, 0]}
        case("winograd_line" + given, (32, 131), (48, 32, 3), constant, dilations=[1], **line)
        case("winograd_dilated_line" + given, (32, 131), (48, 32, 3), constant, dilations=[5], **line)
        case("patches" + given, (3, 96, 97), (48, 3, 32, 32), constant, strides=[32, 32], pads=[0, 0, 0, 0])
        case("winograd_in_groups" + given, (48, 14, 14), (48, 24, 3, 3), constant, groups=2)
        case("pointwise" + given, (20, 9, 9), (24, 20, 1, 1), constant, pads=[0, 0, 0, 0])
        case("pixel_rows" + given, (64, 7, 7), (96, 64, 3, 3), constant, pads=[0, 0, 0, 0], strides=[2, 2])
        case("depthwise" + given, (24, 15, 11), (24, 1, 3, 3), constant, groups=24)
        case("groups" + given, (16, 8, 8), (32, 4, 3, 3), constant, groups=4)
    case("direct", (3, 17, 13), (8, 3, 5, 5), (1, 2), "bf16", pads=[2, 2, 2, 2])
    transposed = {"strides": [2, 2], "dilations": [1, 1], "pads": [1, 1, 1, 1], "output_padding": [0, 0], "groups": 1}
    s.open("transposed", [("n", 6, 9, 11), (6, 4, 3, 3)], lambda b, _, *t: b.op("conv_transpose", *t, **transposed), of_n([0, 1, 3]), constant=(1,), tolerance=(2e-3, 2e-3))  # fmt: skip
    s.check()


def test_images_of_any_size(s):
    both = [{"n": n, "h": h, "w": w} for n in (0, 1, 3) for h in (3, 7, 18) for w in (3, 17, 40)]
    large = [{"h": h, "w": w} for h in (1, 17, 40) for w in (1, 9, 130, 300)]

    def convolution(label, c, w, constant=(1, 2), **attrs):
        s.open(label, [("n", c, "h", "w"), w, (w[0],)], lambda b, d, *t: conv(b, d, *t, **attrs), both,
               constant=constant, low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip

    convolution("same", 16, (40, 16, 3, 3))
    convolution("given", 16, (40, 16, 3, 3), constant=())
    convolution("strided", 3, (8, 3, 3, 3), strides=[2, 2], pads=[0, 1, 1, 0])
    convolution("pointwise", 20, (24, 20, 1, 1), pads=[0, 0, 0, 0])
    convolution("dilated", 6, (9, 6, 3, 3), dilations=[2, 1], pads=[2, 1, 2, 1])
    convolution("depthwise", 6, (6, 1, 3, 3), groups=6)
    convolution("groups", 12, (18, 4, 3, 3), groups=3)
    convolution("multiplied", 6, (12, 1, 3, 3), groups=6)
    convolution("depthwise_strided", 6, (6, 1, 5, 5), groups=6, strides=[2, 2], pads=[2, 2, 2, 2])
    convolution("depthwise_apart", 5, (5, 1, 4, 4), groups=5, strides=[5, 3], pads=[2, 2, 2, 2])
    convolution("depthwise_far_apart", 5, (5, 1, 2, 2), groups=5, strides=[1, 17], pads=[0, 1, 1, 1])
    s.open("depthwise_parts", [(1, 5, "h", "w"), (5, 1, 3, 3), (5,)], lambda b, d, *t: conv(b, d, *t, groups=5), large, constant=(1, 2), tolerance=(2e-3, 2e-3))  # fmt: skip
    convolution("depthwise_large", 6, (6, 1, 9, 9), groups=6, pads=[4, 4, 4, 4])
    convolution("few_pixels_of_many", 100, (130, 100, 1, 1), pads=[0, 0, 0, 0])
    convolution("pointwise_strided", 20, (24, 20, 1, 1), pads=[0, 0, 0, 0], strides=[2, 3])
    convolution("strided_by_three", 7, (20, 7, 5, 5), pads=[2, 2, 2, 2], strides=[3, 3])
    convolution("wide_row", 6, (12, 6, 1, 11), pads=[0, 5, 0, 5])
    convolution("k_in_blocks", 150, (20, 150, 3, 3), constant=())
    # By Winograd's tiles, of squares and lines.
    convolution("winograd", 32, (70, 32, 3, 3))
    # Blocks that begin and end within images, of several images.
    s.open("winograd_many", [("n", 32, "h", "w"), (70, 32, 3, 3), (70,)], lambda b, d, *t: conv(b, d, *t), [{"n": 41, "h": 5, "w": 9}, {"n": 7, "h": 13, "w": 2}],
           constant=(1, 2), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip
    convolution("winograd_one_side", 33, (64, 33, 3, 3), pads=[1, 0, 0, 2])
    convolution("winograd_five", 64, (64, 64, 5, 5), pads=[2, 2, 2, 2])
    convolution("winograd_rows", 64, (64, 64, 1, 3), pads=[0, 1, 0, 1])
    convolution("winograd_columns", 64, (64, 64, 3, 1), pads=[1, 0, 1, 0])

    def sequence(label, c, w, **attrs):
        full = {"strides": [1], "dilations": [1], "pads": [1, 1], "groups": 1, **attrs}
        s.open(label, [("n", c, "w"), w, (w[0],)], lambda b, _, x, y, z: b.op("relu", b.op("conv", x, y, z, **full)),
               [{"n": n, "w": w} for n in (0, 1, 3) for w in (5, 17, 40, 1111)], constant=(1, 2), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip

    sequence("sequence_winograd", 64, (64, 64, 3))
    sequence("sequence_dilated", 64, (64, 64, 3), dilations=[5], pads=[5, 5])
    sequence("sequence_dilated_unevenly", 64, (64, 64, 3), dilations=[3], pads=[3, 1])
    sequence("sequence_long", 16, (24, 16, 11), pads=[5, 5])
    sequence("sequence_in_chunks", 64, (64, 64, 11), pads=[5, 5])
    sequence("sequence_in_dilated_chunks", 64, (64, 64, 11), pads=[25, 25], dilations=[5])
    sequence("sequence_in_few_chunks", 96, (96, 96, 7), pads=[3, 2])
    sequence("sequence_strided", 1, (40, 1, 10), strides=[5], pads=[3, 3])
    s.open("one_axis", [("n", 4, "w"), (7, 4, 5)], lambda b, _, *t: b.op("conv", *t, strides=[1], dilations=[1], pads=[2, 2], groups=1), both, constant=(1,), tolerance=(2e-3, 2e-3))  # fmt: skip
    s.open("tail", [("n", 8, "h", "w"), (8, 8, 3, 3), (8,), ("n", 8, 1, 1)], lambda b, d, x, w, c, y: b.op("mul", conv(b, d, x, w, c), y), both, constant=(1, 2), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip
    s.open("global_pool", [("n", 5, "h", "w")], lambda b, _, x: b.op("reduce_mean", x, axes=[2, 3], keepdims=True), both, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.check()


def test_images_that_became_small(s):
    """Extents that are a usual image's divided: their pixels, of all images, are rows of products. Blocks that begin and
    end within an image and a row, images of fewer pixels than a vector, channels that fill none, k in blocks."""
    small = [{"n": n, "h": h, "w": w} for n in (0, 1, 3, 11) for h in (1, 70, 224) for w in (32, 224, 300)]
    height, width = "((h+31)/32)", "((w+31)/32)"

    def convolution(label, c, w, constant=(1, 2), dtype="f32", tail=lambda b, y: y, sizes=small, **attrs):
        s.open(label, [("n", c, height, width), w, (w[0],), ("h", "w")], lambda b, d, x, w, z, _: tail(b, conv(b, d, x, w, z, **attrs)), sizes, [dtype] * 3 + ["f32"],
               constant=constant, low=-1, high=1, tolerance=(2e-3, 2e-3) if dtype == "f32" else (2e-2, 2e-2))  # fmt: skip

    none = {"pads": [0, 0, 0, 0]}
    convolution("pointwise", 130, (48, 130, 1, 1), **none)
    convolution("given", 130, (75, 130, 1, 1), constant=(), **none)
    convolution("k_in_blocks", 700, (40, 700, 1, 1), **none)
    convolution("groups", 390, (96, 130, 1, 1), groups=3, **none)
    convolution("strided", 40, (36, 40, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    convolution("dilated", 19, (40, 19, 3, 3), dilations=[2, 1], pads=[2, 1, 2, 1])
    convolution("no_channels", 0, (32, 0, 1, 1), **none)
    convolution("panels_in_blocks", 130, (600, 130, 1, 1), sizes=small[::5], **none)
    convolution("half", 150, (32, 150, 1, 1), dtype="f16", sizes=small[::3], **none)
    convolution("tail", 130, (32, 130, 1, 1), tail=lambda b, y: b.op("mul", b.op("sigmoid", y), y), **none)
    s.check()


def test_channels_in_lanes(s):
    """Depthwise convolutions of images that became small, and those of small groups of any image: channels that fill no
    vector, rows shorter than a kernel, blocks that are a part of a row or of an image, padding above what there is."""
    became = [{"n": n, "h": h, "w": w} for n in (0, 1, 3) for h in (1, 90, 224) for w in (1, 97, 161, 224, 300)]
    grown = [{"n": n, "h": h, "w": w} for n, h in ((1, 1), (2, 3), (1, 37)) for w in (1, 4, 7, 8, 13, 67, 141)]

    def convolution(label, c, w, side=32, constant=(1, 2), dtype="f32", tail=lambda b, y: y, **attrs):
        extents = ("h", "w") if side == 1 else (f"((h+{side - 1})/{side})", f"((w+{side - 1})/{side})")
        s.open(label, [("n", c, *extents), w, (w[0],), ("h", "w")], lambda b, d, x, w, z, _: tail(b, conv(b, d, x, w, z, **attrs)), grown if side == 1 else became, [dtype] * 3 + ["f32"],
               constant=constant, low=-1, high=1, tolerance=(2e-3, 2e-3) if dtype == "f32" else (2e-2, 2e-2))  # fmt: skip

    convolution("depthwise", 20, (20, 1, 3, 3), groups=20)
    convolution("depthwise_given", 17, (17, 1, 5, 5), groups=17, pads=[2, 2, 2, 2], constant=())
    convolution("depthwise_strided", 16, (16, 1, 5, 5), groups=16, strides=[2, 2], pads=[2, 2, 2, 2])
    convolution("depthwise_apart", 19, (19, 1, 2, 3), groups=19, strides=[5, 3], pads=[1, 2, 0, 0])
    convolution("depthwise_dilated", 16, (16, 1, 3, 3), groups=16, dilations=[2, 3], pads=[2, 3, 2, 3])
    convolution("depthwise_uneven", 16, (16, 1, 4, 7), groups=16, pads=[0, 5, 3, 1])
    convolution("depthwise_far_below", 16, (16, 1, 3, 3), groups=16, pads=[7, 9, 8, 6])
    convolution("depthwise_multiplied", 9, (18, 1, 3, 3), groups=9)
    convolution("depthwise_long", 16, (16, 1, 5, 5), side=8, groups=16, pads=[2, 2, 2, 2])
    convolution("depthwise_half", 24, (24, 1, 3, 3), groups=24, dtype="f16")
    convolution("depthwise_tail", 24, (24, 1, 3, 3), groups=24, tail=lambda b, y: b.op("mul", b.op("sigmoid", y), y))
    for group in (2, 4, 8, 16):
        convolution(f"groups_of_{group}", 48, (48, group, 3, 3), side=1, groups=48 // group)
    convolution("groups_small", 48, (48, 8, 3, 3), groups=6, strides=[2, 2])
    convolution("groups_strided", 36, (36, 4, 3, 3), side=1, groups=9, strides=[2, 2])
    convolution("groups_apart", 34, (34, 2, 2, 2), side=1, groups=17, strides=[3, 5], pads=[1, 1, 1, 1])
    convolution("groups_dilated", 20, (20, 4, 3, 2), side=1, groups=5, dilations=[3, 2], pads=[3, 1, 3, 1])
    convolution("groups_given", 24, (24, 8, 1, 1), side=1, groups=3, pads=[0, 0, 0, 0], constant=())
    convolution("groups_half", 24, (24, 4, 3, 3), side=1, groups=6, dtype="f16")
    s.open("lines", [("n", 24, "w"), (24, 4, 5), (24,)], lambda b, d, *t: conv(b, d, *t, groups=6, strides=[2], dilations=[1], pads=[2, 2]), [{"n": n, "w": w} for n in (1, 2) for w in (1, 5, 16, 300)], constant=(1, 2), tolerance=(2e-3, 2e-3))  # fmt: skip
    s.open("volumes", [("n", 24, 1, "h", "w"), (24, 4, 1, 3, 3), (24,)], lambda b, d, *t: conv(b, d, *t, groups=6, strides=[1, 1, 1], dilations=[1, 1, 1], pads=[1, 1, 1, 1, 1, 1]), grown, constant=(1, 2), tolerance=(2e-3, 2e-3))  # fmt: skip
    s.check()


def test_winograd_by_strides(s):
    """Strided convolutions by Winograd: of the even and odd inputs, and of the input's phases as channels."""
    sizes = [{"n": n, "h": h, "w": w} for n, h in ((0, 9), (1, 1), (1, 6), (3, 23)) for w in (1, 2, 15, 40, 77)]
    sizes.append({"n": 37, "h": 9, "w": 14})  # blocks that begin and end within images, of several images

    def convolution(label, c, w, strides=(2, 2), pads=(1, 1, 1, 1)):
        enough = [v for v in sizes if all(v[e] + pads[i] + pads[i + 2] >= k for i, (e, k) in enumerate(zip("hw", w[2:])))]  # fmt: skip
        s.open(label, [("n", c, "h", "w"), w, (w[0],)], lambda b, d, *t: conv(b, d, *t, strides=list(strides), pads=list(pads)), enough,
               constant=(1, 2), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip

    convolution("halves", 64, (70, 64, 3, 3))
    convolution("halves_of_uneven_channels", 61, (64, 61, 3, 3), pads=(0, 1, 1, 0))
    convolution("seven", 3, (64, 3, 7, 7), pads=(3, 3, 3, 3))
    convolution("four", 24, (48, 24, 4, 4), pads=(0, 1, 2, 1))
    convolution("five", 33, (48, 33, 5, 5), pads=(2, 2, 2, 2))
    convolution("columns", 32, (64, 32, 3, 6), strides=(1, 2), pads=(1, 2, 1, 2))
    convolution("thirds", 24, (48, 24, 9, 9), strides=(3, 3), pads=(4, 4, 4, 4))
    s.check()


def test_planes_in_turns(s):
    """Pixel shuffles and transposed convolutions' phases, whole and cut by one on each side."""

    def times(extent, by):
        return extent * by if isinstance(extent, int) else f"{by}*{extent}"

    def shuffled(b, d, x, strides, groups=3):
        n, axes = d("n"), len(strides)
        spatial = [d(e) for e in ("h", "w")[-axes:]]
        y = b.op("reshape", x, shape=[n, groups, *strides, *spatial])
        turns = [axis for i in range(axes) for axis in (2 + axes + i, 2 + i)]
        y = b.op("transpose", y, perm=[0, 1, *turns])
        return b.op("reshape", y, shape=[n, groups, *(times(e, t) for e, t in zip(spatial, strides))])

    def cut(b, y, begin, end):
        axes = len(y.shape) - 2
        return b.op("slice", y, begins=[0, 0] + [begin] * axes, ends=[2**62, 2**62] + [end] * axes, steps=[1] * (2 + axes))  # fmt: skip

    for strides in ((2,), (3,), (16,), (17,), (2, 2), (1, 2), (2, 1), (3, 3), (4, 4)):
        name, planes = "_".join(map(str, strides)), int(np.prod(strides))
        x = ("n", 3 * planes, "h", "w") if len(strides) == 2 else ("n", 3 * planes, "w")
        sizes = [{"n": n, "h": h, "w": w} for n in (0, 1, 2) for h in (1, 3) for w in (1, 2, 7, 21, 40)]
        if len(strides) == 1:
            sizes = [{"n": v["n"], "w": v["w"]} for v in sizes if v["h"] == 1]
        s.open(f"whole_{name}", [x], lambda b, d, x, t=strides: b.op("relu", shuffled(b, d, x, t)), sizes)
        for begin, end in ((1, -1), (2, -2), (1, 2**62)):
            enough = [
                v for v in sizes if all(v[e] * t > 2 * begin for e, t in zip(("h", "w")[-len(strides) :], strides))
            ]
            s.open(f"cut_{begin}_{end > 0}_{name}", [x], lambda b, d, x, t=strides, begin=begin, end=end: b.op("tanh", cut(b, shuffled(b, d, x, t), begin, end)), enough)  # fmt: skip
    s.open("bytes", [("n", 12, 5, "w")], lambda b, d, x: b.op("reshape", b.op("transpose", b.op("reshape", x, shape=[d("n"), 3, 2, 2, 5, d("w")]), perm=[0, 1, 4, 2, 5, 3]), shape=[d("n"), 3, 10, times(d("w"), 2)]), [{"n": 2, "w": w} for w in (1, 9, 80)], "i8")  # fmt: skip
    s.check()


def test_recurrences(s):
    """Of any number of steps, and any batch."""
    both = [{"n": n, "m": m} for n in (0, 1, 2, 7, 40) for m in (0, 1, 3)]

    def case(
        label, op, gates, states, x, sizes, direction="forward", hidden=19, dtype="f32", constant=(1, 2, 3), **attrs
    ):
        d, (_, batch, inputs) = 2 if direction == "bidirectional" else 1, x
        shapes = [x, (d, gates * hidden, inputs), (d, gates * hidden, hidden), (d, 2 * gates * hidden)]
        shapes += [(d, batch, hidden)] * states
        s.open(f"{op}_{label}", shapes, lambda b, _, *t: b.op(op, *t, direction=direction, hidden_size=hidden, **attrs), sizes, dtype,
               constant=constant, low=-0.15, high=0.15, tolerance={"f16": (2e-2, 1e-2), "bf16": (1e-1, 6e-2)}.get(dtype, (1e-4, 1e-4)))  # fmt: skip

    for op, gates, states in (("lstm", 4, 2), ("gru", 3, 1), ("rnn", 1, 1)):
        for direction in ("forward", "reverse", "bidirectional"):
            case(f"steps_{direction}", op, gates, states, ("n", 3, 7), of_n([0, 1, 2, 5, 40, 101]), direction)
            case(f"batch_{direction}", op, gates, states, (4, "m", 7), [{"m": m} for m in (0, 1, 2, 5)], direction)
        case("both", op, gates, states, ("n", "m", 33), both, hidden=64)
        case("given", op, gates, states, ("n", "m", 7), both, constant=())
        for dtype in ("f16", "bf16", "f64"):
            case(f"type_{dtype}", op, gates, states, ("n", "m", 8), both, dtype=dtype, hidden=16)
    case("reset", "gru", 3, 1, ("n", "m", 7), both, linear_before_reset=True)
    case("wide", "lstm", 4, 2, ("n", 1, 40), of_n([1, 3, 13]), hidden=301)
    s.check()


def test_extents_by_name(s):
    """Operators whose result's extents are attributes."""
    both = [{"m": m, "n": n} for m in FEW for n in FEW]

    def split_heads(b, d, x):
        return b.op("transpose", b.op("reshape", x, shape=[d("m"), d("n"), 4, 8]), perm=[0, 2, 1, 3])

    def join_heads(b, d, x):
        return b.op("reshape", b.op("transpose", x, perm=[0, 2, 1, 3]), shape=[d("m"), d("n"), 32])

    def causal(b, d, x):
        n = d("n")
        row, column = (b.op("iota", shape=[n, n], axis=axis, dtype="i64") for axis in (0, 1))
        return b.op("where", b.op("less_equal", column, row), x, b.op("full", shape=[n, n], value=-1e9, dtype="f32"))

    def first(b, d, x):
        n = d("n")
        if isinstance(n, str):
            return b.op("slice", x, begins=[0, 0], ends=[END, 6], steps=[1, 1], dims=[n, ""])
        return b.op("slice", x, begins=[0, 0], ends=[n, 6], steps=[1, 1])

    s.open("split_heads", [("m", "n", 32)], split_heads, both)
    s.open("join_heads", [("m", 4, "n", 8)], join_heads, both)
    s.open("split_rows", [("n", 6)], lambda b, d, x: b.op("reshape", x, shape=[d("n"), 2, 3]), of_n())
    s.open("expand", [("n", 1)], lambda b, d, x: b.op("expand", x, shape=[d("m"), d("n"), 7]), both)
    s.open("count", [("m", "n")], lambda b, d, x: b.op("add", x, b.op("iota", shape=[d("m"), d("n")], axis=1, dtype="f32")), both)  # fmt: skip
    s.open("causal", [("m", 3, "n", "n")], causal, both[::3])
    s.open("positions", [(40, 6)], first, of_n([0, 1, 7, 40]))
    s.check()


def test_resize(s):
    coordinates = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    modes = [("nearest", False), ("linear", False), ("cubic", False), ("cubic", True)]
    images = [{"n": n, "h": h, "w": w} for n, h, w in [(1, 1, 1), (2, 3, 5), (1, 7, 13), (3, 2, 8), (1, 5, 16), (2, 9, 17), (1, 6, 67)]]  # fmt: skip
    tolerance = (1e-4, 1e-4)

    def resize(scales, mode="nearest", coordinate="half_pixel", nearest="round_prefer_floor", exclude=False, to=None):
        """By scales, or to sizes: then a run finds the scales."""

        def make(b, d, x):
            if to:
                sizes = [d(e) if isinstance(e, str) else e for e in to]
                by = [1.0 if e == size else 0.0 for e, size in zip(x.shape, sizes)]
            else:
                by, sizes = scales, [dims.floordiv(dims.mul(e, int(4 * s)), 4) for e, s in zip(x.shape, scales)]
            return b.op("resize", x, sizes=sizes, scales=by, mode=mode, coordinate=coordinate, nearest_mode=nearest,
                        exclude_outside=exclude)  # fmt: skip

        return make

    x = [("n", 3, "h", "w")]
    others = [{**i, "a": a, "b": b} for i in images[1:] for a, b in ((1, 1), (5, 31), (7, 70))]
    for coordinate in coordinates:
        for mode, exclude in modes:

            def case(
                label, sizes, *scales, to=None, name=f"{mode}{exclude}_{coordinate}", c=coordinate, m=mode, e=exclude
            ):
                s.open(f"{name}_{label}", x, resize(scales, m, c, exclude=e, to=to), sizes, tolerance=tolerance)

            common = coordinate in ("half_pixel", "align_corners")
            for scale in (2.0, 1.5, 0.5, 4.0, 1.25, 0.75, 0.25) if common else (2.0, 0.5):
                case(scale, images, 1.0, 1.0, scale, scale)  # what is shrunk to nothing has no elements
            case("to", others, to=["n", 3, "a", "b"])
            if common:
                case("columns", images, 1.0, 1.0, 1.0, 3.0)
                case("rows", images, 1.0, 1.0, 3.0, 1.0)
                case("to_known", images, to=["n", 3, 6, 33])
    for nearest in ["round_prefer_ceil", "floor", "ceil"]:
        for coordinate in ("asymmetric", "half_pixel"):
            s.open(f"{nearest}_{coordinate}", x, resize((1.0, 1.0, 2.0, 1.5), "nearest", coordinate, nearest), images)
    for dtype in ["f64", "f16", "bf16", "u8", "i64", "bool"]:
        s.open(f"nearest_{dtype}", x, resize((1.0, 1.0, 2.0, 2.0), "nearest", "asymmetric", "floor"), images, dtype)
        if dtype in ("f64", "f16", "bf16"):
            s.open(f"linear_{dtype}", x, resize((1.0, 1.0, 2.0, 2.0), "linear"), images, dtype)
    up = resize((1.0, 1.0, 2.0, 2.0), "linear")
    s.open("known_columns", [("n", 3, "h", 20)], up, images, tolerance=tolerance)
    s.open("known_rows", [("n", 3, 6, "w")], up, images, tolerance=tolerance)
    s.open("known_image", [("n", 3, 6, 20)], up, images, tolerance=tolerance)
    s.open("line", [("n", 3, "w")], resize((1.0, 1.0, 2.0), "linear"), images, tolerance=tolerance)
    s.open("volume", [("n", 2, "h", 3, "w")], resize((1.0, 1.0, 2.0, 2.0, 2.0), "linear"), images, tolerance=tolerance)
    s.open("multiples", [(1, 3, "8*h", "16*w")], up, images, tolerance=tolerance)
    # With what stands before and behind it.
    s.open("of", x, lambda b, d, x: up(b, d, b.op("mul", x, x)), images, tolerance=tolerance)
    s.open("tail", [*x, ("n", 3, "2*h", "2*w"), (3, 1, 1)], lambda b, d, x, y, c: b.op("relu", b.op("add", b.op("mul", up(b, d, x), c), y)), images, tolerance=tolerance)  # fmt: skip
    s.open("empty", x, up, [{"n": 0, "h": 3, "w": 20}, {"n": 2, "h": 0, "w": 4}, {"n": 1, "h": 2, "w": 0}])
    s.open("large", [("n", 16, "h", "w")], up, [{"n": 1, "h": 63, "w": 65}], tolerance=tolerance)
    s.check()


def test_what_has_no_code_is_refused_by_name(s):
    attrs = {"strides": [2], "dilations": [1], "pads": [0, 0], "output_padding": [0], "groups": 1}
    s.open(
        "turned", [(1, 4, "length"), (4, 3, 2)], lambda b, _, *t: b.op("conv_transpose", *t, **attrs), [{"length": 3}]
    )
    (message,) = s.run(TARGETS[0][0])
    assert "UNIMPLEMENTED" in message and "'conv_transpose'" in message and "'length'" in message


def test_grid_sample(s):
    """Images of any size and number, any number of places, and channels."""
    for label, x, grid in (
        ("places", ("n", 6, 5, 24), ("n", "q", 4, 2)),
        ("image", (2, "n", "m", 19), (2, 7, "q", 2)),
        ("channels", (1, "n", 6, "q"), (1, 9, "m", 2)),
        ("cube", (1, "n", 3, "m", 8), (1, "q", 3)),
    ):
        for padding in "zeros", "border", "reflection":
            for coordinate in "half_pixel", "align_corners":
                s.open(
                    f"{label}{padding}{coordinate}",
                    [x, grid],
                    lambda b, lookup, x, g, p=padding, c=coordinate: b.op("grid_sample", x, g, padding=p, coordinate=c),
                    [{"n": n, "m": m, "q": q} for n in (1, 2, 5) for m, q in ((1, 1), (4, 3), (9, 17))],
                    tolerance=(1e-4, 1e-4),
                    low=-1.5,
                    high=1.5,
                )
    s.check()
