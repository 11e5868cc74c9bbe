"""GPT-2 (Radford et al. 2019; the weights' names are those of Hugging Face's GPT2Model), without a key-value cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from inlay.models.graph import Graph


@dataclasses.dataclass(frozen=True)
class Gpt2Config:
    vocabulary: int = 50257
    positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    epsilon: float = 1e-5


GPT2 = Gpt2Config()
TINY = Gpt2Config(vocabulary=100, positions=32, width=32, layers=2, heads=4)


def build(
    config: Gpt2Config, batch: int, length: int, weights: Mapping[str, np.ndarray] | None = None, seed: int = 0
) -> onnx.ModelProto:
    """input_ids (i64 [batch, length]) -> logits (f32 [batch, length, vocabulary]); the head is the embedding's table."""
    g = Graph("gpt2", weights, seed)
    c = config
    ids = g.input("input_ids", TensorProto.INT64, (batch, length))
    table = g.weight("wte.weight", (c.vocabulary, c.width), "embedding")
    places = g.op(
        "Slice",
        g.weight("wpe.weight", (c.positions, c.width), "embedding"),
        g.constant([0]),
        g.constant([length]),
        g.constant([0]),
    )
    x = g.op("Add", g.op("Gather", table, ids), places)
    # A token attends to itself and to what came before.
    mask = g.constant(np.where(np.tril(np.ones((1, 1, length, length), bool)), 0, np.finfo(np.float32).min), np.float32)
    for layer in range(c.layers):
        x = _layer(g, c, x, mask, batch, length, f"h.{layer}")
    x = g.layer_norm(x, "ln_f", c.width, c.epsilon)
    logits = g.op("MatMul", x, g.op("Transpose", table, perm=[1, 0]), name="lm_head")
    return g.finish([(logits, "logits", (batch, length, c.vocabulary))])


def _layer(g: Graph, c: Gpt2Config, x: str, mask: str, batch: int, length: int, name: str) -> str:
    head = c.width // c.heads
    normal = g.layer_norm(x, f"{name}.ln_1", c.width, c.epsilon)
    joint = g.linear(normal, f"{name}.attn.c_attn", c.width, 3 * c.width)
    query, key, value = g.op("Split", joint, outputs=3, axis=2, name=f"{name}/split")
    split = (batch, length, c.heads, head)
    query = g.split_heads(query, split, (0, 2, 1, 3))
    key = g.split_heads(key, split, (0, 2, 3, 1))
    value = g.split_heads(value, split, (0, 2, 1, 3))
    scores = g.op("Div", g.op("MatMul", query, key), g.scalar(head**0.5))
    attention = g.op("Softmax", g.op("Add", scores, mask), axis=-1, name=f"{name}/softmax")
    context = g.op("Transpose", g.op("MatMul", attention, value), perm=[0, 2, 1, 3])
    context = g.op("Reshape", context, g.constant([batch, length, c.width]))
    x = g.op("Add", x, g.linear(context, f"{name}.attn.c_proj", c.width, c.width))
    normal = g.layer_norm(x, f"{name}.ln_2", c.width, c.epsilon)
    inner = _gelu_tanh(g, g.linear(normal, f"{name}.mlp.c_fc", c.width, 4 * c.width))
    return g.op("Add", x, g.linear(inner, f"{name}.mlp.c_proj", 4 * c.width, c.width))


def _gelu_tanh(g: Graph, x: str) -> str:
    """x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), in the nodes that exporters write."""
    cube = g.op("Pow", x, g.scalar(3.0))
    inside = g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.scalar(0.044715))), g.scalar((2 / np.pi) ** 0.5))
    return g.op("Mul", g.op("Mul", x, g.scalar(0.5)), g.op("Add", g.op("Tanh", inside), g.scalar(1.0)))
