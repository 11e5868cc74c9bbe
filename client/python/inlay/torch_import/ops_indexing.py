"""Indexing by tensors: index, index_put, gather, scatter, embedding, and their kin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from inlay.torch_import.extents import broadcast
from inlay.torch_import.ops_elementwise import floor_divide
from inlay.torch_import.registry import NodeContext, Unsupported, Var, converter, ir_dtype, is_float


def _indices(ctx: NodeContext, x: Var) -> Var:
    return x if x.dtype in ("i32", "i64") else ctx.cast(x, "i64")


@converter("embedding.default")
def embedding(
    ctx: NodeContext, table: Var, index: Var, padding: int = -1, by_freq: bool = False, sparse: bool = False
) -> Var:
    return ctx.op("gather", table, _indices(ctx, index), axis=0)


@converter("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    ctx: NodeContext, table: Var, index: Var, offsets: Var, by_freq: bool = False, mode: int = 0, sparse: bool = False,
    weights: Var | None = None, last_offset: bool = False, padding: int = -1,
) -> tuple:  # fmt: skip
    """Rows of the table, in bags: those from offsets[b] on are bag b's. They are scattered into these; what is in none
    (padding, what stands behind the last offset) into one more. mode 0 sums, 1 takes the mean, 2 the maximum."""
    rows = ctx.wide(ctx.op("gather", table, _indices(ctx, index), axis=0))  # [rows, width]
    if weights is not None:
        rows = ctx.op("mul", rows, ctx.reshape(ctx.wide(weights), [-1, 1]))
    count, bags = index.shape[0], offsets.shape[0] - last_offset

    def scattered(size: list[int], at: Var, source: Var, start: float = 0, reduction: str = "add") -> Var:
        whole = ctx.full(size, start, source.dtype)
        return ctx.op("scatter_nd", whole, ctx.reshape(at, [*at.shape, 1]), source, reduction=reduction)

    begun = scattered([count + 1], _indices(ctx, offsets), ctx.full(offsets.shape, 1, "i64"))
    bag = ctx.op("sub", ctx.slice(ctx.op("cumsum", begun, axis=0), 0, 0, count), ctx.literal(1, "i64"))
    if padding >= 0:
        bag = ctx.op("where", ctx.op("equal", index, ctx.like(padding, index)), ctx.tensor(bags, "i64"), bag)
    shape = [bags + 1, rows.shape[1]]
    y = scattered(shape, bag, rows, -math.inf, "max") if mode == 2 else scattered(shape, bag, rows)
    if mode:
        sizes = ctx.reshape(scattered([bags + 1], bag, ctx.full([count], 1, rows.dtype)), [-1, 1])
        if mode == 1:
            y = ctx.op("div", y, ctx.op("clip", sizes, min=1.0))
        else:
            y = ctx.op("where", ctx.op("equal", sizes, ctx.like(0, sizes)), ctx.like(0, y), y)
    return ctx.narrow(ctx.slice(y, 0, 0, bags)), None, None, None


@converter("index_select.default")
def index_select(ctx: NodeContext, x: Var, dim: int, index: Var) -> Var:
    if x.rank == 0:
        return x
    return ctx.op("gather", x, ctx.reshape(_indices(ctx, index), [-1]), axis=ctx.axis(dim, x.rank))


@converter("gather.default")
def gather(ctx: NodeContext, x: Var, dim: int, index: Var, *, sparse_grad: bool = False) -> Var:
    if x.rank == 0 or index.rank == 0:
        x, dim = ctx.reshape(x, [-1]), 0
        return ctx.reshape(ctx.op("gather", x, ctx.reshape(_indices(ctx, index), [-1]), axis=0), index.shape)
    axis = ctx.axis(dim, x.rank)
    for i, (have, want) in enumerate(zip(x.shape, index.shape, strict=True)):
        if i != axis and have != want:
            x = ctx.slice(x, i, 0, want)
    return ctx.op("gather_elements", x, _indices(ctx, index), axis=axis)


# --- x[i, :, j] ------------------------------------------------------------------------------------------------------


def _advanced(ctx: NodeContext, x: Var, indices: Sequence[Var | None]) -> tuple[list[int], list[Var], Any]:
    """(axes that are indexed, their indices, the shape that these broadcast to)."""
    axes = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(index.dtype in ("bool", "u8") for index in given):
        raise Unsupported(
            "the shape of what a boolean index picks depends on data; use torch.where, or a multiplication"
        )
    return axes, [ctx.cast(i, "i64") for i in given], broadcast(*(i.shape for i in given))


def _stacked(ctx: NodeContext, given: list[Var], shape: tuple[int, ...]) -> Var:
    """Indices as the last axis, for gather_nd and scatter_nd."""
    columns = [ctx.reshape(ctx.expand(index, shape), [*shape, 1]) for index in given]
    return columns[0] if len(columns) == 1 else ctx.op("concat", *columns, axis=len(shape))


def _place(axes: list[int]) -> int:
    """Where the indices' axes stand in the result: at the first of them where they are neighbours, else in front."""
    return axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0


@converter("index.Tensor", "_unsafe_index.Tensor")
def index(ctx: NodeContext, x: Var, indices: Sequence[Var | None]) -> Var:
    axes, given, shape = _advanced(ctx, x, indices)
    if len(axes) == 1:
        return ctx.op("gather", x, given[0], axis=axes[0])
    rest = [i for i in range(x.rank) if i not in axes]
    picked = ctx.op("gather_nd", ctx.transpose(x, [*axes, *rest]), _stacked(ctx, given, shape))
    return _moved(ctx, picked, len(shape), _place(axes))


def _moved(ctx: NodeContext, x: Var, count: int, to: int) -> Var:
    """The first `count` axes moved behind the next `to`."""
    return ctx.transpose(x, [*range(count, count + to), *range(count), *range(count + to, x.rank)])


@converter("index_put.default", "_unsafe_index_put.default")
def index_put(ctx: NodeContext, x: Var, indices: Sequence[Var | None], values: Var, accumulate: bool = False) -> Var:
    values = ctx.cast(values, x.dtype)
    masked = _masked_put(ctx, x, indices, values, accumulate)
    if masked is not None:
        return masked
    axes, given, shape = _advanced(ctx, x, indices)
    if len(axes) == 1 and len(shape) <= 1:
        axis, index = axes[0], given[0]
        values = ctx.expand(values, [*x.shape[:axis], *shape, *x.shape[axis + 1 :]])
        values = ctx.reshape(values, [math.prod(shape) if i == axis else d for i, d in enumerate(x.shape)])
        return _write_rows(ctx, x, axis, index, values, "add" if accumulate else "none")
    rest = [i for i in range(x.rank) if i not in axes]
    turned = ctx.transpose(x, [*axes, *rest])
    to = _place(axes)
    kept = [x.shape[i] for i in rest]
    values = ctx.expand(values, [*kept[:to], *shape, *kept[to:]])
    back = [*range(to, to + len(shape)), *range(to), *range(to + len(shape), values.rank)]
    reduction = "add" if accumulate else "none"
    stacked, values = _stacked(ctx, given, shape), ctx.transpose(values, back)
    if x.dtype == "bool":
        made = ctx.op("scatter_nd", ctx.cast(turned, "u8"), stacked, ctx.cast(values, "u8"), reduction="none")
        made = ctx.cast(made, "bool")
    else:
        made = ctx.op("scatter_nd", turned, stacked, values, reduction=reduction)
    inverse = [0] * x.rank
    for i, axis in enumerate([*axes, *rest]):
        inverse[axis] = i
    return ctx.transpose(made, inverse)


def _masked_put(ctx: NodeContext, x: Var, indices: Sequence[Var | None], values: Var, accumulate: bool) -> Var | None:
    """x[mask] = value, of one element: a where."""
    mask = indices[0] if len(indices) == 1 else None
    if mask is None or mask.dtype != "bool" or accumulate or math.prod(values.shape) != 1:
        return None
    mask = ctx.reshape(mask, [*mask.shape, *[1] * (x.rank - mask.rank)])
    return ctx.op("where", mask, ctx.reshape(values, []), x)


# --- Scatter ---------------------------------------------------------------------------------------------------------

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def _scatter(ctx: NodeContext, x: Var, dim: int, index: Var, source: Var, reduction: str) -> Var:
    """`source` may be larger than the index, and x larger than it in the other axes."""
    shape = x.shape
    if x.rank == 0:
        x, index, source = (ctx.reshape(v, [1]) for v in (x, index, source))
    if index.rank == 0:
        index, source = ctx.reshape(index, [1]), ctx.reshape(source, [1])
    axis = ctx.axis(dim, x.rank)
    if 0 in index.shape:
        return ctx.reshape(x, shape)
    for i, want in enumerate(index.shape):
        source = ctx.slice(source, i, 0, want)
    source = ctx.cast(source, x.dtype)
    as_bool = x.dtype == "bool"
    if as_bool:
        x, source = ctx.cast(x, "u8"), ctx.cast(source, "u8")
    y = _scatter_elements(ctx, x, _indices(ctx, index), source, axis, reduction)
    return ctx.reshape(ctx.cast(y, "bool") if as_bool else y, shape)


def _scatter_elements(ctx: NodeContext, x: Var, index: Var, source: Var, axis: int, reduction: str) -> Var:
    if all(i == axis or a == b for i, (a, b) in enumerate(zip(x.shape, index.shape, strict=True))):
        return ctx.op("scatter_elements", x, index, source, axis=axis, reduction=reduction)
    part = x
    for i, taken in enumerate(index.shape):
        if i != axis:
            part = ctx.slice(part, i, 0, taken)
    y = ctx.op("scatter_elements", part, index, source, axis=axis, reduction=reduction)
    for i in range(x.rank):  # the part back into the whole, an axis at a time
        if y.shape[i] == x.shape[i]:
            continue
        rest = ctx.slice(x, i, y.shape[i], x.shape[i])
        for j in range(i + 1, x.rank):
            rest = ctx.slice(rest, j, 0, y.shape[j])
        y = ctx.op("concat", y, rest, axis=i)
    return y


@converter("scatter.src", "scatter.value", "scatter_add.default")
def scatter(ctx: NodeContext, x: Var, dim: int, index: Var, source: Any) -> Var:
    if not isinstance(source, Var):
        source = ctx.expand(ctx.literal(source, x.dtype), index.shape)
    return _scatter(ctx, x, dim, index, source, "add" if ctx.name.startswith("scatter_add") else "none")


@converter("scatter.reduce", "scatter.value_reduce", "scatter_reduce.two")
def scatter_reduce(
    ctx: NodeContext, x: Var, dim: int, index: Var, source: Any, reduction: str = "", *, reduce: str = "",
    include_self: bool = True,
) -> Var:  # fmt: skip
    name = reduction or reduce
    if name not in _REDUCTIONS and name != "mean":
        raise Unsupported(f"reduce={name!r}")
    if not isinstance(source, Var):
        source = ctx.expand(ctx.literal(source, x.dtype), index.shape)
    if include_self and name != "mean":
        return _scatter(ctx, x, dim, index, source, _REDUCTIONS[name])
    dtype, x, source = x.dtype, ctx.wide(x), ctx.wide(source)
    one = ctx.expand(ctx.literal(1, "i64"), index.shape)
    count = _scatter(ctx, ctx.full(x.shape, 0, "i64"), dim, index, one, "add")
    hit = ctx.op("greater", count, ctx.literal(0, "i64"))
    start = x if include_self else ctx.op("where", hit, ctx.like(_identity(name, x), x), x)
    y = _scatter(ctx, start, dim, index, source, _REDUCTIONS.get(name, "add"))
    if name == "mean":
        count = ctx.op("add", count, ctx.literal(1, "i64")) if include_self else ctx.op("clip", count, min=1.0)
        count = ctx.cast(count, y.dtype)
        y = ctx.op("div", y, count) if is_float(y) else floor_divide(ctx, y, count)
    return ctx.narrow(y, dtype)


def _identity(reduction: str, x: Var) -> Any:
    """What changes nothing."""
    if reduction not in ("amax", "amin"):
        return int(reduction in ("prod", "multiply"))
    if is_float(x):
        return -math.inf if reduction == "amax" else math.inf
    bounds = np.iinfo(x.type.numpy)
    return bounds.min if reduction == "amax" else bounds.max


@converter("index_reduce.default")
def index_reduce(
    ctx: NodeContext, x: Var, dim: int, index: Var, source: Var, reduction: str, *, include_self: bool = True
) -> Var:
    if x.rank == 0:
        raise Unsupported("a scalar is indexed")
    axis = ctx.axis(dim, x.rank)
    index = ctx.reshape(_indices(ctx, index), [-1 if i == axis else 1 for i in range(x.rank)])
    index = ctx.expand(index, source.shape)
    return scatter_reduce(ctx, x, axis, index, source, reduction, include_self=include_self)


@converter("put.default")
def put(ctx: NodeContext, x: Var, index: Var, source: Var, accumulate: bool = False) -> Var:
    """Into x as one row."""
    index, source = (ctx.reshape(v, [-1]) for v in (index, source))
    flat = ctx.reshape(x, [math.prod(x.shape)])
    return ctx.reshape(_scatter(ctx, flat, 0, index, source, "add" if accumulate else "none"), x.shape)


@converter("index_add.default", "index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor")
def index_write(ctx: NodeContext, x: Var, dim: int, index: Var, source: Any, *, alpha: float = 1) -> Var:
    """Rows of `source` added to, or written into, the rows of x that the index names."""
    if x.rank == 0:
        raise Unsupported("a scalar is indexed")
    axis = ctx.axis(dim, x.rank)
    count = math.prod(index.shape)
    source = ctx.cast(source, x.dtype) if isinstance(source, Var) else ctx.literal(source, x.dtype)
    source = ctx.expand(source, [count if i == axis else d for i, d in enumerate(x.shape)])
    if alpha != 1:
        source = ctx.op("mul", source, ctx.like(alpha, source))
    return _write_rows(ctx, x, axis, index, source, "add" if ctx.name.startswith("index_add") else "none")


def _write_rows(ctx: NodeContext, x: Var, axis: int, index: Var, source: Var, reduction: str) -> Var:
    """Into the rows of one axis that an index names: x stays as it lies, so that it can be written to in place."""
    index = ctx.reshape(_indices(ctx, index), [-1 if i == axis else 1 for i in range(x.rank)])
    return _scatter(ctx, x, axis, ctx.expand(index, source.shape), source, reduction)


@converter("masked_scatter.default")
def masked_scatter(ctx: NodeContext, x: Var, mask: Var, source: Var) -> Var:
    """Where the mask is true, the elements of source in order: the number of trues so far says which."""
    shape = broadcast(x.shape, mask.shape)
    count = math.prod(shape)
    flat = ctx.reshape(ctx.expand(mask, shape), [count])
    at = ctx.op("sub", ctx.op("cumsum", ctx.cast(flat, "i64"), axis=0), ctx.literal(1, "i64"))
    taken = ctx.op("gather", ctx.reshape(source, [math.prod(source.shape)]), ctx.op("clip", at, min=0.0), axis=0)
    return ctx.op("where", ctx.reshape(flat, shape), ctx.reshape(taken, shape), ctx.expand(x, shape))


@converter("searchsorted.Tensor", "searchsorted.Scalar", "bucketize.Tensor", "bucketize.Scalar")
def searchsorted(
    ctx: NodeContext, a: Any, b: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Var | None = None,
) -> Var:  # fmt: skip
    """How many boundaries lie before each value (as many comparisons as both have elements): of (boundaries, values),
    bucketize has them the other way round."""
    bounds, values = (b, a) if ctx.name.startswith("bucketize") else (a, b)
    if sorter is not None:
        raise Unsupported("a sorter")
    dtype = ir_dtype(torch.result_type(*ctx.meta_args[:2]))
    bounds, values = ctx.tensor(bounds, dtype), ctx.tensor(values, dtype)
    shape = values.shape
    lead = bounds.shape[:-1] if values.rank else ()
    inner = ctx.reshape(bounds, [*lead, *[1] * (values.rank - len(lead)), bounds.shape[-1]])
    before = ctx.op("less_equal" if right or side == "right" else "less", inner, ctx.reshape(values, [*shape, 1]))
    return ctx.cast(ctx.op("reduce_sum", ctx.cast(before, "i64"), axes=[len(shape)]), ctx.dtype)


@converter("one_hot.default")
def one_hot(ctx: NodeContext, x: Var, classes: int = -1) -> Var:
    if classes < 0:
        raise Unsupported("one_hot without num_classes: the shape of its result depends on data")
    positions = ctx.op("iota", shape=[classes], axis=0, dtype="i64")
    index = ctx.reshape(ctx.cast(x, "i64"), [*x.shape, 1])
    return ctx.cast(ctx.op("equal", index, positions), "i64")


@converter(
    "nonzero.default", "masked_select.default", "_unique2.default", "unique_dim.default", "unique_consecutive.default",
    "bincount.default", "nonzero_static.default", "_local_scalar_dense.default", "item.default",
    "repeat_interleave.Tensor",
)  # fmt: skip
def data_dependent(ctx: NodeContext, *args: Any, **named: Any) -> Var:
    if ctx.name.startswith(("_local_scalar_dense", "item")):
        raise Unsupported("it turns an element of a tensor into a number, which is known only when the model runs")
    raise Unsupported("the shape of its result depends on data")
