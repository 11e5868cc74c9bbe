"""Steps on tensors of any rank: element by element, reductions, and what moves elements."""

from __future__ import annotations

import numpy as np

from .activations import activation
from .builder import DroppedError, step


@step(1, 2, 3, 4, 5, weight=2)
def unary(b, x):
    way = b.pick(("activation", "activation", "Neg", "Abs", "Sqrt", "Exp", "Erf", "Sin", "Cos", "Reciprocal", "Log"))
    if way == "activation":
        return activation(b, x)
    if way in ("Sqrt", "Log"):
        return b.node(way, b.node("Add", b.node("Abs", x), b.number(0.5)))
    if way == "Reciprocal":
        return b.node(way, b.node("Add", b.node("Abs", x), b.number(1)))
    if way == "Exp":
        return b.node(way, b.node("Clip", x, b.constant(np.float32(-3)), b.constant(np.float32(2))))
    return b.node(way, x)


@step(1, 2, 3, 4, 5, weight=3)
def binary(b, x):
    op = b.pick(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Where"))
    shape = b.shape(x)
    way = b.pick(("tensor", "tensor", "number", "part", "part", "reduced"))
    if way == "tensor":
        other = b.pick(b.live)
        try:
            np.broadcast_shapes(shape, b.shape(other))
        except ValueError:
            raise DroppedError("broadcast") from None
    elif way == "number":
        other = b.number(float(b.random.uniform(-2, 2)))
    elif way == "part":
        part = [extent if b.chance(0.5) else 1 for extent in shape]
        other = b.weight(part[int(b.random.integers(len(part))) if b.chance(0.3) else 0 :], 1)
    else:
        axes = sorted({int(b.random.integers(len(shape))) for _ in range(2)})
        other = b.node("ReduceMean", x, b.ints(*axes), keepdims=1)
    if op == "Div":
        return b.node("Div", x, b.node("Add", b.node("Abs", other), b.number(1)))
    if op == "Where":
        if b.chance(0.5):
            mask = b.constant(b.random.random([extent if b.chance(0.7) else 1 for extent in shape]) < 0.6)
            return b.node("Where", mask, *b.either_way(x, other))
        d = b.node("Sub", x, b.number(0.123))  # no jump where it changes sides
        sides = b.node(b.pick(("Greater", "LessOrEqual")), d, b.number(0)), d, b.node("Mul", d, other)
        return b.node("Where", *sides)
    return b.node(op, *b.either_way(x, other))


@step(1, 2, 3, 4, 5, weight=1)
def transpose(b, x):
    return b.node("Transpose", x, perm=[int(i) for i in b.random.permutation(len(b.shape(x)))])


@step(1, 2, 3, 4, 5, weight=1)
def reshape(b, x):
    """Neighbouring axes become one, or one becomes two."""
    shape = list(b.shape(x))
    i = int(b.random.integers(len(shape)))
    if b.chance(0.5) and len(shape) > 1:
        i = min(i, len(shape) - 2)
        shape[i : i + 2] = [shape[i] * shape[i + 1]]
    elif len(shape) < 5:
        d = b.pick([d for d in range(1, shape[i] + 1) if shape[i] % d == 0])
        shape[i : i + 1] = [d, shape[i] // d]
    return b.reshape(x, *shape)


@step(1, 2, 3, 4, 5, weight=0.8)
def slice_(b, x):
    begins, ends, axes, steps = [], [], [], []
    for axis, extent in enumerate(b.shape(x)):
        if b.chance(0.5):
            continue
        first = int(b.random.integers(extent))
        last = int(b.random.integers(first + 1, extent + 1))
        stride = b.pick((1, 1, 1, 2, -1))
        if stride < 0:
            first, last = last - 1, (first - 1 if first > 0 else -(2**62))
        elif b.chance(0.3) and last < extent:
            last -= extent
        begins.append(first)
        ends.append(last)
        axes.append(axis)
        steps.append(stride)
    if not axes:
        raise DroppedError("axes")
    return b.node("Slice", x, b.ints(*begins), b.ints(*ends), b.ints(*axes), b.ints(*steps))


@step(1, 2, 3, 4, 5, weight=1)
def concat(b, x):
    shape = b.shape(x)
    axis = int(b.random.integers(len(shape)))
    rest = shape[:axis] + shape[axis + 1 :]
    alike = [y for y in b.live if len(b.shape(y)) == len(shape) and b.dtype(y) == b.dtype(x)]
    others = [y for y in alike if b.shape(y)[:axis] + b.shape(y)[axis + 1 :] == rest]
    parts = [b.pick(others) for _ in range(b.pick((1, 1, 2)))]
    if b.chance(0.2):
        parts.append(b.weight((*shape[:axis], b.pick((1, 2, 3)), *shape[axis + 1 :])))
    return b.node("Concat", x, *parts, axis=axis)


@step(1, 2, 3, 4, 5, weight=0.7)
def split(b, x):
    shape = b.shape(x)
    axis = int(b.random.integers(len(shape)))
    if shape[axis] < 2:
        raise DroppedError("extent")
    first = int(b.random.integers(1, shape[axis]))
    y = b.node("Split", x, b.ints(first, shape[axis] - first), outputs=2, axis=axis)
    return [y, b.sibling(y, 1)]


@step(2, 3, 4, weight=0.6)
def pad(b, x):
    rank = len(b.shape(x))
    pads = [b.pick((0, 0, 1, 2)) for _ in range(2 * rank)]
    mode = b.pick(("constant", "constant", "edge", "reflect"))
    if mode == "reflect":
        pads = [min(p, b.shape(x)[i % rank] - 1) for i, p in enumerate(pads)]
    value = [b.constant(np.float32(b.pick((0, 0, 0.5))))] if mode == "constant" else []
    return b.node("Pad", x, b.ints(*pads), *value, mode=mode)


@step(1, 2, 3, 4, 5, weight=0.8)
def reduce(b, x):
    shape = b.shape(x)
    axes = sorted({int(b.random.integers(len(shape))) for _ in range(b.pick((1, 1, 2)))})
    op = b.pick(("ReduceMean", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"))
    if op == "ReduceSum":
        x = b.scaled(x)
    return b.node(op, x, b.ints(*axes), keepdims=int(b.chance(0.5) or len(axes) == len(shape)))


@step(1, 2, 3, 4, 5, weight=0.4)
def gather(b, x):
    axis = int(b.random.integers(len(b.shape(x))))
    extent = b.shape(x)[axis]
    shape = b.pick(((), (1,), (3,), (2, 2)))
    indices = b.random.integers(-extent, extent, shape).astype(np.int64)
    return b.node("Gather", x, b.constant(indices), axis=axis)


@step(1, 2, 3, 4, weight=0.3)
def expand(b, x):
    shape = [b.pick((2, 3)) if extent == 1 else extent for extent in b.shape(x)]
    if b.chance(0.3):
        shape = [2, *shape]
    return b.node("Expand", x, b.ints(*shape))


@step(1, 2, 3, 4, weight=0.3)
def unsqueeze(b, x):
    return b.node("Unsqueeze", x, b.ints(int(b.random.integers(len(b.shape(x)) + 1))))


@step(2, 3, 4, 5, weight=0.4)
def squeeze(b, x):
    ones = [i for i, extent in enumerate(b.shape(x)) if extent == 1]
    if not ones:
        raise DroppedError("extent")
    return b.node("Squeeze", x, b.ints(b.pick(ones)))


@step(2, 3, weight=0.2)
def tile(b, x):
    return b.node("Tile", x, b.ints(*[b.pick((1, 2)) for _ in b.shape(x)]))


@step(2, 3, 4, weight=0.2)
def cumsum(b, x):
    axis = int(b.random.integers(len(b.shape(x))))
    return b.node("CumSum", x, b.constant(np.int64(axis)), exclusive=int(b.chance(0.3)), reverse=int(b.chance(0.3)))
