"""Arithmetic with PyTorch's type promotion, and functions of one argument."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from inlay.ir.types import INTS, numpy_dtype
from inlay.torch_import.registry import Extent, NodeContext, Var, converter, is_float

Number = int | float | bool


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def scalars_wide(ctx: NodeContext, args: tuple[Any, ...], dtype: str) -> tuple[list[Var], bool]:
    """The arguments in `dtype`. A number beside a 16-bit tensor is kept in f32, as PyTorch's kernels keep it."""
    if dtype in ("f16", "bf16") and any(not isinstance(a, Var) for a in args):
        return [ctx.wide(ctx.cast(a, dtype)) if isinstance(a, Var) else ctx.tensor(a, "f32") for a in args], True
    return [ctx.tensor(a, dtype) for a in args], False


def arithmetic(ctx: NodeContext, op_name: str, *args: Any) -> Var:
    """op_name on arguments cast to the result's dtype."""
    values, widened = scalars_wide(ctx, args, ctx.dtype)
    result = ctx.op(op_name, *values)
    return ctx.narrow(result) if widened else result


def _scaled(ctx: NodeContext, x: Any, alpha: Number) -> Any:
    if alpha == 1:
        return x
    return x * alpha if not isinstance(x, Var) else arithmetic(ctx, "mul", x, alpha)


@converter("add.Tensor", "add.Scalar")
def add(ctx: NodeContext, a: Var, b: Any, c: Number = 1, *, alpha: Number = 1) -> Var:
    if ctx.dtype == "bool":
        return ctx.op("logical_or", *(ctx.tensor(v, "bool") for v in (a, b)))
    return arithmetic(ctx, "add", a, _scaled(ctx, b, alpha if c == 1 else c))


@converter("sub.Tensor", "sub.Scalar")
def sub(ctx: NodeContext, a: Var, b: Any, c: Number = 1, *, alpha: Number = 1) -> Var:
    return arithmetic(ctx, "sub", a, _scaled(ctx, b, alpha if c == 1 else c))


@converter("rsub.Tensor", "rsub.Scalar")
def rsub(ctx: NodeContext, a: Var, b: Any, c: Number = 1, *, alpha: Number = 1) -> Var:
    return arithmetic(ctx, "sub", b, _scaled(ctx, a, alpha if c == 1 else c))


@converter("mul.Tensor", "mul.Scalar")
def mul(ctx: NodeContext, a: Var, b: Any) -> Var:
    if ctx.dtype == "bool":
        return ctx.op("logical_and", *(ctx.tensor(v, "bool") for v in (a, b)))
    return arithmetic(ctx, "mul", a, b)


@converter("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar")
def div(ctx: NodeContext, a: Var, b: Any) -> Var:
    return arithmetic(ctx, "div", a, b)


@converter("div.Tensor_mode", "div.Scalar_mode")
def div_mode(ctx: NodeContext, a: Var, b: Any, *, rounding_mode: str | None = None) -> Var:
    if rounding_mode is None:
        return arithmetic(ctx, "div", a, b)
    if rounding_mode == "floor":
        return floor_divide(ctx, a, b)
    quotient = arithmetic(ctx, "div", a, b)
    return ctx.narrow(_trunc(ctx, ctx.wide(quotient))) if is_float(quotient) else quotient


@converter("floor_divide.default", "floor_divide.Scalar")
def floor_divide(ctx: NodeContext, a: Var, b: Any) -> Var:
    """PyTorch's: by the remainder, so that the quotient of an inexact division is not rounded up to the next integer."""
    x, y = (_wide(ctx, v, ctx.dtype) for v in (a, b))
    zero = ctx.like(0, x)
    if not is_float(x):
        quotient = ctx.op("div", x, y)
        rest = ctx.op("sub", x, ctx.op("mul", quotient, y))
        return ctx.op("where", _wrong_sign(ctx, rest, y), ctx.op("sub", quotient, ctx.like(1, x)), quotient)
    rest = ctx.op("mod", x, y, fmod=True)
    exact = ctx.op("div", ctx.op("sub", x, rest), y)
    exact = ctx.op("where", _wrong_sign(ctx, rest, y), ctx.op("sub", exact, ctx.like(1, x)), exact)
    down = ctx.op("floor", exact)
    up = ctx.op("greater", ctx.op("sub", exact, down), ctx.like(0.5, x))
    result = ctx.op("where", up, ctx.op("add", down, ctx.like(1, x)), down)
    return ctx.narrow(ctx.op("where", ctx.op("equal", y, zero), ctx.op("div", x, y), result))


def _wide(ctx: NodeContext, value: Any, dtype: str) -> Var:
    """The argument in `dtype`, or f32 where that has 16 bits."""
    if isinstance(value, Var):
        return ctx.wide(ctx.cast(value, dtype))
    return ctx.tensor(value, "f32" if dtype in ("f16", "bf16") else dtype)


def _wrong_sign(ctx: NodeContext, rest: Var, divisor: Var) -> Var:
    """Where a remainder is not zero and has not the divisor's sign."""
    zero = ctx.like(0, rest)
    differ = ctx.op("logical_xor", ctx.op("less", rest, zero), ctx.op("less", divisor, zero))
    return ctx.op("logical_and", ctx.op("not_equal", rest, zero), differ)


@converter("fmod.Tensor", "fmod.Scalar")
def fmod(ctx: NodeContext, a: Var, b: Any) -> Var:
    return ctx.narrow(ctx.op("mod", _wide(ctx, a, ctx.dtype), _wide(ctx, b, ctx.dtype), fmod=True))


@converter("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def remainder(ctx: NodeContext, a: Any, b: Any) -> Var:
    x, y = (_wide(ctx, v, ctx.dtype) for v in (a, b))
    if not is_float(x):
        return ctx.op("mod", x, y)
    rest = ctx.op("mod", x, y, fmod=True)
    return ctx.narrow(ctx.op("where", _wrong_sign(ctx, rest, y), ctx.op("add", rest, y), rest))


@converter("pow.Tensor_Tensor", "pow.Tensor_Scalar", "pow.Scalar")
def power(ctx: NodeContext, base: Any, exponent: Any) -> Var:
    if isinstance(base, Var) and exponent == 1 and not isinstance(exponent, Var):
        return ctx.cast(base, ctx.dtype)
    if isinstance(base, Var) and isinstance(exponent, (int, float)) and exponent == 2:
        return arithmetic(ctx, "mul", base, base)
    if isinstance(base, Var) and exponent == 0.5 and not isinstance(exponent, Var):
        return ctx.op("sqrt", ctx.cast(base, ctx.dtype))
    if isinstance(exponent, Var) and not isinstance(base, Var):
        base = ctx.expand(ctx.literal(base, "f32" if ctx.dtype in ("f16", "bf16") else ctx.dtype), exponent.shape)
    return ctx.narrow(ctx.op("pow", _wide(ctx, base, ctx.dtype), _wide(ctx, exponent, ctx.dtype)))


@converter("maximum.default", "minimum.default", "fmax.default", "fmin.default")
def extreme(ctx: NodeContext, a: Var, b: Var) -> Var:
    name = ctx.name.partition(".")[0]
    op_name = "maximum" if name in ("maximum", "fmax") else "minimum"
    if ctx.dtype == "bool":
        return ctx.op("logical_or" if op_name == "maximum" else "logical_and", a, b)
    a, b = ctx.cast(a, ctx.dtype), ctx.cast(b, ctx.dtype)
    if name in ("fmax", "fmin") and is_float(a):  # the number, where one is NaN
        a, b = ctx.op("where", ctx.op("isnan", a), b, a), ctx.op("where", ctx.op("isnan", b), a, b)
    return ctx.op(op_name, a, b)


@converter("clamp.default", "hardtanh.default")
def clamp(ctx: NodeContext, x: Var, low: Number | None = None, high: Number | None = None) -> Var:
    x = ctx.cast(x, ctx.dtype)
    if isinstance(low, Extent) or isinstance(high, Extent):
        return clamp_tensor(ctx, x, low, high)
    if x.dtype in INTS:  # a bound that the dtype can't hold wraps, as PyTorch's does
        kind = numpy_dtype(x.dtype)
        low, high = (None if b is None else int(np.asarray(int(b)).astype(kind)) for b in (low, high))
    if low is not None and high is not None and low > high:
        low = high  # as PyTorch says
    if all(b is None or float(b) == b and abs(b) <= 2**53 or math.isinf(b) for b in (low, high)):
        return ctx.op("clip", x, min=None if low is None else float(low), max=None if high is None else float(high))
    return clamp_tensor(ctx, x, low, high)


@converter("clamp_min.default", "clamp_min.Tensor")
def clamp_min(ctx: NodeContext, x: Var, low: Any) -> Var:
    return clamp_tensor(ctx, x, low, None) if isinstance(low, Var) else clamp(ctx, x, low, None)


@converter("clamp_max.default", "clamp_max.Tensor")
def clamp_max(ctx: NodeContext, x: Var, high: Any) -> Var:
    return clamp_tensor(ctx, x, None, high) if isinstance(high, Var) else clamp(ctx, x, None, high)


@converter("clamp.Tensor")
def clamp_tensor(ctx: NodeContext, x: Var, low: Any = None, high: Any = None) -> Var:
    if low is not None:
        x = arithmetic(ctx, "maximum", x, low)
    return x if high is None else arithmetic(ctx, "minimum", x, high)


@converter("relu6.default")
def relu6(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("clip", x, min=0.0, max=6.0)


# --- One argument ----------------------------------------------------------------------------------------------------

_UNARY = (
    "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "erf", "sigmoid", "silu",
)  # fmt: skip


@converter(*(f"{name}.default" for name in _UNARY))
def unary(ctx: NodeContext, x: Var) -> Var:
    return ctx.op(ctx.name.partition(".")[0], ctx.cast(x, ctx.dtype))


@converter("neg.default", "abs.default", "relu.default")
def unary_number(ctx: NodeContext, x: Var) -> Var:
    return x if x.dtype == "bool" else ctx.op(ctx.name.partition(".")[0], x)


@converter("sign.default", "sgn.default")
def sign(ctx: NodeContext, x: Var) -> Var:
    """PyTorch's is 0 of NaN, the IR's NaN."""
    if x.dtype == "bool":
        return x
    y = ctx.op("sign", x)
    return ctx.op("where", ctx.op("isnan", x), ctx.like(0, x), y) if is_float(x) else y


@converter("signbit.default")
def signbit(ctx: NodeContext, x: Var) -> Var:
    """Also of -0, by its reciprocal."""
    if x.dtype == "bool":
        return ctx.full(x.shape, False, "bool")
    negative = ctx.op("less", x, ctx.like(0, x))
    if not is_float(x):
        return negative
    return ctx.op("logical_or", negative, ctx.op("less", ctx.op("reciprocal", x), ctx.like(0, x)))


@converter("copysign.Tensor", "copysign.Scalar")
def copysign(ctx: NodeContext, a: Var, b: Any) -> Var:
    size, source = ctx.op("abs", ctx.cast(a, ctx.dtype)), ctx.tensor(b, ctx.dtype)
    return ctx.op("where", signbit(ctx, source), ctx.op("neg", size), size)


@converter("floor.default", "ceil.default", "round.default")
def rounding(ctx: NodeContext, x: Var) -> Var:
    return ctx.op(ctx.name.partition(".")[0], x) if is_float(x) else x


@converter("round.decimals")
def round_decimals(ctx: NodeContext, x: Var, *, decimals: int = 0) -> Var:
    if not is_float(x):
        return x
    w = ctx.wide(x)
    first, then = ("mul", "div") if decimals >= 0 else ("div", "mul")
    ten = ctx.like(10.0 ** abs(decimals), w)
    return ctx.narrow(ctx.op(then, ctx.op("round", ctx.op(first, w, ten)), ten))


@converter("trunc.default", "fix.default")
def trunc(ctx: NodeContext, x: Var) -> Var:
    return ctx.narrow(_trunc(ctx, ctx.wide(x))) if is_float(x) else x


def _trunc(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("where", ctx.op("less", x, ctx.like(0, x)), ctx.op("ceil", x), ctx.op("floor", x))


@converter("frac.default")
def frac(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("sub", x, _trunc(ctx, x))


@converter("log2.default", "log10.default")
def log_base(ctx: NodeContext, x: Var) -> Var:
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    base = 2.0 if ctx.name.startswith("log2") else 10.0
    return ctx.narrow(ctx.op("mul", ctx.op("log", x), ctx.like(1 / math.log(base), x)))


@converter("exp2.default")
def exp2(ctx: NodeContext, x: Var) -> Var:
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    return ctx.narrow(ctx.op("pow", ctx.expand(ctx.like(2.0, x), x.shape), x))


@converter("erfc.default")
def erfc(ctx: NodeContext, x: Var) -> Var:
    """1 - erf(x): to an absolute, not a relative accuracy."""
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    return ctx.narrow(ctx.op("sub", ctx.like(1, x), ctx.op("erf", x)))


@converter("log1p.default")
def log1p(ctx: NodeContext, x: Var) -> Var:
    """2 atanh(x / (2 + x)) near zero, where 1 + x would round x away."""
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    near = ctx.op("mul", ctx.op("atanh", ctx.op("div", x, ctx.op("add", x, ctx.like(2, x)))), ctx.like(2, x))
    far = ctx.op("log", ctx.op("add", x, ctx.like(1, x)))
    return ctx.narrow(ctx.op("where", _small(ctx, x), near, far))


@converter("expm1.default")
def expm1(ctx: NodeContext, x: Var) -> Var:
    """2 t / (1 - t) with t = tanh(x / 2) near zero, where exp(x) - 1 would lose all digits."""
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    one = ctx.like(1, x)
    t = ctx.op("tanh", ctx.op("mul", x, ctx.like(0.5, x)))
    near = ctx.op("div", ctx.op("mul", t, ctx.like(2, x)), ctx.op("sub", one, t))
    return ctx.narrow(ctx.op("where", _small(ctx, x), near, ctx.op("sub", ctx.op("exp", x), one)))


def _small(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("less", ctx.op("abs", x), ctx.like(0.5, x))


@converter("atan2.default")
def atan2(ctx: NodeContext, a: Var, b: Var) -> Var:
    """By the angle of the smaller to the larger; negative zeros count as zeros."""
    y, x = (ctx.wide(ctx.cast(v, ctx.dtype)) for v in (a, b))
    ay, ax = ctx.op("abs", y), ctx.op("abs", x)
    low, high = ctx.op("minimum", ay, ax), ctx.op("maximum", ay, ax)
    ratio = ctx.op("div", low, high)  # 0/0: the origin; Inf/Inf: a diagonal
    ratio = ctx.op("where", ctx.op("equal", high, ctx.like(0, x)), ctx.like(0, x), ratio)
    ratio = ctx.op("where", ctx.op("isinf", low), ctx.like(1, x), ratio)
    angle = ctx.op("atan", ratio)
    steep = ctx.op("sub", ctx.like(math.pi / 2, x), angle)
    angle = ctx.op("where", ctx.op("greater", ay, ax), steep, angle)
    left = ctx.op("less", x, ctx.like(0, x))
    angle = ctx.op("where", left, ctx.op("sub", ctx.like(math.pi, x), angle), angle)
    return ctx.narrow(ctx.op("where", ctx.op("less", y, ctx.like(0, y)), ctx.op("neg", angle), angle))


@converter("hypot.default")
def hypot(ctx: NodeContext, a: Var, b: Var) -> Var:
    """By the larger and the ratio, so that no square overflows; Infinity beside NaN is Infinity."""
    a, b = (ctx.op("abs", ctx.wide(ctx.cast(v, ctx.dtype))) for v in (a, b))
    low, high = ctx.op("minimum", a, b), ctx.op("maximum", a, b)
    plain = ctx.op("logical_or", ctx.op("equal", high, ctx.like(0, a)), ctx.op("isinf", low))
    ratio = ctx.op("where", plain, ctx.like(0, a), ctx.op("div", low, high))
    size = ctx.op("mul", high, ctx.op("sqrt", ctx.op("add", ctx.op("mul", ratio, ratio), ctx.like(1, a))))
    infinite = ctx.op("logical_or", ctx.op("isinf", a), ctx.op("isinf", b))
    return ctx.narrow(ctx.op("where", infinite, ctx.like(math.inf, a), size))
