"""Control flow and what graphs have at their edges, between float steps: If, Loop, Scan, several outputs, empty tensors, scalars, inputs and constants that are outputs, inputs that nobody reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper, numpy_helper

from . import tokens
from .builder import Builder, DroppedError, RandomGraph, reads, step

ANY = (1, 2, 3, 4)
_DEEPEST = 2


def start(b: Builder) -> None:
    rank = b.pick((2, 2, 3, 3, 4))
    pool = {2: (b.sizes.tokens, b.sizes.channels), 3: (b.sizes.batches, b.sizes.tokens, b.sizes.channels)}.get(
        rank, (b.sizes.batches, b.sizes.channels[:8], b.sizes.pixels[:8], b.sizes.pixels[:8])
    )
    b.empties = True
    b.live.append(b.input([b.pick(extents) for extents in pool]))


def finish(b: Builder) -> None:
    """Outputs that are inputs, constants or scalars, and inputs that are not read."""
    graph = b.graph
    if b.chance(0.15):
        graph.inputs["unused"] = graph.values["unused"] = b.array((b.pick((1, 3)),))
    if b.chance(0.1) and graph.inputs:
        graph.outputs.append(b.pick(list(graph.inputs)))
    if b.chance(0.1):
        graph.outputs.append(b.constant(b.array(b.pick(((), (4,), (2, 3))))))
    if b.chance(0.3):
        b.random.shuffle(graph.outputs)


class Body(Builder):
    """A graph inside a node: sees what is live outside, and has arguments of its own."""

    def __init__(self, outer: Builder, arguments: dict[str, np.ndarray]):
        self.random, self.data, self.sizes = outer.random, outer.data, outer.sizes
        self.largest, self.empties = outer.largest, outer.empties
        self.depth = getattr(outer, "depth", 0) + 1
        self.outer = outer
        self.arguments = {f"{name}_{id_of(outer)}": value for name, value in arguments.items()}
        self.prefix = f"b{id_of(outer)}_"
        self.graph = RandomGraph([], {}, {}, {**outer.graph.values, **self.arguments}, [])
        self.live = [name for name, value in self.arguments.items() if value.dtype.kind == "f" and value.ndim]
        self.live += [x for x in outer.live[-2:] if outer.dtype(x).kind == "f"]
        root(outer).bodies = id_of(outer) + 1

    def given(self, value: np.ndarray) -> str:
        return self.constant(value)

    def proto(self, results: Sequence[str]) -> GraphProto:
        # What is returned twice has two names: onnxruntime's first of these would be anything.
        results = [self.node("Identity", y) if y in results[:i] else y for i, y in enumerate(results)]
        used = reads(*self.graph.nodes) | dict.fromkeys(results)

        def info(name: str) -> ValueInfoProto:
            value = self.graph.values[name]
            shape = value.shape if value.ndim == 0 or self.chance(0.7) else None
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)

        weights = [numpy_helper.from_array(value, name) for name, value in self.graph.weights.items() if name in used]
        return helper.make_graph(
            self.graph.nodes, "body", [info(name) for name in self.arguments], [info(y) for y in results], weights
        )


def root(b: Builder) -> Builder:
    return root(b.outer) if isinstance(b, Body) else b


def id_of(b: Builder) -> int:
    return getattr(root(b), "bodies", 0)


def body_of(b: Builder, arguments: dict[str, np.ndarray]) -> Body:
    if getattr(b, "depth", 0) >= _DEEPEST:
        raise DroppedError("deep")
    return Body(b, arguments)


def steps_of(inner: Body, like: str) -> str:
    """A few steps; their last result that has this tensor's shape."""
    inner.live.remove(like) if like in inner.live else None
    inner.live.append(like)
    inner.grow(inner.pick((1, 1, 2, 3)), ("float", "control") if inner.chance(0.3) else ("float",))
    made = {y for node in inner.graph.nodes for y in node.output}
    same = [y for y in inner.live if y in made and inner.same_type(y, like)]
    return same[-1] if same else inner.node("Mul", like, inner.number(0.7))


def condition(b: Builder, x: str) -> str:
    """Known, an input, or computed of x, where no rounding decides it."""
    shape = b.pick(((), (), (1,)))
    way = b.pick(("constant", "input", "computed", "computed", "integer"))
    if way in ("constant", "input"):
        value = np.full(shape, b.chance(0.5))
        return b.constant(value) if way == "constant" else b.given(value)
    if way == "integer":
        size = b.node("Gather", b.node("Shape", x), b.constant(np.full(shape, 0, np.int64)), axis=0)
        return b.node(b.pick(("Greater", "Equal")), size, b.constant(np.array(b.pick((1, 2, 3)), np.int64)))
    mean = b.node("ReduceMean", x, keepdims=0)
    value = float(b.graph.values[mean])
    y = b.node(b.pick(("Greater", "Less")), mean, b.constant(np.float32(value + b.pick((-0.5, 0.5)))))
    return b.reshape(y, 1) if shape else y


@step(*ANY, weight=4, kind="control")
def if_(b, x):
    chooser = condition(b, x)
    count = b.pick((1, 1, 2))
    branches = []
    for _ in range(2):
        inner = body_of(b, {})
        made = [steps_of(inner, x) for _ in range(count)]
        if b.chance(0.15):
            made[0] = x if b.chance(0.5) else inner.node("Identity", x)
        branches.append(inner.proto(made))
    y = b.node("If", chooser, outputs=count, then_branch=branches[0], else_branch=branches[1])
    return [b.sibling(y, i) for i in range(count)]


@step(*ANY, weight=4, kind="control")
def loop(b, x):
    """For a number of turns (known or an input), or while; with what it carries, and what it stacks."""
    turns = b.pick((0, 1, 2, 3, 5))
    many = np.full(b.pick(((), (1,))), turns, np.int64)
    known = b.chance(0.6)
    trip = b.constant(many) if known else b.given(many)
    carried = [x] if b.chance(0.6) else [x, b.constant(np.int64(b.pick((0, 3))))]
    arguments = {"turn": np.int64(0), "going": np.array(True)}
    arguments |= {f"s{i}": b.graph.values[name] for i, name in enumerate(carried)}
    inner = body_of(b, {name: np.asarray(value) for name, value in arguments.items()})
    turn, going, state, *count = inner.arguments
    y = steps_of(inner, state)
    y = inner.node("Mul", inner.node("Tanh", y), inner.number(0.9)) if b.chance(0.5) else y
    more = [inner.node("Add", count[0], b.pick((turn, inner.constant(np.int64(2)))))] if count else []
    again = inner.node("Identity", going)
    if b.chance(0.4):
        again = inner.node("Less", more[0] if more else turn, inner.constant(np.int64(b.pick((1, 4, 20)))))
    stacked = [b.pick((y, inner.node("ReduceMax", y, keepdims=0)))] if known and turns and b.chance(0.4) else []
    proto = inner.proto([again, y, *more, *stacked])
    first = "" if b.chance(0.6) else b.constant(np.array(True))
    y = b.node("Loop", trip, first, *carried, outputs=len(carried) + len(stacked), body=proto)
    return [b.sibling(y, i) for i in range(len(carried) + len(stacked)) if b.dtype(b.sibling(y, i)).kind == "f"]


@step(2, 3, 4, weight=3, kind="control")
def scan(b, x):
    """Along an axis, either way, with a state of a part's shape."""
    axis = int(b.random.integers(len(b.shape(x))))
    value = b.graph.values[x]
    if value.shape[axis] > 20:
        raise DroppedError("long")
    part = value.take(0, axis)
    first = b.weight(part.shape)
    inner = body_of(b, {"state": b.graph.values[first], "part": part})
    state, part = inner.arguments
    y = inner.node("Add", part, inner.node("Mul", state, inner.number(0.5)))
    y = steps_of(inner, y) if inner.shape(y) else inner.node("Tanh", y)
    proto = inner.proto([y, inner.node("Identity", y) if b.chance(0.7) else inner.node("Abs", y)])
    y = b.node(
        "Scan", first, x, outputs=2, body=proto, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[int(b.chance(0.3))], scan_output_directions=[int(b.chance(0.3))],
        scan_output_axes=[int(b.random.integers(len(b.shape(x))))],
    )  # fmt: skip
    return [y, b.sibling(y, 1)]


@step(*ANY, weight=1.5, kind="control")
def parts(b, x):
    """All of a Split's, by sizes, by number or in equal parts; one is perhaps not used, or empty."""
    axis = int(b.random.integers(len(b.shape(x))))
    extent = b.shape(x)[axis]
    count = b.pick((2, 3))
    if b.chance(0.5):
        cuts = sorted(int(v) for v in b.random.integers(0 if b.chance(0.2) else 1, extent + 1, count - 1))
        sizes = np.diff([0, *cuts, extent])
        y = b.node("Split", x, b.ints(*sizes), outputs=count, axis=axis)
    else:
        y = b.node("Split", x, outputs=count, axis=axis, num_outputs=count)
    return [b.sibling(y, i) for i in range(count) if 0 not in b.shape(b.sibling(y, i))]


@step(*ANY, weight=1, kind="control")
def largest(b, x):
    """TopK: its values go on; its indices, where no two are near each other, are the model's."""
    axis = int(b.random.integers(len(b.shape(x))))
    values = np.sort(b.graph.values[x], axis)
    k = int(b.random.integers(1, b.shape(x)[axis] + 1))
    if b.shape(x)[axis] > 1 and np.diff(values, axis=axis).min() < 1e-2:
        y = b.node("TopK", b.node("Round", b.constant(b.array(b.shape(x), 9))), b.ints(k), outputs=2, axis=axis)
    else:
        y = b.node("TopK", x, b.ints(k), outputs=2, axis=axis, largest=int(b.chance(0.5)))
    return y


@step(3, weight=1, kind="control")
def all_of_recurrent(b, x):
    made = tokens.recurrent(b, x)
    flat = made if isinstance(made, str) else made[0]
    node = next(n for n in reversed(b.graph.nodes) if n.op_type in ("LSTM", "GRU", "RNN"))
    return [flat, *list(node.output)[1:]]


@step(*ANY, weight=1.5, kind="control")
def through_empty(b, x):
    """Nothing joins x, or is what a sum is made of."""
    shape = b.shape(x)
    axis = int(b.random.integers(len(shape)))
    way = b.pick(("concat", "sum", "product", "pad", "reshape", "given", "gather"))
    if way == "given":
        empty = b.given(np.zeros([0 if i == axis else d for i, d in enumerate(shape)], np.float32))
    else:
        empty = b.node("Slice", x, b.ints(1), b.ints(b.pick((0, 1))), b.ints(axis))
    if b.chance(0.5):
        empty = b.node(b.pick(("Relu", "Exp", "Neg", "Softmax")), empty)
    if way in ("concat", "given"):
        return b.node("Concat", *b.either_way(empty, x), axis=axis)
    if way == "sum":
        total = b.node(b.pick(("ReduceSum", "ReduceProd")), empty, b.ints(axis), keepdims=1)
        return b.node("Add", *b.either_way(x, total))
    if way == "pad":
        pads = [0] * (2 * len(shape))
        pads[axis] = 2
        return b.node("Pad", empty, b.ints(*pads), b.constant(np.float32(0.5)))
    if way == "product":
        rows = b.constant(np.zeros((0, b.pick((1, 3, 16))), np.float32))
        left = b.constant(np.zeros((*shape[:-1], 0), np.float32))
        return b.node("MatMul", b.node("Slice", x, b.ints(0), b.ints(0), b.ints(-1)) if b.chance(0.5) else left, rows)
    if way == "gather":
        y = b.node("Gather", x, b.constant(np.zeros(0, np.int64)), axis=axis)
        return b.node("Concat", x, y, axis=axis)
    y = b.node("Reshape", empty, b.ints(*[d for d in (*b.shape(empty), 1)]), allowzero=1)
    total = b.node("ReduceSum", y, keepdims=0)
    return b.node("Add", x, total)


@step(*ANY, weight=1.5, kind="control")
def scalars(b, x):
    """Of rank 0: an input, a reduction; on their own, and with x."""
    y = b.node(b.pick(("ReduceMean", "ReduceMax", "ReduceMin")), x, keepdims=0)
    if b.chance(0.5):
        y = b.node(b.pick(("Add", "Mul", "Max")), *b.either_way(y, b.input(())))
    if b.chance(0.5):
        y = b.node(b.pick(("Tanh", "Abs", "Neg", "Identity")), y)
    if b.chance(0.3):
        return b.reshape(b.node("Unsqueeze", y, b.ints(0)), 1, 1)
    return b.node(b.pick(("Add", "Sub")), *b.either_way(x, y))


@step(*ANY, weight=1, kind="control")
def twice(b, x):
    """The same result under two names."""
    return b.node("Add", b.node("Identity", x), b.node("Identity", x)) if b.chance(0.3) else b.node("Identity", x)
