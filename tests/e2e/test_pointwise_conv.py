"""Linear layers over an image's channels, and attention whose heads are mixed, against onnxruntime: they are compiled as
convolutions of one pixel."""

from __future__ import annotations

import onnx
import pytest
from conftest import check_close, inputs_of, reference
from onnx import TensorProto

import inlay
from inlay.models.graph import Graph


def mix(g: Graph, x: str, channels: int, to: int, rank: int, *, bias: bool, name: str) -> str:
    """x [n, channels, ...] to [n, to, ...] by a linear layer, with the transposes that PyTorch exports for it."""
    last = [0, *range(2, rank), 1]
    y = g.op("Transpose", x, perm=last)
    y = g.op("MatMul", y, g.weight(f"{name}.weight", (channels, to)))
    if bias:
        y = g.op("Add", g.weight(f"{name}.bias", (to,)), y)
    return g.op("Transpose", y, perm=[0, rank - 1, *range(1, rank - 1)])


def talking_heads(heads: int, tokens: int) -> onnx.ModelProto:
    g = Graph("talking_heads", seed=heads)
    q, k, v = (g.input(name, TensorProto.FLOAT, [1, heads, tokens, 16]) for name in "qkv")
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = mix(g, scores, heads, heads, 4, bias=True, name="proj_l")
    scores = g.op("Softmax", scores, axis=-1)
    scores = mix(g, scores, heads, heads, 4, bias=True, name="proj_w")
    return g.finish([(g.op("MatMul", scores, v), "y", [1, heads, tokens, 16])])


def layers() -> onnx.ModelProto:
    g = Graph("layers", seed=5)
    outputs = []
    for i, (image, to) in enumerate(
        [([1, 1, 1, 1], 1), ([2, 3, 5, 7], 11), ([1, 40, 13, 1], 17), ([3, 5, 2, 3, 4], 2), ([1, 7, 1, 1, 31], 8)]
    ):
        for bias in (False, True):
            x = g.input(f"x{i}{bias}", TensorProto.FLOAT, image)
            y = mix(g, x, image[1], to, len(image), bias=bias, name=f"linear{i}{bias}")
            outputs.append((y, f"y{i}{bias}", [image[0], to, *image[2:]]))
    return g.finish(outputs)


@pytest.mark.parametrize(
    "wanted", [layers(), talking_heads(4, 37), talking_heads(6, 129)], ids=["layers", "4x37", "6x129"]
)
def test_as_onnxruntime(client, wanted: onnx.ModelProto):
    executable = inlay.build(inlay.from_onnx(wanted), inlay.config.cpu(backends=["native"]), server=client)
    inputs = inputs_of(executable)
    got = executable.jit()["main"](**inputs)
    check_close(got if len(wanted.graph.output) == 1 else list(got), reference(wanted, inputs))


def test_no_scores_are_transposed(client):
    config = inlay.config.cpu(backends=["native"])
    executable = inlay.build(inlay.from_onnx(talking_heads(4, 37)), config, server=client)
    # One partition transposes the layers' weights, when it is loaded.
    assert sorted(p.ops for p in executable.report.partitions) == [
        ["conv"],
        ["matmul"],
        ["matmul"],
        ["softmax"],
        ["transpose", "reshape"],
    ]
