"""Elementwise operators: arithmetic, comparisons, logic, activations, casts."""

from __future__ import annotations

import functools

import numpy as np

from inlay.onnx_import.registry import NodeContext, converter, onnx_dtype
from inlay.onnx_import.value import Unsupported, Value

_UNARY = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt", "Reciprocal": "reciprocal",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Sigmoid": "sigmoid", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Relu": "relu", "Softplus": "softplus",
    "Not": "logical_not", "BitwiseNot": "bitwise_not", "IsNaN": "isnan",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Pow": "pow", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}  # fmt: skip


def _unary(op_name: str):
    return lambda ctx: ctx.op(op_name, ctx[0])


def _binary(op_name: str):
    return lambda ctx: ctx.op(op_name, ctx[0], ctx[1] if ctx.opset >= 7 else _legacy_broadcast(ctx))


def _legacy_broadcast(ctx: NodeContext) -> Value:
    """Before opset 7 the second argument's axes start at `axis` of the first's (by default they end with them)."""
    a, b = ctx[0], ctx[1]
    axis = ctx.attr("axis")
    if not ctx.attr("broadcast", 0):
        if a.shape != b.shape:
            raise Unsupported(f"shapes {list(a.shape)} and {list(b.shape)} differ and broadcast is not set")
        return b
    if axis is None:
        return b
    axis = ctx.axis(axis, a.rank)
    return ctx.reshape(b, [*b.shape, *[1] * (a.rank - axis - b.rank)])


for _name, _op in _UNARY.items():
    converter(_name)(_unary(_op))
for _name, _op in _BINARY.items():
    converter(_name)(_binary(_op))


@converter("Max", "Min", "Sum")
def variadic(ctx: NodeContext) -> Value:
    op_name = {"Max": "maximum", "Min": "minimum", "Sum": "add"}[ctx.node.op_type]
    return functools.reduce(lambda a, b: ctx.op(op_name, a, b), ctx.all())


@converter("Mean")
def mean(ctx: NodeContext) -> Value:
    values = ctx.all()
    total = functools.reduce(lambda a, b: ctx.op("add", a, b), values)
    return ctx.op("div", total, ctx.like(len(values), total))


@converter("Mod")
def mod(ctx: NodeContext) -> Value:
    fmod = bool(ctx.attr("fmod", 0))
    a, b = ctx[0], ctx[1]
    if fmod or not a.is_float:
        return ctx.op("mod", a, b, fmod=fmod)
    # Floats with the divisor's sign (Python's %): C's remainder, plus b where the signs differ.
    rest, zero = ctx.op("mod", a, b, fmod=True), ctx.like(0, a)
    differ = ctx.op("logical_xor", ctx.op("less", rest, zero), ctx.op("less", b, zero))
    wrong = ctx.op("logical_and", ctx.op("not_equal", rest, zero), differ)
    return ctx.op("where", wrong, ctx.op("add", rest, b), rest)


@converter("BitShift")
def bit_shift(ctx: NodeContext) -> Value:
    direction = ctx.required("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Unsupported(f"direction {direction!r}")
    return ctx.op("shift_left" if direction == "LEFT" else "shift_right", ctx[0], ctx[1])


@converter("Where")
def where(ctx: NodeContext) -> Value:
    return ctx.op("where", ctx[0], ctx[1], ctx[2])


@converter("Cast")
def cast(ctx: NodeContext) -> Value:
    ctx.ignore("saturate", "round_mode")  # of 8-bit floats, which the IR lacks
    return ctx.cast(ctx[0], onnx_dtype(ctx.required("to")))


@converter("CastLike")
def cast_like(ctx: NodeContext) -> Value:
    ctx.ignore("saturate", "round_mode")
    return ctx.cast(ctx[0], ctx[1].dtype)


@converter("Identity")
def identity(ctx: NodeContext):
    return ctx.any(0)


@converter("IsInf")
def is_inf(ctx: NodeContext) -> Value:
    positive, negative = ctx.attr("detect_positive", 1), ctx.attr("detect_negative", 1)
    return ctx.op("isinf", ctx[0], positive=bool(positive), negative=bool(negative))


@converter("Clip")
def clip_attributes(ctx: NodeContext) -> Value:
    return ctx.op("clip", ctx[0], min=ctx.attr("min"), max=ctx.attr("max"))


@converter("Clip", since=11)
def clip(ctx: NodeContext) -> Value:
    x, bounds = ctx[0], [ctx.get(1), ctx.get(2)]
    if all(b is None or (b.constant and b.array.size == 1 and _exact(b.array)) for b in bounds):
        low, high = (None if b is None else float(b.array.reshape(-1)[0]) for b in bounds)
        if low is None and high is None:
            return x
        if low is None or high is None or low <= high:
            return ctx.op("clip", x, min=low, max=high)
    for bound, op_name in zip(bounds, ("maximum", "minimum")):
        if bound is not None:
            x = ctx.op(op_name, x, ctx.reshape(bound, []))
    return x


def _exact(array: np.ndarray) -> bool:
    """Whether a double holds the number (an i64 bound may not fit)."""
    value = array.reshape(-1)[0]
    return bool(float(value) == value) and (array.dtype.kind != "i" or abs(int(value)) <= 2**53)


# --- Activations -----------------------------------------------------------------------------------------------------


@converter("LeakyRelu")
def leaky_relu(ctx: NodeContext) -> Value:
    return ctx.op("leaky_relu", ctx[0], alpha=ctx.attr("alpha", 0.01))


@converter("Elu")
def elu(ctx: NodeContext) -> Value:
    return ctx.op("elu", ctx[0], alpha=ctx.attr("alpha", 1.0))


@converter("Selu")
def selu(ctx: NodeContext) -> Value:
    """gamma * elu(x, alpha)."""
    alpha = ctx.attr("alpha", 1.67326319217681884765625 if ctx.opset >= 6 else 1.6732)
    gamma = ctx.attr("gamma", 1.05070102214813232421875 if ctx.opset >= 6 else 1.0507)
    return ctx.op("mul", ctx.op("elu", ctx[0], alpha=alpha), ctx.like(gamma, ctx[0]))


@converter("Celu")
def celu(ctx: NodeContext) -> Value:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)) = alpha * elu(x / alpha, 1) for alpha > 0."""
    x, alpha = ctx[0], ctx.attr("alpha", 1.0)
    if alpha <= 0:
        raise Unsupported(f"alpha {alpha} is not positive")
    scale = ctx.like(alpha, x)
    return ctx.op("mul", ctx.op("elu", ctx.op("div", x, scale), alpha=1.0), scale)


@converter("HardSigmoid")
def hard_sigmoid(ctx: NodeContext) -> Value:
    return ctx.op("hard_sigmoid", ctx[0], alpha=ctx.attr("alpha", 0.2), beta=ctx.attr("beta", 0.5))


@converter("HardSwish")
def hard_swish(ctx: NodeContext) -> Value:
    return ctx.op("mul", ctx[0], ctx.op("hard_sigmoid", ctx[0], alpha=1 / 6, beta=0.5))


@converter("Mish")
def mish(ctx: NodeContext) -> Value:
    return ctx.op("mul", ctx[0], ctx.op("tanh", ctx.op("softplus", ctx[0])))


@converter("Gelu")
def gelu(ctx: NodeContext) -> Value:
    return ctx.op("gelu", ctx[0], approximate=ctx.attr("approximate", "none"))


@converter("Swish")
def swish(ctx: NodeContext) -> Value:
    alpha = ctx.attr("alpha", 1.0)
    if alpha == 1.0:
        return ctx.op("silu", ctx[0])
    return ctx.op("mul", ctx[0], ctx.op("sigmoid", ctx.op("mul", ctx[0], ctx.like(alpha, ctx[0]))))


@converter("Softsign")
def softsign(ctx: NodeContext) -> Value:
    x = ctx[0]
    return ctx.op("div", x, ctx.op("add", ctx.op("abs", x), ctx.like(1, x)))


@converter("PRelu")
def prelu(ctx: NodeContext) -> Value:
    x, slope = ctx[0], ctx[1]
    if ctx.opset < 7 and slope.rank == 1 and slope.shape[0] != 1:  # one slope a channel
        slope = ctx.reshape(slope, [*slope.shape, *[1] * (x.rank - 2)])
    return ctx.op("where", ctx.op("less", x, ctx.like(0, x)), ctx.op("mul", x, slope), x)


@converter("ThresholdedRelu")
def thresholded_relu(ctx: NodeContext) -> Value:
    x = ctx[0]
    return ctx.op("where", ctx.op("greater", x, ctx.like(ctx.attr("alpha", 1.0), x)), x, ctx.like(0, x))


@converter("Shrink")
def shrink(ctx: NodeContext) -> Value:
    """x + bias below -lambd, x - bias above lambd, else 0."""
    x, lambd, bias = ctx[0], ctx.attr("lambd", 0.5), ctx.attr("bias", 0.0)
    if not x.is_float and (lambd != int(lambd) or bias != int(bias) or x.is_unsigned):
        raise Unsupported("Shrink of integers with a fractional lambd or bias")
    below = ctx.op("less", x, ctx.like(-lambd, x))
    above = ctx.op("greater", x, ctx.like(lambd, x))
    lower = ctx.op("where", below, ctx.op("add", x, ctx.like(bias, x)), ctx.like(0, x))
    return ctx.op("where", above, ctx.op("sub", x, ctx.like(bias, x)), lower)


# --- Dropout at inference --------------------------------------------------------------------------------------------


@converter("Dropout")
def dropout_attributes(ctx: NodeContext) -> tuple:
    ctx.ignore("ratio")
    if ctx.opset < 7 and not ctx.attr("is_test", 0):
        raise Unsupported("Dropout in training mode is random")
    mask = None
    if ctx.wants(1):
        dtype = ctx[0].dtype if ctx.opset < 10 else "bool"
        mask = ctx.op("full", shape=ctx.static_shape(ctx[0], "the mask"), value=1, dtype=dtype)
    return ctx[0], mask


@converter("Dropout", since=12)
def dropout(ctx: NodeContext) -> tuple:
    ctx.ignore("seed")
    if ctx.has(2) and bool(ctx.const(2, "training_mode").reshape(-1)[0]):
        ratio = float(ctx.const(1, "ratio").reshape(-1)[0]) if ctx.has(1) else 0.5
        if ratio != 0.0:
            raise Unsupported("Dropout in training mode is random")
    elif ctx.has(1):
        ctx.get(1)  # without training the ratio makes no difference
    mask = None
    if ctx.wants(1):
        mask = ctx.op("full", shape=ctx.static_shape(ctx[0], "the mask"), value=1, dtype="bool")
    return ctx[0], mask
