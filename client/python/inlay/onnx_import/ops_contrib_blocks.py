"""onnxruntime's products and look-ups of weights quantised in blocks of 8, 4 or 2 bits (domain com.microsoft).

Weights of products stay in their bytes, in the module as in a loaded program (matmul_nbits); a table's numbers have a
byte each. Products are of floats, whatever accuracy_level allows.
"""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.contrib_common import only, without
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value, constant_value
from inlay.onnx_import.weight_only import rows_of_blocks


def _packed(ctx: NodeContext, i: int, what: str, bits: int) -> np.ndarray:
    packed = ctx.const(i, what)
    if packed.dtype != np.uint8 or bits not in (2, 4, 8):
        raise Unsupported(f"{what} of {bits} bits in {packed.dtype}: 2, 4 and 8 in uint8 are supported")
    return packed


def _numbers(ctx: NodeContext, i: int, what: str, bits: int, rows: int) -> np.ndarray:
    """Input i's numbers, [rows, ...]; the lowest bits of a byte come first."""
    packed = _packed(ctx, i, what, bits)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed.reshape(rows, -1, 1) >> shifts) & np.uint8(2**bits - 1)).reshape(rows, -1)


def _weight(numbers: np.ndarray, name: str) -> Value:
    return constant_value(name, numbers, weight=True)


def _zero_points(ctx: NodeContext, i: int, bits: int, rows: int, blocks: int) -> Value | None:
    """[rows, blocks], packed like the weights, or floats."""
    if not ctx.has(i):
        return None
    if ctx[i].is_float:
        return ctx.reshape(ctx[i], [rows, blocks])
    return _weight(_numbers(ctx, i, "the zero points", bits, rows)[:, :blocks], ctx[i].name)


@contrib("MatMulNBits")
def matmul_nbits(ctx: NodeContext) -> Value:
    """A B' + bias, of B [N, K] in blocks along K, the last one filled up."""
    n, k, block, bits = ctx.required("N"), ctx.required("K"), ctx.required("block_size"), ctx.attr("bits", 4)
    only(ctx, "weight_prepacked", 0)
    without(ctx, g_idx=4)
    ctx.ignore("accuracy_level")
    blocks = -(-k // block)
    packed = _packed(ctx, 1, "the weights", bits).reshape(n, blocks, block * bits // 8)
    zero = _zero_points(ctx, 3, bits, n, blocks)
    scales = ctx.reshape(ctx[2], [n, blocks])
    y = ctx.op(
        "matmul_nbits", ctx[0], _weight(packed, ctx[1].name), scales, *([] if zero is None else [zero]), bits=bits
    )
    return ctx.op("add", y, ctx[5]) if ctx.has(5) else y


@contrib("GatherBlockQuantized")
def gather_block_quantized(ctx: NodeContext) -> Value:
    """Rows of a table, widened after they are gathered; zeros for an index that is out of range."""
    table, index, block, bits = ctx[0], ctx[1], ctx.attr("block_size", 128), ctx.attr("bits", 4)
    if table.rank != 2 or ctx.attr("gather_axis", 0) != 0 or ctx.attr("quantize_axis", 1) not in (1, -1):
        raise Unsupported(
            "only rows of a matrix (gather_axis 0), in blocks along them (quantize_axis 1), are supported"
        )
    rows = ctx.static_shape(table, "a table of blocks")[0]
    numbers = _numbers(ctx, 0, "the table", bits, rows)
    count = numbers.shape[1]
    if count % block:
        raise Unsupported(f"rows of {count} numbers: only whole blocks of {block} are supported")
    zero = _zero_points(ctx, 3, bits, rows, count // block)

    y = rows_of_blocks(ctx, _weight(numbers, table.name), ctx[2], zero, bits, index)
    at = ctx.reshape(index, [*index.shape, 1])
    below, above = ctx.op("less", at, ctx.like(rows, at)), ctx.op("greater_equal", at, ctx.like(-rows, at))
    return ctx.op("where", ctx.op("logical_and", below, above), y, ctx.like(0, y))
