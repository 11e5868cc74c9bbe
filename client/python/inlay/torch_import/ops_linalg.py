"""Matrix products, linear layers, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlay.torch_import.ops_reduce import vector_norm
from inlay.torch_import.registry import NodeContext, Unsupported, Var, at_least, converter


@converter("linear.default")
def linear(ctx: NodeContext, x: Var, weight: Var, bias: Var | None = None) -> Var:
    y = ctx.op("matmul", x, weight, transpose_b=True) if weight.rank == 2 else ctx.op("matmul", x, weight)
    return y if bias is None else ctx.op("add", y, bias)


@converter("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default")
def matmul(ctx: NodeContext, a: Var, b: Var) -> Var:
    return ctx.op("matmul", a, b)


def _scaled(ctx: NodeContext, x: Var, factor: Any) -> Var:
    return x if factor == 1 else ctx.op("mul", x, ctx.like(factor, x))


@converter("addmm.default", "baddbmm.default", "addmv.default")
def addmm(ctx: NodeContext, c: Var, a: Var, b: Var, *, beta: Any = 1, alpha: Any = 1) -> Var:
    y = _scaled(ctx, ctx.op("matmul", a, b), alpha)
    return y if beta == 0 else ctx.op("add", y, _scaled(ctx, c, beta))


@converter("addbmm.default")
def addbmm(ctx: NodeContext, c: Var, a: Var, b: Var, *, beta: Any = 1, alpha: Any = 1) -> Var:
    y = _scaled(ctx, ctx.op("reduce_sum", ctx.op("matmul", a, b), axes=[0]), alpha)
    return y if beta == 0 else ctx.op("add", y, _scaled(ctx, c, beta))


@converter("_trilinear.default")
def trilinear(
    ctx: NodeContext, a: Var, weight: Var, b: Var, expand_a: Sequence[int], expand_weight: Sequence[int],
    expand_b: Sequence[int], sums: Sequence[int], unrolled: int = 1,
) -> Var:  # fmt: skip
    """nn.Bilinear's: the sum over i, j of a [N, I] weight [O, I, J] b [N, J]. One product for all outputs, then with b."""
    if [list(v) for v in (expand_a, expand_weight, expand_b, sums)] != [[1, 3], [0], [1, 2], [2, 3]]:
        raise Unsupported("another form than that of a bilinear layer")
    out, rows, columns = weight.shape
    table = ctx.reshape(ctx.transpose(weight, [1, 0, 2]), [rows, out * columns])
    mixed = ctx.reshape(ctx.op("matmul", ctx.wide(a), ctx.wide(table)), [a.shape[0], out, columns])
    b = ctx.reshape(ctx.wide(b), [b.shape[0], columns, 1])
    return ctx.narrow(ctx.reshape(ctx.op("matmul", mixed, b), [a.shape[0], out]))


@converter("_cdist_forward.default")
def cdist(ctx: NodeContext, a: Var, b: Var, p: float, mode: int | None = None) -> Var:
    """The p-norm of every difference of a row of a [..., P, M] and one of b [..., R, M]."""
    a = ctx.reshape(a, [*a.shape[:-1], 1, a.shape[-1]])
    b = ctx.reshape(b, [*b.shape[:-2], 1, *b.shape[-2:]])
    return vector_norm(ctx, ctx.op("sub", a, b), p, [-1])


@converter("transformers::grouped_mm_fallback.default")
def grouped_matmul(ctx: NodeContext, x: Var, weight: Var, ends: Var) -> Var:
    """Rows of x [S, K], sorted by expert, each times its expert's of weight [E, K, N]; those of expert e end before
    ends[e], and rows behind the last one's are 0."""
    row = ctx.op("iota", shape=[x.shape[0], 1], axis=0, dtype=ends.dtype)
    over = ctx.op("greater_equal", row, ctx.reshape(ends, [1, weight.shape[0]]))
    expert = ctx.op("reduce_sum", ctx.cast(over, ends.dtype), axes=[1], keepdims=True)
    product = ctx.op("gather_matmul", x, weight, ctx.reshape(expert, [x.shape[0]]))
    has_expert = ctx.op("less", expert, ctx.like(weight.shape[0], expert))
    return ctx.op("where", has_expert, product, ctx.like(0, product))


@converter("_grouped_mm.default")
def aten_grouped_matmul(
    ctx: NodeContext, x: Var, weight: Var, ends: Var | None = None, bias: Var | None = None, out_dtype: Any = None
) -> Var:
    """The same of bf16."""
    if bias is not None or ends is None or (x.rank, weight.rank) != (2, 3):
        raise Unsupported(f"groups of other than rows of a matrix: operands of rank {x.rank} and {weight.rank}")
    return ctx.cast(grouped_matmul(ctx, x, weight, ends), ctx.dtype)


# --- Attention -------------------------------------------------------------------------------------------------------


@converter("scaled_dot_product_attention.default")
def attention(
    ctx: NodeContext, q: Var, k: Var, v: Var, mask: Var | None = None, dropout: float = 0.0, causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Var:  # fmt: skip
    """softmax(q k^T scale + mask) v. q [..., H, L, E], k [..., Hk, S, E], v [..., Hk, S, Ev]; of a mask of booleans true
    takes part; a query without any key gives 0, not NaN."""
    if dropout:
        raise Unsupported("dropout_p is not 0: it drops at random; export model.eval()")
    if enable_gqa:
        k, v = (_repeated(ctx, x, q.shape[-3]) for x in (k, v))
    dtype, factor = q.dtype, q.shape[-1] ** -0.5 if scale is None else scale
    # As torch's kernel has it, bf16 is multiplied as such and softmax's result rounded for v.
    multiplied = (lambda x: x) if dtype == k.dtype == v.dtype == "bf16" else ctx.wide
    scores = ctx.wide(ctx.op("matmul", multiplied(q), multiplied(k), transpose_b=True))
    scores = ctx.op("mul", scores, ctx.like(factor, scores))
    alive = None  # [..., L, 1]: whether the query has a key; None where each has
    if causal:
        scores = ctx.op("where", _causal(ctx, q.shape[-2], k.shape[-2]), scores, ctx.like(-math.inf, scores))
    elif mask is not None and mask.dtype == "bool":
        scores = ctx.op("where", mask, scores, ctx.like(-math.inf, scores))
        alive = ctx.op("reduce_max", mask, axes=[mask.rank - 1], keepdims=True)
    elif mask is not None:
        mask = ctx.cast(ctx.wide(mask), scores.dtype)
        scores = ctx.op("add", scores, mask)
        top = ctx.op("reduce_max", mask, axes=[mask.rank - 1], keepdims=True)
        alive = ctx.op("not_equal", top, ctx.like(-math.inf, top))
    weights = ctx.op("softmax", scores, axis=-1)
    if alive is not None:
        weights = ctx.op("where", alive, weights, ctx.like(0, weights))
    v = multiplied(v)
    return ctx.narrow(ctx.op("matmul", ctx.cast(weights, v.dtype), v), dtype)


def _causal(ctx: NodeContext, queries: Any, keys: Any) -> Var:
    """Whether key j is at or before query i, counted from the first of both."""
    if at_least(65536, queries * keys):
        return ctx.literal(np.tril(np.ones((queries, keys), bool)), "bool")
    row = ctx.op("iota", shape=[queries, 1], axis=0, dtype="i64")
    return ctx.op("less_equal", ctx.op("iota", shape=[1, keys], axis=1, dtype="i64"), row)


def _repeated(ctx: NodeContext, x: Var, heads: int) -> Var:
    """Each head of [..., H, S, E] as often as makes `heads`."""
    *lead, own, length, width = x.shape
    if own == heads:
        return x
    wide = ctx.expand(ctx.reshape(x, [*lead, own, 1, length, width]), [*lead, own, heads // own, length, width])
    return ctx.reshape(wide, [*lead, heads, length, width])


@converter("_scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    ctx: NodeContext, q: Var, k: Var, v: Var, dropout: float = 0.0, causal: bool = False, *,
    attn_mask: Var | None = None, scale: float | None = None,
) -> tuple:  # fmt: skip
    """What attention becomes below autograd; the second result is for its gradient."""
    return attention(ctx, q, k, v, attn_mask, dropout, causal, scale=scale, enable_gqa=q.shape[-3] != k.shape[-3]), None
