"""onnxruntime's products of 8-bit matrices: QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul."""

from __future__ import annotations

from inlay.onnx_import.integer_products import Quantised, integer_product, product_scale, quantised_matmul
from inlay.onnx_import.ops_quantize import dynamically_quantised, result_dtype, saturated
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


@contrib("QGemm")
def qgemm(ctx: NodeContext) -> Value:
    """alpha * sa * sb * ((A' - za)(B' - zb) + C), of i32 C; in f32, or quantised."""
    a, b = (Quantised(ctx[i], ctx[i + 1], ctx[i + 2], axis) for i, axis in ((0, 0), (3, 1)))
    if not a.per_tensor:
        raise Unsupported("a scale for each row of A (input 1); one element is supported")
    if ctx.has(7) != ctx.has(8):
        raise Unsupported(
            "a scale of the result (input 7) or its zero point (input 8) alone; both or none are supported"
        )
    rows = ctx.transpose(a.values, [1, 0]) if ctx.attr("transA", 0) else a.values
    total = integer_product(ctx, rows, a.zero, b.values, b.zero, bool(ctx.attr("transB", 0)))
    if ctx.has(6):
        total = ctx.op("add", total, ctx[6])
    scale = ctx.op("mul", product_scale(ctx, a, b), ctx.literal(ctx.attr("alpha", 1.0), "f32"))
    if not ctx.has(7):
        return ctx.op("mul", ctx.cast(total, "f32"), scale)
    scale = ctx.op("div", scale, ctx.reshape(ctx[7], []))
    levels = ctx.op("mul", ctx.cast(total, "f32"), scale)
    return saturated(ctx, levels, ctx.reshape(ctx[8], []), result_dtype(ctx[8]))


@contrib("MatMulIntegerToFloat")
def matmul_integer_to_float(ctx: NodeContext) -> Value:
    a, b = Quantised(ctx[0], ctx[2], ctx.get(4), 0), Quantised(ctx[1], ctx[3], ctx.get(5), 1)
    return quantised_matmul(ctx, a, b, ctx.get(6))


@contrib("DynamicQuantizeMatMul")
def dynamic_quantize_matmul(ctx: NodeContext) -> Value:
    a, scale, zero = dynamically_quantised(ctx, ctx[0])
    return quantised_matmul(ctx, Quantised(a, scale, zero, 0), Quantised(ctx[1], ctx[2], ctx.get(3), 1), ctx.get(4))


@contrib("DynamicQuantizeLSTM")
def dynamic_quantize_lstm(ctx: NodeContext) -> Value:
    raise Unsupported("states that are quantised anew by each step; an LSTM of dequantised weights is supported")
