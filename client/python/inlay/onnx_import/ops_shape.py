"""Operators that read or change shapes: Reshape, Transpose, Concat, Slice, Pad, Expand, Range, ..."""

from __future__ import annotations

import math

import numpy as np
import onnx

from inlay.ir import dims
from inlay.onnx_import.registry import NodeContext, converter, tensor_attr
from inlay.onnx_import.value import Unsupported, Value, constant_value, extents_value

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
    """Reshape to a list with at most one -1 and any symbolic extents that can be told from x's."""
    if -1 in target and any(isinstance(d, str) for d in target):
        # -1 is what remains once equal symbols are cancelled.
        left, known = list(x.shape), 1
        for d in target:
            if isinstance(d, str):
                if d not in left:
                    raise Unsupported(
                        f"cannot tell the -1 of {target} from {list(x.shape)}; fix dimensions with shape="
                    )
                left.remove(d)
            elif d != -1:
                known *= d
        numbers = math.prod(d for d in left if isinstance(d, int))
        if known == 0 or numbers % known:
            raise Unsupported(f"a reshape to {target} has several unknown extents; fix dimensions with shape=")
        rest = dims.mul(dims.product([d for d in left if isinstance(d, str)]), numbers // known)
        target = [rest if d == -1 else d for d in target]
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
        sizes = ctx.ints(1, "the sizes") if ctx.has(1) else None
    else:
        sizes = ctx.attr("split")
    declared = ctx.attr("num_outputs")
    if sizes is None:
        extent = x.shape[axis]
        if isinstance(extent, str):
            raise Unsupported(f"splits the symbolic dimension {extent!r}; fix it with shape=")
        if declared is not None and declared != count:
            raise Unsupported(f"num_outputs {declared} with {count} outputs")
        if extent % count and ctx.opset < 18:
            raise Unsupported(f"extent {extent} does not divide into {count}")
        each = -(-extent // count)
        sizes = [min(each, max(0, extent - i * each)) for i in range(count)]
    if len(sizes) != count:
        raise Unsupported(f"{len(sizes)} sizes for {count} outputs")
    return ctx.op("split", x, axis=axis, sizes=sizes)


@converter("Slice", since=1)
def slice_attributes(ctx: NodeContext) -> Value:
    begins, ends = ctx.required("starts"), ctx.required("ends")
    return slice_by(ctx, ctx[0], begins, ends, ctx.attr("axes"), None)


@converter("Slice", since=10)
def slice_inputs(ctx: NodeContext) -> Value:
    begins, ends = ctx.ints(1, "starts"), ctx.extents(2, "ends")
    axes = ctx.ints(3, "axes") if ctx.has(3) else None
    steps = ctx.ints(4, "steps") if ctx.has(4) else None
    x = ctx[0]
    taken = [""] * x.rank
    if any(isinstance(e, str) for e in ends):
        order = ctx.axes(axes if axes is not None else range(len(begins)), x.rank)
        for at, (axis, end) in enumerate(zip(order, ends)):
            if not isinstance(end, str):
                continue
            if end != x.shape[axis]:
                # As many as the symbol says (a run that wants more than there are is refused).
                if begins[at] != 0 or (steps is not None and steps[at] != 1):
                    raise Unsupported(f"slices up to the symbolic dimension {end!r}; fix it with shape=")
                taken[axis] = end
            ends[at] = _INT64_MAX
    return slice_by(ctx, x, begins, [int(e) for e in ends], axes, steps, taken)


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
        if step < 0:
            extent = x.shape[axis]
            if isinstance(extent, str):
                raise Unsupported(f"a negative step over the symbolic dimension {extent!r}; fix it with shape=")
            if end < -extent:
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


@converter("Pad", since=2)
def pad_attributes(ctx: NodeContext) -> Value:
    mode = ctx.attr("mode", "constant")
    value = ctx.attr("value", 0.0)
    return _wide_pad(ctx, ctx[0], ctx.required("pads"), _mode(mode), value if mode == "constant" else 0.0)


@converter("Pad", since=11)
def pad(ctx: NodeContext) -> Value:
    x, given = ctx[0], ctx.ints(1, "pads")
    mode = _mode(ctx.attr("mode", "constant"))
    axes = ctx.axes(ctx.ints(3, "axes"), x.rank) if ctx.has(3) else list(range(x.rank))
    if len(given) != 2 * len(axes):
        raise Unsupported(f"{len(given)} pads for {len(axes)} axes")
    pads = [0] * (2 * x.rank)
    for at, axis in enumerate(axes):
        pads[axis], pads[x.rank + axis] = given[at], given[len(axes) + at]
    filler = ctx.get(2)
    if filler is None or mode != "constant":
        return _wide_pad(ctx, x, pads, mode, 0.0)
    if filler.constant:
        value = filler.array.reshape(-1)[0]
        if x.is_float or abs(int(value)) <= 2**53:
            return _wide_pad(ctx, x, pads, mode, float(value))
    # The value is only known at run time (or no double holds it): pad a mask alongside, then choose.
    inside = ctx.op("full", shape=ctx.static_shape(x, "Pad"), value=1, dtype="u8")
    mask = ctx.cast(ctx.op("pad", inside, pads=pads, mode="constant", value=0.0), "bool")
    wide = _wide_pad(ctx, x, pads, mode, 0.0)
    return ctx.op("where", mask, wide, ctx.reshape(filler, []))


def _wide_pad(ctx: NodeContext, x: Value, pads: list[int], mode: str, value: float) -> Value:
    """reflect and wrap of more than the extent repeat; the IR's pad does one turn, so they are done in several."""
    if not any(pads):
        return x
    if mode in ("reflect", "wrap"):
        for axis, extent in enumerate(x.shape):
            room = extent if mode == "wrap" else (extent - 1 if isinstance(extent, int) else extent)
            most = max(pads[axis], pads[x.rank + axis])
            if isinstance(room, int) and most > room:
                raise Unsupported(f"{mode} padding of {most} over extent {extent}")
    return ctx.op("pad", x, pads=pads, mode=mode, value=value)


def _mode(mode: str) -> str:
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Unsupported(f"mode {mode!r}")
    return mode


@converter("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Value:
    x, block = ctx[0], ctx.required("blocksize")
    n, c, h, w = ctx.static_shape(x, "DepthToSpace")
    if ctx.attr("mode", "DCR") == "DCR":
        split_, perm = [n, block, block, c // block**2, h, w], [0, 3, 4, 1, 5, 2]
    else:
        split_, perm = [n, c // block**2, block, block, h, w], [0, 1, 4, 2, 5, 3]
    y = ctx.transpose(ctx.reshape(x, split_), perm)
    return ctx.reshape(y, [n, c // block**2, h * block, w * block])


@converter("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Value:
    x, block = ctx[0], ctx.required("blocksize")
    perm = {"DCR": [0, 3, 5, 1, 2, 4], "CRD": [0, 1, 3, 5, 2, 4]}.get(ctx.attr("mode", "DCR"))
    if perm is None:
        raise Unsupported(f"mode {ctx.attr('mode')!r}")
    n, c, h, w = ctx.static_shape(x, "SpaceToDepth")
    y = ctx.transpose(ctx.reshape(x, [n, c, h // block, block, w // block, block]), perm)
    return ctx.reshape(y, [n, c * block**2, h // block, w // block])
