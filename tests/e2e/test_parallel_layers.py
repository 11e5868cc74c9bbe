"""Networks as they are trained, with parallel branches that are one layer afterwards (RepVGG, MobileOne, FastViT, LoRA),
against onnxruntime, and that one layer is what runs."""

from __future__ import annotations

import onnx
import pytest
from conftest import check_close, inputs_of, reference
from onnx import TensorProto

import inlay
from inlay.models.graph import Graph


def batch_norm(g: Graph, x: str, channels: int, name: str) -> str:
    scale, bias, mean = (g.weight(f"{name}.{part}", (channels,)) for part in ("scale", "bias", "mean"))
    return g.op("BatchNormalization", x, scale, bias, mean, g.weight(f"{name}.variance", (channels,), "variance"))


def conv(g: Graph, x: str, weights: tuple[int, ...], name: str, **attributes) -> str:
    return batch_norm(g, g.op("Conv", x, g.weight(f"{name}.weight", weights), **attributes), weights[0], name)


def add(g: Graph, *values: str) -> str:
    total = values[0]
    for value in values[1:]:
        total = g.op("Add", total, value)
    return total


def repvgg(g: Graph, x: str, channels: int, groups: int, name: str) -> str:
    """3x3, 1x1 and the value itself, each normalised."""
    each = channels // groups
    wide = conv(g, x, (channels, each, 3, 3), f"{name}.3", pads=[1, 1, 1, 1], group=groups)
    one = conv(g, x, (channels, each, 1, 1), f"{name}.1", group=groups)
    return g.op("Relu", add(g, wide, one, batch_norm(g, x, channels, f"{name}.0")))


def strided(g: Graph, x: str, channels: int, name: str) -> str:
    wide = conv(g, x, (channels, channels, 3, 5), f"{name}.3", pads=[1, 2, 1, 2], strides=[2, 2])
    line = conv(g, x, (channels, channels, 1, 3), f"{name}.2", pads=[0, 1, 0, 1], strides=[2, 2])
    return add(g, conv(g, x, (channels, channels, 1, 1), f"{name}.1", strides=[2, 2]), line, wide)


def mixer(g: Graph, x: str, channels: int, name: str) -> str:
    """FastViT's: x + scale * (branches(x) - norm(x)), all of one channel each."""
    kernels = [conv(g, x, (channels, 1, k, k), f"{name}.{k}", pads=[k // 2] * 4, group=channels) for k in (7, 3, 1)]
    difference = g.op("Sub", add(g, *kernels), batch_norm(g, x, channels, f"{name}.norm"))
    return g.op("Add", x, g.op("Mul", g.weight(f"{name}.scale", (channels, 1, 1)), difference))


def dilated(g: Graph, x: str, channels: int, name: str) -> str:
    """A dilated 3x3, a depthwise one on the same taps, and one that has a tap between them."""
    wide = conv(g, x, (channels, channels, 3, 3), f"{name}.d", pads=[2] * 4, dilations=[2, 2])
    each = conv(g, x, (channels, 1, 3, 3), f"{name}.e", pads=[2] * 4, dilations=[2, 2], group=channels)
    return add(g, conv(g, x, (channels, channels, 3, 3), f"{name}.n", pads=[1] * 4), wide, each)


def broadcast(g: Graph, x: str, channels: int, name: str) -> str:
    """One pixel, added to all of the image that its padding makes of it."""
    wide = conv(g, x, (channels, 1, 3, 3), f"{name}.3", pads=[2] * 4, group=channels)
    return add(g, wide, x, batch_norm(g, x, channels, f"{name}.0"))


BLOCKS = {
    "repvgg": (lambda g, x: repvgg(g, x, 8, 1, "a"), (2, 8, 9, 7), [2, 8, 9, 7], 1),
    "groups": (lambda g, x: repvgg(g, x, 12, 3, "a"), (1, 12, 5, 5), [1, 12, 5, 5], 1),
    "depthwise": (lambda g, x: repvgg(g, x, 5, 5, "a"), (3, 5, 1, 11), [3, 5, 1, 11], 1),
    "strided": (lambda g, x: strided(g, x, 3, "a"), (1, 3, 13, 12), [1, 3, 7, 6], 1),
    "mixer": (lambda g, x: mixer(g, x, 17, "a"), (2, 17, 6, 8), [2, 17, 6, 8], 1),
    "broadcast": (lambda g, x: broadcast(g, x, 4, "a"), (2, 4, 1, 1), [2, 4, 3, 3], 1),
    "dilated": (lambda g, x: dilated(g, x, 4, "a"), (1, 4, 9, 9), [1, 4, 9, 9], 2),
}


def graph(block: str) -> onnx.ModelProto:
    make, image, result, _ = BLOCKS[block]
    g = Graph(block, seed=3)
    x = g.input("x", TensorProto.FLOAT, list(image))
    return g.finish([(make(g, x), "y", result)])


def lora(rank: int) -> onnx.ModelProto:
    g = Graph("lora", seed=rank)
    x = g.input("x", TensorProto.FLOAT, [2, 5, 24])
    y = g.op("Add", g.op("MatMul", x, g.weight("w", (24, 33))), g.weight("b", (33,)))
    for adapter in ("first", "second"):
        down = g.op("MatMul", x, g.weight(f"{adapter}.a", (24, rank)))
        up = g.op("MatMul", down, g.weight(f"{adapter}.b", (rank, 33)))
        y = g.op("Add", y, g.op("Mul", up, g.scalar(1.5)))
    return g.finish([(y, "y", [2, 5, 33])])


def contractions(executable: inlay.Executable) -> int:
    """How many convolutions and matmuls there are, of weights alone too."""
    return sum(
        sum(op in ("conv", "matmul") for op in partition.ops) * partition.call_sites
        for partition in executable.report.partitions
    )


@pytest.mark.parametrize("block", BLOCKS)
def test_branches_are_one_convolution(client, block: str):
    executable = inlay.build(inlay.from_onnx(graph(block)), inlay.config.cpu(backends=["native"]), server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(graph(block), inputs))
    assert contractions(executable) == BLOCKS[block][3]


@pytest.mark.parametrize("rank", [1, 8])
def test_adapters_are_part_of_the_matrix(client, rank: int):
    executable = inlay.build(inlay.from_onnx(lora(rank)), inlay.config.cpu(backends=["native"]), server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(lora(rank), inputs))
    assert contractions(executable) == 1 + 2  # the adapters' own products are of weights, taken when it is loaded
