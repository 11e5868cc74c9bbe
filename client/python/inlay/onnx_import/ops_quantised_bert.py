"""onnxruntime's quantised parts of BERT and GPT-2: QAttention, QEmbedLayerNormalization."""

from __future__ import annotations

from inlay.onnx_import.integer_products import Quantised, quantised_matmul
from inlay.onnx_import.ops_contrib_attention import self_attention
from inlay.onnx_import.ops_contrib_normalization import unmasked
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


@contrib("QAttention")
def qattention(ctx: NodeContext) -> tuple:
    """Self-attention; q, k and v are one product of integers, the rest is in f32."""
    for name in ("do_rotary", "past_present_share_buffer"):
        if ctx.attr(name, 0):
            raise Unsupported(f"attribute {name}={ctx.attr(name)}; 0 is supported")
    x, w = Quantised(ctx[0], ctx[3], ctx.get(6), 0), Quantised(ctx[1], ctx[4], ctx.get(7), 1)
    width = ctx.static_shape(w.values, "QAttention")[1] // 3
    qkv = quantised_matmul(ctx, x, w, ctx[2])
    return self_attention(ctx, qkv, [width] * 3, mask_at=5, past_at=8, bias_at=None)


@contrib("QEmbedLayerNormalization")
def qembed_layer_norm(ctx: NodeContext) -> tuple:
    """The rows of 8-bit tables that words, positions and segments choose, added and normalised; the words not masked."""
    ids = ctx[0]
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
    return y, unmasked(ctx)
