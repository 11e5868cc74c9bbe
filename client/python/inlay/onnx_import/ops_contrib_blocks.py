"""onnxruntime's products and look-ups of weights quantised in blocks of 8, 4 or 2 bits (domain com.microsoft).

The module keeps the weights as they are. They are widened to floats by operators of weights alone, which run once, when
a program is loaded, and not for each call (core/passes/lift_transform_params.cc): it then takes the memory of the float
weights. Products are of floats, whatever accuracy_level allows.
"""

from __future__ import annotations

from inlay.ir import dims
from inlay.onnx_import.ops_contrib_elementwise import part
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


def _unpacked(ctx: NodeContext, packed: Value, bits: int, count: int) -> Value:
    """u8 [..., bytes] as `count` numbers of that many bits in the last axis, the lowest bits of a byte first."""
    *outer, width = packed.shape
    if packed.dtype != "u8" or bits not in (2, 4, 8) or isinstance(width, str):
        raise Unsupported(f"{bits} bits in {packed.dtype}: 2, 4 and 8 in uint8 are supported")
    if bits == 8:
        return packed
    each = 8 // bits
    shifts = ctx.literal([bits * i for i in range(each)], "u8")
    spread = ctx.op("shift_right", ctx.reshape(packed, [*outer, width, 1]), shifts)
    numbers = ctx.reshape(ctx.op("bitwise_and", spread, ctx.literal(2**bits - 1, "u8")), [*outer, width * each])
    return part(ctx, numbers, len(outer), 0, count)


def _dequantised(ctx: NodeContext, weights: Value, scales: Value, zero: Value | None, bits: int) -> Value:
    """[..., blocks, numbers] as floats, (weights - zero) * scales; of these one for a block. zero: packed as weights are,
    or floats; without it half of the range."""
    *outer, blocks, size = weights.shape
    each = [*outer, blocks, 1]
    if zero is None:
        zero = ctx.like(2 ** (bits - 1), scales)
    elif zero.is_float:
        zero = ctx.reshape(zero, each)
    else:
        assert isinstance(blocks, int)
        packed = ctx.reshape(zero, [*outer, -(-blocks * bits // 8)])
        zero = ctx.cast(ctx.reshape(_unpacked(ctx, packed, bits, blocks), each), scales.dtype)
    floats = ctx.op("sub", ctx.cast(weights, scales.dtype), zero)
    return ctx.reshape(ctx.op("mul", floats, ctx.reshape(scales, each)), [*outer, dims.mul(blocks, size)])


@contrib("MatMulNBits")
def matmul_nbits(ctx: NodeContext) -> Value:
    """A B' + bias, of B [N, K] in blocks along K, the last one filled up."""
    n, k, block, bits = ctx.required("N"), ctx.required("K"), ctx.required("block_size"), ctx.attr("bits", 4)
    if ctx.attr("weight_prepacked", 0):
        raise Unsupported("attribute weight_prepacked: only 0 is supported")
    if ctx.has(4):
        raise Unsupported("input 4 (g_idx) is not supported: only blocks of columns in their order are")
    ctx.ignore("accuracy_level")
    packed = ctx.reshape(ctx[1], [n, -(-k // block), block * bits // 8])
    weights = _dequantised(ctx, _unpacked(ctx, packed, bits, block), ctx[2], ctx.get(3), bits)
    y = ctx.op("matmul", ctx[0], part(ctx, weights, 1, 0, k), transpose_b=True)
    return ctx.op("add", y, ctx[5]) if ctx.has(5) else y


@contrib("GatherBlockQuantized")
def gather_block_quantized(ctx: NodeContext) -> Value:
    """Rows of a table whose rows are blocks, widened after they are gathered; zeros for an index that is out of range."""
    table, index, scales, zero = ctx[0], ctx[1], ctx[2], ctx.get(3)
    block, bits = ctx.attr("block_size", 128), ctx.attr("bits", 4)
    if table.rank != 2 or ctx.attr("gather_axis", 0) != 0 or ctx.attr("quantize_axis", 1) not in (1, -1):
        raise Unsupported(
            "only the rows of a matrix (gather_axis 0), in blocks along them (quantize_axis 1), are supported"
        )
    rows, width = ctx.static_shape(table, "a table of blocks")
    if table.dtype != "u8" or width * 8 % (bits * block):
        raise Unsupported(
            f"rows of {width} bytes of {table.dtype}: whole blocks of {block} times {bits} bits in uint8 are"
        )
    count = width * 8 // bits
    packed, scales = (ctx.op("gather", v, index, axis=0) for v in (table, scales))
    zero = None if zero is None else ctx.op("gather", zero, index, axis=0)
    numbers = ctx.reshape(_unpacked(ctx, packed, bits, count), [*index.shape, count // block, block])
    found = _dequantised(ctx, numbers, scales, zero, bits)
    at = ctx.reshape(index, [*index.shape, 1])
    inside = ctx.op(
        "logical_and", ctx.op("less", at, ctx.like(rows, at)), ctx.op("greater_equal", at, ctx.like(-rows, at))
    )
    return ctx.op("where", inside, found, ctx.like(0, found))
