"""Vision Transformer (Dosovitskiy et al. 2020)."""

from __future__ import annotations

import dataclasses

import onnx
from onnx import TensorProto

from inlay.models.graph import Graph


@dataclasses.dataclass(frozen=True)
class VitConfig:
    size: int = 224
    patch: int = 16
    width: int = 384
    layers: int = 12
    heads: int = 6
    classes: int = 1000
    batch: int = 1
    epsilon: float = 1e-6


VIT_SMALL = VitConfig()
TINY = VitConfig(size=32, patch=8, width=32, layers=2, heads=4, classes=10)


def build(config: VitConfig, seed: int = 0) -> onnx.ModelProto:
    """input (f32 [batch, 3, size, size]) -> logits (f32 [batch, classes])."""
    g = Graph("vit", seed=seed)
    c = config
    patches = (c.size // c.patch) ** 2
    x = g.input("input", TensorProto.FLOAT, (c.batch, 3, c.size, c.size))
    weight = g.weight("patch_embed.weight", (c.width, 3, c.patch, c.patch))
    bias = g.weight("patch_embed.bias", (c.width,), "zeros")
    x = g.op("Conv", x, weight, bias, kernel_shape=[c.patch] * 2, strides=[c.patch] * 2, name="patch_embed")
    x = g.op("Transpose", g.op("Reshape", x, g.constant([c.batch, c.width, patches])), perm=[0, 2, 1])
    token = g.op("Expand", g.weight("cls_token", (1, 1, c.width), "embedding"), g.constant([c.batch, 1, c.width]))
    x = g.op("Concat", token, x, axis=1)
    x = g.op("Add", x, g.weight("pos_embed", (1, patches + 1, c.width), "embedding"))
    for layer in range(c.layers):
        x = _layer(g, c, x, patches + 1, f"blocks.{layer}")
    x = g.op("Gather", g.layer_norm(x, "norm", c.width, c.epsilon), g.constant(0), axis=1)
    weight = g.weight("head.weight", (c.classes, c.width))
    logits = g.op("Gemm", x, weight, g.weight("head.bias", (c.classes,), "zeros"), transB=1, name="head")
    return g.finish([(logits, "logits", (c.batch, c.classes))])


def _layer(g: Graph, c: VitConfig, x: str, length: int, name: str) -> str:
    head = c.width // c.heads
    normal = g.layer_norm(x, f"{name}.norm1", c.width, c.epsilon)
    joint = g.linear(normal, f"{name}.attn.qkv", c.width, 3 * c.width)
    joint = g.op(
        "Transpose", g.op("Reshape", joint, g.constant([c.batch, length, 3, c.heads, head])), perm=[2, 0, 3, 1, 4]
    )
    query, key, value = (g.op("Gather", joint, g.constant(i), axis=0) for i in range(3))
    query = g.op("Mul", query, g.scalar(head**-0.5))
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    context = g.op("MatMul", g.op("Softmax", scores, axis=-1), value)
    context = g.op("Reshape", g.op("Transpose", context, perm=[0, 2, 1, 3]), g.constant([c.batch, length, c.width]))
    x = g.op("Add", x, g.linear(context, f"{name}.attn.proj", c.width, c.width))
    normal = g.layer_norm(x, f"{name}.norm2", c.width, c.epsilon)
    inner = g.gelu(g.linear(normal, f"{name}.mlp.fc1", c.width, 4 * c.width), name)
    return g.op("Add", x, g.linear(inner, f"{name}.mlp.fc2", 4 * c.width, c.width))
