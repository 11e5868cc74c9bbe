"""What nn.MultiheadAttention and nn.TransformerEncoderLayer become without gradients: PyTorch's fused operators."""

from __future__ import annotations

import math

from inlay.torch_import.ops_activation import gelu
from inlay.torch_import.ops_linalg import linear
from inlay.torch_import.ops_logic import truth
from inlay.torch_import.ops_nn import layer_norm
from inlay.torch_import.registry import NodeContext, Var, converter


@converter("_native_multi_head_attention.default")
def native_attention(
    ctx: NodeContext, q: Var, k: Var, v: Var, width: int, heads: int, weight: Var, bias: Var, out_weight: Var,
    out_bias: Var, mask: Var | None = None, need_weights: bool = True, average: bool = True, mask_type: int | None = None,
) -> tuple:  # fmt: skip
    """q, k, v [N, T, width]; the second result [N, T, S], or [N, heads, T, S] if it is not to be an average."""
    if q is k is v:
        parts = ctx.op("split", linear(ctx, q, weight, bias), axis=2, sizes=[width] * 3)
    else:
        weights, biases = (ctx.op("split", w, axis=0, sizes=[width] * 3) for w in (weight, bias))
        parts = [linear(ctx, *given) for given in zip((q, k, v), weights, biases, strict=True)]
    split = [ctx.reshape(x, [*x.shape[:2], heads, width // heads]) for x in map(ctx.wide, parts)]
    q, k, v = (ctx.transpose(x, [0, 2, 1, 3]) for x in split)
    scores = ctx.op("matmul", q, k, transpose_b=True)
    scores = ctx.op("mul", scores, ctx.like((width // heads) ** -0.5, scores))
    if mask is not None:  # true (not 0) where nobody looks; 0: [T, S], 1: [N, S], 2: as the scores
        masked = truth(ctx, mask)
        if mask_type == 1:
            masked = ctx.reshape(masked, [masked.shape[0], 1, 1, masked.shape[1]])
        scores = ctx.op("where", masked, ctx.like(-math.inf, scores), scores)
    weights = ctx.op("softmax", scores, axis=-1)
    mixed = ctx.transpose(ctx.op("matmul", weights, v), [0, 2, 1, 3])
    y = linear(ctx, ctx.narrow(ctx.reshape(mixed, [*mixed.shape[:2], width])), out_weight, out_bias)
    if not need_weights or not ctx.wants(1):
        return y, None
    return y, ctx.narrow(ctx.op("reduce_mean", weights, axes=[1]) if average else weights)


@converter("_transformer_encoder_layer_fwd.default")
def transformer_encoder_layer(
    ctx: NodeContext, x: Var, width: int, heads: int, weight: Var, bias: Var, out_weight: Var, out_bias: Var,
    use_gelu: bool, norm_first: bool, eps: float, scale1: Var, shift1: Var, scale2: Var, shift2: Var, weight1: Var,
    bias1: Var, weight2: Var, bias2: Var, mask: Var | None = None, mask_type: int | None = None,
) -> Var:  # fmt: skip
    def attend(x: Var) -> Var:
        given = (weight, bias, out_weight, out_bias, mask)
        return native_attention(ctx, x, x, x, width, heads, *given, need_weights=False, mask_type=mask_type)[0]

    def feed_forward(x: Var) -> Var:
        hidden = linear(ctx, x, weight1, bias1)
        return linear(ctx, gelu(ctx, hidden) if use_gelu else ctx.op("relu", hidden), weight2, bias2)

    for step, scale, shift in ((attend, scale1, shift1), (feed_forward, scale2, shift2)):
        norm = lambda x, scale=scale, shift=shift: layer_norm(ctx, x, [width], scale, shift, eps)
        x = ctx.op("add", x, step(norm(x))) if norm_first else norm(ctx.op("add", x, step(x)))
    return x
