"""Random models: what networks are made of, in any order, at any size, in the several ways exporters write it.

    from random_graphs import random_graph
    graph = random_graph(seed)     # .model (ONNX), .inputs (seeded), .values (of every tensor, by onnxruntime)

Every node is run by onnxruntime as it is added, and one whose values leave [-1e3, 1e3] is dropped, so that a model's
outputs are neither constant nor huge, and a difference means something. Nodes whose results jump (Floor, ArgMax) are
left out: a last bit's difference of their input would be one of theirs.

Kinds: "float" as above; "integer", "quantised", "quantised images" (these exact) and "control" are what their modules say.
"""

from __future__ import annotations

from collections.abc import Callable

from . import control, images, integers, movement, quantised, quantised_images, tokens  # noqa: F401  they register their steps
from .builder import LARGE, ONNXRUNTIME_ERRORS, SMALL, TINY, Builder, RandomGraph, Sizes, reads, run_nodes

__all__ = [
    "KINDS",
    "LARGE",
    "ONNXRUNTIME_ERRORS",
    "SMALL",
    "TINY",
    "RandomGraph",
    "Sizes",
    "random_graph",
    "run_nodes",
]


def start_float(b: Builder) -> None:
    sizes = b.sizes
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


KINDS: dict[str, tuple[Callable[[Builder], None], tuple[str, ...]]] = {
    "float": (start_float, ("float",)),
    "integer": (integers.start, ("integer",)),
    "quantised": (quantised.start, ("quantised",)),
    quantised_images.KIND: (quantised_images.start, (quantised_images.KIND,)),
    "control": (control.start, ("float", "control")),
}


def random_graph(seed: int, steps: int | None = None, sizes: Sizes = SMALL, kind: str = "float") -> RandomGraph:
    """Of 1 to 14 steps, a step being a node to some thirty."""
    b = Builder(seed, sizes)
    start, kinds = KINDS[kind]
    start(b)
    b.grow(steps or int(b.random.integers(1, 15)), kinds)
    graph = b.graph
    used = reads(*graph.nodes)
    produced = {y for node in graph.nodes for y in node.output}
    ends = [y for node in graph.nodes for y in node.output if y not in used]
    inner = [y for y in b.live[1:-1] if y in used and y not in graph.inputs and b.chance(0.1)]
    graph.outputs = [y for y in dict.fromkeys([*ends, *inner]) if y in produced]
    graph.inputs = {name: value for name, value in graph.inputs.items() if name in used}
    if kind == "control":
        control.finish(b)
    return graph
