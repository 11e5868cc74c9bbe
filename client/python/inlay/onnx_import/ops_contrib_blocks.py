"""onnxruntime's products and look-ups of weights quantised in blocks of 8, 4 or 2 bits (domain com.microsoft).

The module keeps the weights as they are. They are widened to floats by operators of weights alone, which run once, when
a program is loaded, and not for each call (core/passes/lift_transform_params.cc): it then takes the memory of the float
weights. Products are of floats, whatever accuracy_level allows.
"""

from __future__ import annotations

from inlay.onnx_import.ops_contrib_elementwise import part
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


def _unpacked(ctx: NodeContext, packed: Value, bits: int, count: int) -> Value:
    """u8 [..., bytes] as `count` numbers of that many bits in the last axis, the lowest bits of a byte first."""
    if packed.dtype != "u8" or bits not in (2, 4, 8):
        raise Unsupported(f"{bits} bits in {packed.dtype}: 2, 4 and 8 in uint8 are supported")
    if bits == 8:
        return packed
    *outer, width = ctx.static_shape(packed, "quantised weights")
    each = 8 // bits
    shifts = ctx.literal([bits * i for i in range(each)], "u8")
    spread = ctx.op("shift_right", ctx.reshape(packed, [*outer, width, 1]), shifts)
    numbers = ctx.reshape(ctx.op("bitwise_and", spread, ctx.literal(2**bits - 1, "u8")), [*outer, width * each])
    return part(ctx, numbers, len(outer), 0, count)


def _zero_points(ctx: NodeContext, zero: Value | None, bits: int, rows: int, blocks: int, scales: Value) -> Value:
    """[rows, blocks, 1] in the scales' type: packed like the weights, or floats, or half of the range."""
    if zero is None:
        return ctx.like(2 ** (bits - 1), scales)
    if not zero.is_float:
        width = -(-blocks * bits // 8)
        zero = ctx.cast(_unpacked(ctx, ctx.reshape(zero, [rows, width]), bits, blocks), scales.dtype)
    return ctx.reshape(zero, [rows, blocks, 1])


def _dequantised(ctx: NodeContext, weights: Value, scales: Value, zero: Value | None, bits: int, block: int) -> Value:
    """[rows, blocks, bytes] as floats, [rows, blocks * block]: (weights - zero) * scales, both of a block."""
    rows, blocks, _ = ctx.static_shape(weights, "quantised weights")
    numbers = ctx.cast(_unpacked(ctx, weights, bits, block), scales.dtype)
    zero = _zero_points(ctx, zero, bits, rows, blocks, scales)
    floats = ctx.op("mul", ctx.op("sub", numbers, zero), ctx.reshape(scales, [rows, blocks, 1]))
    return ctx.reshape(floats, [rows, blocks * block])


@contrib("MatMulNBits")
def matmul_nbits(ctx: NodeContext) -> Value:
    """A B' + bias, of B [N, K] in blocks along K."""
    n, k, block, bits = ctx.required("N"), ctx.required("K"), ctx.required("block_size"), ctx.attr("bits", 4)
    if ctx.attr("weight_prepacked", 0):
        raise Unsupported("attribute weight_prepacked: only 0 is supported")
    ctx.ignore("accuracy_level")
    if ctx.has(4):
        raise Unsupported("input 4 (g_idx) is not supported: only blocks of columns in their order are")
    blocks = -(-k // block)
    packed = ctx.reshape(ctx[1], [n, blocks, block * bits // 8])
    weights = part(ctx, _dequantised(ctx, packed, ctx[2], ctx.get(3), bits, block), 1, 0, k)
    y = ctx.op("matmul", ctx[0], weights, transpose_b=True)
    return ctx.op("add", y, ctx[5]) if ctx.has(5) else y
