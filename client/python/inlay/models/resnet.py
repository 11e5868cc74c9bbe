"""ResNet with bottleneck blocks (He et al. 2015, the v1.5 form: the stride is in the 3x3 convolution)."""

from __future__ import annotations

import dataclasses
from typing import Any

import onnx
from onnx import TensorProto

from inlay.models.graph import Graph


@dataclasses.dataclass(frozen=True)
class ResnetConfig:
    """blocks: how many in each stage; width: channels after the stem; batch_norm: separate nodes, not folded."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    classes: int = 1000
    size: int = 224
    batch: int = 1
    batch_norm: bool = True


RESNET50 = ResnetConfig()
TINY = ResnetConfig(blocks=(1, 1), width=8, classes=10, size=32)


def build(config: ResnetConfig, seed: int = 0) -> onnx.ModelProto:
    """input (f32 [batch, 3, size, size]) -> logits (f32 [batch, classes])."""
    g = Graph("resnet", seed=seed)
    c = config
    x = g.input("input", TensorProto.FLOAT, (c.batch, 3, c.size, c.size))
    x = g.op("Relu", conv(g, x, "conv1", 3, c.width, 7, 2, c.batch_norm))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = c.width
    for stage, count in enumerate(c.blocks):
        inner = c.width << stage
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _bottleneck(g, x, f"layer{stage + 1}.{block}", channels, inner, stride, c.batch_norm)
            channels = 4 * inner
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    weight = g.weight("fc.weight", (c.classes, channels))
    logits = g.op("Gemm", x, weight, g.weight("fc.bias", (c.classes,), "zeros"), transB=1, name="fc")
    return g.finish([(logits, "logits", (c.batch, c.classes))])


def conv(
    g: Graph,
    x: str,
    name: str,
    channels: int,
    out: int,
    kernel: int,
    stride: int,
    batch_norm: bool,
    groups: int = 1,
    gain: str = "ones",
) -> str:
    """A convolution that keeps the size but for its stride, and its batch-norm."""
    weight = g.weight(f"{name}.weight", (out, channels // groups, kernel, kernel))
    attrs: dict[str, Any] = {
        "kernel_shape": [kernel] * 2,
        "strides": [stride] * 2,
        "pads": [kernel // 2] * 4,
        "group": groups,
    }
    if not batch_norm:
        return g.op("Conv", x, weight, g.weight(f"{name}.bias", (out,), "zeros"), name=name, **attrs)
    x = g.op("Conv", x, weight, name=name, **attrs)
    kinds = (("weight", gain), ("bias", "zeros"), ("running_mean", "zeros"), ("running_var", "variance"))
    norm = [g.weight(f"{name}.bn.{what}", (out,), kind) for what, kind in kinds]
    return g.op("BatchNormalization", x, *norm, name=f"{name}.bn", epsilon=1e-5)


def _bottleneck(g: Graph, x: str, name: str, channels: int, inner: int, stride: int, batch_norm: bool) -> str:
    y = g.op("Relu", conv(g, x, f"{name}.conv1", channels, inner, 1, 1, batch_norm))
    y = g.op("Relu", conv(g, y, f"{name}.conv2", inner, inner, 3, stride, batch_norm))
    # A small last gain keeps the sum over 16 blocks in range, as trained networks have it.
    y = conv(g, y, f"{name}.conv3", inner, 4 * inner, 1, 1, batch_norm, gain="zeros")
    if stride != 1 or channels != 4 * inner:
        x = conv(g, x, f"{name}.downsample", channels, 4 * inner, 1, stride, batch_norm)
    return g.op("Relu", g.op("Add", y, x))
