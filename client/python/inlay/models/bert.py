"""BERT's encoder (Devlin et al. 2018; the weights' names are those of Hugging Face's BertModel)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto

from inlay.models.graph import Graph


@dataclasses.dataclass(frozen=True)
class BertConfig:
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    epsilon: float = 1e-12


BERT_BASE = BertConfig()
MINILM = BertConfig(width=384, layers=6, inner=1536)
TINY = BertConfig(vocabulary=100, positions=32, width=32, layers=2, heads=4, inner=64)


def build(
    config: BertConfig,
    batch: int,
    length: int,
    weights: Mapping[str, np.ndarray] | None = None,
    pooled: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """input_ids, attention_mask, token_type_ids (i64 [batch, length]) -> last_hidden_state (f32 [batch, length, width]),
    or with `pooled` sentence_embedding (f32 [batch, width]): the mean over the unmasked tokens, of length 1, as
    sentence-transformers does."""
    g = Graph("bert", weights, seed)
    c = config
    shape = (batch, length)
    ids = g.input("input_ids", TensorProto.INT64, shape)
    mask = g.input("attention_mask", TensorProto.INT64, shape)
    types = g.input("token_type_ids", TensorProto.INT64, shape)

    words = g.op("Gather", g.weight("embeddings.word_embeddings.weight", (c.vocabulary, c.width), "embedding"), ids)
    kinds = g.op("Gather", g.weight("embeddings.token_type_embeddings.weight", (c.types, c.width), "embedding"), types)
    table = g.weight("embeddings.position_embeddings.weight", (c.positions, c.width), "embedding")
    places = g.op("Slice", table, g.constant([0]), g.constant([length]), g.constant([0]))
    x = g.op("Add", g.op("Add", words, kinds), places)
    x = g.layer_norm(x, "embeddings.LayerNorm", c.width, c.epsilon)

    # 0 where a token counts, the smallest float where it does not; [batch, 1, 1, length].
    kept = g.op("Cast", g.op("Unsqueeze", mask, g.constant([1, 2])), to=TensorProto.FLOAT)
    bias = g.op("Mul", g.op("Sub", g.scalar(1.0), kept), g.scalar(float(np.finfo(np.float32).min)), name="mask_bias")
    for layer in range(c.layers):
        x = _layer(g, c, x, bias, batch, length, f"encoder.layer.{layer}")
    if not pooled:
        return g.finish([(x, "last_hidden_state", (batch, length, c.width))])
    weight = g.op("Unsqueeze", g.op("Cast", mask, to=TensorProto.FLOAT), g.constant([2]))
    total = g.op("ReduceSum", g.op("Mul", x, weight), g.constant([1]), keepdims=0)
    count = g.op("ReduceSum", weight, g.constant([1]), keepdims=0)
    mean = g.op("Div", total, g.op("Max", count, g.scalar(1e-9)))
    norm = g.op("ReduceL2", mean, axes=[1], keepdims=1)
    return g.finish([(g.op("Div", mean, g.op("Max", norm, g.scalar(1e-12))), "sentence_embedding", (batch, c.width))])


def _layer(g: Graph, c: BertConfig, x: str, bias: str, batch: int, length: int, name: str) -> str:
    head = c.width // c.heads
    split = (batch, length, c.heads, head)

    def project(what: str, permutation: tuple[int, ...]) -> str:
        value = g.linear(x, f"{name}.attention.self.{what}", c.width, c.width, transposed=True)
        return g.split_heads(value, split, permutation)

    query, key, value = project("query", (0, 2, 1, 3)), project("key", (0, 2, 3, 1)), project("value", (0, 2, 1, 3))
    scores = g.op("Div", g.op("MatMul", query, key), g.scalar(head**0.5), name=f"{name}/scores")
    attention = g.op("Softmax", g.op("Add", scores, bias), axis=-1, name=f"{name}/softmax")
    context = g.op("Transpose", g.op("MatMul", attention, value), perm=[0, 2, 1, 3])
    context = g.op("Reshape", context, g.constant([batch, length, c.width]))
    out = g.linear(context, f"{name}.attention.output.dense", c.width, c.width, transposed=True)
    x = g.layer_norm(g.op("Add", out, x), f"{name}.attention.output.LayerNorm", c.width, c.epsilon)
    inner = g.gelu(g.linear(x, f"{name}.intermediate.dense", c.width, c.inner, transposed=True), name)
    out = g.linear(inner, f"{name}.output.dense", c.inner, c.width, transposed=True)
    return g.layer_norm(g.op("Add", out, x), f"{name}.output.LayerNorm", c.width, c.epsilon)
