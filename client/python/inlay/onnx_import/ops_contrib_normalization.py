"""onnxruntime's own normalisations (domain com.microsoft): fused with the residual sums and embeddings in front of them."""

from __future__ import annotations

from inlay.onnx_import.contrib_common import channels_first, channels_last, only, part
from inlay.onnx_import.ops_normalization import channelwise, rms_normalised, standardised
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


def _with_skip(ctx: NodeContext, bias_at: int) -> Value:
    """input + skip, and a bias where there is one."""
    total = ctx.op("add", ctx[0], ctx[1])
    return ctx.op("add", total, ctx[bias_at]) if ctx.has(bias_at) else total


@contrib("SkipLayerNormalization")
def skip_layer_norm(ctx: NodeContext) -> tuple:
    x = _with_skip(ctx, 4)
    beta = ctx.get(3) or ctx.literal([0.0], x.dtype)
    y = ctx.op("layer_norm", x, ctx[2], beta, axis=x.rank - 1, epsilon=ctx.attr("epsilon", 1e-12))
    return y, None, None, x


@contrib("SkipSimplifiedLayerNormalization")
def skip_rms_norm(ctx: NodeContext) -> tuple:
    x = _with_skip(ctx, 3)
    return rms_normalised(ctx, x, ctx[2], -1, ctx.attr("epsilon", 1e-12)), None, None, x


@contrib("EmbedLayerNormalization")
def embed_layer_norm(ctx: NodeContext) -> tuple:
    """The embeddings of words, positions and segments, summed and normalised; the second result is how many elements of
    the mask are 1."""
    ids = ctx[0]
    total = ctx.op("add", ctx.op("gather", ctx[2], ids, axis=0), _positions(ctx, ids))
    if ctx.has(1):
        total = ctx.op("add", total, ctx.op("gather", ctx[4], ctx[1], axis=0))
    y = ctx.op("layer_norm", total, ctx[5], ctx[6], axis=2, epsilon=ctx.attr("epsilon", 1e-12))
    ctx.ignore("mask_index_type")  # for shape inference
    return y, unmasked(ctx) if ctx.wants(1) else None, total


def _positions(ctx: NodeContext, ids: Value) -> Value:
    if ctx.has(8):
        return ctx.op("gather", ctx[3], ctx[8], axis=0)
    return part(ctx, ctx[3], 0, 0, ids.shape[1])


def unmasked(ctx: NodeContext) -> Value:
    """How many elements of each row of the mask (input 7) are 1; none without one."""
    if not ctx.has(7):
        return ctx.op("full", shape=[ctx[0].shape[0]], value=0, dtype="i32")
    ones = ctx.cast(ctx.op("equal", ctx[7], ctx.like(1, ctx[7])), "i32")
    return ctx.op("reduce_sum", ones, axes=[1], keepdims=False)


@contrib("GroupNorm", "SkipGroupNorm")
def group_norm(ctx: NodeContext) -> tuple:
    """Channels last unless channels_last is 0; scale and shift are per channel. SkipGroupNorm's second result is the sum
    that it normalises."""
    x, last, groups = ctx[0], ctx.attr("channels_last", 1), ctx.required("groups")
    only(ctx, "activation", 0, 1)  # none, SiLU
    if ctx.has(3):
        skip = ctx[3]
        if skip.rank == 2:
            skip = ctx.reshape(skip, [skip.shape[0], *([1, 1, skip.shape[1]] if last else [skip.shape[1], 1, 1])])
        x = ctx.op("add", x, skip)
    if ctx.has(4):
        x = ctx.op("add", x, ctx[4] if last else channelwise(ctx, ctx[4], x.rank))
    total = x
    if last:
        x = channels_first(ctx, x)
    n, c, *spatial = ctx.static_shape(x, "GroupNorm")
    if c % groups:
        raise Unsupported(f"{c} channels in {groups} groups")
    y = standardised(ctx, ctx.reshape(x, [n, groups, c // groups, *spatial]), 2, ctx.attr("epsilon", 1e-5))
    y = ctx.reshape(y, x.shape)
    y = ctx.op("mul", y, ctx.cast(channelwise(ctx, ctx[1], x.rank), y.dtype))
    y = ctx.op("add", y, ctx.cast(channelwise(ctx, ctx[2], x.rank), y.dtype))
    if ctx.attr("activation", 0):
        y = ctx.op("silu", y)
    return channels_last(ctx, y) if last else y, total
