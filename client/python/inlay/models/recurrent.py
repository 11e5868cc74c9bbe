"""A stack of LSTM layers with a classifier, and a multi-layer perceptron."""

from __future__ import annotations

import dataclasses

import onnx
from onnx import TensorProto

from inlay.models.graph import Graph


@dataclasses.dataclass(frozen=True)
class LstmConfig:
    layers: int = 2
    features: int = 128
    hidden: int = 256
    length: int = 64
    batch: int = 1
    classes: int = 1000


LSTM = LstmConfig()
LSTM_512 = LstmConfig(features=256, hidden=512, length=32)
TINY_LSTM = LstmConfig(features=12, hidden=16, length=5, classes=10)


def build_lstm(config: LstmConfig, seed: int = 0) -> onnx.ModelProto:
    """input (f32 [length, batch, features]) -> logits of the last step (f32 [batch, classes])."""
    g = Graph("lstm", seed=seed)
    c = config
    x = g.input("input", TensorProto.FLOAT, (c.length, c.batch, c.features))
    for layer in range(c.layers):
        width = c.features if layer == 0 else c.hidden
        weight = g.weight(f"lstm.{layer}.W", (1, 4 * c.hidden, width))
        recurrent = g.weight(f"lstm.{layer}.R", (1, 4 * c.hidden, c.hidden))
        bias = g.weight(f"lstm.{layer}.B", (1, 8 * c.hidden), "zeros")
        y = g.op("LSTM", x, weight, recurrent, bias, outputs=3, hidden_size=c.hidden, name=f"lstm.{layer}")[0]
        x = g.op("Squeeze", y, g.constant([1]))
    last = g.op("Gather", x, g.constant(c.length - 1), axis=0)
    weight = g.weight("fc.weight", (c.classes, c.hidden))
    logits = g.op("Gemm", last, weight, g.weight("fc.bias", (c.classes,), "zeros"), transB=1, name="fc")
    return g.finish([(logits, "logits", (c.batch, c.classes))])


@dataclasses.dataclass(frozen=True)
class MlpConfig:
    widths: tuple[int, ...] = (1024, 1024, 1024, 1024)
    batch: int = 64


MLP = MlpConfig()
MLP_16 = MlpConfig(widths=(784, 1024, 1024, 1024, 10), batch=16)
TINY_MLP = MlpConfig(widths=(16, 32, 8), batch=4)


def build_mlp(config: MlpConfig, seed: int = 0) -> onnx.ModelProto:
    """input (f32 [batch, widths[0]]) -> logits (f32 [batch, widths[-1]])."""
    g = Graph("mlp", seed=seed)
    x = g.input("input", TensorProto.FLOAT, (config.batch, config.widths[0]))
    for layer, (width, out) in enumerate(zip(config.widths, config.widths[1:], strict=False)):
        weight, bias = g.weight(f"fc{layer}.weight", (out, width)), g.weight(f"fc{layer}.bias", (out,), "zeros")
        x = g.op("Gemm", x, weight, bias, transB=1, name=f"fc{layer}")
        if layer + 2 < len(config.widths):
            x = g.op("Relu", x)
    return g.finish([(x, "logits", (config.batch, config.widths[-1]))])
