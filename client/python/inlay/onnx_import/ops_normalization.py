"""BatchNormalization, LayerNormalization, InstanceNormalization, GroupNormalization, RMSNormalization, LRN, Lp."""

from __future__ import annotations

from inlay.onnx_import.functions import UseBody
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


@converter("BatchNormalization")
def batch_norm(ctx: NodeContext) -> Value | tuple:
    if ctx.attr("training_mode", 0):
        return _batch_norm_training(ctx)
    ctx.ignore("momentum")
    if ctx.opset < 7 and not ctx.attr("is_test", 0):
        raise Unsupported("training mode")
    if ctx.attr("spatial", 1) != 1:
        raise Unsupported("spatial=0")
    x, *statistics = ctx.all()
    epsilon = ctx.attr("epsilon", 1e-5)
    if all(s.dtype == x.dtype for s in statistics):
        return ctx.op("batch_norm", x, *statistics, epsilon=epsilon)
    wide = [ctx.cast(v, "f32") for v in (x, *statistics)]
    return ctx.cast(ctx.op("batch_norm", *wide, epsilon=epsilon), x.dtype)


def _batch_norm_training(ctx: NodeContext) -> tuple:
    """With the batch's own statistics; also gives the running ones, moved towards them."""
    x, scale, bias, *running = ctx.all()
    if any(v.dtype != x.dtype for v in (scale, bias, *running)):
        raise Unsupported("training_mode with mixed dtypes")
    momentum, axes = ctx.attr("momentum", 0.9), [i for i in range(x.rank) if i != 1]
    mean = ctx.op("reduce_mean", x, axes=axes, keepdims=True)
    centred = ctx.op("sub", x, mean)
    variance = ctx.op("reduce_mean", ctx.op("mul", centred, centred), axes=axes, keepdims=False)
    mean = ctx.reshape(mean, [x.shape[1]])
    y = ctx.op("batch_norm", x, scale, bias, mean, variance, epsilon=ctx.attr("epsilon", 1e-5))
    moved = [
        ctx.op("add", ctx.op("mul", old, ctx.like(momentum, x)), ctx.op("mul", new, ctx.like(1 - momentum, x)))
        for old, new in zip(running, (mean, variance))
    ]
    return (y, *moved)


@converter("LRN")
def lrn(ctx: NodeContext) -> Value:
    return ctx.op(
        "lrn", ctx[0], size=ctx.required("size"), alpha=ctx.attr("alpha", 1e-4), beta=ctx.attr("beta", 0.75),
        bias=ctx.attr("bias", 1.0),
    )  # fmt: skip


@converter("LayerNormalization")
def layer_norm(ctx: NodeContext) -> Value:
    if ctx.wants(1) or ctx.wants(2):
        raise UseBody
    x, scale = ctx[0], ctx[1]
    if ctx.attr("stash_type", 1) not in (1, 11):
        raise Unsupported("a stash_type other than float")
    bias = ctx.get(2) or ctx.literal([0.0], x.dtype)
    axis = ctx.axis(ctx.attr("axis", -1), x.rank)
    return ctx.op("layer_norm", x, scale, bias, axis=axis, epsilon=ctx.attr("epsilon", 1e-5))


def standardised(ctx: NodeContext, x: Value, axis: int, epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over the axes from `axis`."""
    return ctx.op("layer_norm", x, ctx.literal([1.0], x.dtype), ctx.literal([0.0], x.dtype), axis=axis, epsilon=epsilon)


def channelwise(ctx: NodeContext, scale: Value, rank: int) -> Value:
    """[C] as [C, 1, ...], to broadcast against [N, C, ...]."""
    return ctx.reshape(scale, [*scale.shape, *[1] * (rank - 2)])


@converter("InstanceNormalization")
def instance_norm(ctx: NodeContext) -> Value:
    x = ctx[0]
    y = standardised(ctx, x, 2, ctx.attr("epsilon", 1e-5))
    y = ctx.op("mul", y, channelwise(ctx, ctx[1], x.rank))
    return ctx.op("add", y, channelwise(ctx, ctx[2], x.rank))


@converter("GroupNormalization")
def group_norm(ctx: NodeContext) -> Value:
    """Scale and bias are per group before opset 21, per channel from it on."""
    if ctx.attr("stash_type", 1) != 1:
        raise Unsupported("a stash_type other than float")
    x, groups = ctx[0], ctx.required("num_groups")
    n, c, *spatial = ctx.static_shape(x, "GroupNormalization")
    if c % groups:
        raise Unsupported(f"{c} channels in {groups} groups")
    y = standardised(ctx, ctx.reshape(x, [n, groups, c // groups, *spatial]), 2, ctx.attr("epsilon", 1e-5))
    if ctx.opset < 21:
        y = ctx.op("mul", y, channelwise(ctx, ctx[1], y.rank))
        y = ctx.op("add", y, channelwise(ctx, ctx[2], y.rank))
        return ctx.reshape(y, x.shape)
    y = ctx.reshape(y, x.shape)
    y = ctx.op("mul", y, channelwise(ctx, ctx[1], x.rank))
    return ctx.op("add", y, channelwise(ctx, ctx[2], x.rank))


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(ctx: NodeContext) -> Value:
    x, scale = ctx[0], ctx[1]
    if ctx.attr("stash_type", 1) != 1:
        raise Unsupported("a stash_type other than float")
    return rms_normalised(ctx, x, scale, ctx.attr("axis", -1), ctx.attr("epsilon", 1e-5))


def rms_normalised(ctx: NodeContext, x: Value, scale: Value, axis: int, epsilon: float) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * scale over the axes from `axis`, the quotient in f32 (f64 for f64)."""
    axis = ctx.axis(axis, x.rank)
    wide = x if x.dtype == "f64" else ctx.cast(x, "f32")
    square = ctx.op("reduce_mean", ctx.op("mul", wide, wide), axes=list(range(axis, x.rank)), keepdims=True)
    root = ctx.op("sqrt", ctx.op("add", square, ctx.like(epsilon, square)))
    return ctx.op("mul", ctx.cast(ctx.op("div", wide, root), scale.dtype), scale)


@converter("LpNormalization")
def lp_norm(ctx: NodeContext) -> Value:
    """x / |x|_p along the axis; 0 where the norm is 0."""
    x, p = ctx[0], ctx.attr("p", 2)
    axis = ctx.axis(ctx.attr("axis", -1), x.rank)
    if p not in (1, 2):
        raise Unsupported(f"p {p}")
    term = ctx.op("abs", x) if p == 1 else ctx.op("mul", x, x)
    norm = ctx.op("reduce_sum", term, axes=[axis], keepdims=True)
    norm = norm if p == 1 else ctx.op("sqrt", norm)
    zero = ctx.like(0, x)
    return ctx.op("where", ctx.op("equal", norm, zero), zero, ctx.op("div", x, norm))
