"""What language models are exported with (domain com.microsoft): GroupQueryAttention and RotaryEmbedding."""

from __future__ import annotations

from inlay.ir import dims
from inlay.ir.dims import Dim
from inlay.onnx_import.contrib_common import only, part, without
from inlay.onnx_import.ops_contrib_attention import LOWEST, additive, attend, join_heads, positions, split_heads
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value, extents_value

# How many positions are in front of the new ones: of all of the batch, or of each ([batch, 1, 1, 1]).
Past = Dim | Value


# --- RotaryEmbedding -------------------------------------------------------------------------------------------------


def rotated(ctx: NodeContext, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """Pairs of the last axis turned by angles, the rest as it is. cos, sin: [..., positions, pairs]; a pair is two
    neighbours where interleaved, else one of each half."""
    size, pairs = x.shape[-1], cos.shape[-1]
    if isinstance(size, str) or isinstance(pairs, str) or 2 * pairs > size:
        raise Unsupported(f"heads of {size} and {pairs} angles")
    axis = x.rank - 1
    turning = part(ctx, x, axis, 0, 2 * pairs)
    if interleaved:
        both = ctx.reshape(turning, [*x.shape[:-1], pairs, 2])
        first, second = (ctx.reshape(part(ctx, both, axis + 1, i, 1), [*x.shape[:-1], pairs]) for i in range(2))
    else:
        first, second = ctx.op("split", turning, axis=axis, sizes=[pairs, pairs])
    real = ctx.op("sub", ctx.op("mul", first, cos), ctx.op("mul", second, sin))
    imaginary = ctx.op("add", ctx.op("mul", second, cos), ctx.op("mul", first, sin))
    if interleaved:
        ends = [ctx.reshape(p, [*p.shape, 1]) for p in (real, imaginary)]
        made = [ctx.reshape(ctx.op("concat", *ends, axis=axis + 1), turning.shape)]
    else:
        made = [real, imaginary]
    if 2 * pairs < size:
        made.append(part(ctx, x, axis, 2 * pairs, size - 2 * pairs))
    return made[0] if len(made) == 1 else ctx.op("concat", *made, axis=axis)


def angles(ctx: NodeContext, cache: Value, ids: Value) -> Value:
    """The cache's rows at positions ([batch or 1, positions]) as [batch or 1, 1, positions, pairs]."""
    rows = ctx.op("gather", cache, ids, axis=0)
    return ctx.reshape(rows, [rows.shape[0], 1, *rows.shape[1:]])


@contrib("RotaryEmbedding")
def rotary_embedding(ctx: NodeContext) -> Value:
    """x: [batch, positions, width] or [batch, heads, positions, size]. The ids are of every position, or the first's."""
    x, ids, cos, sin = (ctx[i] for i in range(4))
    only(ctx, "scale", 1.0)
    only(ctx, "is_packed_batching", 0)
    heads, rotary = ctx.attr("num_heads", 0), ctx.attr("rotary_embedding_dim", 0)
    split = x
    if x.rank == 3:
        width, pairs = x.shape[2], cos.shape[1]
        if not (rotary and heads):
            if isinstance(width, str) or isinstance(pairs, str):
                raise Unsupported("a symbolic width")
            heads = width // (2 * pairs)
        split = split_heads(ctx, x, heads)
    if all(d == 1 for d in ids.shape):
        ids = ctx.op("add", ctx.reshape(ids, [1, 1]), ctx.cast(positions(ctx, split.shape[2], 0, 2, 1), ids.dtype))
    y = rotated(ctx, split, angles(ctx, cos, ids), angles(ctx, sin, ids), bool(ctx.attr("interleaved", 0)))
    return join_heads(ctx, y) if x.rank == 3 else y


# --- GroupQueryAttention ---------------------------------------------------------------------------------------------


@contrib("GroupQueryAttention")
def group_query_attention(ctx: NodeContext) -> tuple:
    """Causal attention of many heads of q to few of k and v, which are appended to a cache.

    The total length decides the results' shapes, so it must be known. It says what the past is: nothing where it is
    that of the new positions alone (a prompt, padded on the right); with a batch of 1, all that is before them; else
    (one new position each) as many as seqlens_k says. local_window_size keys are seen, the newest among them.

    Where the total is as long as the cache, that is as many as there may be (past and present share a buffer, as
    onnxruntime calls it): seqlens_k says how many there are, and the new ones are written behind them, all else stays
    as it is, so that the presents may update the caches in place (`IRModule.with_updates`).
    """
    for name, *accepted in (
        ("causal", 1), ("smooth_softmax", -1, 0), ("qk_output", 0), ("sliding_window_cache", 0),
        ("k_quant_type", "NONE"), ("v_quant_type", "NONE"),
    ):  # fmt: skip
        only(ctx, name, *accepted)
    without(ctx, head_sink=11, k_scale=12, v_scale=13, q_norm_weight=14, k_norm_weight=15)
    ctx.ignore("kv_cache_bit_width", "qk_norm_epsilon")  # of what has just been refused
    heads, kv_heads = ctx.required("num_heads"), ctx.required("kv_num_heads")
    q, k, v = _operands(ctx, heads, kv_heads)
    batch, _, new, size = q.shape
    total = ctx.extents(6, "total_sequence_length")[0]
    past = _past(ctx, batch, new, total)
    if ctx.attr("do_rotary", 0):
        cos, sin = (_angles_of(ctx, ctx[at], new, past, prompt=total == new) for at in (7, 8))
        interleaved = bool(ctx.attr("rotary_interleaved", 0))
        q, k = (rotated(ctx, x, cos, sin, interleaved) for x in (q, k))
    else:  # angles and positions make no difference
        ctx.ignore("rotary_interleaved")
        for at in (7, 8, 9):
            ctx.get(at)
    k, v = (_appended(ctx, ctx.get(at), x, past, total) for at, x in ((3, k), (4, v)))
    # A kv head's heads of q side by side, k and v broadcast to them.
    grouped = ctx.reshape(q, [batch, kv_heads, heads // kv_heads, new, size])
    seen = (part(ctx, x, 2, 0, total) for x in (k, v))
    keys, values = (ctx.reshape(x, [batch, kv_heads, 1, total, size]) for x in seen)
    y = attend(ctx, grouped, keys, values, _masks(ctx, grouped, total, past), ctx.attr("softcap", 0.0))
    joined = ctx.transpose(y, [0, 3, 1, 2, 4])
    return ctx.reshape(joined, [batch, new, dims.mul(heads, size)]), k, v


def _operands(ctx: NodeContext, heads: int, kv_heads: int) -> list[Value]:
    """q, k and v, [batch, heads, positions, size]; k and v may be packed behind q."""
    if heads % kv_heads:
        raise Unsupported(f"{heads} heads for {kv_heads} of k and v")
    if ctx.has(1) and ctx.has(2):
        return [split_heads(ctx, ctx[at], n) for at, n in ((0, heads), (1, kv_heads), (2, kv_heads))]
    if ctx.has(1) or ctx.has(2):
        raise Unsupported("of key and value, only both or none are supported")
    packed, width = ctx[0], ctx[0].shape[2]
    if isinstance(width, str) or width % (heads + 2 * kv_heads):
        raise Unsupported(f"packed operands of width {width} for {heads} and twice {kv_heads} heads")
    size = width // (heads + 2 * kv_heads)
    parts = ctx.op("split", packed, axis=2, sizes=[heads * size, kv_heads * size, kv_heads * size])
    return [split_heads(ctx, x, n) for x, n in zip(parts, (heads, kv_heads, kv_heads))]


def _past(ctx: NodeContext, batch: Dim, new: Dim, total: Dim) -> Past:
    lengths, cached = ctx[5], ctx[3].shape[2] if ctx.has(3) else 0
    if cached != 0 and total == cached and (batch == 1 or new == 1):
        before = ctx.cast(extents_value("", dims.sub(new, 1)), "i32")
        return ctx.reshape(ctx.op("sub", ctx.cast(lengths, "i32"), before), [batch, 1, 1, 1])
    if not (dims.static([total, cached]) or cached == 0 or total == dims.add(cached, new)):
        known = f"shape={{{str(total)!r}: {str(dims.add(cached, new))!r}}}"
        raise Unsupported(
            f"total_sequence_length {total} of a cache of {cached} and {new} new; {known} says that it is their sum, "
            f"shape={{{str(total)!r}: {str(cached)!r}}} that there are never more and seqlens_k says how many there are"
        )
    if total == new:
        return 0
    if isinstance(total, int) and isinstance(new, int) and not new <= total <= new + int(cached):
        raise Unsupported(f"a total_sequence_length of {total} with {new} new positions and a cache of {cached}")
    if batch == 1:
        return cached if total == dims.add(cached, new) else dims.sub(total, new)
    if new != 1:
        raise Unsupported(
            f"{new} new positions after a past in a batch of {batch}: only one position, or a batch of 1, is supported"
        )
    return ctx.reshape(lengths, [batch, 1, 1, 1])


def _appended(ctx: NodeContext, cache: Value | None, new: Value, past: Past, total: Dim) -> Value:
    """The cache's first `past` positions, the new ones, and zeros up to its length; what is there, if they share it."""
    cached = cache.shape[2] if cache is not None else 0
    beyond = max(cached - total, 0) if isinstance(cached, int) and isinstance(total, int) else 0
    if not isinstance(past, Value):
        joined = new if cache is None or past == 0 else ctx.op("concat", part(ctx, cache, 2, 0, past), new, axis=2)
        return _lengthened(ctx, joined, beyond)
    if cache is not None and cached == total:
        at = ctx.op("add", positions(ctx, new.shape[2], 0, 4, 2), past)
        at = ctx.op("expand", at, shape=list(new.shape))
        return ctx.op("scatter_elements", cache, at, new, axis=2, reduction="none")
    if cache is None or not isinstance(total, int) or not isinstance(cached, int):
        raise Unsupported(f"a batch with a past, of total length {total} and a cache of {cached}; fix them with shape=")
    cache = _lengthened(ctx, cache, max(total - cached, 0))
    at = positions(ctx, cache.shape[2], 0, 4, 2)
    tail = ctx.op("where", ctx.op("equal", at, past), new, ctx.like(0, new))
    return ctx.op("where", ctx.op("less", at, past), cache, tail)


def _lengthened(ctx: NodeContext, x: Value, by: int) -> Value:
    return ctx.op("pad", x, pads=[0] * 6 + [by, 0], mode="constant", value=0.0) if by else x


def _angles_of(ctx: NodeContext, cache: Value, new: Dim, past: Past, prompt: bool) -> Value:
    """Rows of a cache of cosines or sines for the new positions, to broadcast to [batch, heads, new, pairs]."""
    if ctx.has(9):
        ids = ctx[9]
        if prompt:  # which then start from the first
            ids = ctx.op(
                "add", part(ctx, part(ctx, ids, 0, 0, 1), 1, 0, 1), ctx.cast(positions(ctx, new, 0, 2, 1), ids.dtype)
            )
        return angles(ctx, cache, ids)
    if isinstance(past, int):
        return part(ctx, cache, 0, past, new)
    if isinstance(past, Value):
        return angles(ctx, cache, ctx.op("add", ctx.reshape(past, [past.shape[0], 1]), positions(ctx, new, 0, 2, 1)))
    return angles(ctx, cache, positions(ctx, new, past, 2, 1))


def _masks(ctx: NodeContext, q: Value, total: Dim, past: Past) -> list[Value]:
    """To be added to scores of [batch, kv heads, heads of each, new, total]."""
    new, window, masks = q.shape[3], ctx.attr("local_window_size", -1), []
    if new != 1 or window > 0 or isinstance(past, Value):
        key = positions(ctx, total, 0, 5, 4)
        if isinstance(past, Value):
            query = ctx.op("add", ctx.reshape(past, [past.shape[0], 1, 1, 1, 1]), positions(ctx, new, 0, 5, 3))
        else:
            query = positions(ctx, new, past, 5, 3)
        kept = ctx.op("less_equal", key, query)
        if window > 0:
            oldest = ctx.op("sub", query, ctx.like(window, query))
            kept = ctx.op("logical_and", kept, ctx.op("greater", key, oldest))
        masks.append(additive(ctx, kept, LOWEST, q))
    if ctx.has(10):
        bias = ctx[10]
        each = [1, 1] if bias.shape[1] == 1 else [q.shape[1], q.shape[2]]
        masks.append(ctx.reshape(bias, [bias.shape[0], *each, *bias.shape[2:]]))
    return masks
