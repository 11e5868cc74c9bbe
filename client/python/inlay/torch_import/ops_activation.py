"""Activation functions."""

from __future__ import annotations

from typing import Any

from inlay.torch_import.ops_elementwise import Number
from inlay.torch_import.registry import NodeContext, Unsupported, Var, converter


@converter("gelu.default")
def gelu(ctx: NodeContext, x: Var, *, approximate: str = "none") -> Var:
    return ctx.op("gelu", x, approximate=approximate)


@converter("leaky_relu.default")
def leaky_relu(ctx: NodeContext, x: Var, slope: Number) -> Var:
    return ctx.op("leaky_relu", x, alpha=float(slope))


@converter("rrelu_with_noise_functional.default")
def rrelu(
    ctx: NodeContext, x: Var, noise: Var, lower: Number, upper: Number, training: bool = False, generator: Any = None
) -> tuple:
    if training:
        raise Unsupported("its slope is random: the model is in training mode; export model.eval()")
    return leaky_relu(ctx, x, (lower + upper) / 2), noise


@converter("elu.default")
def elu(ctx: NodeContext, x: Var, alpha: Number, scale: Number, input_scale: Number) -> Var:
    """scale * (x where x > 0, else alpha * (exp(input_scale * x) - 1))."""
    if input_scale == 1 and scale == 1:
        return ctx.op("elu", x, alpha=float(alpha))
    w = ctx.wide(x)
    if input_scale == 1:
        return ctx.narrow(ctx.op("mul", ctx.op("elu", w, alpha=float(alpha)), ctx.like(scale, w)))
    low = ctx.op("elu", ctx.op("mul", ctx.op("clip", w, max=0.0), ctx.like(input_scale, w)), alpha=float(alpha))
    chosen = ctx.op("where", ctx.op("greater", w, ctx.like(0, w)), w, low)
    return ctx.narrow(ctx.op("mul", chosen, ctx.like(scale, w)))


@converter("hardsigmoid.default")
def hardsigmoid(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5)


@converter("hardswish.default")
def hardswish(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("mul", x, ctx.op("hard_sigmoid", x, alpha=1 / 6, beta=0.5))


@converter("mish.default")
def mish(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("mul", x, ctx.op("tanh", ctx.op("softplus", x)))


@converter("softplus.default")
def softplus(ctx: NodeContext, x: Var, beta: Number, threshold: Number) -> Var:
    """log(1 + exp(beta x)) / beta, and x itself above the threshold."""
    w = ctx.wide(x)
    scaled = w if beta == 1 else ctx.op("mul", w, ctx.like(beta, w))
    y = ctx.op("softplus", scaled)
    if beta != 1:
        y = ctx.op("div", y, ctx.like(beta, w))
    if threshold < 20 or w.dtype == "f64":  # above 20 an f32 softplus is its argument
        y = ctx.op("where", ctx.op("greater", scaled, ctx.like(threshold, w)), w, y)
    return ctx.narrow(y)


@converter("log_sigmoid.default", "log_sigmoid_forward.default")
def log_sigmoid(ctx: NodeContext, x: Var) -> Any:
    y = ctx.op("neg", ctx.op("softplus", ctx.op("neg", x)))
    return y if ctx.name == "log_sigmoid.default" else (y, None)


@converter("threshold.default")
def threshold(ctx: NodeContext, x: Var, limit: Number, value: Number) -> Var:
    return ctx.op("where", ctx.op("less_equal", x, ctx.like(limit, x)), ctx.like(value, x), x)


@converter("_prelu_kernel.default")
def prelu(ctx: NodeContext, x: Var, slope: Var) -> Var:
    return ctx.op("where", ctx.op("greater", x, ctx.like(0, x)), x, ctx.op("mul", x, slope))
