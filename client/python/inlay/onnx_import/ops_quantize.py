"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear, QLinearMatMul, QLinearConv, ConvInteger (8-, 16- and 32-bit
integers).

Sums of products are exact: in i32, or, of convolutions that conv_integer is not for, in f32 or f64 (a product of two
8-bit numbers takes 17 bits, so 2^36 of them fit).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inlay.ir.types import TensorType, numpy_dtype
from inlay.onnx_import.contrib_common import channels_first, channels_last
from inlay.onnx_import.fold import evaluate_values
from inlay.onnx_import.integer_products import exact_float, integer_conv, integer_product, per_channel
from inlay.onnx_import.ops_nn import conv_attrs
from inlay.onnx_import.registry import NodeContext, contrib, converter, onnx_dtype
from inlay.onnx_import.value import Unsupported, Value

_QUANTISED = ("i8", "u8", "i16")


def _along(ctx: NodeContext, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point (per tensor, per axis, or per block) in a shape that broadcasts to x."""
    if parameter.elements == 1 and not block:
        return ctx.reshape(parameter, [])
    if not block:
        if parameter.rank != 1:
            raise Unsupported(f"a scale of shape {list(parameter.shape)}")
        return ctx.reshape(parameter, [d if i == axis else 1 for i, d in enumerate([*x.shape])])
    if parameter.rank != x.rank:
        raise Unsupported(f"a blocked scale of shape {list(parameter.shape)} for {list(x.shape)}")
    shape = ctx.static_shape(parameter, "a blocked scale")
    wide = ctx.reshape(parameter, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    wide = ctx.op("expand", wide, shape=[*shape[: axis + 1], block, *shape[axis + 1 :]])
    wide = ctx.reshape(wide, [*shape[:axis], shape[axis] * block, *shape[axis + 1 :]])
    extent = ctx.static_shape(x, "a blocked scale")[axis]
    if shape[axis] * block == extent:
        return wide
    ends = [extent if i == axis else d for i, d in enumerate(wide.shape)]
    return ctx.op("slice", wide, begins=[0] * x.rank, ends=ends, steps=[1] * x.rank)


def _axis(ctx: NodeContext, x: Value) -> int:
    axis = ctx.attr("axis", 1)
    return ctx.axis(axis, x.rank) if x.rank > 1 else 0


def saturated(ctx: NodeContext, x: Value, zero: Value | None, dtype: str) -> Value:
    """round(x) + zero, clipped to the integer type. x: floating, already divided by the scale."""
    info = np.iinfo(numpy_dtype(dtype))
    y = ctx.op("round", x)
    if zero is not None:
        y = ctx.op("add", y, ctx.cast(zero, y.dtype))
    return ctx.cast(ctx.op("clip", y, min=float(info.min), max=float(info.max)), dtype)


@converter("QuantizeLinear")
def quantize(ctx: NodeContext) -> Value:
    x, scale, zero = ctx[0], ctx[1], ctx.get(2)
    ctx.ignore("saturate")  # of 8-bit floats
    declared, precision = ctx.attr("output_dtype", 0), ctx.attr("precision", 0)
    dtype = zero.dtype if zero is not None else (onnx_dtype(declared) if declared else "u8")
    if dtype not in _QUANTISED:
        raise Unsupported(f"quantisation to {dtype}")
    if precision and onnx_dtype(precision) != "f32":
        raise Unsupported("a precision other than float")
    axis, block = _axis(ctx, x), ctx.attr("block_size", 0)
    # 16-bit floats hold no 16-bit integers, and not every sum of an 8-bit one and a zero point.
    wide, divisor = ctx.cast(x, "f32"), ctx.cast(_along(ctx, scale, x, axis, block), "f32")
    quotient = ctx.op("div", wide, divisor)
    return saturated(ctx, quotient, None if zero is None else _along(ctx, zero, x, axis, block), dtype)


@converter("DequantizeLinear")
def dequantize(ctx: NodeContext) -> Value:
    x, scale, zero = ctx[0], ctx[1], ctx.get(2)
    declared = ctx.attr("output_dtype", 0)
    dtype = onnx_dtype(declared) if declared else scale.dtype
    axis, block = _axis(ctx, x), ctx.attr("block_size", 0)
    if x.type is None and scale.constant and (zero is None or zero.constant):  # of 4 bits, and the like
        return _dequantised_when_asked(ctx, TensorType(dtype, x.shape))
    if x.dtype not in (*_QUANTISED, "i32"):
        raise Unsupported(f"dequantisation of {x.dtype}")
    wide = ctx.cast(x, "i32")
    if zero is not None:
        wide = ctx.op("sub", wide, ctx.cast(_along(ctx, zero, x, axis, block), "i32"))
    factor = ctx.cast(_along(ctx, scale, x, axis, block), "f32")
    return ctx.cast(ctx.op("mul", ctx.cast(wide, "f32"), factor), dtype)


def _dequantised_when_asked(ctx: NodeContext, type_: TensorType) -> Value:
    """What takes products or rows of it (weight_only.py) never asks."""
    inputs = [ctx.get(i) for i in range(len(ctx))]
    return Value("", type_, thunk=lambda: evaluate_values(ctx.node, inputs, ctx.opset)[0], weight=True)


def dynamically_quantised(ctx: NodeContext, x: Value) -> tuple[Value, Value, Value]:
    """x in u8, over the range of its own values and 0; the scale and the zero point."""
    zero, top = ctx.literal(0, "f32"), ctx.literal(255, "f32")
    axes = list(range(x.rank))
    low = ctx.op("minimum", ctx.op("reduce_min", x, axes=axes), zero)
    high = ctx.op("maximum", ctx.op("reduce_max", x, axes=axes), zero)
    scale = ctx.op("div", ctx.op("sub", high, low), top)
    point = saturated(ctx, ctx.op("sub", zero, ctx.op("div", low, scale)), None, "u8")
    return saturated(ctx, ctx.op("div", x, scale), point, "u8"), scale, point


@converter("DynamicQuantizeLinear")
def dynamic_quantize(ctx: NodeContext) -> tuple:
    return dynamically_quantised(ctx, ctx[0])


def with_channels_first(ctx: NodeContext, x: Value, function: Callable[[Value], Value]) -> Value:
    """function(x), which takes and gives images with the channels first, of ones that onnxruntime has as attribute
    channels_last says."""
    return channels_last(ctx, function(channels_first(ctx, x))) if ctx.attr("channels_last", 0) else function(x)


@converter("QLinearMatMul")
def qlinear_matmul(ctx: NodeContext) -> Value:
    """saturate(round((a - za)(b - zb) * sa * sb / sy) + zy)."""
    product = integer_product(ctx, ctx[0], ctx[2], ctx[3], ctx[5])
    scale_a, scale_b, scale_y = (ctx.cast(ctx[i], "f32") for i in (1, 4, 6))
    if scale_a.rank == 1 and scale_a.elements > 1:
        scale_a = ctx.reshape(scale_a, [*scale_a.shape, 1])
    if scale_y.elements != 1 or ctx[7].elements != 1:
        raise Unsupported("a scale of the result for each row")
    real = ctx.op("mul", ctx.cast(product, "f32"), ctx.op("div", ctx.op("mul", scale_a, scale_b), scale_y))
    real = ctx.reshape(real, product.shape)
    return saturated(ctx, real, ctx.reshape(ctx[7], []), result_dtype(ctx[7]))


def result_dtype(zero: Value) -> str:
    if zero.dtype not in ("i8", "u8"):
        raise Unsupported(f"a result of {zero.dtype}")
    return zero.dtype


def _integer_conv(
    ctx: NodeContext, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None, bias: Value | None
) -> Value:
    """In i32."""
    attrs = conv_attrs(ctx, x, w)
    y = integer_conv(ctx, x, x_zero, w, w_zero, attrs)
    if y is None:
        dtype = exact_float(w, attrs)
        x, w = ctx.cast(x, dtype), ctx.cast(w, dtype)
        if x_zero is not None:
            x = ctx.op("sub", x, ctx.reshape(ctx.cast(x_zero, dtype), []))
        if w_zero is not None:
            w = ctx.op("sub", w, per_channel(ctx, ctx.cast(w_zero, dtype), w.rank + 1))
        y = ctx.cast(ctx.op("conv", x, w, **attrs), "i32")
    return y if bias is None else ctx.op("add", y, per_channel(ctx, bias, y.rank))


@converter("ConvInteger")
def conv_integer(ctx: NodeContext) -> Value:
    return _integer_conv(ctx, ctx[0], ctx.get(2), ctx[1], ctx.get(3), None)


@converter("QLinearConv")
@contrib("QLinearConv")
def qlinear_conv(ctx: NodeContext) -> Value:
    scale_x, scale_w, scale_y = (ctx.cast(ctx[i], "f32") for i in (1, 4, 6))
    factor = ctx.op("div", ctx.op("mul", ctx.reshape(scale_x, []), scale_w), ctx.reshape(scale_y, []))

    def convolved(x: Value) -> Value:
        total = _integer_conv(ctx, x, ctx[2], ctx[3], ctx[5], ctx.get(8))
        real = ctx.op("mul", ctx.cast(total, "f32"), per_channel(ctx, factor, total.rank))
        return saturated(ctx, real, ctx.reshape(ctx[7], []), result_dtype(ctx[7]))

    return with_channels_first(ctx, ctx[0], convolved)
