"""TfIdfVectorizer over integer tokens."""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value, constant_value

_MOST = 4096  # comparisons of the whole input with one n-gram


@converter("TfIdfVectorizer")
def tfidf(ctx: NodeContext) -> Value:
    """Counts every n-gram of the pool in each row: a match is an equality of shifted slices."""
    x = ctx[0]
    pool = ctx.attr("pool_int64s")
    if pool is None or ctx.has_attr("pool_strings"):
        raise Unsupported("a pool of strings")
    starts, indexes = ctx.required("ngram_counts"), ctx.required("ngram_indexes")
    low, high, skips = (ctx.required(k) for k in ("min_gram_length", "max_gram_length", "max_skip_count"))
    mode, weights = ctx.required("mode"), ctx.attr("weights") or [1.0] * len(indexes)
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Unsupported(f"mode {mode!r}")
    shape = ctx.static_shape(x, "TfIdfVectorizer")
    if len(shape) not in (1, 2):
        raise Unsupported(f"tokens of shape {shape}")
    rows, length = (1, shape[0]) if len(shape) == 1 else shape
    tokens = ctx.reshape(ctx.cast(x, "i64"), [rows, length])
    grams: list[list[int]] = []
    for size, begin in enumerate(starts, start=1):
        end = starts[size] if size < len(starts) else len(pool)
        grams += [list(pool[i : i + size]) for i in range(begin, end, size)]
    if len(grams) != len(indexes) or len(weights) != len(indexes) or len(grams) * (skips + 1) > _MOST:
        raise Unsupported(f"{len(grams)} n-grams for {len(indexes)} indexes")
    columns: dict[int, Value] = {}
    for gram, index, weight in zip(grams, indexes, weights):
        if not low <= len(gram) <= high:
            continue
        count = _count(ctx, tokens, gram, [0] if len(gram) == 1 else list(range(skips + 1)), length)
        if mode != "TF":
            present = ctx.op("minimum", count, ctx.like(1.0, count)) if mode == "IDF" else count
            count = ctx.op("mul", present, ctx.like(weight, count))
        columns[index] = count
    zero = constant_value("", np.zeros((rows, 1), np.float32))
    joined = ctx.op("concat", *(columns.get(i, zero) for i in range(max(indexes) + 1)), axis=1)
    return ctx.reshape(joined, [*shape[:-1], max(indexes) + 1])


def _count(ctx: NodeContext, tokens: Value, gram: list[int], skips: list[int], length: int) -> Value:
    """How often the n-gram occurs in each row, f32 [rows, 1]."""
    rows = int(tokens.shape[0])
    total = constant_value("", np.zeros((rows, 1), np.float32))
    for skip in skips:
        reach = (len(gram) - 1) * (skip + 1)
        places = length - reach
        if places <= 0:
            continue
        match: Value | None = None
        for k, token in enumerate(gram):
            begin = k * (skip + 1)
            part = ctx.op("slice", tokens, begins=[0, begin], ends=[rows, begin + places], steps=[1, 1])
            same = ctx.op("equal", part, ctx.like(token, part))
            match = same if match is None else ctx.op("logical_and", match, same)
        assert match is not None
        total = ctx.op("add", total, ctx.op("reduce_sum", ctx.cast(match, "f32"), axes=[1], keepdims=True))
    return total
