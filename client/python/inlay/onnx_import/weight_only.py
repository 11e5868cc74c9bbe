"""Products with, and rows of, constant matrices that DequantizeLinear widens: they stay in the few bits that they have
(matmul_nbits), where a number has a scale of the whole, of its column, or of its block along the column.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from inlay.ir.types import numpy_dtype
from inlay.onnx_import.integer_products import Quantised, is_zero
from inlay.onnx_import.registry import NodeContext
from inlay.onnx_import.value import Value, constant_value

_BITS = {"int8": 8, "uint8": 8, "int4": 4, "uint4": 4, "int2": 2, "uint2": 2}  # by NumPy's and ml_dtypes' names
_FILLED_UP = 32  # a column that is one block has a multiple of it: the native kernels divide it further
_PART = 128


@dataclasses.dataclass(frozen=True)
class _Blocks:
    """A matrix by its columns, each in blocks of one scale: numbers u8 [columns, k] that are not negative, scales and zero
    points [columns, blocks] (None: half of the numbers' range)."""

    numbers: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    bits: int
    block: int


def _unsigned(array: np.ndarray) -> np.ndarray:
    """Numbers in u8, signed ones more by half of their range."""
    bits = _BITS[array.dtype.name]
    half = 2 ** (bits - 1) if array.dtype.name.startswith("int") else 0
    return (array.view(np.uint8) & np.uint8(2**bits - 1)) ^ np.uint8(half)


def _dense(matrix: np.ndarray) -> np.ndarray:
    """In C's order. In parts that a cache holds: NumPy's own transposition of a large matrix takes eight times as long."""
    if matrix.flags.c_contiguous:
        return matrix
    made = np.empty(matrix.shape, matrix.dtype)
    for i in range(0, matrix.shape[1], _PART):
        made[:, i : i + _PART] = matrix[:, i : i + _PART]
    return made


def _in_blocks(q: Quantised, dtype: str, transposed: bool) -> _Blocks | None:
    """transposed: its columns lie as rows. None: not of constants that matmul_nbits is for."""
    if not q.constant or q.values.rank != 2 or not q.values.elements:
        return None
    if q.scale.dtype != dtype and (dtype != "f32" or not q.scale.is_float or q.scale.dtype == "f64"):
        return None
    along = 1 if transposed else 0
    if not q.per_tensor and q.axis != (along if q.block else 1 - along):
        return None
    array = q.values.once()
    if array.dtype.name not in _BITS:
        return None

    def of_columns(parameter: np.ndarray) -> np.ndarray:
        return parameter if transposed or parameter.ndim < 2 else parameter.T

    numbers = _dense(_unsigned(of_columns(array)))
    columns, k = numbers.shape
    block = k if q.per_tensor or not q.block else min(q.block, k)
    blocks = -(-k // block)

    def of_blocks(parameter: np.ndarray) -> np.ndarray:
        made = of_columns(parameter) if parameter.ndim == 2 else parameter.reshape(-1, 1)
        return np.ascontiguousarray(np.broadcast_to(made, (columns, blocks)))

    zeros = None
    if array.dtype.name.startswith("uint") or not is_zero(q.zero):
        zeros = of_blocks(np.zeros(1, np.uint8) if q.zero is None else _unsigned(q.zero.array))
    scales = of_blocks(q.scale.array).astype(numpy_dtype(dtype))
    return _Blocks(numbers, scales, zeros, _BITS[array.dtype.name], block)


def _packed(numbers: np.ndarray, bits: int, block: int) -> np.ndarray:
    """[columns, blocks, bytes], the lowest bits of a byte first, the last block filled up."""
    columns, k = numbers.shape
    blocks = -(-k // block)
    whole = np.pad(numbers, [(0, 0), (0, blocks * block - k)]) if k % block else numbers
    parts = whole.reshape(columns, blocks, block * bits // 8, 8 // bits)
    packed = parts[..., 0]
    for i in range(1, 8 // bits):
        packed = packed | parts[..., i] << np.uint8(bits * i)
    return packed


def weight_only_matmul(ctx: NodeContext, a: Value, b: Value, transpose_b: bool = False) -> Value | None:
    """a times what a DequantizeLinear node made of a constant matrix. None: of others, or in other ways."""
    q = b.quantised
    if q is None or a.dtype not in ("f32", "f16", "bf16") or a.dtype != b.dtype:
        return None
    if a.shape[-1] != b.shape[1 if transpose_b else 0]:
        return None  # to be refused: matmul_nbits knows k by blocks alone
    if transpose_b not in q.in_blocks:
        q.in_blocks[transpose_b] = _operands(q, a.dtype, transpose_b)
    made = q.in_blocks[transpose_b]
    return None if made is None else ctx.op("matmul_nbits", a, *made[0], bits=made[1])


def _operands(q: Quantised, dtype: str, transposed: bool) -> tuple[list[Value], int] | None:
    """matmul_nbits' but the first, and its bits."""
    b = _in_blocks(q, dtype, transposed)
    if b is None:
        return None
    block = -(-b.block // _FILLED_UP) * _FILLED_UP if b.scales.shape[1] == 1 else b.block
    if block * b.bits % 32:
        return None
    arrays = [(q.values.name, _packed(b.numbers, b.bits, block)), (q.scale.name, b.scales)]
    if b.zeros is not None:
        arrays.append((q.zero.name if q.zero is not None else "", b.zeros))
    return [constant_value(name, array, weight=True) for name, array in arrays], b.bits


def weight_only_rows(ctx: NodeContext, table: Value, index: Value) -> Value | None:
    """Rows of what a DequantizeLinear node made of a constant matrix. None: of others, or in other ways."""
    q = table.quantised
    b = None if q is None or table.dtype == "f64" else _in_blocks(q, table.dtype, True)
    if q is None or b is None or b.numbers.shape[1] % b.block:
        return None
    numbers, scales, zeros = (
        None if array is None else constant_value(q.values.name, array, weight=True)
        for array in (b.numbers, b.scales, b.zeros)
    )
    assert numbers is not None and scales is not None
    return rows_of_blocks(ctx, numbers, scales, zeros, b.bits, index)


def rows_of_blocks(
    ctx: NodeContext, numbers: Value, scales: Value, zeros: Value | None, bits: int, index: Value
) -> Value:
    """Rows of (numbers - zeros) * scales, widened after they are gathered: of scales and zeros [rows, blocks], the latter
    half of the numbers' range unless given."""
    blocks = int(scales.shape[1])

    def found(v: Value, size: int) -> Value:
        return ctx.reshape(ctx.op("gather", v, index, axis=0), [*index.shape, blocks, size])

    width = int(numbers.shape[1])
    shift = ctx.like(2 ** (bits - 1), scales) if zeros is None else ctx.cast(found(zeros, 1), scales.dtype)
    floats = ctx.op("sub", ctx.cast(found(numbers, width // blocks), scales.dtype), shift)
    return ctx.reshape(ctx.op("mul", floats, found(scales, 1)), [*index.shape, width])
