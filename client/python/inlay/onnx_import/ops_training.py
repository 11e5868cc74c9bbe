"""The optimizers of ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Sequence

from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value

_DOMAIN = "ai.onnx.preview.training"


class _Math:
    """Arithmetic on Values and numbers, in the dtype of the first Value."""

    def __init__(self, ctx: NodeContext):
        self.ctx = ctx

    def __call__(self, op_name: str, a, b) -> Value:
        like = a if isinstance(a, Value) else b
        a, b = (v if isinstance(v, Value) else self.ctx.like(v, like) for v in (a, b))
        return self.ctx.op(op_name, a, b)


def _groups(ctx: NodeContext, kinds: int) -> tuple[Value, Value, list[list[Value]]]:
    """(rate, step count, one list of `kinds` tensors for each parameter)."""
    count, rest = divmod(len(ctx) - 2, kinds)
    if rest or count < 1:
        raise Unsupported(f"{len(ctx)} inputs")
    return ctx[0], ctx[1], [[ctx[2 + k * count + i] for k in range(kinds)] for i in range(count)]


def _regrouped(results: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
    return tuple(v for kind in zip(*results) for v in kind)


@converter("Momentum", domain=_DOMAIN)
def momentum(ctx: NodeContext) -> tuple:
    m, (rate, step, groups) = _Math(ctx), _groups(ctx, 3)
    norm, alpha, beta = ctx.attr("norm_coefficient"), ctx.attr("alpha"), ctx.attr("beta")
    mode = ctx.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise Unsupported(f"mode {mode!r}")
    results = []
    for x, gradient, velocity in groups:
        g = m("add", m("mul", x, norm), gradient)
        first = ctx.op("greater", step, ctx.like(0, step))
        factor = ctx.op("where", first, ctx.like(beta, x), ctx.like(1.0, x))  # 1 at the first step
        v = m("add", m("mul", velocity, alpha), m("mul", g, factor))
        direction = v if mode == "standard" else m("add", g, m("mul", v, alpha))
        results.append((m("sub", x, m("mul", direction, rate)), v))
    return _regrouped(results)


@converter("Adagrad", domain=_DOMAIN)
def adagrad(ctx: NodeContext) -> tuple:
    m, (rate, step, groups) = _Math(ctx), _groups(ctx, 3)
    norm, epsilon = ctx.attr("norm_coefficient", 0.0), ctx.attr("epsilon", 1e-6)
    decay = ctx.attr("decay_factor", 0.0)
    results = []
    for x, gradient, squares in groups:
        steps = ctx.cast(step, x.dtype)
        adjusted = m("div", rate, m("add", m("mul", steps, decay), 1.0))
        g = m("add", m("mul", x, norm), gradient)
        h = m("add", squares, m("mul", g, g))
        root = m("add", ctx.op("sqrt", h), epsilon)
        results.append((m("sub", x, m("div", m("mul", g, adjusted), root)), h))
    return _regrouped(results)


@converter("Adam", domain=_DOMAIN)
def adam(ctx: NodeContext) -> tuple:
    m, (rate, step, groups) = _Math(ctx), _groups(ctx, 4)
    norm, post = ctx.attr("norm_coefficient", 0.0), ctx.attr("norm_coefficient_post", 0.0)
    alpha, beta, epsilon = ctx.attr("alpha", 0.9), ctx.attr("beta", 0.999), ctx.attr("epsilon", 0.0)
    results = []
    for x, gradient, velocity, squares in groups:
        g = m("add", m("mul", x, norm), gradient)
        v = m("add", m("mul", velocity, alpha), m("mul", g, 1 - alpha))
        h = m("add", m("mul", squares, beta), m("mul", m("mul", g, g), 1 - beta))
        steps = ctx.cast(step, x.dtype)
        decayed = [m("sub", 1.0, ctx.op("pow", ctx.like(base, x), steps)) for base in (alpha, beta)]
        corrected = m("div", m("mul", rate, ctx.op("sqrt", decayed[1])), decayed[0])
        adjusted = ctx.op("where", ctx.op("greater", step, ctx.like(0, step)), corrected, rate)
        y = m("sub", x, m("mul", m("div", v, m("add", ctx.op("sqrt", h), epsilon)), adjusted))
        results.append((m("mul", y, 1 - post), v, h))
    return _regrouped(results)
