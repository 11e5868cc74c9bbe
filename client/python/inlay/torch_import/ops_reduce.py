"""Reductions, scans, softmax, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from inlay.torch_import.ops_logic import truth
from inlay.torch_import.registry import Extent, NodeContext, Unsupported, Var, converter, is_float


def reduced(ctx: NodeContext, op_name: str, x: Var, dims: Any, keepdim: bool) -> Var:
    """A reduction over dims (None, []: all), also of a scalar."""
    if x.rank == 0:
        return x
    return ctx.op(op_name, x, axes=ctx.axes(dims, x.rank), keepdims=keepdim)


@converter("sum.default", "mean.default")
def total(ctx: NodeContext, x: Var, *, dtype: Any = None) -> Var:
    return total_dim(ctx, x, None)


@converter("sum.dim_IntList", "mean.dim")
def total_dim(ctx: NodeContext, x: Var, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Var:
    name = "reduce_sum" if ctx.name.startswith("sum") else "reduce_mean"
    return reduced(ctx, name, ctx.cast(x, ctx.dtype), dims, keepdim)


@converter("prod.default")
def product(ctx: NodeContext, x: Var, *, dtype: Any = None) -> Var:
    return reduced(ctx, "reduce_prod", ctx.cast(x, ctx.dtype), None, False)


@converter("prod.dim_int")
def product_dim(ctx: NodeContext, x: Var, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Var:
    return reduced(ctx, "reduce_prod", ctx.cast(x, ctx.dtype), [dim], keepdim)


@converter("amax.default", "amin.default")
def extreme(ctx: NodeContext, x: Var, dims: Any = (), keepdim: bool = False) -> Var:
    return reduced(ctx, "reduce_max" if ctx.name.startswith("amax") else "reduce_min", x, dims, keepdim)


@converter("max.default", "min.default")
def extreme_all(ctx: NodeContext, x: Var) -> Var:
    return reduced(ctx, "reduce_max" if ctx.name.startswith("max") else "reduce_min", x, None, False)


@converter("max.dim", "min.dim")
def extreme_dim(ctx: NodeContext, x: Var, dim: int, keepdim: bool = False) -> tuple[Var, Var]:
    name = ctx.name.partition(".")[0]
    values = reduced(ctx, f"reduce_{name}", x, [dim], keepdim)
    return values, _arg(ctx, f"arg{name}", x, dim, keepdim)


@converter("aminmax.default")
def aminmax(ctx: NodeContext, x: Var, *, dim: int | None = None, keepdim: bool = False) -> tuple[Var, Var]:
    dims = None if dim is None else [dim]
    low, high = (reduced(ctx, name, x, dims, keepdim) for name in ("reduce_min", "reduce_max"))
    if dim is None and keepdim:
        low, high = (ctx.reshape(v, [1] * x.rank) for v in (low, high))
    return low, high


@converter("argmax.default", "argmin.default")
def arg_extreme(ctx: NodeContext, x: Var, dim: int | None = None, keepdim: bool = False) -> Var:
    name = ctx.name.partition(".")[0]
    if dim is None:
        flat = _arg(ctx, name, ctx.reshape(x, [math.prod(x.shape)]), 0, False)
        return ctx.reshape(flat, [1] * x.rank) if keepdim else flat
    return _arg(ctx, name, x, dim, keepdim)


def _arg(ctx: NodeContext, name: str, x: Var, dim: int, keepdim: bool) -> Var:
    """NaN is the extreme of whatever has one, as in PyTorch."""
    if x.rank == 0:
        return ctx.literal(0, "i64")
    if x.dtype == "bool":
        x = ctx.cast(x, "u8")
    return ctx.op(name, x, axis=ctx.axis(dim, x.rank), keepdims=keepdim)


@converter("any.default", "all.default")
def quantifier_all(ctx: NodeContext, x: Var) -> Var:
    return quantifier(ctx, x, None)


@converter("any.dim", "all.dim", "any.dims", "all.dims")
def quantifier(ctx: NodeContext, x: Var, dims: Any = None, keepdim: bool = False) -> Var:
    if dims == []:
        return truth(ctx, x)
    result = reduced(ctx, "reduce_max" if ctx.name.startswith("any") else "reduce_min", truth(ctx, x), dims, keepdim)
    return ctx.cast(result, ctx.dtype)  # of u8 it is u8


@converter("cumsum.default")
def cumsum(ctx: NodeContext, x: Var, dim: int, *, dtype: Any = None) -> Var:
    x = ctx.cast(x, ctx.dtype)
    return x if x.rank == 0 else ctx.op("cumsum", x, axis=ctx.axis(dim, x.rank))


@converter("cumprod.default")
def cumprod(ctx: NodeContext, x: Var, dim: int, *, dtype: Any = None) -> Var:
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    if x.rank == 0:
        return ctx.narrow(x)
    axis = ctx.axis(dim, x.rank)
    return ctx.narrow(ctx.op("cumprod", x, axis=axis))


@converter("logcumsumexp.default")
def logcumsumexp(ctx: NodeContext, x: Var, dim: int) -> Var:
    return x if x.rank == 0 else ctx.narrow(ctx.op("logcumsumexp", ctx.wide(x), axis=ctx.axis(dim, x.rank)))


@converter("cummax.default", "cummin.default")
def cumulative_extreme(ctx: NodeContext, x: Var, dim: int) -> tuple[Var, Var]:
    if x.rank == 0:
        return x, ctx.literal(0, "i64")
    numbers = ctx.cast(x, "u8") if x.dtype == "bool" else x
    values, at = ctx.op(ctx.name.partition(".")[0], numbers, axis=ctx.axis(dim, x.rank))
    return ctx.cast(values, x.dtype), at


def _moments(ctx: NodeContext, x: Var, dims: Any, correction: Any) -> tuple[Var, Var, list[int]]:
    """(variance, mean, axes), both with their axes kept."""
    axes = ctx.axes(dims, x.rank) if x.rank else []
    count = math.prod(x.shape[a] for a in axes)
    correction = 1 if correction is None else correction
    mean = reduced(ctx, "reduce_mean", x, axes, True)
    centred = ctx.op("sub", x, mean)
    squares = reduced(ctx, "reduce_sum", ctx.op("mul", centred, centred), axes, True)
    if isinstance(count, Extent) and int(correction) == correction:
        return ctx.op("div", squares, ctx.tensor(count - int(correction), x.dtype)), mean, axes
    left = max(count - correction, 0)
    return ctx.op("div", squares, ctx.like(left, x)), mean, axes


@converter("var.correction", "var_mean.correction", "std.correction", "std_mean.correction")
def variance(ctx: NodeContext, x: Var, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dtype = x.dtype
    x = ctx.wide(x)
    spread, mean, axes = _moments(ctx, x, dims, correction)
    if ctx.name.startswith("std"):
        spread = ctx.op("sqrt", spread)
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keepdim or i not in axes]
    made = [ctx.narrow(ctx.reshape(v, shape), dtype) for v in (spread, mean)]
    return tuple(made) if "_mean" in ctx.name else made[0]


@converter("linalg_vector_norm.default")
def vector_norm(
    ctx: NodeContext, x: Var, order: float = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
):
    size = ctx.wide(ctx.op("abs", ctx.cast(x, ctx.dtype)))
    if order == math.inf or order == -math.inf:
        result = reduced(ctx, "reduce_max" if order > 0 else "reduce_min", size, dims, keepdim)
    elif order == 0:
        result = reduced(ctx, "reduce_sum", ctx.cast(truth(ctx, size), size.dtype), dims, keepdim)
    elif order == 1:
        result = reduced(ctx, "reduce_sum", size, dims, keepdim)
    elif order == 2:
        result = ctx.op("sqrt", reduced(ctx, "reduce_sum", ctx.op("mul", size, size), dims, keepdim))
    else:
        powers = reduced(ctx, "reduce_sum", ctx.op("pow", size, ctx.like(order, size)), dims, keepdim)
        result = ctx.op("pow", powers, ctx.like(1 / order, size))
    return ctx.narrow(result)


@converter("logsumexp.default")
def logsumexp(ctx: NodeContext, x: Var, dims: Sequence[int], keepdim: bool = False) -> Var:
    """m + log(sum(exp(x - m))) with m the maximum where it is finite, else 0."""
    x = ctx.wide(ctx.cast(x, ctx.dtype))
    if x.rank == 0:
        return ctx.narrow(x)
    axes = ctx.axes(dims, x.rank)
    top = ctx.op("reduce_max", x, axes=axes, keepdims=True)
    top = ctx.op("where", ctx.op("isinf", top), ctx.like(0, top), top)
    sums = ctx.op("reduce_sum", ctx.op("exp", ctx.op("sub", x, top)), axes=axes, keepdims=True)
    result = ctx.op("add", ctx.op("log", sums), top)
    return ctx.narrow(ctx.reshape(result, [d for i, d in enumerate(result.shape) if keepdim or i not in axes]))


@converter("softmax.int", "_softmax.default", "log_softmax.int", "_log_softmax.default", "_safe_softmax.default")
def softmax(ctx: NodeContext, x: Var, dim: int, dtype: Any = None) -> Var:
    """The third argument is a dtype, or half_to_float; either shows in the result's dtype."""
    x = ctx.cast(x, ctx.dtype)
    name = "log_softmax" if "log" in ctx.name else "softmax"
    if x.rank == 0:
        return ctx.reshape(ctx.op(name, ctx.reshape(x, [1]), axis=0), [])
    y = ctx.op(name, x, axis=ctx.axis(dim, x.rank))
    if not ctx.name.startswith("_safe"):
        return y
    dead = ctx.op("equal", ctx.op("reduce_max", x, axes=[ctx.axis(dim, x.rank)], keepdims=True), ctx.like(-math.inf, x))
    return ctx.op("where", dead, ctx.like(0, y), y)


@converter("topk.default")
def topk(ctx: NodeContext, x: Var, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Var, Var]:
    if x.rank == 0:
        values, at = ctx.op("topk", ctx.reshape(x, [1]), k=1, axis=0)
        return (ctx.reshape(values, []), ctx.reshape(at, [])) if k else (ctx.slice(values, 0, 0, 0), at)
    return ctx.op("topk", x, k=k, axis=ctx.axis(dim, x.rank), largest=largest, sorted=sorted)


@converter("sort.default")
def sort(ctx: NodeContext, x: Var, dim: int = -1, descending: bool = False) -> tuple[Var, Var]:
    """As topk of all; it is stable, since of equals the lower index comes first."""
    extent = x.shape[ctx.axis(dim, x.rank)] if x.rank else 1
    if x.dtype == "bool":
        values, at = topk(ctx, ctx.cast(x, "u8"), extent, dim, descending)
        return ctx.cast(values, "bool"), at
    return topk(ctx, x, extent, dim, descending)


@converter("sort.stable")
def sort_stable(ctx: NodeContext, x: Var, *, stable: bool | None = None, dim: int = -1, descending: bool = False):
    return sort(ctx, x, dim, descending)


@converter("argsort.default")
def argsort(ctx: NodeContext, x: Var, dim: int = -1, descending: bool = False) -> Var:
    return sort(ctx, x, dim, descending)[1]


@converter("kthvalue.default", "median.dim")
def kth_value(ctx: NodeContext, x: Var, *args: Any) -> tuple[Var, Var]:
    """Of the sorted axis, the k-th from 1, or the lower of the two in the middle; NaN where the axis has one."""
    median = "median" in ctx.name
    k, dim, keepdim = (None, *args) if median else args
    if x.rank == 0:
        return x, ctx.literal(0, "i64")
    axis = ctx.axis(dim, x.rank)
    k = (x.shape[axis] + 1) // 2 if k is None else k
    parts = ctx.op("topk", x, k=x.shape[axis], axis=axis, largest=False)
    value, at = (ctx.slice(part, axis, k - 1, k) for part in parts)
    if is_float(x):
        nan = ctx.cast(ctx.op("isnan", x), "u8")
        has = ctx.cast(ctx.op("reduce_max", nan, axes=[axis], keepdims=True), "bool")
        value = ctx.op("where", has, ctx.like(math.nan, x), value)
        at = ctx.op("where", has, ctx.op("argmax", nan, axis=axis, keepdims=True), at)
    shape = [1 if i == axis else d for i, d in enumerate(x.shape) if keepdim or i != axis]
    return ctx.reshape(value, shape), ctx.reshape(at, shape)


@converter("median.default")
def median(ctx: NodeContext, x: Var) -> Var:
    return kth_value(ctx, ctx.reshape(x, [math.prod(x.shape)]), 0, False)[0]


@converter("nanmedian.default")
def nanmedian(ctx: NodeContext, x: Var) -> Var:
    return nanmedian_dim(ctx, ctx.reshape(x, [math.prod(x.shape)]), 0)[0]


@converter("nanmedian.dim")
def nanmedian_dim(ctx: NodeContext, x: Var, dim: int, keepdim: bool = False) -> tuple[Var, Var]:
    """NaN is sorted behind all numbers: the middle is that of those before."""
    if not is_float(x) or x.rank == 0:
        return kth_value(ctx, x, dim, keepdim)
    axis = ctx.axis(dim, x.rank)
    numbers = ctx.cast(ctx.op("logical_not", ctx.op("isnan", x)), "i64")
    count = ctx.op("reduce_sum", numbers, axes=[axis], keepdims=True)
    middle = ctx.op("clip", ctx.op("div", ctx.op("sub", count, ctx.literal(1, "i64")), ctx.literal(2, "i64")), min=0.0)
    parts = ctx.op("topk", x, k=x.shape[axis], axis=axis, largest=False)
    shape = [1 if i == axis else d for i, d in enumerate(x.shape) if keepdim or i != axis]
    value, at = (ctx.reshape(ctx.op("gather_elements", part, middle, axis=axis), shape) for part in parts)
    return value, at


@converter("histc.default")
def histc(ctx: NodeContext, x: Var, bins: int = 100, low: Any = 0, high: Any = 0) -> Var:
    """How many elements fall into each of `bins` equal parts of [low, high]; the last one takes its end too."""
    if low >= high:
        raise Unsupported("histc whose bounds are the data's own")
    x = ctx.reshape(x, [-1, 1])
    wide = ctx.cast(ctx.wide(x), "f64" if x.dtype in ("f64", "i64", "i32") else "f32")
    place = ctx.op("mul", ctx.op("sub", wide, ctx.like(low, wide)), ctx.like(bins / (high - low), wide))
    place = ctx.op(
        "where", ctx.op("equal", wide, ctx.like(high, wide)), ctx.like(bins - 1, wide), ctx.op("floor", place)
    )
    hit = ctx.op("equal", place, ctx.op("iota", shape=[1, bins], axis=1, dtype=wide.dtype))
    return ctx.cast(ctx.op("reduce_sum", ctx.cast(hit, "f32"), axes=[0]), ctx.dtype)
