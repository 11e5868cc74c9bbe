"""onnxruntime's quantised parts of BERT and GPT-2: QAttention, QEmbedLayerNormalization."""

from __future__ import annotations

import math

import numpy as np

from inlay.ir import dims
from inlay.onnx_import.integer_products import Quantised, quantised_matmul
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


@contrib("QAttention")
def qattention(ctx: NodeContext) -> tuple:
    """Self-attention; q, k and v are one product of integers, the rest is in f32."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if ctx.attr(name, 0):
            raise Unsupported(f"attribute {name}={ctx.attr(name)}; 0 is supported")
    x, w = Quantised(ctx[0], ctx[3], ctx.get(6), 0), Quantised(ctx[1], ctx[4], ctx.get(7), 1)
    heads, width = ctx.required("num_heads"), ctx.static_shape(w.values, "QAttention")[1] // 3
    size = width // heads
    batch, length = x.values.shape[:2]
    parts = ctx.op("split", quantised_matmul(ctx, x, w, ctx[2]), axis=2, sizes=[width] * 3)
    q, k, v = (ctx.transpose(ctx.reshape(p, [batch, length, heads, size]), [0, 2, 1, 3]) for p in parts)
    if ctx.has(8):  # [2, batch, heads, past, size]
        old = [ctx.reshape(p, p.shape[1:]) for p in ctx.op("split", ctx[8], axis=0, sizes=[1, 1])]
        k, v = (ctx.op("concat", p, new, axis=2) for p, new in zip(old, (k, v)))
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(size)
    scores = ctx.op("mul", ctx.op("matmul", q, k, transpose_b=True), ctx.literal(scale, "f32"))
    scores = _masked(ctx, scores)
    y = ctx.transpose(ctx.op("matmul", ctx.op("softmax", scores, axis=-1), v), [0, 2, 1, 3])
    present = [ctx.reshape(p, [1, *p.shape]) for p in (k, v)] if ctx.wants(1) else []
    y = ctx.reshape(y, [batch, length, width])
    return (y, ctx.op("concat", *present, axis=0)) if present else (y,)


def _masked(ctx: NodeContext, scores: Value) -> Value:
    """scores [batch, heads, length, past + length] less what attributes and input 5 say: mask_filter_value is added
    where that has 0, and what comes later is not seen at all."""
    batch, _, length, total = scores.shape
    attend = _attended(ctx, batch, total)
    if attend is not None:
        least = ctx.literal(ctx.attr("mask_filter_value", -10000.0), "f32")
        scores = ctx.op("add", scores, ctx.op("where", attend, ctx.literal(0, "f32"), least))
    if ctx.attr("unidirectional", 0) and length != 1:
        if isinstance(length, str) or isinstance(total, str):
            raise Unsupported(f"a unidirectional QAttention of {length} of {total} tokens; fix these with shape=")
        seen = np.tri(length, total, total - length)
        scores = ctx.op("where", ctx.literal(seen, "bool"), scores, ctx.literal(np.finfo(np.float32).min, "f32"))
    return scores


def _attended(ctx: NodeContext, batch: dims.Dim, total: dims.Dim) -> Value | None:
    """Input 5 as bools that broadcast to [batch, heads, length, total]."""
    mask = ctx.get(5)
    ctx.ignore("mask_filter_value")
    if mask is None or (mask.rank == 2 and mask.shape[1] == 1 != total):  # the latter says nothing
        return None
    if mask.rank in (2, 3):
        attend = ctx.op("greater", mask, ctx.like(0, mask))
        return ctx.reshape(attend, [mask.shape[0], 1, *([1] if mask.rank == 2 else []), *mask.shape[1:]])
    if mask.rank != 1 or mask.shape[0] not in (batch, dims.mul(2, batch)):
        raise Unsupported(
            f"mask_index (input 5) of shape {list(mask.shape)}; [batch], [2 * batch], [batch, total] and "
            "[batch, length, total] are supported"
        )
    at = ctx.op("iota", shape=[1, 1, 1, total], axis=3, dtype="i32")
    if mask.shape[0] == batch:
        return ctx.op("less", at, ctx.reshape(mask, [batch, 1, 1, 1]))
    halves = ctx.op("split", ctx.reshape(mask, [2, batch]), axis=0, sizes=[1, 1])
    end, begin = (ctx.reshape(half, [batch, 1, 1, 1]) for half in halves)
    return ctx.op("logical_and", ctx.op("less", at, end), ctx.op("greater_equal", at, begin))


@contrib("QEmbedLayerNormalization")
def qembed_layer_norm(ctx: NodeContext) -> tuple:
    """The rows of 8-bit tables that words, positions and segments choose, added and normalised; the words not masked."""
    ids, mask = ctx[0], ctx.get(7)
    length = ctx.static_shape(ids, "QEmbedLayerNormalization")[1]

    def dequantised(values: Value, k: int) -> Value:
        """Of parameter k of five: word, position, segment, gamma, beta."""
        zero, scale = (ctx.reshape(ctx.cast(ctx[first + k], "f32"), []) for first in (13, 8))
        return ctx.op("mul", ctx.op("sub", ctx.cast(values, "f32"), zero), scale)

    width = ctx[2].shape[1]
    positions = ctx.op("slice", ctx[3], begins=[0, 0], ends=[length, width], steps=[1, 1])
    x = ctx.op("add", dequantised(ctx.op("gather", ctx[2], ids, axis=0), 0), dequantised(positions, 1))
    if ctx.has(1):
        x = ctx.op("add", x, dequantised(ctx.op("gather", ctx[4], ctx[1], axis=0), 2))
    gamma, beta = dequantised(ctx[5], 3), dequantised(ctx[6], 4)
    y = ctx.op("layer_norm", x, gamma, beta, axis=2, epsilon=ctx.attr("epsilon", 1e-12))
    if mask is None:
        return y, ctx.op("full", shape=[ids.shape[0]], value=0, dtype="i32")
    words = ctx.cast(ctx.op("equal", mask, ctx.like(1, mask)), "i32")
    return y, ctx.op("reduce_sum", words, axes=[1], keepdims=False)
