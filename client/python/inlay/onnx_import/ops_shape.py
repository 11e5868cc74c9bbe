"""Operators that read or change shapes: Reshape, Transpose, Concat, Slice, Expand, Range, DepthToSpace, ..."""

from __future__ import annotations

import math

import numpy as np
import onnx

from inlay.ir import dims
from inlay.onnx_import.registry import NodeContext, converter, tensor_attr
from inlay.onnx_import.value import MANY_ELEMENTS, Unsupported, Value, constant_value, extents_value

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1


@converter("Constant")
def constant(ctx: NodeContext) -> Value:
    node = ctx.node
    if len(node.attribute) != 1:
        raise Unsupported("wants exactly one attribute")
    name = node.attribute[0].name
    value = ctx.attr(name)
    if name == "value":
        array = tensor_attr(value)
    elif name in ("value_int", "value_ints"):
        array = np.asarray(value, np.int64)
    elif name in ("value_float", "value_floats"):
        array = np.asarray(value, np.float32)
    elif name in ("value_string", "value_strings"):
        array = np.asarray(value, object)
    else:
        raise Unsupported(f"attribute {name} is not supported")
    made = ctx.graph.initial_value(node.output[0], array)
    if name != "value":
        made.weight = False
    return made


@converter("Shape")
def shape(ctx: NodeContext) -> Value:
    extents = list(ctx[0].shape)
    rank = len(extents)
    begin, end = ctx.attr("start", 0), ctx.attr("end", rank)
    return extents_value(ctx.node.output[0], np.array(extents[slice(begin, end)], dtype=object))


@converter("Size")
def size(ctx: NodeContext) -> Value:
    return extents_value(ctx.node.output[0], np.array(dims.product(ctx[0].shape), dtype=object))


@converter("Reshape")
def reshape(ctx: NodeContext) -> Value:
    x, target = ctx[0], ctx.extents(1, "the target shape")
    if not ctx.attr("allowzero", 0):
        if any(d == 0 and i >= x.rank for i, d in enumerate(target)):
            raise Unsupported(f"shape {target} copies an extent that {list(x.shape)} lacks")
        target = [x.shape[i] if d == 0 else d for i, d in enumerate(target)]
    return reshape_to(ctx, x, target)


def reshape_to(ctx: NodeContext, x: Value, target: list) -> Value:
    """Reshape to a list with at most one -1 and any symbolic extents."""
    if any(isinstance(d, str) for d in target):
        try:
            target = list(dims.reshaped(x.shape, target))
        except ValueError as error:
            raise Unsupported(f"{error}; fix dimensions with shape=") from None
    return ctx.reshape(x, target)


@converter("Flatten")
def flatten(ctx: NodeContext) -> Value:
    x, axis = ctx[0], ctx.attr("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return ctx.reshape(x, [dims.product(x.shape[:axis]), dims.product(x.shape[axis:])])


def _axes(ctx: NodeContext, since_input: int) -> list[int] | None:
    """Axes from the attribute, or from input 1 in newer opsets; None where they are not given."""
    if ctx.opset >= since_input:
        return ctx.ints(1, "axes") if ctx.has(1) else None
    return ctx.attr("axes")


@converter("Squeeze")
def squeeze(ctx: NodeContext) -> Value:
    x, axes = ctx[0], _axes(ctx, 13)
    chosen = ctx.axes(axes, x.rank) if axes is not None else [i for i, d in enumerate(x.shape) if d == 1]
    for i in chosen:
        if x.shape[i] != 1:
            raise Unsupported(f"axis {i} of {list(x.shape)} is not 1")
    return ctx.reshape(x, [d for i, d in enumerate(x.shape) if i not in chosen])


@converter("Unsqueeze")
def unsqueeze(ctx: NodeContext) -> Value:
    x, axes = ctx[0], _axes(ctx, 13)
    if axes is None:
        raise Unsupported("axes are missing")
    rank = x.rank + len(axes)
    chosen = ctx.axes(axes, rank)
    if len(set(chosen)) != len(chosen):
        raise Unsupported(f"axes {axes} repeat")
    rest = iter(x.shape)
    return insert_ones(ctx, x, [1 if i in chosen else next(rest) for i in range(rank)])


def insert_ones(ctx: NodeContext, x: Value, target: list) -> Value:
    """A reshape that only adds or removes extents of 1."""
    return ctx.reshape(x, target)


@converter("Transpose")
def transpose(ctx: NodeContext) -> Value:
    x = ctx[0]
    perm = ctx.axes(ctx.attr("perm") or range(x.rank - 1, -1, -1), x.rank)
    if x.quantised is not None and x.constant and x.var is None and perm == [1, 0]:
        return x.transposed()  # a product takes what it was made of, and nobody may want the floats
    return ctx.transpose(x, perm)


@converter("Concat")
def concat(ctx: NodeContext) -> Value:
    values = ctx.all()
    axis = ctx.axis(ctx.required("axis"), values[0].rank)
    return values[0] if len(values) == 1 else ctx.op("concat", *values, axis=axis)


@converter("Split")
def split(ctx: NodeContext) -> tuple:
    x = ctx[0]
    axis = ctx.axis(ctx.attr("axis", 0), x.rank)
    count = len(ctx.node.output)
    if ctx.opset >= 13:
        sizes = ctx.extents(1, "the sizes") if ctx.has(1) else None
    else:
        sizes = ctx.attr("split")
    declared = ctx.attr("num_outputs")
    if sizes is None:
        extent = x.shape[axis]
        if isinstance(extent, str):
            return _equal_parts(ctx, x, axis, count)
        if declared is not None and declared != count:
            raise Unsupported(f"num_outputs {declared} with {count} outputs")
        if extent % count and ctx.opset < 18:
            raise Unsupported(f"extent {extent} does not divide into {count}")
        each = -(-extent // count)
        sizes = [min(each, max(0, extent - i * each)) for i in range(count)]
    if len(sizes) != count:
        raise Unsupported(f"{len(sizes)} sizes for {count} outputs")
    if any(isinstance(d, str) for d in (*sizes, x.shape[axis])):
        if any(size != sizes[0] for size in sizes):
            raise Unsupported(f"splits {x.shape[axis]!r} into {sizes}; fix it with shape=")
        return _equal_parts(ctx, x, axis, count)
    return ctx.op("split", x, axis=axis, sizes=sizes)


def _equal_parts(ctx: NodeContext, x: Value, axis: int, count: int) -> tuple:
    """A split of a symbolic extent: of an axis that it is made of."""
    each = dims.floordiv(x.shape[axis], count)
    if dims.mul(each, count) != x.shape[axis]:
        raise Unsupported(
            f"splits the symbolic dimension {x.shape[axis]!r} into {count}; declare it as a multiple with shape="
        )
    before, behind = x.shape[:axis], x.shape[axis + 1 :]
    parts = ctx.op("split", ctx.reshape(x, [*before, count, each, *behind]), axis=axis, sizes=[1] * count)
    return tuple(ctx.reshape(part, [*before, each, *behind]) for part in parts)


@converter("Slice", since=1)
def slice_attributes(ctx: NodeContext) -> Value:
    begins, ends = ctx.required("starts"), ctx.required("ends")
    return slice_by(ctx, ctx[0], begins, ends, ctx.attr("axes"), None)


@converter("Slice", since=10)
def slice_inputs(ctx: NodeContext) -> Value:
    x, begins, ends = ctx[0], ctx.extents(1, "starts"), ctx.extents(2, "ends")
    axes = ctx.ints(3, "axes") if ctx.has(3) else None
    steps = ctx.ints(4, "steps") if ctx.has(4) else [1] * len(begins)
    order = ctx.axes(axes if axes is not None else range(len(begins)), x.rank)
    taken = [""] * x.rank
    moved: list[tuple[int, dims.Dim, dims.Dim]] = []  # axes whose begin a run alone knows
    for at, (axis, step) in enumerate(zip(order, steps)):
        begin, end = (dims.from_end(places[at], x.shape[axis]) for places in (begins, ends))
        if isinstance(begin, str) or isinstance(end, str):
            # As many as the symbols say (a run that wants more than there are is refused).
            if step != 1 or (isinstance(begin, int) and begin < 0):
                raise Unsupported(f"slices from {begin} to {end} by {step} of {x.shape[axis]!r}; fix it with shape=")
            if isinstance(begin, str):
                end = dims.from_start(end, x.shape[axis])
                moved.append((axis, begin, end))
                begin = 0
            if end == x.shape[axis]:
                end = _INT64_MAX
            elif isinstance(end, str):
                taken[axis], end = str(dims.sub(end, begin)), _INT64_MAX
        begins[at], ends[at] = begin, end
    y = slice_by(ctx, x, begins, ends, order, steps, taken)
    for axis, begin, end in moved:
        if y.shape[axis] != end:
            raise Unsupported(
                f"slices from {begin} to {end} of {x.shape[axis]!r}, which may be less; fix it with shape="
            )
        y = _last(ctx, y, axis, dims.sub(end, begin))
    return y


def _last(ctx: NodeContext, x: Value, axis: int, count: dims.Dim) -> Value:
    """As many from the end, which must be there."""
    if isinstance(count, str):
        return reverse(ctx, slice_axis(ctx, reverse(ctx, x, axis), axis, 0, taken=count), axis)
    begin = extents_value("", [dims.sub(x.shape[axis], count)])
    return ctx.op("gather", x, ctx.op("add", ctx.literal(np.arange(count), "i64"), begin), axis=axis)


def reverse(ctx: NodeContext, x: Value, axis: int) -> Value:
    return slice_axis(ctx, x, axis, -1, _INT64_MIN, step=-1)


def slice_axis(
    ctx: NodeContext, x: Value, axis: int, begin: int, end: int = _INT64_MAX, taken: str = "", step: int = 1
) -> Value:
    """One axis of x from begin to end, or as many as `taken` says."""
    full = {"begins": [0] * x.rank, "ends": [_INT64_MAX] * x.rank, "steps": [1] * x.rank}
    full["begins"][axis], full["ends"][axis], full["steps"][axis] = begin, end, step
    names = [taken if i == axis else "" for i in range(x.rank)]
    return ctx.op("slice", x, **full, dims=names if taken else None)


def slice_by(ctx: NodeContext, x: Value, begins, ends, axes, steps, taken=()) -> Value:
    """ONNX's Slice as a full-rank slice. taken: by axis, the symbol that says how many, or ""."""
    axes = ctx.axes(axes if axes is not None else range(len(begins)), x.rank)
    steps = steps if steps is not None else [1] * len(begins)
    if not len(begins) == len(ends) == len(axes) == len(steps) or len(set(axes)) != len(axes):
        raise Unsupported("starts, ends, axes and steps do not fit together")
    if 0 in steps:
        raise Unsupported("a step of 0")
    full = [[0, _INT64_MAX, 1] for _ in range(x.rank)]
    for axis, begin, end, step in zip(axes, begins, ends, steps):
        extent = x.shape[axis]
        # What is out of any reach, as exporters write it: INT32_MAX, INT32_MIN, ...
        if isinstance(extent, str) and end >= MANY_ELEMENTS:
            end = _INT64_MAX
        if isinstance(extent, str) and begin >= MANY_ELEMENTS and step < 0:
            begin = -1
        if step < 0 and end < -(extent if isinstance(extent, int) else MANY_ELEMENTS):
            end = _INT64_MIN  # before the first element: everything down to it
        full[axis] = [begin, end, step]
    b, e, s = zip(*full) if full else ((), (), ())
    return ctx.op("slice", x, begins=list(b), ends=list(e), steps=list(s), dims=list(taken) if any(taken) else None)


@converter("Tile")
def tile(ctx: NodeContext) -> Value:
    return ctx.op("tile", ctx[0], repeats=ctx.ints(1, "the repeats"))


@converter("Expand")
def expand(ctx: NodeContext) -> Value:
    return expand_to(ctx, ctx[0], ctx.extents(1, "the target shape"))


def expand_to(ctx: NodeContext, x: Value, target: list) -> Value:
    """Broadcast to max(x, target); a symbolic extent meets itself or 1."""
    source = [1] * (len(target) - x.rank) + list(x.shape)
    offset = len(source) - len(target)
    wanted = [1] * offset + list(target)
    for i, (s, t) in enumerate(zip(source, wanted)):
        if isinstance(t, str) and s == t:
            wanted[i] = 1
        elif isinstance(t, str) and s != 1:
            raise Unsupported(f"broadcasts {s} to the symbolic dimension {t!r}; fix it with shape=")
    if all(w == 1 or w == s for s, w in zip(source, wanted)) and len(source) == x.rank:
        return x
    return ctx.op("expand", x, shape=wanted)


@converter("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> Value:
    value = ctx.attr("value")
    array = np.zeros(1, np.float32) if value is None else tensor_attr(value).reshape(-1)
    target = ctx.extents(0, "the shape")
    filler = constant_value("", array[:1].reshape(()))
    return full(ctx, filler, target)


def full(ctx: NodeContext, filler: Value, target: list) -> Value:
    item = filler.array.reshape(-1)[0]
    value = float(item) if filler.is_float else int(item)
    return ctx.op("full", shape=target, value=value, dtype=filler.dtype)


def _bound(ctx: NodeContext, i: int, what: str):
    return ctx.extents(i, what)[0] if ctx[i].extents is not None else ctx.const(i, what).reshape(-1)[0]


@converter("Range")
def range_(ctx: NodeContext) -> Value:
    start, limit = _bound(ctx, 0, "start"), _bound(ctx, 1, "limit")
    delta = _bound(ctx, 2, "delta") if ctx.has(2) else 1  # onnxruntime's own operator may leave it out
    if not isinstance(delta, str) and delta == 0:
        raise Unsupported("a delta of 0")
    count: dims.Dim
    if any(isinstance(v, str) for v in (start, limit, delta)):
        # From 0 in steps of 1: as many as the limit says, which is an extent and so not below 0.
        if isinstance(start, str) or isinstance(delta, str) or start != 0 or delta != 1:
            raise Unsupported(f"a range from {start} to {limit} in steps of {delta}; fix its dimensions with shape=")
        count = str(limit)
    else:
        count = max(0, math.ceil((limit - start) / delta))  # type: ignore[operator]
    dtype = ctx[0].dtype
    index = ctx.op("iota", shape=[count], axis=0, dtype=dtype)
    return ctx.op("add", ctx.op("mul", index, ctx.literal(delta, dtype)), ctx.literal(start, dtype))


@converter("EyeLike")
def eye_like(ctx: NodeContext) -> Value:
    rows, columns = ctx.static_shape(ctx[0], "EyeLike")
    to = ctx.attr("dtype")
    dtype = ctx[0].type.numpy if to is None else onnx.helper.tensor_dtype_to_np_dtype(to)  # type: ignore[union-attr]
    return constant_value("", np.eye(rows, columns, k=ctx.attr("k", 0)).astype(dtype))


@converter("Trilu")
def trilu(ctx: NodeContext) -> Value:
    k = int(ctx.const(1, "k").reshape(-1)[0]) if ctx.has(1) else 0
    return ctx.op("trilu", ctx[0], upper=bool(ctx.attr("upper", 1)), k=k)


@converter("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Value:
    x, block = ctx[0], ctx.required("blocksize")
    n, c, h, w = x.shape
    depth = _part(ctx, c, block**2)
    if ctx.attr("mode", "DCR") == "DCR":
        split_, perm = [n, block, block, depth, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split_, perm = [n, depth, block, block, h, w], [0, 1, 4, 2, 5, 3]
    y = ctx.transpose(ctx.reshape(x, split_), perm)
    return ctx.reshape(y, [n, depth, dims.mul(h, block), dims.mul(w, block)])


@converter("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Value:
    x, block = ctx[0], ctx.required("blocksize")
    perm = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}.get(ctx.attr("mode", "DCR"))
    if perm is None:
        raise Unsupported(f"mode {ctx.attr('mode')!r}")
    n, c, h, w = x.shape
    h, w = _part(ctx, h, block), _part(ctx, w, block)
    y = ctx.transpose(ctx.reshape(x, [n, c, h, block, w, block]), perm)
    return ctx.reshape(y, [n, dims.mul(c, block**2), h, w])


def _part(ctx: NodeContext, extent: dims.Dim, block: int) -> dims.Dim:
    part = dims.floordiv(extent, block)
    if dims.mul(part, block) != extent:
        raise Unsupported(f"{extent} is no multiple of {block}{dims.division_hint(part)}")
    return part
