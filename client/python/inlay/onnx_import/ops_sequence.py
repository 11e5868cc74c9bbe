"""Sequences and optionals, as far as their lengths and presence are known at compile time."""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import AbsentValue, SequenceValue, Unsupported, Value, constant_value


def _sequence(ctx: NodeContext, i: int) -> SequenceValue:
    value = ctx.any(i)
    if not isinstance(value, SequenceValue):
        raise Unsupported(f"input {i} is not a sequence of known length")
    return value


def _position(ctx: NodeContext, i: int, length: int) -> int:
    at = int(ctx.const(i, "the position").reshape(-1)[0])
    if not -length <= at < max(length, 1):
        raise Unsupported(f"position {at} in a sequence of {length}")
    return at + length if at < 0 else at


@converter("SequenceConstruct")
def construct(ctx: NodeContext) -> SequenceValue:
    return SequenceValue("", ctx.all())


@converter("SequenceEmpty")
def empty(ctx: NodeContext) -> SequenceValue:
    ctx.ignore("dtype")
    return SequenceValue("", [])


@converter("SequenceInsert")
def insert(ctx: NodeContext) -> SequenceValue:
    items = list(_sequence(ctx, 0).items)
    at = _position(ctx, 2, len(items) + 1) if ctx.has(2) else len(items)
    if ctx.has(2) and int(ctx.const(2, "the position").reshape(-1)[0]) < 0:
        at -= 1  # negative positions count from the end of the sequence as it was
    items.insert(at, ctx[1])
    return SequenceValue("", items)


@converter("SequenceErase")
def erase(ctx: NodeContext) -> SequenceValue:
    items = list(_sequence(ctx, 0).items)
    del items[_position(ctx, 1, len(items)) if ctx.has(1) else -1]
    return SequenceValue("", items)


@converter("SequenceAt")
def at(ctx: NodeContext) -> Value:
    items = _sequence(ctx, 0).items
    if not items:
        raise Unsupported("an element of an empty sequence")
    return items[_position(ctx, 1, len(items))]


@converter("SequenceLength")
def length(ctx: NodeContext) -> Value:
    return constant_value("", np.asarray(len(_sequence(ctx, 0).items), np.int64))


@converter("SplitToSequence")
def split(ctx: NodeContext) -> SequenceValue:
    x = ctx[0]
    axis, keep = ctx.axis(ctx.attr("axis", 0), x.rank), bool(ctx.attr("keepdims", 1))
    extent = ctx.static_shape(x, "SplitToSequence")[axis]
    if ctx.has(1):
        sizes = ctx.const(1, "the sizes")
        if sizes.ndim == 0:
            each = int(sizes)
            if each <= 0:
                raise Unsupported(f"pieces of {each}")
            sizes = np.array([min(each, extent - i) for i in range(0, extent, each)])
        chosen, keep = [int(s) for s in sizes], True
    else:
        chosen = [1] * extent
    parts = list(ctx.op("split", x, axis=axis, sizes=chosen))
    if not keep:
        parts = [ctx.reshape(p, [d for i, d in enumerate(x.shape) if i != axis]) for p in parts]
    return SequenceValue("", parts)


@converter("ConcatFromSequence")
def concat(ctx: NodeContext) -> Value:
    items, axis, new_axis = _sequence(ctx, 0).items, ctx.required("axis"), bool(ctx.attr("new_axis", 0))
    if not items:
        raise Unsupported("the concatenation of an empty sequence")
    rank = items[0].rank + new_axis
    axis = ctx.axis(axis, rank)
    if new_axis:
        items = [ctx.reshape(x, [*x.shape[:axis], 1, *x.shape[axis:]]) for x in items]
    return items[0] if len(items) == 1 else ctx.op("concat", *items, axis=axis)


@converter("Optional")
def optional(ctx: NodeContext):
    ctx.ignore("type")
    return ctx.any(0) if ctx.has(0) else AbsentValue()


@converter("OptionalHasElement")
def has_element(ctx: NodeContext) -> Value:
    present = ctx.has(0) and not isinstance(ctx.any(0), AbsentValue)
    return constant_value("", np.asarray(present))


@converter("OptionalGetElement")
def get_element(ctx: NodeContext):
    value = ctx.any(0)
    if isinstance(value, AbsentValue):
        raise Unsupported("the element of an empty optional")
    return value
