"""Steps on integers and bools, whose results are exact: whatever differs is wrong.

Only what ONNX defines, or what every machine does alike: integers wrap, nothing is divided by zero, and a float that
becomes an integer is one that it can hold.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import helper

from . import movement
from .builder import STEPS, Builder, DroppedError, step

DTYPES = tuple(np.dtype(name) for name in ("int8", "uint8", "int16", "int32", "int32", "int64", "int64"))
ANY = (0, 1, 2, 3, 4, 5)


def start(b: Builder) -> None:
    """One to three inputs of a type or of several, with a scalar now and then."""
    rank = b.pick((1, 2, 2, 3, 3, 4, 4))
    pool = {1: (b.sizes.channels,), 2: (b.sizes.tokens, b.sizes.channels)}.get(
        rank, (b.sizes.batches, b.sizes.channels)
    )
    shape = [*map(b.pick, pool), *(b.pick(b.sizes.pixels) for _ in range(rank - 2))]
    dtype = b.pick(DTYPES)
    for _ in range(b.pick((1, 1, 2, 3))):
        dtype = dtype if b.chance(0.7) else b.pick(DTYPES)
        b.live.append(b.given(values(b, [1 if b.chance(0.1) else extent for extent in shape], dtype)))


def values(b: Builder, shape, dtype: np.dtype) -> np.ndarray:
    """Small ones, any of the type, or those at its ends."""
    if dtype.kind == "b":
        return b.data.random(tuple(shape)) < 0.5
    info = np.iinfo(dtype)
    way = b.pick(("small", "small", "any", "ends"))
    low, high = (max(info.min, -9), 10) if way == "small" else (info.min, info.max)
    drawn = b.data.integers(low, high, tuple(shape), dtype, endpoint=True)
    if way == "ends":
        ends = np.array(
            [info.min, info.min + 1, -1 % 2**8 if info.min == 0 else -1, 0, 1, info.max - 1, info.max], dtype
        )
        drawn = np.where(b.data.random(drawn.shape) < 0.5, b.data.choice(ends, drawn.shape), drawn)
    return np.asarray(drawn, dtype)


def other(b: Builder, x: str) -> str:
    """Something of x's type that broadcasts with it."""
    shape, dtype = b.shape(x), b.dtype(x)
    way = b.pick(("tensor", "tensor", "number", "part", "input"))
    if way == "tensor":
        return b.pick([y for y in b.live if b.dtype(y) == dtype and broadcasts(shape, b.shape(y))] or [x])
    if way == "number":
        return b.constant(values(b, b.pick(((), (1,))), dtype))
    part = [extent if b.chance(0.5) else 1 for extent in shape]
    part = part[int(b.random.integers(len(part))) :] if part and b.chance(0.3) else part
    value = values(b, part, dtype)
    return b.given(value) if way == "input" else b.constant(value)


def broadcasts(a, b) -> bool:
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def bound(b: Builder, x: str, low: int, high: int) -> str:
    """x where it lies between these, else the nearer of them."""
    x = narrow(b, x)
    info = np.iinfo(b.dtype(x))
    low, high = (np.array(max(info.min, min(info.max, v)), b.dtype(x)) for v in (low, high))
    if b.chance(0.5):
        return b.node("Clip", x, b.constant(low), b.constant(high))
    return b.node("Min", b.node("Max", x, b.constant(low)), b.constant(high))


def narrow(b: Builder, x: str) -> str:
    """Of int64 the lower half: onnxruntime's Clip, Min and Max are wrong where there is more."""
    return cast(b, cast(b, x, np.dtype(np.int32)), b.dtype(x)) if b.dtype(x) == np.int64 else x


def cast(b: Builder, x: str, dtype: np.dtype) -> str:
    return b.node("Cast", x, to=helper.np_dtype_to_tensor_dtype(dtype))


@step(*ANY, weight=2, kind="integer", types="iu")
def integer_unary(b, x):
    op = b.pick(("Abs", "Neg", "Sign", "BitwiseNot", "Relu", "Identity", "clip", "one sided"))
    if op == "clip":
        return bound(b, x, *sorted(int(v) for v in b.random.integers(-100, 100, 2)))
    if op == "one sided":
        limit, x = narrow(b, b.constant(values(b, (), b.dtype(x)))), narrow(b, x)
        return b.node("Clip", x, limit) if b.chance(0.5) else b.node("Clip", x, "", limit)
    return b.node(op, x)


@step(*ANY, weight=5, kind="integer", types="iu")
def integer_binary(b, x):
    op = b.pick(
        ("Add", "Sub", "Mul", "Div", "Mod", "fmod", "Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift")
    )
    y = other(b, x)
    if op in ("Div", "Mod", "fmod"):
        y = nonzero(b, y)
        attributes = {} if op == "Div" else {"fmod": int(op == "fmod")}
        if op != "Div" and b.chance(0.5):
            y = b.node("Neg", y)
        if op == "fmod" and b.dtype(x).itemsize == 8:  # onnxruntime takes doubles
            x = narrow(b, x)
        return b.node("Div" if op == "Div" else "Mod", x, y, **attributes)
    if op == "BitShift":
        return b.node(op, x, bound(b, y, 0, 7), direction=b.pick(("LEFT", "RIGHT")))
    if op in ("Min", "Max"):
        x, y = narrow(b, x), narrow(b, y)
    return b.node(op, *b.either_way(x, y))


def nonzero(b: Builder, y: str) -> str:
    """From 2 up: the least int has no quotient by -1."""
    small = b.node("Abs", bound(b, y, -100, 100))
    return b.node(b.pick(("Max", "BitwiseOr")), small, b.constant(np.array(2, b.dtype(y))))


@step(*ANY, weight=0.5, kind="integer", types="i")
def power(b, x):
    exponent = b.constant(np.array(b.pick((0, 1, 2, 3)), b.pick((np.int32, np.int64))))
    return b.node("Pow", bound(b, x, -20, 20), exponent)


@step(*ANY, weight=2, kind="integer", types="iu")
def comparison(b, x):
    op = b.pick(("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"))
    mask = b.node(op, *b.either_way(x, other(b, x)))
    way = b.pick(("where", "where", "mask", "number"))
    if way == "mask":
        return mask
    if way == "number":
        return cast(b, mask, b.pick(DTYPES))
    return b.node("Where", mask, *b.either_way(x, other(b, x)))


@step(*ANY, weight=4, kind="integer", types="b")
def logic(b, x):
    op = b.pick(("Not", "And", "Or", "Xor", "Equal", "where", "where", "cast", "cast", "any", "all"))
    if op == "Not":
        return b.node(op, x)
    if op == "where":
        like = b.pick([y for y in b.live if b.dtype(y).kind in "iu" and broadcasts(b.shape(y), b.shape(x))] or [""])
        if not like:
            raise DroppedError("nothing to choose")
        return b.node("Where", x, like, other(b, like))
    if op == "cast":
        return cast(b, x, b.pick(DTYPES))
    if op in ("any", "all"):
        return reduced(b, "ReduceMax" if op == "any" else "ReduceMin", x)
    return b.node(op, *b.either_way(x, other(b, x)))


@step(*ANY, weight=2, kind="integer", types="iu")
def change_type(b, x):
    way = b.pick(("any", "any", "bool", "float", "half"))
    if way == "any":
        return cast(b, x, b.pick(DTYPES))
    if way == "bool":
        return cast(b, x, np.dtype(bool))
    # To a float that holds it, what is exact there, and back.
    if way == "half":
        y = cast(b, bound(b, x, -900, 900), np.dtype(np.float16))
        return cast(b, y, b.dtype(x))
    y = cast(b, bound(b, x, -900, 900), np.dtype(b.pick((np.float32, np.float32, np.float64))))
    if b.chance(0.6):
        y = b.node("Mul", y, b.constant(np.array(b.pick((0.5, 0.25, -0.75)), b.dtype(y))))
        if b.chance(0.6):
            y = b.node(b.pick(("Floor", "Ceil", "Round")), y)
    dtype = b.pick(DTYPES)
    info = np.iinfo(dtype)
    if b.graph.values[y].min(initial=0) < info.min or b.graph.values[y].max(initial=0) > info.max:
        dtype = np.dtype(np.int32)
    return cast(b, y, dtype)


def reduced(b: Builder, op: str, x: str) -> str:
    rank = len(b.shape(x))
    axes = sorted({int(b.random.integers(-rank, rank)) % rank for _ in range(b.pick((1, 1, 2)))}) if rank else []
    if b.chance(0.1):
        return b.node(op, x, keepdims=int(b.chance(0.5)))
    return b.node(op, x, b.ints(*axes), keepdims=int(b.chance(0.5)))


@step(1, 2, 3, 4, 5, weight=1.5, kind="integer", types="iu")
def reduction(b, x):
    """onnxruntime's sums and products saturate now and then: they stay small."""
    op = b.pick(("ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceSumSquare"))
    if op == "ReduceProd":
        x = bound(b, x, -1, 1) if max(b.shape(x)) > 5 else bound(b, x, -3, 2)
    elif op not in ("ReduceMax", "ReduceMin"):
        x = bound(b, x, -100, 99)
    return reduced(b, op, x)


@step(1, 2, 3, 4, 5, weight=1, kind="integer", types="iu")
def place_of_extreme(b, x):
    axis = int(b.random.integers(-len(b.shape(x)), len(b.shape(x))))
    way = b.pick(("ArgMax", "ArgMin", "TopK"))
    if way == "TopK":
        k = int(b.random.integers(1, b.shape(x)[axis] + 1))
        y = b.node("TopK", x, b.ints(k), outputs=2, axis=axis, largest=int(b.chance(0.5)), sorted=1)
        return [y, b.sibling(y, 1)]
    return b.node(way, x, axis=axis, keepdims=int(b.chance(0.5)), select_last_index=int(b.chance(0.5)))


@step(1, 2, 3, 4, weight=0.7, kind="integer", types="iub")
def pad_anything(b, x):
    rank = len(b.shape(x))
    pads = [b.pick((0, 0, 1, 2, -1)) for _ in range(2 * rank)]
    mode = b.pick(("constant", "constant", "edge", "reflect", "wrap"))
    pads = [min(p, b.shape(x)[i % rank] - 1) for i, p in enumerate(pads)] if mode != "constant" else pads
    value = [b.constant(values(b, (), b.dtype(x)))] if mode == "constant" and b.chance(0.6) else []
    return b.node("Pad", x, b.ints(*pads), *value, mode=mode)


@step(1, 2, 3, 4, weight=0.7, kind="integer", types="iub")
def concat_constant(b, x):
    axis = int(b.random.integers(len(b.shape(x))))
    shape = list(b.shape(x))
    shape[axis] = b.pick((1, 2, 3))
    return b.node("Concat", *b.either_way(x, b.constant(values(b, shape, b.dtype(x)))), axis=axis)


def indices(b: Builder, extent: int, shape, unique: int | None = None) -> str:
    """Into an axis, some of them from its end; along the axis `unique` no two are the same. Known or not."""
    if unique is None:
        drawn = b.data.integers(-extent, extent, tuple(shape))
    else:
        drawn = b.data.random((*shape[:unique], extent, *shape[unique + 1 :])).argsort(unique)
        drawn = drawn.take(range(shape[unique]), unique)
        drawn = np.where(b.data.random(drawn.shape) < 0.3, drawn - extent, drawn)
    drawn = drawn.astype(b.pick((np.int64, np.int64, np.int32)))
    return b.given(drawn) if b.chance(0.5) else b.constant(drawn)


@step(1, 2, 3, 4, weight=2, kind="integer", types="iub")
def by_index(b, x):
    shape = list(b.shape(x))
    axis = int(b.random.integers(len(shape)))
    way = b.pick(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterElements", "ScatterND"))
    if way == "Gather":
        return b.node(way, x, indices(b, shape[axis], b.pick(((), (1,), (3,), (2, 2)))), axis=axis)
    if way in ("GatherElements", "ScatterElements"):
        part = [int(b.random.integers(1, extent + 1)) for extent in shape]
        if way == "GatherElements":
            return b.node(way, x, indices(b, shape[axis], part), axis=axis)
        reduction = b.pick(("none", "none", "add", "mul", "max", "min") if b.dtype(x).kind != "b" else ("none",))
        at = indices(b, shape[axis], part, axis if reduction == "none" else None)
        updates = b.constant(values(b, part, b.dtype(x)))
        return b.node(way, x, at, updates, axis=axis, reduction=reduction)
    depth = int(b.random.integers(1, len(shape) + 1))
    count = b.pick((1, 3, 5))
    if way == "GatherND":
        at = np.stack([b.data.integers(-extent, extent, (count,)) for extent in shape[:depth]], -1)
        return b.node(way, x, b.given(at) if b.chance(0.5) else b.constant(at))
    count = min(count, math.prod(shape[:depth]))
    places = b.data.permutation(math.prod(shape[:depth]))[:count]
    at = np.stack(np.unravel_index(places, shape[:depth]), -1).astype(np.int64)
    updates = b.constant(values(b, (count, *shape[depth:]), b.dtype(x)))
    reduction = b.pick(("none", "none", "add", "mul", "max", "min") if b.dtype(x).kind != "b" else ("none",))
    return b.node(way, x, b.given(at) if b.chance(0.5) else b.constant(at), updates, reduction=reduction)


@step(0, 1, 2, 3, weight=0.7, kind="integer", types="iu")
def one_hot(b, x):
    depth = b.pick((1, 3, 8, 17))
    on_off = b.constant(values(b, (2,), np.dtype(np.int64)))
    index = cast(b, bound(b, x, -depth, depth - 1), np.dtype(np.int64))
    axis = int(b.random.integers(-1, len(b.shape(x)) + 1))
    return b.node("OneHot", index, b.constant(np.array(depth, np.int64)), on_off, axis=axis)


@step(1, 2, 3, weight=0.7, kind="integer", types="iu")
def look_up(b, x):
    """A table at an index that is computed."""
    shape = b.pick(((5,), (16,), (7, 3)))
    index = b.node("Mod", cast(b, x, np.dtype(np.int64)), b.constant(np.array(shape[0], np.int64)))
    return b.node("Gather", b.constant(values(b, shape, b.pick(DTYPES))), index)


@step(2, 3, 4, weight=0.7, kind="integer", types="iub")
def triangle(b, x):
    return b.node("Trilu", x, b.constant(np.array(b.pick((-1, 0, 1, 2)), np.int64)), upper=int(b.chance(0.5)))


@step(1, 2, 3, weight=0.7, kind="integer", types="iu")
def positions(b, x):
    """A Range or a ConstantOfShape of x's extents joins it."""
    extent = b.shape(x)[-1]
    size = b.node("Gather", b.node("Shape", x), b.constant(np.array(-1, np.int64)), axis=0)
    if b.chance(0.5):
        y = b.node("Range", b.constant(np.int64(0)), size, b.constant(np.int64(1)))
    else:
        y = b.node("Range", b.constant(np.int64(3)), b.constant(np.int64(3 - 2 * extent)), b.constant(np.int64(-2)))
    y = cast(b, y, b.dtype(x)) if b.dtype(x) != np.int64 else y
    return b.node(b.pick(("Add", "Sub", "Mul")), *b.either_way(x, y))


@step(4, weight=2, kind="integer", types="iub")
def rearrange_image(b, x):
    n, c, h, w = b.shape(x)
    way = b.pick(("DepthToSpace", "SpaceToDepth", "Resize", "MaxPool", "ReverseSequence"))
    if way == "Resize":
        sizes = b.ints(n, c, *(b.pick((extent, 2 * extent, max(1, extent // 2), extent + 3)) for extent in (h, w)))
        nearest = b.pick(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
        form = b.pick(("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"))
        return b.node(way, x, "", "", sizes, mode="nearest", nearest_mode=nearest, coordinate_transformation_mode=form)
    if way == "MaxPool":
        k = b.pick((1, 2, 3))
        strides = [b.pick((1, 2))] * 2
        return b.node(way, x, kernel_shape=[k, k], strides=strides, pads=[b.pick((0, k // 2))] * 4)
    if way == "ReverseSequence":
        return b.node(way, x, b.given(b.data.integers(0, c + 1, n)), batch_axis=0, time_axis=1)
    return b.node(way, x, blocksize=b.pick((1, 2, 3)), **({"mode": b.pick(("DCR", "CRD"))} if way[0] == "D" else {}))


@step(1, 2, 3, 4, weight=1.5, kind="integer", types="iu")
def product(b, x):
    """Of int32 or int64, or of two of eight bits with zero points."""
    k, dtype = b.shape(x)[-1], b.dtype(x)
    shape = b.pick(((k,), (k, b.pick(b.sizes.channels)), (k, b.pick(b.sizes.channels))))
    if dtype.itemsize > 1 and b.chance(0.6):
        if dtype.itemsize == 2:
            x = cast(b, x, np.dtype(np.int32))
        return b.node("MatMul", x, b.constant(values(b, shape, b.dtype(x))))
    if dtype.itemsize > 1:
        x = cast(b, x, b.pick(DTYPES[:2]))
    shape = shape if len(shape) == 2 else (k, 1)
    w = values(b, shape, b.pick(DTYPES[:2]))
    points = []
    if b.chance(0.7):
        points.append(b.constant(values(b, (), b.dtype(x))))
        if b.chance(0.7):
            points.append(b.constant(values(b, b.pick(((), (shape[1],))), w.dtype)))
    return b.node("MatMulInteger", x, b.given(w) if b.chance(0.2) else b.constant(w), *points)


@step(3, 4, 5, weight=1.5, kind="integer", types="iu")
def conv_integer(b, x):
    c = b.shape(x)[1]
    if b.dtype(x) != np.uint8:
        x = cast(b, x, np.dtype(np.uint8))
    group = b.pick([g for g in (1, 1, 2, c) if c % g == 0])
    out = group * b.pick((1, 2, 3, 8, 17))
    k = [min(b.pick((1, 2, 3)), extent) for extent in b.shape(x)[2:]]
    w = b.constant(values(b, (out, c // group, *k), b.pick(DTYPES[:2])))
    points = []
    if b.chance(0.7):
        points.append(b.constant(values(b, (), b.dtype(x))))
        if b.chance(0.5):
            points.append(b.constant(values(b, (), b.dtype(w))))
    attributes = {"strides": [b.pick((1, 2)) for _ in k], "pads": [b.pick((0, size // 2)) for size in k] * 2}
    return b.node("ConvInteger", x, w, *points, group=group, **attributes)


for _step in (
    movement.transpose, movement.reshape, movement.slice_, movement.concat, movement.split, movement.expand,
    movement.unsqueeze, movement.squeeze, movement.tile,
):  # fmt: skip
    _one = STEPS["float"][_step.__name__]
    step(*_one.ranks, weight=_one.weight / 2, kind="integer", types="iub")(_step)
step(1, 2, 3, 4, weight=0.5, kind="integer", types="iu")(movement.cumsum)
