"""Every operator of OPS.md, all dtypes, odd shapes, on AVX-512, AVX2 and SSE4 targets, against the NumPy evaluator.

bazel build //core/backends/native/testing:compile_main
.venv/bin/python -m pytest core/backends/native/testing/ops_test.py
"""

from __future__ import annotations

import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import FunctionBuilder, Suite, runnable

F = ["f32", "f64", "f16", "bf16"]
I = ["i8", "u8", "i16", "i32", "i64"]
N = F + I
NUMPY = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i8": np.int8, "u8": np.uint8,
    "i16": np.int16, "i32": np.int32, "i64": np.int64, "bool": np.bool_,
}  # fmt: skip
TARGETS = runnable([("llvm -mcpu=x86-64-v4", 2), ("llvm -mcpu=x86-64-v3", 1), ("llvm -mcpu=x86-64-v2", 2)])
SHAPES = [(), (1,), (7,), (33,), (0, 4), (3, 5), (2, 1, 17), (4, 64), (131, 67)]


def name_of(dtype) -> str:
    return next(k for k, v in NUMPY.items() if np.dtype(v) == np.dtype(dtype))


class Ops(Suite):
    def __init__(self):
        super().__init__()
        self.random = np.random.default_rng(1)

    def data(self, dtype: str, shape=(), low=-3.0, high=3.0) -> np.ndarray:
        if dtype == "bool":
            return np.asarray(self.random.random(shape) < 0.5)
        if dtype in F:
            return np.asarray(self.random.uniform(low, high, shape)).astype(NUMPY[dtype])
        low = max(low, 0) if dtype == "u8" else low
        return np.asarray(self.random.integers(int(low), int(high) + 1, shape)).astype(NUMPY[dtype])

    def case(self, op, arrays, tolerance=None, constant=(), label="", **attrs):
        b = FunctionBuilder()
        params = [b.param(f"p{i}", name_of(a.dtype), a.shape) for i, a in enumerate(arrays)]
        result = b.op(op, *params, **attrs)
        results = list(result) if isinstance(result, tuple) else [result]
        shapes = "_".join("x".join(map(str, a.shape)) or "s" for a in arrays[:3])
        kinds = "_".join(name_of(a.dtype) for a in arrays[:2])
        self.add(f"{op}_{label}_{kinds}_{shapes}", b.finish(results), arrays, tolerance, constant)

    def build(self, label, inputs, make, tolerance=None, constant=()):
        """A fused group: make(builder, *params) -> results."""
        b = FunctionBuilder()
        params = [b.param(f"p{i}", name_of(a.dtype), a.shape) for i, a in enumerate(inputs)]
        result = make(b, *params)
        self.add(
            label,
            b.finish(list(result) if isinstance(result, (tuple, list)) else [result]),
            inputs,
            tolerance,
            constant,
        )

    def check(self, targets=TARGETS):
        messages = []
        for target, threads in targets:
            messages += [f"{target}: {m}" for m in self.run(target, threads)]
        assert not messages, f"{len(messages)} failures of {len(targets)}x{len(self.cases)}:\n" + "\n".join(
            messages[:40]
        )


@pytest.fixture
def s():
    return Ops()


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, 1e30, -1e30, 88.0, -88.0, 700.0, -700.0]
SPECIAL += [float("inf"), float("-inf"), float("nan"), 1e-40, 3.0, 0.49999997]


def special(dtype):
    with np.errstate(over="ignore"):
        return np.array(SPECIAL).astype(NUMPY[dtype])


def test_unary_floats(s):
    anywhere = [
        "neg",
        "abs",
        "sign",
        "exp",
        "sin",
        "cos",
        "tan",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "erf",
        "sigmoid",
        "floor",
        "ceil",
        "round",
        "relu",
        "gelu",
        "silu",
        "softplus",
        "leaky_relu",
        "elu",
        "hard_sigmoid",
        "isnan",
        "isinf",
    ]
    for op in anywhere + ["log", "sqrt", "rsqrt", "reciprocal", "asin", "acos", "acosh", "atanh"]:
        low, high = (-3, 3)
        if op in ("log", "sqrt", "rsqrt", "reciprocal"):
            low, high = 0.01, 9
        if op in ("asin", "acos", "atanh"):
            low, high = -0.99, 0.99
        if op == "acosh":
            low, high = 1, 9
        for dtype in F:
            # 128 and 523: several vectors at a time, in the end fewer.
            for shape in [(), (7,), (3, 37), (2, 128), (2, 523)] if dtype == "f32" else [(19,), (2, 256)]:
                s.case(op, [s.data(dtype, shape, low, high)])
            wild = special(dtype)
            if op in ("sin", "cos", "tan"):
                wild = wild[np.abs(wild.astype(np.float64)) < 1000]
            if op == "gelu":  # -inf * 0
                wild = wild[np.isfinite(wild) & (np.abs(wild.astype(np.float64)) < 1e4)]
            s.case(op, [wild], label="special")
            if dtype == "f32":
                s.case(op, [np.resize(wild, 523)], label="special")
    for dtype in F:
        s.case("gelu", [s.data(dtype, (50,))], label="tanh", approximate="tanh")
        s.case("isinf", [special(dtype)], label="pos", negative=False)
        s.case("isinf", [special(dtype)], label="neg", positive=False)
        s.case("clip", [special(dtype)], label="both", min=-0.5, max=2.0)
        s.case("clip", [special(dtype)], label="min", min=-0.5)
        s.case("leaky_relu", [special(dtype)], label="alpha", alpha=0.3)
    s.check()


def test_unary_integers(s):
    for dtype in I:
        info = np.iinfo(NUMPY[dtype])
        wild = np.array([info.min, info.max, 0, 1, 2, 5, info.max - 1, info.min + 1], NUMPY[dtype])
        for op in ("neg", "abs", "sign", "relu", "bitwise_not"):
            s.case(op, [wild], label="special")
            s.case(op, [s.data(dtype, (3, 37), -100, 100)])
        # Bounds that the type does not have bound nothing; fractions bound where the next integer does.
        clipped = np.clip(wild, max(info.min, -1), 3)
        s.add(f"clip_{dtype}", make("clip", [wild], min=-1.5, max=3.5), [wild], expected=[clipped])
        s.add(f"clip_wide_{dtype}", make("clip", [wild], min=-1e30, max=1e30), [wild], expected=[wild])
    s.case("logical_not", [s.data("bool", (3, 37))])
    s.check()


def test_cast(s):
    for a in N + ["bool"]:
        for b in N + ["bool"]:
            x = s.data(a, (37,), -100, 100)
            s.case("cast", [x], label=f"to_{b}", dtype=b, tolerance=(0, 0))
            if a in F:
                wild = [
                    0.0,
                    -0.0,
                    0.9,
                    -0.9,
                    300.7,
                    -300.7,
                    65519,
                    65520,
                    1e6,
                    3e9,
                    -3e9,
                    1e19,
                    -1e19,
                    np.inf,
                    -np.inf,
                    np.nan,
                ]
                wild += [
                    1 + 2**-11,
                    1 + 2**-11 + 2**-30,
                    1 + 3 * 2**-11,
                    1 + 2**-8,
                    1 + 2**-8 + 2**-40,
                    6e-8,
                    3e-8,
                    2.9e-8,
                    1e-40,
                ]
                if (a, b) == ("f64", "bf16"):
                    wild.remove(1 + 2**-8 + 2**-40)  # ml_dtypes rounds it twice
                with np.errstate(over="ignore"):
                    s.case("cast", [np.array(wild).astype(NUMPY[a])], label=f"wild_to_{b}", dtype=b, tolerance=(0, 0))
            elif a != "bool":
                info = np.iinfo(NUMPY[a])
                wild = np.array(
                    [info.min, info.max, info.max - 1, 0, 1, min(info.max, 2**24 + 1), min(info.max, 2**53 + 1)]
                )
                s.case("cast", [wild.astype(NUMPY[a])], label=f"wild_to_{b}", dtype=b, tolerance=(0, 0))
    ties = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8 - 2**-40, 1 + 2**-8])
    want = np.array([1 + 2**-7, 1, 1]).astype(ml_dtypes.bfloat16)
    s.add("cast_once", make("cast", [ties], dtype="bf16"), [ties], expected=[want], tolerance=(0, 0))
    s.check()


def test_binary(s):
    for op in [
        "add",
        "sub",
        "mul",
        "div",
        "minimum",
        "maximum",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ]:
        for dtype in N:
            s.case(op, [s.data(dtype, (3, 37)), s.data(dtype, (3, 37))])
        for x, y in [
            ((5, 1, 7), (3, 1)),
            ((), (4, 9)),
            ((64, 7), (64, 1)),
            ((0, 3), (1, 3)),
            ((2, 3, 4, 5), (3, 1, 5)),
        ]:
            s.case(op, [s.data("f32", x), s.data("f32", y)])
        wild = special("f32")
        s.case(op, [wild[:, None].copy(), wild[None].copy()], label="special")
        wild = special("f16")
        s.case(op, [wild[:, None].copy(), wild[None].copy()], label="special")
    for dtype in I:
        info = np.iinfo(NUMPY[dtype])
        wild = np.array(
            [info.min, info.max, 0, 1, 2, 7, info.max // 2] + ([-1, -7] if dtype != "u8" else []), NUMPY[dtype]
        )
        for op in ("add", "mul", "div", "bitwise_and", "bitwise_or", "bitwise_xor"):
            s.case(op, [wild[:, None].copy(), wild[None].copy()], label="special")
        for fmod in (False, True):
            s.case("mod", [wild[:, None].copy(), wild[None].copy()], label=f"fmod{fmod}", fmod=fmod)
        width = 8 * np.dtype(NUMPY[dtype]).itemsize
        by = np.array([0, 1, width - 1, width, width + 1, 100 if width < 64 else 65], NUMPY[dtype])
        s.case("shift_left", [wild[:, None].copy(), by[None].copy()])
        s.case("shift_right", [wild[:, None].copy(), by[None].copy()])
    for dtype in F:
        s.case("mod", [s.data(dtype, (37,), -9, 9), s.data(dtype, (37,), 1, 4)], label="fmod", fmod=True)
    for op in ("logical_and", "logical_or", "logical_xor", "equal", "not_equal"):
        s.case(op, [s.data("bool", (3, 37)), s.data("bool", (37,))])
    for dtype in N + ["bool"]:
        s.case("where", [s.data("bool", (3, 1)), s.data(dtype, (3, 37)), s.data(dtype, (37,))])
    s.check()


def test_division_by_a_constant_is_rounded_correctly(s):
    """Multiplied by its reciprocal, or not: the quotient's last bit is the division's."""
    exponents = np.exp2(s.random.integers(-60, 60, 20000))
    x = (s.random.uniform(-2, 2, 20000) * exponents).astype(np.float32)
    ends = [0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1, 2.5]
    x = np.concatenate([x, np.arange(1, 2000), np.array(ends)]).astype(np.float32)
    divisors = [
        0.1,
        3,
        1 / 255,
        0.007874016,
        -0.3,
        1.7e-5,
        1e10,
        2,
        1,
        1e-30,
        1e30,
        np.inf,
        0,
        *s.random.uniform(0, 9, 20),
    ]
    for divisor in (*divisors, np.nextafter(np.float32(2), np.float32(0)), np.nextafter(np.float32(1), np.float32(2))):
        s.build(f"over {divisor}", [x], lambda b, x, d=float(divisor): b.op("div", x, b.literal(d, "f32")), (0, 0))
    s.check()


def test_pow(s):
    for dtype in F:
        s.case("pow", [s.data(dtype, (37,), 0.1, 3), s.data(dtype, (37,), -2, 2)])
        s.case("pow", [s.data(dtype, (37,), -3, 3), s.data("i32", (37,), -3, 3)])
    for dtype in I:
        s.case("pow", [s.data(dtype, (37,), 0, 4), s.data(dtype, (37,), 0, 3)])
    s.case("pow", [s.data("i32", (37,), 1, 4), s.data("f32", (37,), 0, 3)])
    for exponent in (2.0, 3.0, -1.0, 1.0, 0.5):
        s.build(
            f"pow_literal_{exponent}",
            [s.data("f32", (37,), 0.5, 2)],
            lambda b, x: b.op("pow", x, b.literal(exponent, "f32")),
        )
    s.check()


def test_reductions(s):
    shapes = [((3, 5, 70), [2]), ((3, 5, 70), [0, 1]), ((3, 5, 70), [1]), ((3, 5, 70), [0, 2]), ((2, 8, 7, 7), [2, 3])]
    shapes += [
        ((131,), [0]),
        ((1, 1), [0, 1]),
        ((0, 4), [0]),
        ((4, 0), [0]),
        ((1000, 3), [0]),
        ((3, 1000), [1]),
        ((5,), [0]),
    ]
    for op in ["reduce_sum", "reduce_mean", "reduce_prod", "reduce_max", "reduce_min"]:
        for i, (shape, axes) in enumerate(shapes):
            empty = 0 in shape and op == "reduce_mean"
            if not empty:
                x = s.data("f32", shape, 0.9, 1.1) if op == "reduce_prod" else s.data("f32", shape)
                s.case(op, [x], axes=axes, keepdims=i % 2 == 0, label=f"{i}", tolerance=(1e-4, 1e-4))
        for dtype in N:
            low, high = (0.9, 1.1) if dtype in F else (1, 2)
            for axes in ([1], [0], [0, 1]):
                s.case(op, [s.data(dtype, (3, 19), low, high)], axes=axes, keepdims=False, label=str(axes))
        s.case(op, [s.data("f32", (4, 9))], axes=[0, 1], keepdims=False, label="all")
    for op in ("reduce_max", "reduce_min"):
        s.case(op, [s.data("bool", (5, 37))], axes=[1], keepdims=False)
        x = s.data("f32", (4, 50))
        x[1, 7], x[2, 49], x[3, :] = np.nan, np.nan, -np.inf
        s.case(op, [x], axes=[1], keepdims=True, label="nan")
        s.case(op, [x], axes=[0], keepdims=True, label="nan0")
    for op in ("argmax", "argmin"):
        for dtype in N:
            x = s.data(dtype, (5, 19), 0, 3).round() if dtype in F else s.data(dtype, (5, 19), 0, 3)
            for axis in (0, 1):
                for last in (False, True):
                    s.case(op, [x], axis=axis, keepdims=last, select_last=last, label=f"{axis}{last}")
        for shape in ((3, 1), (2, 64), (2, 70), (3, 5, 37), (1000,)):
            x = s.data("f32", shape, 0, 4).round()
            holes = np.where(s.random.random(shape) < 0.05, np.float32(np.nan), x)
            for axis in range(len(shape)):
                for last in (False, True):
                    s.case(op, [x], axis=axis, select_last=last, label=f"{axis}{last}")
                    s.case(op, [holes], axis=axis, select_last=last, label=f"nan{axis}{last}")
    for dtype in N:
        for axis in (0, 1, 2):
            for exclusive, reverse in ((False, False), (True, False), (False, True), (True, True)):
                s.case("cumsum", [s.data(dtype, (3, 5, 18))], axis=axis, exclusive=exclusive, reverse=reverse,
                       label=f"{axis}{exclusive}{reverse}")  # fmt: skip
    s.check()


def test_softmax_and_norm(s):
    # Rows of which vectors take turns, with and without a rest; what is not finite in each of them.
    for extent in (16, 31, 37, 64, 100, 197):
        x = s.data("f32", (10, extent))
        x[0, 3], x[1, extent - 1], x[2, extent // 2] = np.nan, np.nan, np.inf
        x[3, :], x[4, 1:], x[5, : extent - 1], x[6, 0] = -np.inf, -np.inf, -np.inf, np.nan
        x[6, 1], x[7, 9] = np.inf, 1e30
        for op in ("softmax", "log_softmax"):
            s.case(op, [x], axis=1, label="not_finite", tolerance=(1e-5, 1e-6))
            s.build(f"{op}_of_{extent}", [x], lambda b, x, op=op: b.op(op, b.op("mul", x, b.literal(0.5, "f32")), axis=1), (1e-5, 1e-6))  # fmt: skip
    for op in ("softmax", "log_softmax"):
        for shape, axis in [
            ((3, 5, 70), 2),
            ((3, 5, 70), 1),
            ((3, 5, 70), 0),
            ((1,), 0),
            ((64,), 0),
            ((7, 3), 1),
            ((2, 100, 3), 2),
        ]:
            s.case(op, [s.data("f32", shape)], axis=axis, label=str(axis))
        for dtype in F:
            s.case(op, [s.data(dtype, (5, 37))], axis=1)
        s.case(
            op, [s.data("f32", (2, 70000))], axis=1, label="long", tolerance=(1e-4, 1e-6 if op == "softmax" else 1e-3)
        )
        x = s.data("f32", (4, 33), -50, 50)
        x[0, 3], x[1, 5:] = np.inf, -np.inf
        x[2, 1] = np.nan
        s.case(op, [x], axis=1, label="special")
    for dtype in F:
        for shape, axis in [((3, 5, 70), 2), ((3, 5, 7), 1), ((4, 64), 1), ((6, 1), 1), ((5,), 0), ((2, 3, 17), 0)]:
            inner = shape[axis:]
            s.case("layer_norm", [s.data(dtype, shape), s.data(dtype, inner), s.data(dtype, inner)], axis=axis, label=str(axis),
                   tolerance={"f32": (1e-4, 1e-4), "f16": (1e-2, 1e-2), "bf16": (5e-2, 5e-2)}.get(dtype))  # fmt: skip
        s.case("layer_norm", [s.data(dtype, (3, 5, 7)), s.data(dtype, (7,)), s.data(dtype, (1,))], axis=1, label="broadcast",
               tolerance={"f32": (1e-4, 1e-4), "f16": (1e-2, 1e-2), "bf16": (5e-2, 5e-2)}.get(dtype))  # fmt: skip
        for shape in [(300, 37), (50, 24), (50, 3), (9, 140), (4, 1001)]:
            s.case("layer_norm", [s.data(dtype, shape), s.data(dtype, shape[1:]), s.data(dtype, shape[1:])], axis=1, label="rows",
                   tolerance={"f32": (1e-4, 1e-4), "f16": (1e-2, 1e-2), "bf16": (5e-2, 5e-2)}.get(dtype))  # fmt: skip
        for shape in [(2, 3, 7, 9), (4, 5), (2, 3, 17)]:
            c = (shape[1],)
            s.case("batch_norm", [s.data(dtype, shape), s.data(dtype, c), s.data(dtype, c), s.data(dtype, c), s.data(dtype, c, 0.5, 2)],
                   tolerance={"f16": (1e-2, 1e-2), "bf16": (6e-2, 6e-2)}.get(dtype))  # fmt: skip
        s.case("lrn", [s.data(dtype, (2, 7, 5, 9))], size=3, label="3")
        s.case("lrn", [s.data(dtype, (2, 7, 17))], size=4, alpha=0.1, beta=0.6, bias=2.0, label="4")
    s.check()


def test_few_rows_by_what_nobody_packed(s):
    def case(rows, k, columns, dtype="f32", batch=(), b_batch=None, **attrs):
        a = (*batch, k, rows) if attrs.get("transpose_a") else (*batch, rows, k)
        b = (*(batch if b_batch is None else b_batch), *((columns, k) if attrs.get("transpose_b") else (k, columns)))
        tolerance = {"f16": (2e-2, 2e-2), "bf16": (1e-1, 1e-1)}.get(dtype, (1e-4, 1e-4))
        s.case("matmul", [s.data(dtype, a, -1, 1), s.data(dtype, b, -1, 1)], tolerance=tolerance,
               label=f"{dtype}_{a}_{b}_{attrs}", **attrs)  # fmt: skip

    for transposed in (False, True):
        for rows in (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33):
            case(rows, 40, 77, transpose_b=transposed)
        for k in (1, 4, 8, 13, 16, 31, 64, 77, 200):
            for columns in (4, 8, 9, 21, 64, 65, 130, 300):
                case(1, k, columns, transpose_b=transposed)
                case(3, k, columns, batch=(2,), transpose_b=transposed)
        for dtype in ("f64", "f16", "bf16"):
            case(1, 37, 83, dtype, (2, 2), transpose_b=transposed)
            case(6, 37, 83, dtype, transpose_b=transposed)
        case(2, 50, 70, batch=(3, 4), b_batch=(4,), transpose_b=transposed)
        case(2, 50, 70, batch=(3, 4), b_batch=(3, 1), transpose_b=transposed)
        case(5, 50, 70, batch=(2,), transpose_a=True, transpose_b=transposed)
        case(1, 64, 17, transpose_b=transposed)  # b ends with a line: what is read behind it is seen
        case(1, 70, 5000, transpose_b=transposed)
        case(13, 30, 2011, transpose_b=transposed)
    s.check()


def test_matmul(s):
    cases = [
        ((33, 50), (50, 70)),
        ((50,), (50, 7)),
        ((7, 50), (50,)),
        ((50,), (50,)),
        ((3, 5, 17), (17, 9)),
        ((2, 3, 5, 8), (2, 3, 8, 11)),
    ]
    cases += [
        ((2, 1, 5, 8), (3, 8, 11)),
        ((1, 1), (1, 1)),
        ((4, 0), (0, 5)),
        ((0, 4), (4, 5)),
        ((128, 128), (128, 128)),
        ((1, 300), (300, 1000)),
    ]
    cases += [((17, 17), (2, 17, 17)), ((300, 500), (500, 33))]
    # Batches that share b, the last ones, all or none of which are rows of one product.
    cases += [
        ((2, 3, 4, 1, 16), (2, 3, 1, 16, 20)),
        ((2, 3, 4, 5, 8), (2, 1, 1, 8, 33)),
        ((3, 2, 4, 2, 9), (3, 1, 1, 9, 40)),
    ]
    cases += [((2, 4, 1, 5, 8), (2, 1, 3, 8, 9)), ((2, 1, 4, 5, 8), (2, 3, 1, 8, 9)), ((4, 1, 6), (2, 1, 6, 5))]
    for a, b in cases:
        big = max(a + b) > 100
        for constant in ((), (1,)):
            s.case("matmul", [s.data("f32", a), s.data("f32", b)], constant=constant, label=f"c{len(constant)}",
                   tolerance=(1e-3, 1e-3) if big else None)  # fmt: skip
    for rows in (1, 2, 9):  # of which a group's do not lie one after the other

        def strided(b, a, k):
            return b.op("matmul", b.op("transpose", a, perm=[0, 2, 3, 1, 4]), k, transpose_b=True)

        s.build(f"strided_{rows}", [s.data("f32", (2, rows, 3, 4, 16)), s.data("f32", (2, 3, 1, 20, 16))], strided)
    for dtype in N:
        for constant in ((), (1,)):
            s.case("matmul", [s.data(dtype, (5, 19), -1, 1), s.data(dtype, (19, 21), -1, 1)], constant=constant, label=f"d{len(constant)}",
                   tolerance={"f16": (1e-2, 1e-2), "bf16": (6e-2, 6e-2)}.get(dtype))  # fmt: skip
            s.case("matmul", [s.data(dtype, (2, 35, 19), -1, 1), s.data(dtype, (2, 21, 19), -1, 1)], constant=constant, label=f"t{len(constant)}",
                   tolerance={"f16": (1e-2, 1e-2), "bf16": (6e-2, 6e-2)}.get(dtype), transpose_b=True)  # fmt: skip
    for dtype in ("f32", "f64"):  # few columns are dot products: rows and steps that do not come out even
        for rows in ((1,), (2,), (3,), (4,), (7,), (2, 9)):
            for columns in (1, 2, 3, 4, 5):
                for k in (8, 21, 100):
                    label = f"{dtype}_{rows}_{columns}_{k}"
                    a = s.data(dtype, (*rows, k), -1, 1)
                    s.case("matmul", [a, s.data(dtype, (k, columns), -1, 1)], constant=[1], label=label)
                    s.case("matmul", [a, s.data(dtype, (columns, k), -1, 1)], transpose_b=True, label=label + "t")
            s.case(
                "matmul", [s.data(dtype, (*rows, 50), -1, 1), s.data(dtype, (50,), -1, 1)], label=f"{dtype}_{rows}_v"
            )
    for ta, tb in ((True, False), (False, True), (True, True)):
        a, b = (3, 21, 37), (3, 21, 45)
        a = a if ta else (3, 37, 21)
        b = (3, 45, 21) if tb else b
        s.case("matmul", [s.data("f32", a), s.data("f32", b)], transpose_a=ta, transpose_b=tb, label=f"{ta}{tb}")
        s.case(
            "matmul",
            [s.data("f32", a), s.data("f32", b)],
            transpose_a=ta,
            transpose_b=tb,
            label=f"c{ta}{tb}",
            constant=[1],
        )
    s.check()


def conv_attrs(rank, strides=1, dilations=1, pads=0, groups=1):
    def spread(v):
        return list(v) if isinstance(v, (list, tuple)) else [v] * rank

    return {"strides": spread(strides), "dilations": spread(dilations), "groups": groups,
            "pads": list(pads) if isinstance(pads, (list, tuple)) else [pads] * (2 * rank)}  # fmt: skip


def test_conv(s):
    cases = [
        ((1, 8, 14, 14), (16, 8, 3, 3), conv_attrs(2, pads=1)),
        ((2, 3, 17, 19), (5, 3, 3, 3), conv_attrs(2, 2, 1, [0, 1, 2, 1])),
    ]
    cases += [
        ((1, 16, 7, 7), (24, 16, 1, 1), conv_attrs(2)),
        ((1, 6, 13, 13), (6, 1, 3, 3), conv_attrs(2, pads=1, groups=6)),
    ]
    cases += [
        ((1, 6, 13, 13), (12, 1, 3, 3), conv_attrs(2, 2, pads=1, groups=6)),
        ((2, 4, 9, 9), (6, 2, 3, 3), conv_attrs(2, groups=2)),
    ]
    cases += [
        ((1, 3, 23), (4, 3, 5), conv_attrs(1, 2, 1, [2, 1])),
        ((1, 3, 23), (4, 3, 3), conv_attrs(1, 1, 4, 3)),
        ((1, 2, 5, 6, 7), (3, 2, 3, 2, 3), conv_attrs(3, [1, 2, 1], 1, 1)),
    ]
    cases += [
        ((1, 3, 32, 32), (16, 3, 7, 7), conv_attrs(2, 2, pads=3)),
        ((1, 4, 5, 5), (4, 4, 5, 5), conv_attrs(2)),
        ((0, 4, 5, 5), (4, 4, 3, 3), conv_attrs(2)),
    ]
    cases += [
        ((1, 1, 1, 1), (1, 1, 1, 1), conv_attrs(2)),
        ((1, 5, 6, 6), (5, 5, 3, 3), conv_attrs(2, 1, 2, 2)),
        ((1, 5, 12, 12), (7, 5, 1, 1), conv_attrs(2, 2)),
    ]
    # Patches; dilations, of phases with and without results.
    cases += [
        ((1, 5, 333), (16, 5, 16), conv_attrs(1, 16)),
        ((2, 19, 70), (19, 1, 31), conv_attrs(1, pads=15, groups=19)),
        ((1, 18, 131), (20, 18, 11), conv_attrs(1, 1, 3, 15)),
        ((1, 2, 12, 33, 35), (24, 2, 4, 16, 16), conv_attrs(3, [4, 16, 16])),
        ((2, 17, 13, 9), (20, 17, 3, 3), conv_attrs(2, 1, 3, 3)),
        ((2, 17, 13, 15), (20, 17, 5, 5), conv_attrs(2, pads=2)),
        ((1, 16, 9, 10), (16, 16, 3, 3), conv_attrs(2, 1, [2, 6], [2, 6, 1, 5])),
    ]
    # Long sequences of few channels, in parts of a row.
    cases += [
        ((2, 5, 4001), (7, 5, 11), conv_attrs(1, 1, 3, [15, 2])),
        ((1, 6, 3008), (6, 6, 7), conv_attrs(1, pads=3)),
        ((1, 8, 5000), (4, 4, 4), conv_attrs(1, 2, 1, 1, groups=2)),
        ((1, 4, 3001), (5, 4, 9), conv_attrs(1, 3, 1, 4)),
    ]
    # Beyond what L3 is taken to hold: bands ask for the next one's rows.
    cases += [((1, 27, 190, 163), (27, 1, 3, 3), conv_attrs(2, strides, 1, 1, groups=27)) for strides in (1, 2)]
    for x, w, attrs in cases:
        for constant in ((), (1,)):
            s.case(
                "conv",
                [s.data("f32", x), s.data("f32", w)],
                constant=constant,
                label=f"{attrs}c{len(constant)}",
                tolerance=(1e-4, 1e-4),
                **attrs,
            )
        s.case(
            "conv",
            [s.data("f32", x), s.data("f32", w), s.data("f32", w[:1])],
            constant=[1, 2],
            label=f"{attrs}b",
            tolerance=(1e-4, 1e-4),
            **attrs,
        )
    for constant in ((), (1,)):  # a part of a patch more
        s.case("conv", [s.data("f32", (2, 3, 98, 99), -0.3, 0.3), s.data("f32", (24, 3, 32, 32), -0.3, 0.3), s.data("f32", (24,))],
               label=f"patches{constant}", constant=constant, tolerance=(1e-4, 1e-4), **conv_attrs(2, 32))  # fmt: skip
    for dtype in F:
        tolerance = {"f16": (1e-2, 3e-2), "bf16": (6e-2, 1e-1), "f32": (1e-4, 1e-4)}.get(dtype)
        for constant in ((), (1,)):
            s.case("conv", [s.data(dtype, (1, 4, 9, 11)), s.data(dtype, (5, 4, 3, 3)), s.data(dtype, (5,))], constant=constant,
                   label=f"{constant}", tolerance=tolerance, **conv_attrs(2, pads=1))  # fmt: skip
            s.case("conv", [s.data(dtype, (1, 4, 9, 11)), s.data(dtype, (4, 1, 3, 3))], constant=constant, label=f"dw{constant}",
                   tolerance=tolerance, **conv_attrs(2, pads=1, groups=4))  # fmt: skip
        s.case("conv", [s.data(dtype, (1, 3, 96, 99), -0.3, 0.3), s.data(dtype, (24, 3, 32, 32), -0.3, 0.3)], label="patches", constant=(1,),
               tolerance=tolerance, **conv_attrs(2, 32))  # fmt: skip
        s.case("conv", [s.data(dtype, (2, 4, 3001)), s.data(dtype, (5, 4, 7)), s.data(dtype, (5,))], label="parts", constant=(1, 2),
               tolerance=tolerance, **conv_attrs(1, 1, 2, [6, 5]))  # fmt: skip
        s.case("conv_transpose", [s.data(dtype, (1, 4, 5, 6)), s.data(dtype, (4, 3, 3, 3))], label="t", tolerance=tolerance,
               output_padding=[0, 0], **conv_attrs(2, 2))  # fmt: skip
    for x, w, out_pad, attrs in [((1, 4, 5, 6), (4, 3, 3, 3), [1, 1], conv_attrs(2, 2, 1, 1)), ((2, 4, 5), (4, 3, 3), [0], conv_attrs(1)),
                                 ((1, 6, 4, 4), (6, 2, 2, 2), [0, 0], conv_attrs(2, 2, groups=3)), ((1, 2, 3, 4, 5), (2, 3, 2, 3, 2), [0, 0, 0], conv_attrs(3, [1, 2, 1])),
                                 ((1, 4, 7, 7), (4, 1, 3, 3), [0, 1], conv_attrs(2, [1, 2], [2, 1], [1, 0, 1, 2], groups=4))]:  # fmt: skip
        s.case("conv_transpose", [s.data("f32", x), s.data("f32", w), s.data("f32", (w[1] * attrs["groups"],))], label=f"{attrs}",
               tolerance=(1e-4, 1e-4), output_padding=out_pad, constant=[1], **attrs)  # fmt: skip
    s.check()


def pool_attrs(kernel, strides=None, dilations=None, pads=None, ceil_mode=False):
    r = len(kernel)
    return {
        "kernel": kernel,
        "strides": strides or [1] * r,
        "dilations": dilations or [1] * r,
        "pads": pads or [0] * 2 * r,
        "ceil_mode": ceil_mode,
    }


def test_pool(s):
    cases = [
        ((2, 3, 14, 14), pool_attrs([3, 3], [2, 2], None, [1, 1, 1, 1])),
        ((1, 2, 30, 37), pool_attrs([2, 2], [2, 2])),
    ]
    cases += [
        ((1, 2, 9, 40), pool_attrs([3, 5], [1, 1], None, [1, 2, 1, 2])),
        ((1, 2, 23), pool_attrs([3], [2], None, [1, 0])),
        ((1, 2, 5, 6, 7), pool_attrs([2, 3, 2], [2, 1, 2])),
    ]
    cases += [
        ((1, 2, 15, 15), pool_attrs([3, 3], [2, 2], None, None, True)),
        ((1, 2, 15, 16), pool_attrs([3, 3], [2, 2], None, [1, 1, 1, 1], True)),
    ]
    cases += [
        ((1, 2, 15, 50), pool_attrs([3, 3], [1, 2], [2, 3], [1, 2, 1, 2])),
        ((1, 2, 7, 7), pool_attrs([7, 7])),
        ((1, 1, 1, 1), pool_attrs([1, 1])),
        ((1, 2, 4, 33), pool_attrs([2, 3], [3, 3], None, [0, 1, 0, 1], True)),
    ]
    # Rows by lines: padded on one side or both, in each axis; fewer results than lanes; ceiled last windows; dilated.
    cases += [
        ((2, 3, 13, 35), pool_attrs([3, 3], [1, 1], None, [1, 1, 1, 1])),
        ((1, 2, 21, 19), pool_attrs([5, 5], [1, 1], None, [2, 2, 2, 2])),
        ((1, 3, 17, 33), pool_attrs([3, 2], [2, 2], None, [1, 0, 1, 1])),
        ((1, 2, 16, 17), pool_attrs([3, 3], [2, 2], None, [0, 0, 1, 1])),
        ((1, 2, 18, 34), pool_attrs([3, 3], [2, 2], None, [1, 1, 0, 0], True)),
        ((1, 2, 17, 40), pool_attrs([2, 3], [2, 2], [1, 3], [1, 2, 0, 2])),
        ((1, 2, 6, 9, 18), pool_attrs([2, 3, 3], [2, 2, 2], None, [1, 1, 1, 0, 1, 1])),
        ((1, 1, 1, 64), pool_attrs([1, 3], [1, 2], None, [0, 1, 0, 1])),
        ((1, 2, 40, 16), pool_attrs([16, 2], [1, 2])),
        ((1, 1, 40, 16), pool_attrs([17, 2], [1, 2])),
        ((1, 2, 20, 56), pool_attrs([3, 3], [3, 3], None, [1, 1, 1, 1])),
        ((1, 2, 20, 56), pool_attrs([2, 5], [2, 4], None, [0, 2, 1, 2], True)),
    ]
    for x, attrs in cases:
        s.case("max_pool", [s.data("f32", x)], label=str(attrs), **attrs)
        for include in (False, True):
            s.case("avg_pool", [s.data("f32", x)], label=f"{attrs}{include}", count_include_pad=include, **attrs)
    attrs = pool_attrs([3, 3], [2, 2], None, [1, 1, 1, 1])
    for dtype in N:
        s.case("max_pool", [s.data(dtype, (1, 2, 9, 35))], **attrs)
    for dtype in F:
        s.case("avg_pool", [s.data(dtype, (1, 2, 9, 35))], **attrs)
    for one in (attrs, pool_attrs([3, 7], [3, 7], None, [1, 3, 1, 3]), pool_attrs([17, 1], [1, 1])):
        x = s.data("f32", (1, 1, 21, 35))
        x[0, 0, 3, 4], x[0, 0, 5, 20], x[0, 0, 17, 34] = np.nan, -np.inf, np.nan
        s.case("max_pool", [x], label=f"nan{one}", **one)
    x = s.data("f32", (1, 1, 9, 35))
    x[0, 0, 0, 4], x[0, 0, 8, 20] = np.nan, np.inf
    for include in (False, True):
        s.case("avg_pool", [x], label=f"ends{include}", count_include_pad=include, **attrs)
    lowest = np.full((1, 1, 9, 35), -np.inf, np.float32)
    s.case("max_pool", [lowest], label="lowest", **attrs)
    s.check()


def test_moving(s):
    for dtype in N + ["bool"]:
        x = s.data(dtype, (3, 5, 18))
        for perm in ([0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [2, 0, 1]):
            s.case("transpose", [x], perm=perm, label=str(perm))
        s.case("reshape", [x], shape=[15, 18])
        s.case("concat", [x, s.data(dtype, (3, 2, 18)), s.data(dtype, (3, 0, 18))], axis=1)
        s.case("concat", [x, s.data(dtype, (3, 5, 1))], axis=2, label="2")
        s.case("split", [x], axis=1, sizes=[1, 0, 4], label="1")
        s.case("split", [x], axis=2, sizes=[1, 16, 1], label="2")
        s.case("slice", [x], begins=[0, 1, 2], ends=[3, 5, 18], steps=[1, 2, 3], label="s")
        s.case("slice", [x], begins=[2, 4, 17], ends=[-(2**63), 0, -(2**63)], steps=[-1, -2, -1], label="neg")
        s.case("slice", [x], begins=[1, 0, 1], ends=[2, 5, 18], steps=[1, 1, 1], label="one")
        s.case("expand", [s.data(dtype, (3, 1, 18))], shape=[2, 3, 4, 18])
        s.case("expand", [s.data(dtype, (3, 1))], shape=[3, 37], label="last")
        s.case("tile", [x], repeats=[2, 1, 3])
        s.case("tile", [x], repeats=[1, 3, 1], label="mid")
        for mode in ("constant", "reflect", "edge", "wrap"):
            s.case("pad", [x], pads=[1, 2, 3, 0, 1, 4], mode=mode, value=1.0, label=mode)
            s.case("pad", [x], pads=[0, 2, 0, 0, -1, 0], mode=mode, label=f"in{mode}")
            s.case("pad", [x], pads=[0, 0, -2, 0, 1, -3], mode=mode, label=f"crop{mode}")
        for upper in (True, False):
            for k in (0, 2, -1):
                s.case("trilu", [s.data(dtype, (2, 7, 19))], upper=upper, k=k, label=f"{upper}{k}")
        for axis in (0, 1):
            s.build(
                f"iota_{dtype}_{axis}",
                [],
                lambda b: (
                    b.op("iota", shape=[3, 19], axis=axis, dtype=dtype)
                    if dtype in N
                    else b.op("full", shape=[3, 19], value=1, dtype=dtype)
                ),
            )
        s.build(f"full_{dtype}", [], lambda b: b.op("full", shape=[3, 19], value=1, dtype=dtype))
        s.case(
            "reverse_sequence", [s.data(dtype, (6, 4, 3)), np.array([1, 6, 0, 3], np.int64)], batch_axis=1, time_axis=0
        )
        s.case(
            "reverse_sequence",
            [s.data(dtype, (4, 37)), np.array([1, 37, 20, 3], np.int64)],
            batch_axis=0,
            time_axis=1,
            label="row",
        )
    s.case("pad", [s.data("f32", (0, 3))], pads=[1, 1, 1, 1], label="empty")
    for dtype in F:  # vectors that begin or end in the padding, or hold a whole row between two
        for width, before, after in ((40, 1, 1), (16, 3, 0), (16, 0, 21), (9, 20, 20), (33, 17, 2), (64, 40, 0)):
            x = s.data(dtype, (2, 3, width))
            x.reshape(-1)[5] = np.nan
            s.case("pad", [x], pads=[0, 1, before, 0, 2, after], value=-2.5, label=f"wide{width}_{before}")
            s.case("pad", [x], pads=[0, -1, before, 0, 0, after], label=f"wide_crop{width}_{before}")
    for mode in ("constant", "reflect", "edge", "wrap"):  # rows that are chunks of the axes behind, and long ones
        for shape, pads in {
            (2, 4, 3, 5): [0, 2, 0, 0, 0, 3, 0, 0],
            (2, 4, 3, 17): [1, 0, 2, 0, 1, 0, -1, 0],
            (3, 2, 70, 65): [0, 1, 0, 0, 1, 0, 0, 0],
            (2, 5, 7, 1): [0, 1, 3, 0, 0, 2, 2, 0],
        }.items():
            x = s.data("f32", shape)
            s.case("pad", [x], pads=pads, mode=mode, value=0.5, label=f"chunks{mode}{shape[-1]}")
            s.build(
                f"pad_of_exp_{mode}{shape[-1]}", [x], lambda b, x: b.op("pad", b.op("exp", x), pads=pads, mode=mode)
            )
    s.case("transpose", [s.data("f32", (130, 67))], perm=[1, 0], label="big")
    s.case("transpose", [s.data("f32", (2, 12, 64, 33))], perm=[0, 2, 1, 3], label="heads")
    s.check()


def test_indexing(s):
    for dtype in N + ["bool"]:
        x = s.data(dtype, (6, 5, 18))
        for kind in ("i32", "i64"):
            idx = s.random.integers(-6, 6, (2, 3)).astype(NUMPY[kind])
            s.case("gather", [x, idx], axis=0, label="0")
            s.case("gather", [x, s.random.integers(-5, 5, (7,)).astype(NUMPY[kind])], axis=1, label="1")
            s.case("gather", [x, s.random.integers(-18, 18, (2, 19)).astype(NUMPY[kind])], axis=2, label="2")
            s.case("gather", [x, np.asarray(3, NUMPY[kind])], axis=0, label="scalar")
            s.case("gather_elements", [x, s.random.integers(-6, 6, (4, 5, 17)).astype(NUMPY[kind])], axis=0, label="0")
            s.case("gather_elements", [x, s.random.integers(-18, 18, (6, 5, 3)).astype(NUMPY[kind])], axis=2, label="2")
            s.case(
                "gather_nd",
                [x, np.stack([s.random.integers(-6, 6, (4,)), s.random.integers(-5, 5, (4,))], -1).astype(NUMPY[kind])],
                batch_dims=0,
            )
            s.case(
                "gather_nd", [x, s.random.integers(-5, 5, (6, 3, 1)).astype(NUMPY[kind])], batch_dims=1, label="batch"
            )
        # Rows that are long enough for the C library's copy.
        long_rows = s.data(dtype, (4, 3, 517))
        s.case("gather", [long_rows, s.random.integers(-3, 3, (2, 5))], axis=1, label="rows")
        s.case("gather", [long_rows, s.random.integers(-4, 4, (7,))], axis=0, label="blocks")
        unique = np.stack([s.random.permutation(6)[:4] for _ in range(5 * 18)], -1).reshape(4, 5, 18).astype(np.int64)
        s.case("scatter_elements", [x, unique, s.data(dtype, (4, 5, 18))], axis=0, label="unique")
        pairs = np.array([[0, 1], [-1, 4], [3, -2]], np.int64)
        s.case("scatter_nd", [x, pairs, s.data(dtype, (3, 18))])
        # Rows of it to the same place, as caches are written: some several times, of which the last stays.
        for columns in (1, 7, 18, 33):
            cache, rows = s.data(dtype, (2, 9, 3, columns)), s.data(dtype, (2, 5, 3, columns))
            at = np.array([8, -9, 2, 8, 2], np.int64).reshape(1, 5, 1, 1)
            s.build(
                f"scatter_rows_{dtype}_{columns}",
                [cache, at, rows],
                lambda b, x, i, u: b.op("scatter_elements", x, b.op("expand", i, shape=list(u.shape)), u, axis=1),
            )
        if dtype in N:
            for reduction in ("add", "mul", "max", "min"):
                s.case("scatter_elements", [x, s.random.integers(0, 5, (2, 9, 18)).astype(np.int64)[:, :5], s.data(dtype, (2, 5, 18))],
                       axis=1, reduction=reduction, label=reduction, tolerance={"bf16": (0.1, 0.1), "f16": (1e-2, 1e-2)}.get(dtype))  # fmt: skip
                s.case("scatter_nd", [x, np.array([[2], [2], [-1]], np.int64), s.data(dtype, (3, 5, 18))], reduction=reduction, label=reduction,
                       tolerance={"bf16": (0.1, 0.1), "f16": (1e-2, 1e-2)}.get(dtype))  # fmt: skip
        distinct = (
            s.random.permutation(3 * 20).reshape(3, 20).astype(NUMPY[dtype])
            if dtype != "bool"
            else s.data("bool", (3, 20))
        )
        for largest in (True, False):
            for k in (1, 5, 20):
                s.case("topk", [distinct], k=k, axis=1, largest=largest, label=f"{k}{largest}")
            s.case("topk", [s.data(dtype, (7, 3), 0, 2)], k=4, axis=0, largest=largest, label=f"ties{largest}")
    # Indices far outside are clamped.
    x = s.data("f32", (6, 5))
    far = np.array([100, -100, 2**62, -(2**62)], np.int64)
    for x in (x, s.data("f32", (6, 130))):
        s.add(f"gather_far_{x.shape[1]}", make("gather", [x, far], axis=0), [x, far], expected=[x[[5, 0, 5, 0]]])
    s.check()


def test_topk_of_long_rows(s):
    """Ties, NaN and infinities anywhere; what is passed over a vector at a time."""
    for dtype in N:
        x = s.data(dtype, (6, 203), -9, 9)
        if dtype in F:
            x[0, ::17] = np.nan
            x[1] = np.nan
            x[2, 100:] = np.inf
            x[3, :7] = -np.inf
            x[4, 202] = np.nan
        for largest in (True, False):
            for k in (1, 8, 150, 197):
                s.case("topk", [x], k=k, axis=-1, largest=largest, label=f"{k}{largest}")
            if dtype in ("f16", "bf16"):  # what is fused is not rounded in between: other ties
                continue
            s.build(
                f"topk_of_expression_{largest}_{dtype}",
                [x, s.data(dtype, (203,), 1, 2)],
                lambda b, x, y, largest=largest: list(b.op("topk", b.op("add", x, y), k=5, axis=1, largest=largest)),
            )
    s.check()


def make(op, arrays, **attrs):
    b = FunctionBuilder()
    params = [b.param(f"p{i}", name_of(a.dtype), a.shape) for i, a in enumerate(arrays)]
    return b.finish([b.op(op, *params, **attrs)])


def test_reduce_transposed(s):
    """Along an axis that is not the one along which memory is contiguous, with something behind it."""

    def weighed(b, x, y, weights):
        parts = [b.op("transpose", part, perm=[0, 3, 1, 2]) for part in (x, y)]
        z = b.op("mul", b.op("concat", *parts, axis=3), weights)
        return b.op("relu", b.op("reduce_sum", z, axes=[3]))

    for channels in (3, 8, 13, 32):
        shapes = (2, 6, 4, channels), (2, 6, 5, channels), (2, 1, 6, 9)
        s.build(f"weighed{channels}", [s.data("f32", shape) for shape in shapes], weighed, (1e-5, 1e-5))

    for op in "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod":
        for dtype in "f32", "f16", "i32":
            for shape, perm, axes in (
                ((5, 12, 24), [0, 2, 1], [2]),
                ((9, 17, 40), [2, 1, 0], [1, 2]),
                ((9, 17, 40), [1, 2, 0], [0, 2]),
                ((8, 33), [1, 0], [1]),
            ):

                def make(b, x, perm=perm, axes=axes, op=op):
                    return b.op(op, b.op("transpose", x, perm=perm), axes=axes)

                low, high = (0.9, 1.1) if op == "reduce_prod" and dtype[0] == "f" else (-2, 2)
                tolerance = (2e-2, 2e-2) if dtype == "f16" else (1e-5, 1e-5)
                label = f"{op}{dtype}{shape}{perm}"
                s.build(label, [s.data(dtype, shape, low, high)], make, tolerance)
    s.check()


def sampled(s, x, grid, dtype="f32", low=-1.4, high=1.4, label="", special=(), **attrs):
    places = s.data(dtype, grid, low, high)
    for i, value in enumerate(special):
        places.reshape(-1)[i * 5 % places.size] = value
    tolerance = {"f64": (1e-12, 1e-12), "f16": (4e-3, 4e-3), "bf16": (3e-2, 3e-2)}.get(dtype, (1e-4, 1e-4))
    label += "_".join([dtype, *map(str, grid), *attrs.values()])
    s.case("grid_sample", [s.data(dtype, x), places], tolerance, label=label, **attrs)


def test_grid_sample(s):
    paddings, coordinates = ("zeros", "border", "reflection"), ("half_pixel", "align_corners", "pixel")
    for mode in "linear", "nearest":
        for padding in paddings:
            for coordinate in coordinates:
                limits = {"low": -3, "high": 9} if coordinate == "pixel" else {}
                how = {"mode": mode, "padding": padding, "coordinate": coordinate, **limits}
                sampled(s, (2, 5, 7, 19), (2, 3, 4, 2), **how)
                sampled(s, (1, 6, 4, 1), (1, 9, 2), **how)
                sampled(s, (2, 9, 16), (2, 11, 1), **how)
                sampled(s, (1, 3, 4, 5, 8), (1, 2, 3, 4, 3), **how)
        for dtype in F:
            for channels in (1, 3, 8, 37):
                sampled(s, (2, 6, 5, channels), (2, 13, 2), dtype, mode=mode)
    for padding in paddings:  # far away, and no number at all
        far = [1e30, -1e30, 40.25, -17.5] if padding == "zeros" else [40.25, -17.5, np.nan]
        for coordinate in coordinates:
            sampled(s, (1, 6, 5, 11), (1, 30, 2), special=far, label="far", padding=padding, coordinate=coordinate)
            sampled(s, (1, 1, 1, 11), (1, 9, 2), label="one", padding=padding, coordinate=coordinate)
        sampled(s, (3, 4, 4, 32), (3, 2), padding=padding)
        sampled(s, (0, 4, 4, 32), (0, 3, 2), padding=padding)
        sampled(s, (2, 4, 4, 8), (2, 0, 2), padding=padding)
        sampled(s, (2, 4, 4, 0), (2, 3, 2), padding=padding)
    sampled(s, (1, 6, 5, 11), (1, 30, 2), special=[np.nan, np.inf, -np.inf], label="nan", mode="linear")
    sampled(s, (1, 6, 5, 11), (1, 30, 2), special=[np.nan, np.inf, -np.inf], label="nan", mode="nearest")
    # What is outside is not multiplied by 0.
    x, beside = s.data("f32", (1, 4, 4, 9)), np.full((1, 5, 2), -1.3, np.float32)
    x[0, 0, 0] = np.inf
    s.case("grid_sample", [x, beside], label="infinite pixels")
    x[0, 3, 3] = np.inf
    for padding in "border", "reflection":  # none is beside the last
        s.case("grid_sample", [x, -beside], label=f"{padding} infinite pixels", padding=padding)
    s.check()


def test_grid_sample_fused(s):
    """Weights and a sum of its results behind it, arithmetic on places before it."""

    def attention(b, x, grid, weights):
        places = b.op("sub", b.op("mul", grid, b.literal(2.0, "f32")), b.literal(1.0, "f32"))
        y = b.op("mul", b.op("grid_sample", x, places), weights)
        return b.op("reduce_sum", y, axes=[2])

    for channels in (3, 32, 40):
        shapes = (6, 9, 7, channels), (6, 10, 4, 2), (6, 10, 4, 1)
        s.build(f"attention{channels}", [s.data("f32", shape, 0, 1) for shape in shapes], attention, (1e-4, 1e-4))

    def first(b, x, grid):
        y = b.op("grid_sample", b.op("transpose", x, perm=[0, 2, 3, 1]), grid, padding="border")
        return b.op("relu", b.op("transpose", y, perm=[0, 3, 1, 2]))

    for channels in (1, 3, 24):
        s.build(f"first{channels}", [s.data("f32", (2, channels, 9, 8)), s.data("f32", (2, 5, 6, 2), -1, 1)], first,
                (1e-4, 1e-4))  # fmt: skip
    s.check()


def test_resize(s):
    coordinates = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    for coordinate in coordinates:
        for x, sizes in [
            ((1, 2, 5, 7), [1, 2, 10, 14]),
            ((1, 2, 9, 40), [1, 2, 4, 17]),
            ((1, 1, 4, 4), [1, 1, 1, 37]),
            ((1, 2, 5, 7), [1, 2, 11, 7]),
            ((2, 1, 3, 20), [2, 1, 7, 70]),
            ((1, 3, 9), [1, 3, 53]),
            ((1, 2, 24, 40), [1, 2, 22, 37]),
            ((1, 2, 14, 1), [1, 2, 28, 2]),
            ((2, 1, 1, 9), [2, 1, 3, 20]),
        ]:
            scales = [o / i for o, i in zip(sizes, x)]
            for mode in ("nearest", "linear", "cubic"):
                for extra in (
                    ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] if mode == "nearest" else [False, True]
                ):
                    attrs = (
                        {"nearest_mode": extra}
                        if mode == "nearest"
                        else {"nearest_mode": "floor", "exclude_outside": extra and mode == "cubic"}
                    )
                    s.case("resize", [s.data("f32", x)], sizes=sizes, scales=scales, mode=mode, coordinate=coordinate,
                           label=f"{mode}{coordinate}{extra}{sizes}", tolerance=(1e-4, 1e-4), **attrs)  # fmt: skip
    for dtype in N + ["bool"]:
        s.case("resize", [s.data(dtype, (1, 2, 5, 7))], sizes=[1, 2, 10, 14], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest",
               coordinate="asymmetric", nearest_mode="floor")  # fmt: skip
    for dtype in F:
        s.case("resize", [s.data(dtype, (1, 2, 5, 7))], sizes=[1, 2, 10, 14], scales=[1.0, 1.0, 2.0, 2.0], mode="linear", coordinate="half_pixel",
               nearest_mode="floor", label="l")  # fmt: skip
    s.check()


def test_recurrent(s):
    def run(
        op,
        gates,
        states,
        dtype,
        direction,
        steps=5,
        batch=3,
        inputs=7,
        hidden=19,
        constant=(1, 2, 3),
        peephole=False,
        **attrs,
    ):
        d = 2 if direction == "bidirectional" else 1
        arrays = [s.data(dtype, (steps, batch, inputs), -1, 1), s.data(dtype, (d, gates * hidden, inputs), -0.3, 0.3),
                  s.data(dtype, (d, gates * hidden, hidden), -0.3, 0.3), s.data(dtype, (d, 2 * gates * hidden), -0.3, 0.3)]  # fmt: skip
        arrays += [s.data(dtype, (d, batch, hidden), -1, 1) for _ in range(states)]
        if peephole:
            arrays.append(s.data(dtype, (d, 3 * hidden), -0.3, 0.3))
        s.case(op, arrays, direction=direction, hidden_size=hidden, constant=constant, label=f"{direction}{hidden}{batch}{steps}{peephole}{attrs}{constant}",
               tolerance={"f32": (1e-4, 1e-4), "f16": (2e-2, 1e-2), "bf16": (1e-1, 6e-2)}.get(dtype), **attrs)  # fmt: skip

    for direction in ("forward", "reverse", "bidirectional"):
        for dtype in F:
            run("lstm", 4, 2, dtype, direction)
            run("gru", 3, 1, dtype, direction)
            run("rnn", 1, 1, dtype, direction)
        run("lstm", 4, 2, "f32", direction, constant=())
        run("lstm", 4, 2, "f32", direction, peephole=True)
        run("lstm", 4, 2, "f32", direction, batch=1, hidden=64, steps=1)
        run("gru", 3, 1, "f32", direction, constant=())
        run("gru", 3, 1, "f32", direction, linear_before_reset=True)
        run("gru", 3, 1, "f32", direction, linear_before_reset=True, batch=1, hidden=1, inputs=1)
        for activation in ("relu", "sigmoid"):
            run("rnn", 1, 1, "f32", direction, activation=activation, hidden=33)
    run("lstm", 4, 2, "f32", "forward", steps=17, batch=20, hidden=40, inputs=33)
    # Several vectors of a gate in a block; blocks on several threads, the last one of which overlaps the one before.
    for hidden in (256, 301):
        run("lstm", 4, 2, "f32", "bidirectional", batch=1, hidden=hidden, steps=4)
        run("gru", 3, 1, "f32", "reverse", batch=1, hidden=hidden, steps=3)
        run("gru", 3, 1, "f32", "forward", batch=5, hidden=hidden, linear_before_reset=True)
        run("rnn", 1, 1, "f32", "bidirectional", batch=2, hidden=hidden, steps=3)
    # Panels of some of a block's columns, tiles that share the batch's rows, and batches in blocks, the last of which
    # overlaps, too.
    for batch, hidden in [(8, 96), (9, 203), (32, 64), (517, 24)]:
        for op, gates, states in (("lstm", 4, 2), ("gru", 3, 1), ("rnn", 1, 1)):
            run(op, gates, states, "f32", "bidirectional", steps=3, batch=batch, hidden=hidden)
    s.check()


@pytest.mark.parametrize("threads", [1, 2, 16])
def test_convolutions_by_any_number_of_threads(s, threads):
    """Code of their own for many threads (winograd_plan.h), and panels cut for them."""
    for label, x, w, pads, stride in [
        ("blocks", (1, 64, 28, 28), (64, 64, 3, 3), 1, 1),
        ("images", (2, 32, 19, 14), (48, 32, 3, 3), 1, 1),
        ("fused", (1, 32, 56, 56), (40, 32, 3, 3), 1, 1),
        ("by_two", (1, 128, 56, 56), (128, 128, 3, 3), 1, 2),
        ("fused_by_two", (1, 32, 112, 112), (64, 32, 3, 3), 1, 2),
        ("copied", (1, 128, 28, 28), (512, 128, 1, 1), 0, 1),
        ("parts", (1, 6, 9001), (7, 6, 11), 5, 1),
        ("blocks_of_parts", (1, 48, 300), (48, 48, 11), 5, 1),
    ]:
        operands = [s.data("f32", x), s.data("f32", w)]
        attrs = conv_attrs(len(x) - 2, pads=pads, strides=stride)
        s.case("conv", operands, label=label, tolerance=(1e-3, 1e-3), constant=(1,), **attrs)
    for target, _ in TARGETS:
        assert s.run(target, threads) == []


def test_only_what_is_worth_it_goes_to_several_threads(s):
    """A parallel loop costs about 0.4 us, and 3 more where the other threads sleep; by many threads less is worth it."""

    def case(label, op, *shapes, **attrs):
        s.case(op, [s.data("f32", shape, -0.3, 0.3) for shape in shapes], label=label, tolerance=(1e-3, 1e-3), **attrs)

    def lstm(label, hidden):
        shapes = [
            (6, 1, 8),
            (1, 4 * hidden, 8),
            (1, 4 * hidden, hidden),
            (1, 8 * hidden),
            (1, 1, hidden),
            (1, 1, hidden),
        ]
        case(label, "lstm", *shapes, direction="forward", hidden_size=hidden, constant=(1, 2, 3))

    case("small", "relu", (10000,))
    case("large", "relu", (2000000,))
    case("small", "softmax", (4, 100), axis=1)
    case("large", "softmax", (400, 1000), axis=1)
    case("small", "matmul", (1, 64), (64, 64), constant=(1,))
    case("large", "matmul", (64, 256), (256, 1024), constant=(1,))
    # One row, whose weights take longer than the multiply-adds: half a megabyte, from L2 by AVX2 twice as long.
    target, _ = TARGETS[0]
    case("many row", "matmul", (1, 128), (128, 512), constant=(1,))
    case("many half" if "v4" in target else "large half", "matmul", (1, 256), (256, 512), constant=(1,))
    case("large row", "matmul", (1, 256), (256, 1000), constant=(1,))
    # Of 13,000 cycles by its multiply-adds alone; it takes 50,000.
    case("large depthwise", "conv", (1, 960, 7, 7), (960, 1, 3, 3), constant=(1,), **conv_attrs(2, pads=1, groups=960))
    lstm("small", 32)
    lstm("large", 512)
    case("many", "relu", (40000,))  # what is worth eight threads
    for threads in (2, 8):
        assert s.run(target, threads) == []
        for name, loops in s.loops.items():
            assert (loops > 0) == ("large" in name or (threads == 8 and "many" in name)), (name, threads, loops)
        assert s.loops[next(name for name in s.loops if "lstm_large" in name)] >= 6  # each step
