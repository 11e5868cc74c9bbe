"""Random models: what networks are made of, in any order, at any size, in the several ways exporters write it.

    from random_graphs import random_graph
    graph = random_graph(seed)     # .model (ONNX), .inputs (seeded), .values (of every tensor, by onnxruntime)

Every node is run by onnxruntime as it is added, and one whose values leave [-1e3, 1e3] is dropped, so that a model's
outputs are neither constant nor huge, and a difference means something. Nodes whose results jump (Floor, ArgMax) are
left out: a last bit's difference of their input would be one of theirs.
"""

from __future__ import annotations

import numpy as np

from . import images, movement, tokens  # noqa: F401  they register their steps
from .builder import LARGE, ONNXRUNTIME_ERRORS, SMALL, STEPS, TINY, Builder, RandomGraph, Sizes, cut_down, run_nodes

__all__ = [
    "LARGE",
    "ONNXRUNTIME_ERRORS",
    "SMALL",
    "TINY",
    "RandomGraph",
    "Sizes",
    "cut_down",
    "random_graph",
    "run_nodes",
]


def random_graph(seed: int, steps: int | None = None, sizes: Sizes = SMALL) -> RandomGraph:
    """Of 1 to 14 steps, a step being a node to some thirty."""
    b = Builder(seed, sizes)
    batch = b.pick(sizes.batches)
    start = b.pick(("image", "image", "image", "tokens", "tokens", "signal", "matrix", "volume"))
    shape = {
        "image": (batch, b.pick(sizes.channels), b.pick(sizes.pixels), b.pick(sizes.pixels)),
        "tokens": (batch, b.pick(sizes.tokens), b.pick(sizes.channels)),
        "signal": (batch, b.pick(sizes.channels), b.pick(sizes.tokens)),
        "matrix": (b.pick(sizes.tokens), b.pick(sizes.channels)),
        "volume": (
            batch,
            b.pick(sizes.channels[:8]),
            b.pick(sizes.pixels[:6]),
            b.pick(sizes.pixels[:8]),
            b.pick(sizes.pixels[:8]),
        ),
    }[start]
    if start == "image" and b.chance(0.5):
        shape = (*shape[:3], shape[2])
    b.live.append(b.input(shape))
    wanted = steps or int(b.random.integers(1, 15))
    for _ in range(20 * wanted):
        if wanted == 0:
            break
        # Mostly a chain; sometimes from further back.
        x = b.live[-1] if b.chance(0.75) else b.pick(b.live)
        names = [name for name, one in STEPS.items() if len(b.shape(x)) in one.ranks]
        if not names:
            break
        weights = np.array([STEPS[name].weight for name in names])
        one = STEPS[names[int(b.random.choice(len(names), p=weights / weights.sum()))]]
        state = b.random.bit_generator.state
        made = b.attempt(one, x)
        wanted -= bool(made)
        # Layers of one kind, each with its own weights.
        while len(made) == 1 and b.shape(made[0]) == b.shape(x) and b.chance(0.3):
            after, b.random.bit_generator.state = b.random.bit_generator.state, state
            made = b.attempt(one, made[0])
            b.random.bit_generator.state = after
    graph = b.graph
    used = {name for node in graph.nodes for name in node.input}
    ends = [y for node in graph.nodes for y in node.output if y not in used]
    inner = [y for y in b.live[1:-1] if y in used and y not in graph.inputs and b.chance(0.1)]
    produced = {y for node in graph.nodes for y in node.output}
    graph.outputs = [y for y in dict.fromkeys([*ends, *inner]) if y in produced]
    graph.inputs = {name: value for name, value in graph.inputs.items() if name in used}
    return graph
