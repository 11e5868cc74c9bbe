"""Products of 8-bit integers in i32 (matmul_integer, conv_integer), zero points apart: what ONNX's integer operators
are, and what is between DequantizeLinear nodes and a MatMul, Gemm or Conv.

With zero points p and q, (A - p)(B - q) = AB - p*colsums(B) - q*rowsums(A) + K*p*q, modulo 2^32: what depends on
weights alone is computed once. Real products of dequantised operands are these sums times both scales.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from inlay.onnx_import.registry import NodeContext
from inlay.onnx_import.value import Unsupported, Value, constant_value

_EIGHT_BITS = ("i8", "u8")
_EXACT_IN_F32 = 2**24 // 255**2  # products of two 8-bit numbers


@dataclasses.dataclass(frozen=True)
class Quantised:
    """(values - zero) * scale, both of one element, or of one an index of `axis`; with a block, of one for as many of
    the axis, at each index of the others.

    in_blocks: what weight_only.py made of it, by whether its columns lie as rows."""

    values: Value
    scale: Value
    zero: Value | None
    axis: int
    block: int = 0
    in_blocks: dict[bool, Any] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def per_tensor(self) -> bool:
        return self.scale.elements == 1 and (self.zero is None or self.zero.elements == 1)

    @property
    def constant(self) -> bool:
        return all(v is None or v.constant for v in (self.values, self.scale, self.zero))


def remember_quantised(ctx: NodeContext, made: Value) -> None:
    """Of a DequantizeLinear node, for who takes its result."""
    x, scale, zero = ctx[0], ctx[1], ctx.get(2)
    if scale.type is None or any(_is_open(d) for v in (scale, zero) if v is not None for d in v.shape):
        return
    axis, block = ctx.attr("axis", 1), ctx.attr("block_size", 0)
    axis += x.rank if axis < 0 else 0
    if scale.rank == x.rank if block else scale.rank <= 1:
        made.quantised = Quantised(x, scale, zero, axis, block)


def remember_transposed(ctx: NodeContext, made: Value) -> None:
    """Of a Transpose node of a matrix of constants."""
    q = ctx[0].quantised
    if q is None or not q.constant or q.values.rank != 2 or ctx.attr("perm", [1, 0]) != [1, 0]:
        return

    def turned(parameter: Value) -> Value:
        return parameter.transposed() if parameter.rank == 2 else parameter

    zero = None if q.zero is None else turned(q.zero)
    made.quantised = Quantised(q.values.transposed(), turned(q.scale), zero, 1 - q.axis, q.block)


def _of_eight_bits(x: Value) -> Quantised | None:
    """What integer products take: of 8 bits, f32, not in blocks."""
    q = x.quantised
    if q is None or q.values.type is None or q.values.dtype not in _EIGHT_BITS or q.block:
        return None
    return q if x.dtype == q.scale.dtype == "f32" else None


def is_zero(point: Value | None) -> bool:
    return point is None or (point.constant and not point.weight and not np.any(point.array))


def _is_open(dim: Any) -> bool:
    return isinstance(dim, str)


def _fits(x: Value, w: Value, open_axes: slice) -> bool:
    """open_axes: of x, those whose extents may be open. All of w's are known."""
    known = list(x.shape)
    del known[open_axes]
    return x.dtype in _EIGHT_BITS and w.dtype in _EIGHT_BITS and not any(map(_is_open, [*known, *w.shape]))


def _as_weight(w: Value) -> Value:
    """A constant as one of the program's weights, however few elements it has."""
    return constant_value(w.name, w.array, weight=True) if w.constant and not w.weight else w


def _as_signed(ctx: NodeContext, w: Value, zero: Value | None, literal: bool) -> tuple[Value, Value]:
    """u8 weights and zero points less 128: what processors multiply unsigned numbers with is signed."""
    less = ctx.literal(128, "i32")
    if literal:
        w = constant_value(w.name, (w.array.astype(np.int32) - 128).astype(np.int8), weight=True)
    else:
        w = ctx.cast(ctx.op("sub", ctx.cast(w, "i32"), less), "i8")
    if zero is None or (zero.constant and not zero.weight):
        return w, ctx.literal((0 if zero is None else zero.array.astype(np.int32)) - 128, "i32")
    return w, ctx.op("sub", ctx.cast(zero, "i32"), less)


def _is_literal(w: Value) -> bool:
    """Part of the program: what is made of it may be computed now. The values of weights stay out of a program."""
    return w.constant and not w.weight


def _sums(ctx: NodeContext, x: Value, axes: list[int], literal: bool = False) -> Value:
    if literal:
        return constant_value("", x.array.sum(axis=tuple(axes), keepdims=True, dtype=np.int32))
    return ctx.op("reduce_sum", ctx.cast(x, "i32"), axes=axes, keepdims=True)


def _of_rows(ctx: NodeContext, zero: Value) -> Value:
    """A zero point of a matrix in i32: of one element, or one for each row, which is then a column."""
    zero = ctx.cast(zero, "i32")
    return ctx.reshape(zero, [*zero.shape, 1]) if zero.rank == 1 and zero.shape[0] != 1 else zero


def integer_matmul(
    ctx: NodeContext, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None, transpose_b: bool = False
) -> Value | None:
    """(a - a_zero) (b - b_zero) in i32. Zero points: of one element, or one for each row of a, each column of b. None:
    not of operands that matmul_integer takes."""
    if a.rank < 2 or b.rank < 2 or not _fits(a, b, slice(0, -1)):
        return None
    literal, b = _is_literal(b), _as_weight(b)
    if b.constant and b.dtype == "u8":
        b, b_zero = _as_signed(ctx, b, b_zero, literal)
    y = ctx.op("matmul_integer", a, b, transpose_b=transpose_b)
    of_a = of_b = None
    if not is_zero(a_zero):
        assert a_zero is not None
        of_a = _of_rows(ctx, a_zero)
        sums = _sums(ctx, b, [b.rank - 1 if transpose_b else b.rank - 2], literal)
        if transpose_b:
            sums = ctx.reshape(sums, [*b.shape[:-2], 1, b.shape[-2]])
        y = ctx.op("sub", y, ctx.op("mul", sums, of_a))
    if not is_zero(b_zero):
        assert b_zero is not None
        of_b = ctx.cast(b_zero, "i32")
        y = ctx.op("sub", y, ctx.op("mul", _sums(ctx, a, [a.rank - 1]), of_b))
    if of_a is not None and of_b is not None:
        depth = ctx.literal(int(a.shape[-1]), "i32")
        y = ctx.op("add", y, ctx.op("mul", ctx.op("mul", of_a, of_b), depth))
    return y


def integer_product(
    ctx: NodeContext, a: Value, a_zero: Value | None, b: Value, b_zero: Value | None, transpose_b: bool = False
) -> Value:
    """The same, whatever their type."""
    y = integer_matmul(ctx, a, a_zero, b, b_zero, transpose_b)
    if y is not None:
        return y
    a, b = ctx.cast(a, "i32"), ctx.cast(b, "i32")
    if a_zero is not None:
        a = ctx.op("sub", a, _of_rows(ctx, a_zero))
    if b_zero is not None:
        zero = ctx.cast(b_zero, "i32")
        b = ctx.op("sub", b, ctx.reshape(zero, [zero.elements, 1]) if transpose_b and zero.elements > 1 else zero)
    return ctx.op("matmul", a, b, transpose_b=transpose_b)


def integer_conv(
    ctx: NodeContext, x: Value, x_zero: Value | None, w: Value, w_zero: Value | None, attrs: dict
) -> Value | None:
    """The convolution of x - x_zero (one element) by w - w_zero in i32, the padding 0 after that. None: not one that
    conv_integer is; so with zero points of w in groups."""
    if not _fits(x, w, slice(0, 1)) or (x_zero is not None and x_zero.elements != 1):
        return None
    literal, w = _is_literal(w), _as_weight(w)
    if w.constant and w.dtype == "u8" and not is_zero(w_zero):
        w, w_zero = _as_signed(ctx, w, w_zero, literal)
    if is_zero(w_zero):
        return _centred_conv(ctx, x, x_zero, w, attrs, literal)
    assert w_zero is not None
    if attrs["groups"] > 1:
        return None
    sums = _window_sums(ctx, x, x_zero, list(map(int, w.shape[2:])), attrs)
    excess = ctx.op("mul", sums, per_channel(ctx, ctx.cast(w_zero, "i32"), w.rank))
    return ctx.op("sub", _centred_conv(ctx, x, x_zero, w, attrs, literal), excess)


def _window_sums(ctx: NodeContext, x: Value, x_zero: Value | None, kernel: list[int], attrs: dict) -> Value:
    """Of x - x_zero over all channels of each window of a convolution, in i32: [N, 1, ...]."""
    sums = _sums(ctx, x, [1])
    if x_zero is not None:
        zero = ctx.reshape(ctx.cast(x_zero, "i32"), [])
        sums = ctx.op("sub", sums, ctx.op("mul", zero, ctx.literal(int(x.shape[1]), "i32")))
    if set(kernel) == set(attrs["strides"]) == {1} and not any(attrs["pads"]):
        return sums
    ones = ctx.literal(np.ones([1, 1, *kernel]), "f64")
    return ctx.cast(ctx.op("conv", ctx.cast(sums, "f64"), ones, **attrs), "i32")


def _centred_conv(ctx: NodeContext, x: Value, x_zero: Value | None, w: Value, attrs: dict, literal: bool) -> Value:
    """The same without zero points of w. literal: w's values may be used now."""
    if is_zero(x_zero):
        return ctx.op("conv_integer", x, w, **attrs)
    assert x_zero is not None
    if x_zero.constant:
        return ctx.op("conv_integer", x, w, **attrs, x_zero=int(x_zero.array.reshape(-1)[0]))
    if any(attrs["pads"]) and exact_float(w, attrs) == "f32":
        x = ctx.op("sub", ctx.cast(x, "f32"), ctx.reshape(ctx.cast(x_zero, "f32"), []))
        return ctx.cast(ctx.op("conv", x, ctx.cast(w, "f32"), **attrs), "i32")
    if any(attrs["pads"]):
        x, attrs = _padded(ctx, x, x_zero, attrs)
    y = ctx.op("conv_integer", x, w, **attrs)
    sums = per_channel(ctx, _sums(ctx, w, list(range(1, w.rank)), literal), w.rank)
    return ctx.op("sub", y, ctx.op("mul", sums, ctx.reshape(ctx.cast(x_zero, "i32"), [])))


def exact_float(w: Value, attrs: dict) -> str:
    """In which a convolution of 8-bit numbers is exact; of one group f32 may be Winograd's way, which is not."""
    few = math.prod(map(int, w.shape[1:])) <= _EXACT_IN_F32
    return "f32" if attrs["groups"] > 1 and few else "f64"


def _padded(ctx: NodeContext, x: Value, zero: Value, attrs: dict) -> tuple[Value, dict]:
    """x with padding of a number that only a run knows; and the attributes of a convolution of that."""
    n = x.rank - 2
    begins, ends = attrs["pads"][:n], attrs["pads"][n:]
    inside = np.pad(np.ones([int(d) for d in x.shape[2:]], bool), list(zip(begins, ends)))
    x = ctx.op("pad", x, pads=[0, 0, *begins, 0, 0, *ends], mode="constant", value=0.0)
    x = ctx.op("where", constant_value("", inside), x, ctx.reshape(ctx.cast(zero, x.dtype), []))
    return x, {**attrs, "pads": [0] * (2 * n)}


def per_channel(ctx: NodeContext, value: Value, rank: int) -> Value:
    """M elements (or one) as [M, 1, ...]: along axis 1 of an image of that rank."""
    return ctx.reshape(value, [] if value.elements == 1 else [value.elements, *[1] * (rank - 2)])


def dequantised_matmul(ctx: NodeContext, a: Value, b: Value, transpose_b: bool = False) -> Value | None:
    """The product of two values that DequantizeLinear nodes made; None: of others, or in other ways."""
    p, q = _of_eight_bits(a), _of_eight_bits(b)
    if p is None or q is None or not p.per_tensor or b.rank < 2:
        return None
    if not q.per_tensor and (q.axis != b.rank - (2 if transpose_b else 1) or b.rank != 2):
        return None
    y = integer_matmul(ctx, p.values, p.zero, q.values, q.zero, transpose_b)
    return None if y is None else ctx.op("mul", ctx.cast(y, "f32"), product_scale(ctx, p, q))


def product_scale(ctx: NodeContext, p: Quantised, q: Quantised) -> Value:
    """What (p.values - p.zero) (q.values - q.zero) is to be multiplied with. Of p one element, of q one or a column's."""
    return ctx.op("mul", ctx.reshape(p.scale, []), q.scale if q.scale.elements > 1 else ctx.reshape(q.scale, []))


def quantised_matmul(ctx: NodeContext, p: Quantised, q: Quantised, bias: Value | None) -> Value:
    """The product of what they stand for, and a bias of the columns."""
    if not p.per_tensor:
        raise Unsupported("a scale for each row of the first matrix; one element is supported")
    y = integer_product(ctx, p.values, p.zero, q.values, q.zero)
    y = ctx.op("mul", ctx.cast(y, "f32"), product_scale(ctx, p, q))
    return y if bias is None else ctx.op("add", y, bias)


def dequantised_conv(ctx: NodeContext, x: Value, w: Value, bias: Value | None, attrs: dict) -> Value | None:
    """The same of a convolution."""
    p, q = _of_eight_bits(x), _of_eight_bits(w)
    if p is None or q is None or not p.per_tensor or not (q.per_tensor or q.axis == 0):
        return None
    y = integer_conv(ctx, p.values, p.zero, q.values, q.zero, attrs)
    if y is None:
        return None
    scale = per_channel(ctx, ctx.op("mul", ctx.reshape(p.scale, []), q.scale), x.rank)
    y = ctx.op("mul", ctx.cast(y, "f32"), scale)
    return y if bias is None else ctx.op("add", y, per_channel(ctx, bias, x.rank))
