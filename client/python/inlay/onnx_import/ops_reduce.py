"""Reductions, arg-reductions, scans, softmax and its kin, TopK."""

from __future__ import annotations

from inlay.ir import dims
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


def _reduction_axes(ctx: NodeContext, since_input: int) -> list[int] | None:
    """Non-negative axes; None where nothing is reduced (noop_with_empty_axes)."""
    x = ctx[0]
    noop = bool(ctx.attr("noop_with_empty_axes", 0))
    axes = (ctx.ints(1, "axes") if ctx.has(1) else None) if ctx.opset >= since_input else ctx.attr("axes")
    if not axes:
        return None if noop else list(range(x.rank))
    return ctx.axes(axes, x.rank)


def _reduce(ctx: NodeContext, op_name: str, x: Value, axes: list[int] | None, keepdims: bool) -> Value:
    if axes is None or x.rank == 0:
        return x
    return ctx.op(op_name, x, axes=axes, keepdims=keepdims)


_PLAIN = {
    "ReduceSum": "reduce_sum", "ReduceMean": "reduce_mean", "ReduceProd": "reduce_prod", "ReduceMax": "reduce_max",
    "ReduceMin": "reduce_min",
}  # fmt: skip


@converter(*_PLAIN)
def reduce_plain(ctx: NodeContext) -> Value:
    axes = _reduction_axes(ctx, 13 if ctx.node.op_type == "ReduceSum" else 18)
    if ctx.node.op_type == "ReduceMean" and not ctx[0].is_float:
        raise Unsupported("ReduceMean of integers")
    return _reduce(ctx, _PLAIN[ctx.node.op_type], ctx[0], axes, bool(ctx.attr("keepdims", 1)))


@converter("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum")
def reduce_composed(ctx: NodeContext) -> Value:
    x, name = ctx[0], ctx.node.op_type
    axes, keepdims = _reduction_axes(ctx, 18), bool(ctx.attr("keepdims", 1))
    if name == "ReduceL1":
        return _reduce(ctx, "reduce_sum", ctx.op("abs", x), axes, keepdims)
    if name == "ReduceLogSum":
        return ctx.op("log", _reduce(ctx, "reduce_sum", x, axes, keepdims))
    total = _reduce(ctx, "reduce_sum", ctx.op("mul", x, x), axes, keepdims)
    return ctx.op("sqrt", total) if name == "ReduceL2" else total


@converter("ReduceLogSumExp")
def reduce_log_sum_exp(ctx: NodeContext) -> Value:
    """m + log(sum(exp(x - m))) with m the maximum where it is finite, else 0."""
    x, keepdims = ctx[0], bool(ctx.attr("keepdims", 1))
    axes = _reduction_axes(ctx, 18)
    if axes is None or x.rank == 0:
        return ctx.op("identity", x)
    top = ctx.op("reduce_max", x, axes=axes, keepdims=True)
    top = ctx.op("where", ctx.op("isinf", top), ctx.like(0, top), top)
    total = ctx.op("reduce_sum", ctx.op("exp", ctx.op("sub", x, top)), axes=axes, keepdims=True)
    result = ctx.op("add", ctx.op("log", total), top)
    return result if keepdims else ctx.reshape(result, [d for i, d in enumerate(x.shape) if i not in axes])


@converter("ArgMax", "ArgMin")
def arg_reduce(ctx: NodeContext) -> Value:
    x = ctx[0]
    return ctx.op(
        ctx.node.op_type.lower(), x, axis=ctx.axis(ctx.attr("axis", 0), x.rank),
        keepdims=bool(ctx.attr("keepdims", 1)), select_last=bool(ctx.attr("select_last_index", 0)),
    )  # fmt: skip


@converter("CumSum", "CumProd")
def cumulative(ctx: NodeContext) -> Value:
    axis = ctx.axis(int(ctx.const(1, "the axis").reshape(-1)[0]), ctx[0].rank)
    return ctx.op(
        ctx.node.op_type.lower(), ctx[0], axis=axis,
        exclusive=bool(ctx.attr("exclusive", 0)), reverse=bool(ctx.attr("reverse", 0)),
    )  # fmt: skip


# --- Softmax and its kin: before opset 13 they see [prod(shape[:axis]), prod(shape[axis:])] ---------------------------


def _flattened(ctx: NodeContext, function) -> Value:
    x = ctx[0]
    axis = ctx.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    if axis == x.rank - 1:
        return function(x, axis)
    flat = ctx.reshape(x, [dims.product(x.shape[:axis]), dims.product(x.shape[axis:])])
    return ctx.reshape(function(flat, 1), x.shape)


def _hardmax(ctx: NodeContext, x: Value, axis: int) -> Value:
    best = ctx.op("argmax", x, axis=axis, keepdims=True)
    index_shape = [d if i == axis else 1 for i, d in enumerate(ctx.static_shape(x, "Hardmax"))]
    index = ctx.op("iota", shape=index_shape, axis=axis, dtype="i64")
    return ctx.cast(ctx.op("equal", index, best), x.dtype)


@converter("Softmax", "LogSoftmax", "Hardmax", since=1)
def softmax_flattened(ctx: NodeContext) -> Value:
    if ctx.node.op_type == "Hardmax":
        return _flattened(ctx, lambda x, axis: _hardmax(ctx, x, axis))
    name = "softmax" if ctx.node.op_type == "Softmax" else "log_softmax"
    return _flattened(ctx, lambda x, axis: ctx.op(name, x, axis=axis))


@converter("Softmax", "LogSoftmax", since=13)
def softmax(ctx: NodeContext) -> Value:
    name = "softmax" if ctx.node.op_type == "Softmax" else "log_softmax"
    return ctx.op(name, ctx[0], axis=ctx.axis(ctx.attr("axis", -1), ctx[0].rank))


@converter("Hardmax", since=13)
def hardmax(ctx: NodeContext) -> Value:
    return _hardmax(ctx, ctx[0], ctx.axis(ctx.attr("axis", -1), ctx[0].rank))


@converter("TopK")
def topk(ctx: NodeContext) -> tuple:
    x = ctx[0]
    k = ctx.required("k") if ctx.opset < 10 else ctx.extents(1, "k")[0]
    return ctx.op(
        "topk", x, k=k, axis=ctx.axis(ctx.attr("axis", -1), x.rank), largest=bool(ctx.attr("largest", 1)),
        sorted=bool(ctx.attr("sorted", 1)),
    )  # fmt: skip
