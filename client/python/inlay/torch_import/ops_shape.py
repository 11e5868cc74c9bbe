"""Views, slices, joins, pads: whatever moves elements by positions that are known. A view is a value like any other here."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlay.ir.dims import slice_extent
from inlay.torch_import.registry import MANY, Extent, NodeContext, Unsupported, Var, converter, is_float
from inlay.torch_import.slices import from_start


@converter("view.default", "_unsafe_view.default", "reshape.default", "view_copy.default", "_reshape_copy.default")
def view(ctx: NodeContext, x: Var, size: Sequence[int]) -> Var:
    return ctx.reshape(x, size)


@converter("flatten.using_ints")
def flatten(ctx: NodeContext, x: Var, start: int = 0, end: int = -1) -> Var:
    if x.rank == 0:
        return ctx.reshape(x, [1])
    start, end = ctx.axis(start, x.rank), ctx.axis(end, x.rank)
    return ctx.reshape(x, [*x.shape[:start], math.prod(x.shape[start : end + 1]), *x.shape[end + 1 :]])


@converter("unsqueeze.default")
def unsqueeze(ctx: NodeContext, x: Var, dim: int) -> Var:
    at = ctx.axis(dim, x.rank + 1)
    return ctx.reshape(x, [*x.shape[:at], 1, *x.shape[at:]])


@converter("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(ctx: NodeContext, x: Var, dims: Any = None) -> Var:
    if x.rank == 0:
        return x
    axes = [] if dims == [] else ctx.axes(dims, x.rank)
    return ctx.reshape(x, [d for i, d in enumerate(x.shape) if i not in axes or d != 1])


@converter("permute.default")
def permute(ctx: NodeContext, x: Var, dims: Sequence[int]) -> Var:
    return ctx.transpose(x, [ctx.axis(d, x.rank) for d in dims])


@converter("transpose.int", "swapaxes.default")
def transpose(ctx: NodeContext, x: Var, a: int, b: int) -> Var:
    if x.rank == 0:
        return x
    perm = list(range(x.rank))
    a, b = ctx.axis(a, x.rank), ctx.axis(b, x.rank)
    perm[a], perm[b] = b, a
    return ctx.transpose(x, perm)


@converter("t.default", "numpy_T.default", "mT.default")
def turn(ctx: NodeContext, x: Var) -> Var:
    if ctx.name == "mT.default":
        return transpose(ctx, x, -1, -2)
    return ctx.transpose(x, list(reversed(range(x.rank))))


@converter("expand.default")
def expand(ctx: NodeContext, x: Var, size: Sequence[int], *, implicit: bool = False) -> Var:
    size = ctx.extents(size)
    lead = len(size) - x.rank
    return ctx.expand(x, [x.shape[i - lead] if d == -1 else d for i, d in enumerate(size)])


@converter("slice.Tensor")
def slice_(ctx: NodeContext, x: Var, dim: int = 0, start: Any = None, end: Any = None, step: int = 1):
    axis = ctx.axis(dim, x.rank)
    begin, stop, stride = _bounds(ctx, x.shape[axis], start, end, step)
    if isinstance(x.shape[axis], Extent) and isinstance(begin, int):
        # Which of a bound and the extent is less PyTorch's guards have decided.
        made = ctx.shape[axis]
        if made == 0:
            begin, stop = 0, 0
        elif made == slice_extent(x.shape[axis], begin, MANY, stride):
            stop = x.shape[axis]
    return ctx.slice(x, axis, begin, stop, stride)


def _bounds(ctx: NodeContext, extent: Any, start: Any, end: Any, step: int) -> tuple[Any, Any, int]:
    """(begin, end, step), counted from the start; begin <= end."""
    given = ctx.extents([0 if start is None else start, MANY if end is None else end, step], "a bound")
    if not any(isinstance(v, Extent) for v in (extent, *given)):
        begin, stop, stride = slice(*given).indices(extent)
        return begin, max(stop, begin), stride
    return from_start(given[0], extent), from_start(given[1], extent), given[2]


@converter("select.int")
def select(ctx: NodeContext, x: Var, dim: int, index: int) -> Var:
    axis = ctx.axis(dim, x.rank)
    (index,) = ctx.extents([index], "an index")
    return ctx.select(x, axis, index + x.shape[axis] if index < 0 else index)


@converter("cat.default")
def cat(ctx: NodeContext, tensors: Sequence[Var], dim: int = 0) -> Var:
    parts = [ctx.cast(t, ctx.dtype) for t in tensors if t.shape != (0,)]  # an old rule: an empty list has any rank
    if not parts:
        return ctx.cast(tensors[0], ctx.dtype)
    return parts[0] if len(parts) == 1 else ctx.op("concat", *parts, axis=ctx.axis(dim, parts[0].rank))


@converter("stack.default")
def stack(ctx: NodeContext, tensors: Sequence[Var], dim: int = 0) -> Var:
    at = ctx.axis(dim, tensors[0].rank + 1)
    parts = [ctx.cast(t, ctx.dtype) for t in tensors]
    return ctx.op("concat", *(ctx.reshape(t, [*t.shape[:at], 1, *t.shape[at:]]) for t in parts), axis=at)


def _split(ctx: NodeContext, x: Var, sizes: list[Any], axis: int) -> tuple[Var, ...]:
    if len(sizes) == 1:
        return (x,)
    if not any(isinstance(v, Extent) for v in (x.shape[axis], *sizes)):
        return ctx.op("split", x, axis=axis, sizes=sizes)
    ends = list(itertools.accumulate(sizes))
    return tuple(ctx.slice(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True))


@converter("split.Tensor")
def split(ctx: NodeContext, x: Var, size: int, dim: int = 0) -> tuple[Var, ...]:
    axis = ctx.axis(dim, x.rank)
    extent = x.shape[axis]
    if extent == 0:
        return (x,)
    if isinstance(extent, Extent) or isinstance(size, Extent):
        count = len(ctx.vals) - 1  # as many as PyTorch's guards say, but for the last
        return _split(ctx, x, [*[size] * count, extent - size * count], axis)
    return _split(ctx, x, [min(size, extent - at) for at in range(0, extent, size)], axis)


@converter("split_with_sizes.default", "split.sizes")
def split_with_sizes(ctx: NodeContext, x: Var, sizes: Sequence[int], dim: int = 0) -> tuple[Var, ...]:
    return _split(ctx, x, ctx.extents(sizes), ctx.axis(dim, x.rank))


@converter("chunk.default")
def chunk(ctx: NodeContext, x: Var, chunks: int, dim: int = 0) -> tuple[Var, ...]:
    extent = x.shape[ctx.axis(dim, x.rank)]
    if extent == 0:
        return tuple([x] * chunks)
    return split(ctx, x, -(-extent // chunks), dim)


@converter("unbind.int")
def unbind(ctx: NodeContext, x: Var, dim: int = 0) -> tuple[Var, ...]:
    axis = ctx.axis(dim, x.rank)
    rest = [d for i, d in enumerate(x.shape) if i != axis]
    if x.shape[axis] == 0:
        return ()
    return tuple(ctx.reshape(part, rest) for part in _split(ctx, x, [1] * x.shape[axis], axis))


@converter("repeat.default", "tile.default")
def repeat(ctx: NodeContext, x: Var, repeats: Sequence[int]) -> Var:
    times = ctx.extents(repeats)
    times = [1] * (x.rank - len(times)) + times
    x = ctx.reshape(x, [1] * (len(times) - x.rank) + list(x.shape))
    if all(t == 1 for t in times):
        return x
    if any(isinstance(t, Extent) for t in times):
        pairs = list(zip(times, x.shape, strict=True))
        x = ctx.expand(ctx.reshape(x, [d for _, e in pairs for d in (1, e)]), [d for pair in pairs for d in pair])
        return ctx.reshape(x, [t * e for t, e in pairs])
    return ctx.op("tile", x, repeats=times)


@converter("flip.default")
def flip(ctx: NodeContext, x: Var, dims: Sequence[int]) -> Var:
    axes = {ctx.axis(d, x.rank) for d in dims}
    if not axes or x.rank == 0:
        return x
    if 0 in x.shape:
        return x
    begins = [(-1 if isinstance(d, Extent) else d - 1) if i in axes else 0 for i, d in enumerate(x.shape)]
    ends = [-(2**63) if i in axes else MANY if isinstance(d, Extent) else d for i, d in enumerate(x.shape)]
    return ctx.op("slice", x, begins=begins, ends=ends, steps=[-1 if i in axes else 1 for i in range(x.rank)])


@converter("roll.default")
def roll(ctx: NodeContext, x: Var, shifts: Any, dims: Any = ()) -> Var:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = ctx.reshape(x, [math.prod(x.shape)])
        return ctx.reshape(_rolled(ctx, flat, shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(ctx, x, shift, ctx.axis(dim, x.rank))
    return x


def _rolled(ctx: NodeContext, x: Var, shift: int, axis: int) -> Var:
    extent = x.shape[axis]
    if isinstance(extent, Extent):
        cut = -shift if shift <= 0 else extent - shift  # a run with fewer is refused
    else:
        cut = (-shift) % extent if extent else 0
    if cut == 0:
        return x
    return ctx.op("concat", ctx.slice(x, axis, cut, extent), ctx.slice(x, axis, 0, cut), axis=axis)


# --- Pads ------------------------------------------------------------------------------------------------------------

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pads(x: Var, pad: list[int]) -> list[int]:
    """PyTorch lists (begin, end) from the last axis on; the IR all begins, then all ends."""
    begins, ends = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        begins[x.rank - 1 - i], ends[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return begins + ends


@converter("pad.default")
def pad(ctx: NodeContext, x: Var, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Var:
    pads = _pads(x, ctx.ints(pad))
    if not any(pads):
        return x
    if mode == "constant":
        return constant_pad(ctx, x, pad, value or 0)
    dtype, crops = x.dtype, [-min(p, 0) for p in pads]
    if dtype == "bool":
        x = ctx.cast(x, "u8")
    if mode == "circular":  # what is cropped is not there to be copied; in the other modes it is
        x = _cropped(ctx, x, crops)
    x = ctx.op("pad", x, pads=[max(p, 0) for p in pads], mode=_MODES[mode])
    return ctx.cast(x if mode == "circular" else _cropped(ctx, x, crops), dtype)


def _cropped(ctx: NodeContext, x: Var, crops: list[int]) -> Var:
    for axis, extent in enumerate(x.shape):
        x = ctx.slice(x, axis, crops[axis], extent - crops[x.rank + axis])
    return x


@converter("constant_pad_nd.default")
def constant_pad(ctx: NodeContext, x: Var, pad: Sequence[int], value: Any = 0) -> Var:
    pads = _pads(x, ctx.ints(pad))
    if not any(pads):
        return x
    if not is_float(x):
        value = float(int(value))
    if x.dtype == "bool":
        return ctx.cast(ctx.op("pad", ctx.cast(x, "u8"), pads=pads, value=float(bool(value))), "bool")
    return ctx.op("pad", x, pads=pads, value=float(value))


@converter(*(f"{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3)))
def border_pad(ctx: NodeContext, x: Var, padding: Sequence[int]) -> Var:
    return pad(ctx, x, padding, "reflect" if ctx.name.startswith("reflection") else "replicate")


# --- Parts written into a whole (what in-place writes to views become) -----------------------------------------------


@converter("slice_scatter.default")
def slice_scatter(ctx: NodeContext, x: Var, part: Var, dim: int = 0, start: Any = None, end: Any = None, step: int = 1):
    axis = ctx.axis(dim, x.rank)
    extent = x.shape[axis]
    begin, stop, stride = _bounds(ctx, extent, start, end, step)
    part = ctx.cast(part, x.dtype)
    count = stop - begin if stride == 1 else len(range(begin, stop, stride))
    if count == 0:
        return x
    part = ctx.expand(part, [count if i == axis else d for i, d in enumerate(x.shape)])
    if count == extent:
        return part
    if stride == 1:
        whole = [part]
        if begin != 0:
            whole.insert(0, ctx.slice(x, axis, 0, begin))
        if stop != extent:
            whole.append(ctx.slice(x, axis, stop, extent))
        return ctx.op("concat", *whole, axis=axis)
    positions = range(begin, stop, stride)
    source = np.arange(extent)
    source[list(positions)] = extent + np.arange(len(positions))
    return ctx.op("gather", ctx.op("concat", x, part, axis=axis), ctx.literal(source, "i64"), axis=axis)


@converter("select_scatter.default")
def select_scatter(ctx: NodeContext, x: Var, part: Var, dim: int, index: int) -> Var:
    axis = ctx.axis(dim, x.rank)
    index = index + x.shape[axis] if index < 0 else index
    part = ctx.reshape(part, [1 if i == axis else d for i, d in enumerate(x.shape)])
    return slice_scatter(ctx, x, part, axis, index, index + 1)


# --- Diagonals, windows ----------------------------------------------------------------------------------------------


@converter("diagonal.default")
def diagonal(ctx: NodeContext, x: Var, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Var:
    a, b = ctx.axis(dim1, x.rank), ctx.axis(dim2, x.rank)
    rest = [i for i in range(x.rank) if i not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    if isinstance(rows, Extent) or isinstance(columns, Extent):
        at = _open_diagonal(ctx, rows, columns, offset)
    else:
        at = ctx.literal(np.diagonal(np.arange(rows * columns).reshape(rows, columns), offset), "i64")
    flat = ctx.reshape(ctx.transpose(x, [*rest, a, b]), [*(x.shape[i] for i in rest), rows * columns])
    return ctx.op("gather", flat, at, axis=len(rest))


def _open_diagonal(ctx: NodeContext, rows: Any, columns: Any, offset: int) -> Var:
    """Where its elements are in the plane as one row. Raises Unsupported where a run alone says which side ends it."""
    below, right = max(-offset, 0), max(offset, 0)
    count = min(rows - below, columns - right)
    ctx.require(count)
    steps = ctx.op("iota", shape=[count], axis=0, dtype="i64")
    begin = ctx.tensor(below * columns + right, "i64")
    return ctx.op("add", ctx.op("mul", steps, ctx.tensor(columns + 1, "i64")), begin)


@converter("diagonal_scatter.default")
def diagonal_scatter(ctx: NodeContext, x: Var, part: Var, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Var:
    a, b = ctx.axis(dim1, x.rank), ctx.axis(dim2, x.rank)
    order = [i for i in range(x.rank) if i not in (a, b)] + [a, b]
    rows, columns = x.shape[a], x.shape[b]
    turned = ctx.transpose(x, order)
    flat = ctx.reshape(turned, [*turned.shape[:-2], rows * columns])
    joined = ctx.op("concat", flat, ctx.cast(part, x.dtype), axis=x.rank - 2)
    source = _with_diagonal_behind(ctx, rows, columns, offset)
    made = ctx.reshape(ctx.op("gather", joined, source, axis=x.rank - 2), turned.shape)
    return ctx.transpose(made, [order.index(i) for i in range(x.rank)])


def _with_diagonal_behind(ctx: NodeContext, rows: Any, columns: Any, offset: int) -> Var:
    """Of a plane as one row: where in that row, or behind it in that of a diagonal, each element is."""
    if not (isinstance(rows, Extent) or isinstance(columns, Extent)):
        source = np.arange(rows * columns)
        at = np.diagonal(source.reshape(rows, columns), offset)
        source[at] = rows * columns + np.arange(len(at))
        return ctx.literal(source, "i64")
    row = ctx.op("iota", shape=[rows, 1], axis=0, dtype="i64")
    column = ctx.op("iota", shape=[1, columns], axis=1, dtype="i64")
    own = ctx.op("add", ctx.op("mul", row, ctx.tensor(columns, "i64")), column)
    size = ctx.op("mul", ctx.tensor(rows, "i64"), ctx.tensor(columns, "i64"))
    behind = ctx.op("sub", ctx.op("add", row, size), ctx.literal(max(-offset, 0), "i64"))
    on = ctx.op("equal", ctx.op("sub", column, row), ctx.literal(offset, "i64"))
    return ctx.reshape(ctx.op("where", on, behind, own), [rows * columns])


@converter("unfold.default")
def unfold(ctx: NodeContext, x: Var, dim: int, size: int, step: int) -> Var:
    if x.rank == 0:
        return ctx.reshape(x, [size])
    axis = ctx.axis(dim, x.rank)
    if isinstance(x.shape[axis], Extent):
        start = ctx.op("iota", shape=[(x.shape[axis] - size) // step + 1, 1], axis=0, dtype="i64")
        start = ctx.op("mul", start, ctx.literal(step, "i64"))
        places = ctx.op("add", start, ctx.literal(np.arange(size), "i64"))
    else:
        starts = np.arange(0, x.shape[axis] - size + 1, step)
        places = ctx.literal(starts[:, None] + np.arange(size), "i64")
    windows = ctx.op("gather", x, places, axis=axis)
    return ctx.transpose(windows, [i for i in range(windows.rank) if i != axis + 1] + [axis + 1])


@converter("tril.default", "triu.default")
def triangle(ctx: NodeContext, x: Var, diagonal: int = 0) -> Var:
    upper = ctx.name.startswith("triu")
    if x.dtype == "bool":
        return ctx.cast(ctx.op("trilu", ctx.cast(x, "u8"), upper=upper, k=diagonal), "bool")
    return ctx.op("trilu", x, upper=upper, k=diagonal)


@converter("as_strided.default")
def as_strided(ctx: NodeContext, x: Var, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Var:
    """Where the argument is dense, so that its memory is its elements in order."""
    size, at = ctx.ints(size), _places(ctx, size, stride, offset)
    total = math.prod(x.shape)
    flat = ctx.reshape(x, [total])
    if math.prod(size) == total and (at.reshape(-1) == np.arange(total)).all():
        return ctx.reshape(flat, size)
    return ctx.op("gather", flat, ctx.literal(at, "i64"), axis=0)


@converter("as_strided_scatter.default")
def as_strided_scatter(
    ctx: NodeContext, x: Var, part: Var, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Var:
    at, total = _places(ctx, size, stride, offset).reshape(-1), math.prod(x.shape)
    source = np.arange(total)
    source[at] = total + np.arange(len(at))
    joined = ctx.op("concat", ctx.reshape(x, [total]), ctx.reshape(ctx.cast(part, x.dtype), [len(at)]), axis=0)
    return ctx.reshape(ctx.op("gather", joined, ctx.literal(source, "i64"), axis=0), x.shape)


def _places(ctx: NodeContext, size: Sequence[int], stride: Sequence[int], offset: int | None) -> np.ndarray:
    """Where the elements of a strided view stand among those of the argument, in order. offset: in the storage."""
    val, name = ctx.meta_args[0], ctx.name.partition(".")[0]
    if not val.is_contiguous():
        raise Unsupported(f"{name} of a tensor that is not contiguous")
    size, stride = ctx.ints(size), ctx.ints(stride)
    at = np.full((), 0 if offset is None else ctx.ints([offset])[0] - ctx.ints([val.storage_offset()])[0])
    for i, (n, s) in enumerate(zip(size, stride, strict=True)):
        at = at + (np.arange(n) * s).reshape([-1 if j == i else 1 for j in range(len(size))])
    if at.size and not 0 <= at.min() <= at.max() < math.prod(val.shape):
        raise Unsupported(f"{name} of memory that is not the tensor's own")
    return at
