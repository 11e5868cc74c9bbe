"""MobileNetV2 (Sandler et al. 2018)."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
from onnx import TensorProto

from inlay.models.graph import Graph
from inlay.models.resnet import conv


@dataclasses.dataclass(frozen=True)
class MobilenetConfig:
    """stages: (expansion, channels, blocks, first stride), table 2 of the paper."""

    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    stem: int = 32
    last: int = 1280
    classes: int = 1000
    size: int = 224
    batch: int = 1


MOBILENET_V2 = MobilenetConfig()
TINY = MobilenetConfig(stages=((1, 8, 1, 1), (6, 12, 2, 2)), stem=8, last=32, classes=10, size=32)


def build(config: MobilenetConfig, seed: int = 0) -> onnx.ModelProto:
    """input (f32 [batch, 3, size, size]) -> logits (f32 [batch, classes])."""
    g = Graph("mobilenet_v2", seed=seed)
    c = config
    x = g.input("input", TensorProto.FLOAT, (c.batch, 3, c.size, c.size))
    x = _relu6(g, conv(g, x, "features.0", 3, c.stem, 3, 2, True))
    channels, number = c.stem, 1
    for expansion, out, blocks, first_stride in c.stages:
        for block in range(blocks):
            stride = first_stride if block == 0 else 1
            x = _inverted_residual(g, x, f"features.{number}", channels, out, stride, expansion)
            channels, number = out, number + 1
    x = _relu6(g, conv(g, x, f"features.{number}", channels, c.last, 1, 1, True))
    x = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    weight = g.weight("classifier.weight", (c.classes, c.last))
    logits = g.op("Gemm", x, weight, g.weight("classifier.bias", (c.classes,), "zeros"), transB=1, name="classifier")
    return g.finish([(logits, "logits", (c.batch, c.classes))])


def _relu6(g: Graph, x: str) -> str:
    return g.op("Clip", x, g.constant(0.0, np.float32), g.constant(6.0, np.float32))


def _inverted_residual(g: Graph, x: str, name: str, channels: int, out: int, stride: int, expansion: int) -> str:
    hidden = channels * expansion
    y = x
    if expansion != 1:
        y = _relu6(g, conv(g, y, f"{name}.expand", channels, hidden, 1, 1, True))
    y = _relu6(g, conv(g, y, f"{name}.depthwise", hidden, hidden, 3, stride, True, groups=hidden))
    y = conv(g, y, f"{name}.project", hidden, out, 1, 1, True)
    return g.op("Add", x, y) if stride == 1 and channels == out else y
