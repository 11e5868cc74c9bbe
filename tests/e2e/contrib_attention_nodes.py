"""The same of attention: every form of the operands, of masks, of what is kept from one call to the next."""

from __future__ import annotations

from typing import Any

import numpy as np
from contrib_nodes import I32, I64, F, Node, in_half, ints, rand

B, S, L, N, D = 2, 5, 7, 3, 12  # batch, queries, keys, heads, width
ENDS = np.array([3, 5], I32)
PADDING = np.array([[1, 1, 1, 0, 0], [1, 1, 0, 1, 1]], I32)
NOTHING = np.array([[0, 1, 1, 0, 0], [0, 0, 0, 0, 0]], I32)  # a query that sees no key, and a batch of these


def _attention(mask=None, past=None, bias=None, x=None, present: bool = False, **attributes) -> Node:
    inputs = [rand(B, S, D) if x is None else x, rand(D, 3 * D) / 4, rand(3 * D), mask, past, bias]
    return Node("Attention", inputs, {"num_heads": N, **attributes}, (F, F) if present else (F,), [1, 2])


def attention() -> dict[str, Node]:
    past = rand(2, B, N, 4, 4)
    return {
        "plain": _attention(),
        "unidirectional": _attention(unidirectional=1),
        "mask [B, T]": _attention(PADDING),
        "mask [B, T], unidirectional": _attention(PADDING, unidirectional=1),
        "mask [B, T] of nothing": _attention(NOTHING),
        "mask [B, T] of nothing, unidirectional": _attention(NOTHING, unidirectional=1, mask_filter_value=-3.0),
        "mask [B, T] of nothing, unidirectional, lowest": _attention(
            NOTHING, unidirectional=1, mask_filter_value=float(np.finfo(F).min)
        ),
        "mask_filter_value": _attention(PADDING, mask_filter_value=-1.0),
        "mask [B, S, T]": _attention(ints(2, B, S, S)),
        "mask [B, S, T], unidirectional": _attention(ints(2, B, S, S), unidirectional=1, mask_filter_value=-3.0),
        "mask [B]": _attention(ENDS),
        "mask [2B]": _attention(np.array([3, 5, 1, 9], I32)),
        "mask [3B + 2]": _attention(np.array([3, 5, 0, 5, 10, 0, 3, 8], I32)),
        "mask [B, 1]": _attention(np.array([[1], [0]], I32)),
        "mask [1, 1]": _attention(np.array([[1]], I32)),
        "scale": _attention(scale=0.3),
        "bias": _attention(bias=rand(B, N, S, S)),
        "bias [1, 1], mask": _attention(PADDING, bias=rand(1, 1, S, S)),
        "present": _attention(present=True),
        "past": _attention(past=past, present=True),
        "past, mask, unidirectional": _attention(ints(2, B, S + 4), past, present=True, unidirectional=1),
        "past, mask [B, S, T]": _attention(ints(2, B, S, S + 4), past, present=True, unidirectional=1),
        "past, one query": _attention(past=past, x=rand(B, 1, D), present=True, unidirectional=1),
        "past of nothing": _attention(past=past[:, :, :, :0], present=True),
        "qkv_hidden_sizes": Node(
            "Attention", [rand(B, S, D), rand(D, 21) / 4, rand(21)], {"num_heads": 3, "qkv_hidden_sizes": [6, 6, 9]},
            weights=[1, 2],
        ),
        "half": in_half(_attention(ENDS, unidirectional=1)),
    }  # fmt: skip


def _multi_head(q, k, v, bias=None, mask=None, added=None, past=None, **attributes) -> Node:
    inputs = [q, k, v, bias, mask, added, *(past or [])]
    return Node("MultiHeadAttention", inputs, {"num_heads": N, **attributes}, (F, F, F) if past else (F,))


def multi_head_attention() -> dict[str, Node]:
    q, k, v = rand(B, S, D), rand(B, L, D, seed=1), rand(B, L, 9, seed=2)
    own = [q, rand(B, S, D, seed=1), rand(B, S, D, seed=2)]
    heads = [q, rand(B, N, L, 4), rand(B, N, L, 4, seed=1)]
    past = [rand(B, N, 4, 4), rand(B, N, 4, 4, seed=1)]
    return {
        "cross": _multi_head(q, k, v),
        "bias": _multi_head(q, k, v, rand(2 * D + 9)),
        "unidirectional": _multi_head(*own, unidirectional=1),
        "mask [B, T]": _multi_head(q, k, v, mask=ints(2, B, L)),
        "mask [B]": _multi_head(q, k, v, mask=np.array([3, 7], I32)),
        "mask [B, S, T]": _multi_head(q, k, v, mask=ints(2, B, S, L)),
        "mask [3B + 2]": _multi_head(q, k, v, mask=np.array([3, 5, 0, 5, 10, 0, 3, 8], I32)),
        "attention bias": _multi_head(q, k, v, added=rand(1, N, S, L)),
        "attention bias [1, 1], mask": _multi_head(q, k, v, mask=ints(2, B, L), added=rand(1, 1, S, L)),
        "scale": _multi_head(q, k, v, scale=0.2),
        "split heads": _multi_head(*heads),
        "split heads, bias": _multi_head(*heads, bias=rand(3 * D)),
        "past": _multi_head(*own, past=past, unidirectional=1),
        "past, mask, bias": _multi_head(*own, rand(3 * D), ints(2, B, S + 4), past=past),
        "half": in_half(_multi_head(q, k, rand(B, L, D), rand(3 * D), np.array([3, 7], I32))),
    }


# --- Rotations and caches --------------------------------------------------------------------------------------------


def angles(positions: int, pairs: int) -> list[np.ndarray]:
    """The caches of cosines and sines."""
    angle = np.outer(np.arange(positions), 0.1 ** (np.arange(pairs) / pairs))
    return [np.cos(angle).astype(F), np.sin(angle).astype(F)]


def rotations() -> dict[str, Node]:
    caches, places = angles(20, 4), ints(20, 2, 5, dtype=I64)

    def rotated(x: np.ndarray, at: np.ndarray, **attributes) -> Node:
        return Node("RotaryEmbedding", [x, at, *caches], attributes, weights=[2, 3])

    def part(x: np.ndarray, **attributes) -> Node:
        return rotated(x, places, num_heads=3, rotary_embedding_dim=8, **attributes)

    return {
        "offset": rotated(rand(2, 5, 24), np.array([2], I64)),
        "places": rotated(rand(2, 5, 24), places),
        "one place": rotated(rand(1, 1, 24), np.array([[7]], I64)),
        "interleaved": rotated(rand(2, 5, 24), places, interleaved=1),
        "split heads": rotated(rand(2, 3, 5, 8), places),
        "split heads, offset, interleaved": rotated(rand(2, 3, 5, 8), np.array([2], I64), interleaved=1),
        "a part": part(rand(2, 5, 36)),
        "a part of split heads": part(rand(2, 3, 5, 12)),
        "a part, interleaved": part(rand(2, 5, 36), interleaved=1),
    }


def grouped(
    batch: int, new: int, cached: int | None, total: int, lengths=None, packed: bool = False, rotate: bool = False,
    places=None, bias=None, heads: tuple[int, int] = (6, 2), outputs: tuple = (F, F, F), **attributes: Any,
) -> Node:  # fmt: skip
    """GroupQueryAttention with heads of 16."""
    n, m = heads
    q, k, v = rand(batch, new, n * 16), rand(batch, new, m * 16, seed=1), rand(batch, new, m * 16, seed=2)
    operands = [np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]
    shape = (batch, m, cached or 0, 16)
    past = [None, None] if cached is None else [rand(*shape, seed=3), rand(*shape, seed=4)]
    lengths = np.full(batch, total - 1, I32) if lengths is None else np.array(lengths, I32)
    caches = angles(40, 8) if rotate else [None, None]
    inputs = [*operands, *past, lengths, np.array([total], I32), *caches, places, bias]
    attributes |= {"num_heads": n, "kv_num_heads": m, "do_rotary": int(rotate)}
    return Node("GroupQueryAttention", inputs, attributes, outputs, [6, 7, 8])


def group_query_attention() -> dict[str, Node]:
    places = np.array([[3, 1, 5, 2, 7]], I64)
    return {
        "prompt": grouped(2, 5, None, 5),
        "prompt, rotated": grouped(2, 5, None, 5, rotate=True),
        "prompt, packed, interleaved": grouped(2, 5, None, 5, packed=True, rotate=True, rotary_interleaved=1),
        "prompt, empty cache": grouped(1, 5, 0, 5),
        "prompt, long cache": grouped(1, 5, 9, 5, rotate=True),
        "prompt, no presents": grouped(1, 5, None, 5, outputs=(F,)),
        "as many heads": grouped(1, 5, None, 5, heads=(3, 3)),
        "next": grouped(1, 1, 7, 8, rotate=True),
        "next, packed": grouped(1, 1, 7, 8, rotate=True, packed=True),
        "next, long cache": grouped(1, 1, 12, 8, rotate=True),
        "several": grouped(1, 4, 7, 11, rotate=True),
        "several, long cache": grouped(1, 4, 20, 11, rotate=True),
        "batch": grouped(3, 1, 7, 8, [7, 4, 0], rotate=True),
        "batch, long cache": grouped(2, 1, 12, 8, [7, 4], rotate=True),
        "softcap": grouped(1, 5, None, 5, softcap=2.5),
        "scale": grouped(1, 5, None, 5, scale=0.1),
        "window": grouped(1, 9, None, 9, local_window_size=3),
        "window, next": grouped(1, 1, 8, 9, local_window_size=3),
        "window, several": grouped(1, 4, 7, 11, local_window_size=5, rotate=True),
        "window, batch": grouped(2, 1, 7, 8, [7, 4], local_window_size=3),
        "bias": grouped(2, 5, None, 5, bias=rand(2, 6, 5, 5)),
        "bias [1, 1]": grouped(1, 5, None, 5, bias=rand(1, 1, 5, 5)),
        "bias, several, softcap": grouped(1, 4, 7, 11, bias=rand(1, 6, 4, 11), softcap=2.0),
        "places, prompt": grouped(1, 5, None, 5, rotate=True, places=places),
        "places, batch": grouped(2, 1, 7, 8, rotate=True, places=np.array([[9], [4]], I64)),
        "places, several": grouped(1, 4, 7, 11, rotate=True, places=places[:, :4]),
        "half": in_half(grouped(1, 5, None, 5, rotate=True, softcap=2.0)),
    }
