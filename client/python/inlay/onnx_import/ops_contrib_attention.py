"""onnxruntime's own Attention and MultiHeadAttention (domain com.microsoft), with whatever masks they take.

All are softmax(q k' scale + bias) v, written so that the compiler makes one kernel of it (core/backends/native/
attention_pattern.h): masks are added, as onnxruntime's CPU kernels add them, in one sum of the smallest shape.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from inlay.ir import dims
from inlay.ir.dims import Dim
from inlay.onnx_import.contrib_common import only, part, without
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value, extents_value

LOWEST = -3.4028234663852886e38  # of f32
_LOWEST_HALF = -65504.0  # a row of nothing but -Infinity would have no softmax


def split_heads(ctx: NodeContext, x: Value, heads: int) -> Value:
    """[batch, positions, heads * size] as [batch, heads, positions, size]."""
    batch, positions, width = x.shape
    if isinstance(width, str) or width % heads:
        raise Unsupported(f"a width of {width} for {heads} heads")
    return ctx.transpose(ctx.reshape(x, [batch, positions, heads, width // heads]), [0, 2, 1, 3])


def join_heads(ctx: NodeContext, x: Value) -> Value:
    batch, heads, positions, size = x.shape
    return ctx.reshape(ctx.transpose(x, [0, 2, 1, 3]), [batch, positions, dims.mul(heads, size)])


def attend(ctx: NodeContext, q: Value, k: Value, v: Value, masks: Sequence[Value], softcap: float = 0.0) -> Value:
    """softmax(q k' scale + masks) v of [..., positions, size]. softcap: scores s become tanh(s / softcap) * softcap."""
    size = q.shape[-1]
    if isinstance(size, str):
        raise Unsupported(f"heads of the symbolic size {size!r}; fix it with shape=")
    scale = ctx.attr("scale", 0.0) or 1 / math.sqrt(size)
    scores = ctx.op("matmul", q, k, transpose_b=True)
    scores = ctx.op("mul", scores, ctx.like(scale / (softcap or 1.0), scores))
    if softcap:
        scores = ctx.op("mul", ctx.op("tanh", scores), ctx.like(softcap, scores))
    if masks:  # the smaller ones first
        by_size = sorted(masks, key=lambda m: sum(d != 1 for d in m.shape))
        scores = ctx.op("add", scores, functools.reduce(lambda a, b: ctx.op("add", a, b), by_size))
    return ctx.op("matmul", ctx.op("softmax", scores, axis=-1), v)


def additive(ctx: NodeContext, kept: Value, other: float, like: Value) -> Value:
    """A boolean mask as one to be added: 0 where it is true."""
    if like.dtype == "f16":
        other = max(other, _LOWEST_HALF)
    return ctx.op("where", kept, ctx.like(0, like), ctx.like(other, like))


def positions(ctx: NodeContext, count: Dim, first: Dim, rank: int, axis: int) -> Value:
    """first, first + 1, ... (i32) along an axis of a tensor of that rank."""
    at = ctx.op("iota", shape=[count if i == axis else 1 for i in range(rank)], axis=axis, dtype="i32")
    return at if first == 0 else ctx.op("add", at, ctx.cast(extents_value("", first), "i32"))


def causal_mask(ctx: NodeContext, queries: Dim, keys: Dim, past: Dim) -> Value:
    """[queries, keys]: whether a key is no later than the query, which comes after `past` keys."""
    return ctx.op("less_equal", positions(ctx, keys, 0, 2, 1), positions(ctx, queries, past, 2, 0))


def _key_mask(ctx: NodeContext, mask: Value, batch: Dim, queries: Dim, keys: Dim) -> Value | None:
    """Which keys count, by batch ([batch, 1, 1 or queries, keys]), of the forms that onnxruntime takes: a mask of 0 and 1
    for the keys ([batch, keys]) or for each query ([batch, queries, keys]); numbers of keys ([batch], or in front of
    [3 * batch + 2]); ends, then starts ([2 * batch]). None: all do ([batch or 1, 1])."""
    shape = mask.shape
    if shape == (batch, keys):
        return ctx.op("greater", ctx.reshape(mask, [batch, 1, 1, keys]), ctx.like(0, mask))
    if shape == (batch, queries, keys):
        return ctx.op("greater", ctx.reshape(mask, [batch, 1, queries, keys]), ctx.like(0, mask))
    if mask.rank == 2 and shape[0] in (batch, 1) and shape[1] == 1:
        return None
    lengths = (batch, dims.mul(2, batch), dims.add(dims.mul(3, batch), 2))
    if mask.rank != 1 or shape[0] not in lengths:
        raise Unsupported(
            f"mask_index: a mask of {list(shape)}; [batch], [2*batch], [3*batch+2], [batch, keys] and "
            f"[batch, queries, keys] are supported, of batch {batch}, {queries} queries and {keys} keys"
        )
    at = ctx.cast(positions(ctx, keys, 0, 4, 3), mask.dtype)
    kept = ctx.op("less", at, ctx.reshape(part(ctx, mask, 0, 0, batch), [batch, 1, 1, 1]))
    if shape[0] != lengths[1]:
        return kept
    if not isinstance(batch, int):
        raise Unsupported(f"a mask of ends and starts for the symbolic batch {batch!r}; fix it with shape=")
    starts = ctx.reshape(part(ctx, mask, 0, batch, batch), [batch, 1, 1, 1])
    return ctx.op("logical_and", kept, ctx.op("greater_equal", at, starts))


def _masks(ctx: NodeContext, q: Value, k: Value, past: Dim, mask_at: int, bias_at: int | None) -> list[Value]:
    """What is added to the scores: the masks of keys and of what comes later, and the attention bias."""
    batch, _, queries, _ = q.shape
    keys = k.shape[2]
    filler = ctx.attr("mask_filter_value", -10000.0)
    kept = _key_mask(ctx, ctx[mask_at], batch, queries, keys) if ctx.has(mask_at) else None
    masks = [] if kept is None else [additive(ctx, kept, filler, q)]
    if ctx.attr("unidirectional", 0) and queries != 1:
        kept_ones = masks[0] if masks else ctx.like(0, q)
        # Not the sum of both masks, which may be -Infinity.
        masks = [ctx.op("where", causal_mask(ctx, queries, keys, past), kept_ones, ctx.like(LOWEST, q))]
    if bias_at is not None and ctx.has(bias_at):
        masks.append(ctx[bias_at])
    return masks


# --- Attention -------------------------------------------------------------------------------------------------------


@contrib("Attention")
def attention(ctx: NodeContext) -> tuple:
    """The products with the weights of q, k and v (side by side) in front of it; past and present are k and v stacked."""
    only(ctx, "do_rotary", 0)
    only(ctx, "past_present_share_buffer", 0)
    without(ctx, past_sequence_length=6)
    ctx.ignore("rotary_embedding_dim")
    qkv = ctx.op("matmul", ctx[0], ctx[1])
    if ctx.has(2):
        qkv = ctx.op("add", qkv, ctx[2])
    total = qkv.shape[2]
    if isinstance(total, str):
        raise Unsupported("weights of a symbolic width")
    return self_attention(ctx, qkv, ctx.attr("qkv_hidden_sizes") or [total // 3] * 3, mask_at=3, past_at=4, bias_at=5)


def self_attention(
    ctx: NodeContext, qkv: Value, sizes: Sequence[int], mask_at: int, past_at: int, bias_at: int | None
) -> tuple:
    """Of q, k and v of these widths side by side; the result, and present where it is wanted. *_at: inputs."""
    heads = ctx.required("num_heads")
    q, k, v = (split_heads(ctx, p, heads) for p in ctx.op("split", qkv, axis=2, sizes=sizes))
    past: Dim = 0
    if ctx.has(past_at):
        past = ctx[past_at].shape[3]
        k, v = (ctx.op("concat", _half(ctx, ctx[past_at], i), new, axis=2) for i, new in enumerate((k, v)))
    present = None
    if ctx.wants(1):
        present = ctx.op("concat", *(ctx.reshape(p, [1, *p.shape]) for p in (k, v)), axis=0)
    y = attend(ctx, q, k, v, _masks(ctx, q, k, past, mask_at, bias_at))
    return join_heads(ctx, y), present


def _half(ctx: NodeContext, x: Value, i: int) -> Value:
    return ctx.reshape(part(ctx, x, 0, i, 1), x.shape[1:])


# --- MultiHeadAttention ----------------------------------------------------------------------------------------------


@contrib("MultiHeadAttention")
def multi_head_attention(ctx: NodeContext) -> tuple:
    """q, k and v apart, or packed ([batch, positions, heads, 3 or 2, size]); k and v may have their heads split already
    ([batch, heads, positions, size]), which are then from a cache and without bias."""
    without(ctx, past_sequence_length=8, cache_indirection=9)
    heads = ctx.required("num_heads")
    q, k, v = _operands(ctx)
    cached = k.rank == 4
    if ctx.has(3):
        widths = [q.shape[2], q.shape[2] if cached else k.shape[2]]
        begins = [0, widths[0], dims.add(*widths)]
        q, k, v = (
            x if x.rank == 4 else ctx.op("add", x, part(ctx, ctx[3], 0, int(begin), x.shape[2]))
            for x, begin in zip((q, k, v), begins)
        )  # fmt: skip
    q, k, v = (x if x.rank == 4 else split_heads(ctx, x, heads) for x in (q, k, v))
    past: Dim = 0
    if ctx.has(6) and ctx.has(7):
        past = ctx[6].shape[2]
        k, v = (ctx.op("concat", ctx[at], new, axis=2) for at, new in ((6, k), (7, v)))
    y = attend(ctx, q, k, v, _masks(ctx, q, k, past, 4, 5))
    return join_heads(ctx, y), k, v


def _operands(ctx: NodeContext) -> tuple[Value, Value, Value]:
    """q, k and v: [batch, positions, width], or of rank 4 as they are."""
    if ctx.has(1) and ctx.has(2):
        return ctx[0], ctx[1], ctx[2]
    packed = ctx[1] if ctx.has(1) else ctx[0]
    if packed.rank != 5:
        raise Unsupported(
            f"packed operands of {list(packed.shape)}: only [batch, positions, heads, 3 or 2, size] is supported"
        )
    batch, count, heads, _, size = packed.shape
    flat = [batch, count, dims.mul(heads, size)]
    parts = [ctx.reshape(part(ctx, packed, 3, i, 1), flat) for i in range(2 if ctx.has(1) else 3)]
    q, k, v = [ctx[0], *parts] if ctx.has(1) else parts
    return q, k, v
