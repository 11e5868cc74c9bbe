"""What random models are built with."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnxruntime.capi import onnxruntime_pybind11_state

OPSET = 20
LARGEST = 1e3  # of a value


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Extents to draw from: ones, primes, a vector's lanes and one more or less, and what networks have."""

    batches: tuple[int, ...]
    channels: tuple[int, ...]
    pixels: tuple[int, ...]
    tokens: tuple[int, ...]
    most_elements: int


SMALL = Sizes(
    batches=(1, 1, 1, 2, 3, 5),
    channels=(1, 2, 3, 4, 5, 7, 8, 12, 13, 15, 16, 17, 24, 31, 32, 33, 40, 48, 64, 96),
    pixels=(1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 16, 19, 28, 33),
    tokens=(1, 2, 3, 5, 8, 16, 17, 32, 49, 50, 64),
    most_elements=1 << 18,
)
TINY = Sizes(
    batches=(1, 1, 2, 3),
    channels=(1, 1, 2, 3, 8, 16, 17, 33, 64),
    pixels=(1, 1, 2, 3, 16, 17, 40),
    tokens=(1, 1, 2, 3, 16, 17, 65),
    most_elements=1 << 16,
)
LARGE = Sizes(
    batches=(1, 1, 2, 4, 6, 8),
    channels=(3, 16, 24, 31, 32, 40, 48, 64, 96, 97, 128, 192, 256, 320, 384, 512),
    pixels=(7, 14, 15, 28, 32, 35, 56, 57, 64, 80, 112),
    tokens=(49, 50, 64, 128, 197, 256, 300, 512, 784),
    most_elements=1 << 22,
)


ONNXRUNTIME_ERRORS = tuple(
    one for one in vars(onnxruntime_pybind11_state).values() if isinstance(one, type) and issubclass(one, Exception)
)


def run_nodes(model: onnx.ModelProto, inputs: dict[str, np.ndarray], threads: int = 1) -> list[np.ndarray]:
    """onnxruntime's answer, without its graph rewriting; threads 0: as many as there are cores."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    """A model of nodes; inputs and outputs have the types of these values."""

    def info(values: dict[str, np.ndarray]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
        ]

    graph = helper.make_graph(
        list(nodes),
        "random",
        info(inputs),
        info(outputs),
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def reads(*nodes: onnx.NodeProto) -> dict[str, None]:
    """The names that these read, in order, those that the graphs inside of them take from outside among them."""
    names: dict[str, None] = {}
    for node in nodes:
        names.update(dict.fromkeys(filter(None, node.input)))
        for graph in (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
            own = {one.name for one in (*graph.input, *graph.initializer)} | {y for n in graph.node for y in n.output}
            outside = [*reads(*graph.node), *(one.name for one in graph.output)]
            names.update(dict.fromkeys(name for name in outside if name not in own))
    return names


@dataclasses.dataclass
class RandomGraph:
    """nodes in order; inputs, weights and every node's values by name; names of the outputs."""

    nodes: list[onnx.NodeProto]
    inputs: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    values: dict[str, np.ndarray]
    outputs: list[str]

    @property
    def model(self) -> onnx.ModelProto:
        used = {*reads(*self.nodes), *self.outputs}
        return make_model(
            self.nodes,
            self.inputs,
            {name: self.values[name] for name in self.outputs},
            {name: value for name, value in self.weights.items() if name in used},
        )

    @property
    def size(self) -> int:
        return len(self.nodes)

    def cut(self, index: int) -> RandomGraph:
        """See cut_down."""
        nodes, cut = self.nodes[:index] + self.nodes[index + 1 :], self.nodes[index]
        outputs = [name for name in self.outputs if name not in cut.output]
        if not outputs:
            made = {y for node in nodes for y in node.output}
            outputs = [y for y in cut.input if y in made][:1]
        used = {*reads(*nodes), *outputs}
        fed = {name: self.values[name] for name in cut.output if name in used}
        inputs = {name: value for name, value in {**self.inputs, **fed}.items() if name in used}
        return RandomGraph(nodes, inputs, self.weights, self.values, outputs)


class DroppedError(Exception):
    """A node that is not to be: its values are too large, or too many."""


class Builder:
    """Adds nodes to `graph`; `live` are the tensors that the next ones may take."""

    def __init__(self, seed: int, sizes: Sizes):
        self.random = np.random.default_rng(seed)
        self.data = np.random.default_rng((seed, 1))  # values: two steps of the same draws have weights of their own
        self.sizes = sizes
        self.graph = RandomGraph([], {}, {}, {}, [])
        self.live: list[str] = []
        self.largest = LARGEST
        self.empties = False  # whether tensors without elements may be
        self.prefix = ""  # of the names of what is added

    # What is drawn.

    def pick(self, values):
        return values[int(self.random.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def array(self, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        return np.asarray(self.data.standard_normal(tuple(shape)) * scale, np.float32)

    # What is added.

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.values[name].shape

    def dtype(self, name: str) -> np.dtype:
        return self.graph.values[name].dtype

    def input(self, shape: Sequence[int], scale: float = 1.0) -> str:
        return self.given(self.array(shape, scale))

    def given(self, value: np.ndarray) -> str:
        """An input of that value."""
        name = f"x{len(self.graph.inputs)}"
        self.graph.inputs[name] = self.graph.values[name] = value
        return name

    def weight(self, shape: Sequence[int], scale: float = 1.0) -> str:
        """Mostly one of the model's own; else one that the caller gives, that others have too, or that is computed."""
        shape = tuple(shape)
        if self.chance(0.03):
            return self.input(shape, scale)
        if self.chance(0.03):
            same = [w for w, x in self.graph.weights.items() if x.shape == shape and x.dtype == np.float32]
            if same:
                return self.pick(same)
        if self.chance(0.1):
            return self.computed(shape, scale)
        return self.constant(self.array(shape, scale))

    def computed(self, shape: tuple[int, ...], scale: float) -> str:
        """A weight that operators make of others, as exporters leave them."""
        way = self.pick(("scaled", "transposed", "sum", "slice", "joined", "reshaped", "masked"))
        if way == "scaled":
            return self.node("Mul", self.constant(self.array(shape)), self.constant(np.float32(scale)))
        if way == "transposed":
            perm = [int(i) for i in self.random.permutation(len(shape))]
            stored = [0] * len(shape)
            for i, axis in enumerate(perm):
                stored[axis] = shape[i]
            return self.node("Transpose", self.constant(self.array(stored, scale)), perm=perm)
        if way == "sum":
            return self.node("Add", *(self.constant(self.array(shape, scale / 1.5)) for _ in range(2)))
        if way == "slice" and shape:
            more = self.constant(self.array((shape[0] + 2, *shape[1:]), scale))
            return self.node("Slice", more, self.ints(1), self.ints(1 + shape[0]), self.ints(0))
        if way == "joined" and shape and shape[0] > 1:
            parts = [self.constant(self.array((n, *shape[1:]), scale)) for n in (1, shape[0] - 1)]
            return self.node("Concat", *parts, axis=0)
        if way == "masked":
            mask = self.constant(self.data.random(shape) < 0.9)
            return self.node("Where", mask, self.constant(self.array(shape, scale)), self.constant(np.float32(0)))
        flat = self.constant(self.array((math.prod(shape),), scale))
        return self.node("Reshape", flat, self.ints(*shape))

    def constant(self, value) -> str:
        name = f"{self.prefix}w{len(self.graph.weights)}"
        self.graph.weights[name] = self.graph.values[name] = np.asarray(value)
        return name

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        shape = () if self.chance(0.7) else (1,)
        return self.constant(np.full(shape, value, np.float32))

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes) -> str:
        """The name of the first result; others have the same with another digit at the end."""
        names = [f"{self.prefix}v{len(self.graph.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        given = {name: self.graph.values[name] for name in reads(node)}
        model = make_model([node], given, {}, {})
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
        try:
            values = run_nodes(model, given)
        except ONNXRUNTIME_ERRORS as error:
            raise DroppedError(f"{op}: {error}") from None
        for value in values:
            if value is None:  # as of a branch that returns one thing twice
                raise DroppedError(f"{op}: no value")
            if value.size > self.sizes.most_elements or (value.size == 0 and not self.empties):
                raise DroppedError(f"{op}: {value.size} elements")
            if value.dtype.kind == "f" and not (np.abs(value) < self.largest).all():
                raise DroppedError(f"{op}: large values")
        self.graph.nodes.append(node)
        self.graph.values.update(zip(names, values, strict=True))
        return names[0]

    def sibling(self, name: str, index: int) -> str:
        return f"{name.rpartition('_')[0]}_{index}"

    def attempt(self, one: Step, x: str) -> list[str]:
        """What a step of x makes, now live; nothing if it can't be."""
        before = len(self.graph.nodes)
        try:
            made = one.add(self, x)
        except DroppedError:
            del self.graph.nodes[before:]
            return []
        made = [made] if isinstance(made, str) else list(made)
        if len(self.graph.nodes) == before:
            return []
        self.live += [y for y in made if len(self.shape(y)) > 0 and 0 not in self.shape(y)]
        return made

    def grow(self, wanted: int, kinds: Sequence[str]) -> None:
        """That many steps of these kinds: mostly a chain; sometimes from further back."""
        steps = {name: one for kind in kinds for name, one in STEPS[kind].items()}
        for _ in range(20 * wanted):
            if wanted == 0:
                break
            x = self.live[-1] if self.chance(0.75) else self.pick(self.live)
            names = [name for name, one in steps.items() if one.takes(self.graph.values[x])]
            if not names:
                break
            weights = np.array([steps[name].weight for name in names])
            one = steps[names[int(self.random.choice(len(names), p=weights / weights.sum()))]]
            state = self.random.bit_generator.state
            made = self.attempt(one, x)
            wanted -= bool(made)
            # Layers of one kind, each with its own weights.
            while len(made) == 1 and self.same_type(made[0], x) and self.chance(0.3):
                after, self.random.bit_generator.state = self.random.bit_generator.state, state
                made = self.attempt(one, made[0])
                self.random.bit_generator.state = after

    def same_type(self, x: str, y: str) -> bool:
        return self.shape(x) == self.shape(y) and self.dtype(x) == self.dtype(y)

    # Pieces that others are made of.

    def scaled(self, x: str) -> str:
        """Brought near one where its values have grown."""
        largest = float(np.abs(self.graph.values[x]).max())
        return self.node("Mul", x, self.number(2 / largest)) if largest > 8 else x

    def check_spread(self, x: str, axes: Sequence[int], groups: int = 0) -> None:
        """Drops a norm over values that are nearly the same: it would make roundings large."""
        values = self.graph.values[x]
        if groups:
            values, axes = values.reshape(values.shape[0], groups, -1), (2,)
        if values.var(axis=tuple(axes)).min() < 1e-2:
            raise DroppedError("norm: no spread")

    def conv(self, x: str, out: int, kernel: Sequence[int], bias: bool | None = None, **attributes) -> str:
        channels = self.shape(x)[1]
        group = attributes.get("group", 1)
        fan_in = channels // group * math.prod(kernel)
        inputs = [x, self.weight((out, channels // group, *kernel), 1 / math.sqrt(fan_in))]
        if self.chance(0.6) if bias is None else bias:
            inputs.append(self.weight((out,), 0.3))
        return self.node("Conv", *inputs, kernel_shape=list(kernel), **attributes)

    def batch_norm(self, x: str) -> str:
        c = self.shape(x)[1]
        parameters = [
            self.constant(self.data.uniform(0.5, 1.5, c).astype(np.float32)),
            self.constant(self.array((c,), 0.2)),
            self.constant(self.array((c,), 0.2)),
            self.constant(self.data.uniform(0.5, 1.5, c).astype(np.float32)),
        ]
        return self.node("BatchNormalization", x, *parameters, epsilon=1e-5)

    def linear(self, x: str, out: int) -> str:
        k = self.shape(x)[-1]
        w = self.weight((k, out), 1 / math.sqrt(k))
        y = self.node("MatMul", x, w)
        return self.node("Add", *self.either_way(y, self.weight((out,), 0.3))) if self.chance(0.7) else y

    def either_way(self, a: str, b: str) -> tuple[str, str]:
        return (a, b) if self.chance(0.5) else (b, a)

    def reshape(self, x: str, *shape: int) -> str:
        """With zeros for extents that stay, and a -1, as exporters of models whose extents are open write it."""
        wanted = list(shape)
        if self.chance(0.5):
            wanted = [0 if i < len(self.shape(x)) and d == self.shape(x)[i] else d for i, d in enumerate(wanted)]
            rest = [i for i, d in enumerate(wanted) if d != 0]
            if rest and -1 not in wanted and self.chance(0.6):
                wanted[self.pick(rest)] = -1
        return self.node("Reshape", x, self.ints(*wanted))

    def add_to(self, x: str) -> str:
        """With another tensor of the same shape where there is one: a shortcut."""
        same = [name for name in self.live if name != x and self.shape(name) == self.shape(x)]
        return self.node("Add", *self.either_way(x, self.pick(same))) if same else x


@dataclasses.dataclass(frozen=True)
class Step:
    ranks: tuple[int, ...]
    weight: float
    types: str  # of its argument, as NumPy's dtype.kind
    add: Callable[[Builder, str], str | Sequence[str]]

    def takes(self, value: np.ndarray) -> bool:
        return value.ndim in self.ranks and value.dtype.kind in self.types


STEPS: dict[str, dict[str, Step]] = {}  # by kind, by name


def step(*ranks: int, weight: float = 1.0, kind: str = "float", types: str = "f"):
    def register(function):
        STEPS.setdefault(kind, {})[function.__name__] = Step(ranks, weight, types, function)
        return function

    return register
