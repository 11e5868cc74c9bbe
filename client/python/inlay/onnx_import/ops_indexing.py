"""Gather, Scatter, OneHot, Compress and what else moves single elements."""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value, constant_value
from inlay.onnx_import.weight_only import weight_only_rows


def _indices(ctx: NodeContext, i: int) -> Value:
    value = ctx[i]
    return value if value.dtype in ("i32", "i64") else ctx.cast(value, "i64")


@converter("Gather")
def gather(ctx: NodeContext) -> Value:
    x, index = ctx[0], _indices(ctx, 1)
    axis = ctx.axis(ctx.attr("axis", 0), x.rank)
    rows = weight_only_rows(ctx, x, index) if axis == 0 else None
    return ctx.op("gather", x, index, axis=axis) if rows is None else rows


@converter("GatherElements")
def gather_elements(ctx: NodeContext) -> Value:
    return ctx.op("gather_elements", ctx[0], _indices(ctx, 1), axis=ctx.axis(ctx.attr("axis", 0), ctx[0].rank))


@converter("GatherND")
def gather_nd(ctx: NodeContext) -> Value:
    return ctx.op("gather_nd", ctx[0], _indices(ctx, 1), batch_dims=ctx.attr("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def scatter_elements(ctx: NodeContext) -> Value:
    return ctx.op(
        "scatter_elements", ctx[0], _indices(ctx, 1), ctx[2], axis=ctx.axis(ctx.attr("axis", 0), ctx[0].rank),
        reduction=ctx.attr("reduction", "none"),
    )  # fmt: skip


@converter("ScatterND")
def scatter_nd(ctx: NodeContext) -> Value:
    return ctx.op("scatter_nd", ctx[0], _indices(ctx, 1), ctx[2], reduction=ctx.attr("reduction", "none"))


@converter("OneHot")
def one_hot(ctx: NodeContext) -> Value:
    """`on` where the index (negative ones count from the end) equals the position along the new axis."""
    index = ctx.cast(ctx[0], "i64")
    depth = int(ctx.const(1, "the depth").reshape(-1)[0])
    rank = index.rank + 1
    axis = ctx.axis(ctx.attr("axis", -1), rank)
    index = ctx.op("where", ctx.op("less", index, ctx.like(0, index)),
                   ctx.op("add", index, ctx.like(depth, index)), index)  # fmt: skip
    index = ctx.reshape(index, [*index.shape[:axis], 1, *index.shape[axis:]])
    positions = ctx.op("iota", shape=[depth if i == axis else 1 for i in range(rank)], axis=axis, dtype="i64")
    off, on = (
        ctx.reshape(ctx.op("slice", ctx[2], begins=[i], ends=[i + 1], steps=[1]), []) for i in range(2)
    )  # fmt: skip
    return ctx.op("where", ctx.op("equal", index, positions), on, off)


@converter("Compress")
def compress(ctx: NodeContext) -> Value:
    """The condition decides the result's extent, so it must be known."""
    x, axis = ctx[0], ctx.attr("axis")
    condition = ctx.const(1, "the condition").reshape(-1).astype(bool)
    if axis is None:
        x, axis = ctx.reshape(x, [ctx.numel(x, "Compress")]), 0
    axis = ctx.axis(axis, x.rank)
    extent = x.shape[axis]
    if isinstance(extent, int) and len(condition) > extent:
        raise Unsupported(f"{len(condition)} conditions for {extent} elements")
    return ctx.op("gather", x, constant_value("", np.flatnonzero(condition).astype(np.int64)), axis=axis)


@converter("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> Value:
    return ctx.op(
        "reverse_sequence", ctx[0], ctx.cast(ctx[1], "i64"), batch_axis=ctx.attr("batch_axis", 1),
        time_axis=ctx.attr("time_axis", 0),
    )  # fmt: skip


@converter("NonZero", "Unique", "NonMaxSuppression")
def data_dependent(ctx: NodeContext) -> Value:
    raise Unsupported("the shape of its result depends on data")


@converter("TensorScatter")
def tensor_scatter(ctx: NodeContext) -> Value:
    """Writes update [B, ..., S, ...] into the cache at write_indices[b] + s along the axis (modulo it if circular)."""
    cache, update = ctx[0], ctx[1]
    mode = ctx.attr("mode", "linear")
    axis = ctx.axis(ctx.attr("axis", -2), cache.rank)
    if mode not in ("linear", "circular") or axis == 0:
        raise Unsupported(f"mode {mode!r}, axis {axis}")
    shape = ctx.static_shape(update, "TensorScatter")
    extent = ctx.static_shape(cache, "TensorScatter")[axis]
    at = ctx.op("iota", shape=[shape[axis] if i == axis else 1 for i in range(cache.rank)], axis=axis, dtype="i64")
    if ctx.has(2):
        at = ctx.op("add", at, ctx.reshape(ctx.cast(ctx[2], "i64"), [shape[0], *[1] * (cache.rank - 1)]))
    if mode == "circular":
        at = ctx.op("mod", at, ctx.like(extent, at))
    return ctx.op("scatter_elements", cache, ctx.op("expand", at, shape=shape), update, axis=axis, reduction="none")
