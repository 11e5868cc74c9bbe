"""onnxruntime's QLinear operators: of 8-bit integers, each tensor with a scale and a zero point of one element, the
result's own among the inputs.

What is computed is levels, x - zero, which f32 holds exactly, and the products of scales apart from them: constants.
"""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.ops_pooling import pool_window
from inlay.onnx_import.ops_quantize import result_dtype, saturated, with_channels_first
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


def _one(ctx: NodeContext, i: int, what: str) -> Value | None:
    """Input i, a scale or a zero point, as a scalar in f32."""
    value = ctx.get(i)
    if value is None:
        return None
    if value.elements != 1:
        raise Unsupported(f"{what} (input {i}) of shape {list(value.shape)}; one element is supported")
    return ctx.reshape(ctx.cast(value, "f32"), [])


def _scale(ctx: NodeContext, i: int) -> Value:
    scale = _one(ctx, i, "a scale")
    if scale is None:
        raise Unsupported(f"the scale (input {i}) is missing")
    return scale


def _levels(ctx: NodeContext, i: int) -> Value:
    """x - zero in f32, of inputs i (x), i + 1 (its scale) and i + 2 (its zero point)."""
    x, zero = ctx[i], _one(ctx, i + 2, "a zero point")
    if x.dtype not in ("i8", "u8"):
        raise Unsupported(f"input {i} of {x.dtype}; i8 and u8 are supported")
    wide = ctx.cast(x, "f32")
    return wide if zero is None else ctx.op("sub", wide, zero)


def _ratio(ctx: NodeContext, i: int, result: int) -> Value:
    """The scale of the tensor at input i over the result's."""
    return ctx.op("div", _scale(ctx, i + 1), _scale(ctx, result))


def _quantised(ctx: NodeContext, levels: Value, result: int) -> Value:
    """In the result's levels already; its scale is input `result`, its zero point the next."""
    zero = _one(ctx, result + 1, "a zero point")
    return saturated(ctx, levels, zero, result_dtype(ctx[result + 1]) if zero is not None else ctx[0].dtype)


@contrib("QLinearAdd")
def qlinear_add(ctx: NodeContext) -> Value:
    a, b = (ctx.op("mul", _levels(ctx, i), _ratio(ctx, i, 6)) for i in (0, 3))
    return _quantised(ctx, ctx.op("add", a, b), 6)


@contrib("QLinearMul")
def qlinear_mul(ctx: NodeContext) -> Value:
    factor = ctx.op("mul", _ratio(ctx, 0, 6), _scale(ctx, 4))
    return _quantised(ctx, ctx.op("mul", ctx.op("mul", _levels(ctx, 0), _levels(ctx, 3)), factor), 6)


@contrib("QLinearLeakyRelu")
def qlinear_leaky_relu(ctx: NodeContext) -> Value:
    levels = ctx.op("mul", _levels(ctx, 0), _ratio(ctx, 0, 3))
    return _quantised(ctx, ctx.op("leaky_relu", levels, alpha=ctx.attr("alpha", 0.01)), 3)


@contrib("QLinearSigmoid")
def qlinear_sigmoid(ctx: NodeContext) -> Value:
    y = ctx.op("sigmoid", ctx.op("mul", _levels(ctx, 0), _scale(ctx, 1)))
    return _quantised(ctx, ctx.op("div", y, _scale(ctx, 3)), 3)


@contrib("QLinearSoftmax")
def qlinear_softmax(ctx: NodeContext) -> Value:
    x = ctx.op("mul", _levels(ctx, 0), _scale(ctx, 1))
    axis = ctx.axis(ctx.attr("axis", -1), x.rank)
    if ctx.required("opset") >= 13:
        y = ctx.op("softmax", x, axis=axis)
    else:  # over all axes from that one on
        y = ctx.op("softmax", ctx.reshape(x, [*x.shape[:axis], -1]), axis=axis)
        y = ctx.reshape(y, x.shape)
    return _quantised(ctx, ctx.op("div", y, _scale(ctx, 3)), 3)


def _pooled(ctx: NodeContext, pool) -> Value:
    """pool(levels), an average: its scale is x's."""

    def quantised(levels: Value) -> Value:
        return _quantised(ctx, ctx.op("mul", pool(levels), _ratio(ctx, 0, 3)), 3)

    return with_channels_first(ctx, _levels(ctx, 0), quantised)


@contrib("QLinearAveragePool")
def qlinear_average_pool(ctx: NodeContext) -> Value:
    include = bool(ctx.attr("count_include_pad", 0))
    return _pooled(ctx, lambda x: ctx.op("avg_pool", x, count_include_pad=include, **pool_window(ctx, x)))


@contrib("QLinearGlobalAveragePool")
def qlinear_global_average_pool(ctx: NodeContext) -> Value:
    return _pooled(ctx, lambda x: ctx.op("reduce_mean", x, axes=list(range(2, x.rank)), keepdims=True))


@contrib("QLinearReduceMean")
def qlinear_reduce_mean(ctx: NodeContext) -> Value:
    x = _levels(ctx, 0)
    axes = ctx.axes(ctx.attr("axes") or list(range(x.rank)), x.rank)
    mean = ctx.op("reduce_mean", x, axes=axes, keepdims=bool(ctx.attr("keepdims", 1)))
    return _quantised(ctx, ctx.op("mul", mean, _ratio(ctx, 0, 3)), 3)


def _same(ctx: NodeContext, i: int, j: int) -> bool:
    """Whether inputs i and j are known to be the same number."""
    a, b = ctx[i], ctx[j]
    return a.constant and b.constant and not (a.weight or b.weight) and bool(np.all(a.array == b.array))


def _as_result(ctx: NodeContext, i: int, result: int) -> Value:
    """The tensor at input i with the result's scale and zero point."""
    if _same(ctx, i + 1, result) and _same(ctx, i + 2, result + 1):
        return ctx[i]
    return _quantised(ctx, ctx.op("mul", _levels(ctx, i), _ratio(ctx, i, result)), result)


@contrib("QLinearConcat")
def qlinear_concat(ctx: NodeContext) -> Value:
    if len(ctx) < 5 or len(ctx) % 3 != 2:
        raise Unsupported(f"{len(ctx)} inputs; a scale and a zero point, and three a tensor, are supported")
    parts = [_as_result(ctx, i, 0) for i in range(2, len(ctx), 3)]
    return ctx.op("concat", *parts, axis=ctx.axis(ctx.required("axis"), parts[0].rank))


@contrib("QLinearWhere")
def qlinear_where(ctx: NodeContext) -> Value:
    return ctx.op("where", ctx[0], _as_result(ctx, 1, 7), _as_result(ctx, 4, 7))
