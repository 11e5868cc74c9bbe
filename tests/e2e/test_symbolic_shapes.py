"""Models whose dimensions are left open (executor vm): compiled once, run at many sizes, in every way to run."""

from __future__ import annotations

import functools
import json
import re
import subprocess

import numpy as np
import onnx
import pytest
from conftest import check_close, reference
from onnx import TensorProto, helper

import inlay
from inlay import profiling, roofline
from inlay.ir import FunctionBuilder
from inlay.models.graph import Graph

I64, F32 = TensorProto.INT64, TensorProto.FLOAT
WIDTH, HEADS, VOCABULARY, POSITIONS = 32, 4, 50, 40


def mlp() -> onnx.ModelProto:
    g = Graph("mlp")
    x = g.input("x", F32, ["batch", 24])
    for i, (a, b) in enumerate([(24, 40), (40, 17)]):
        x = g.op("Relu", g.linear(x, f"layer{i}", a, b))
    return g.finish([(g.op("Softmax", x, axis=-1), "y", ["batch", 17])])


def cnn() -> onnx.ModelProto:
    """Open batch, height and width; windows that leave a rest, one of them in ceil mode."""
    g = Graph("cnn")
    x = g.input("x", F32, ["batch", 3, "height", "width"])
    x = g.op("Relu", g.op("Conv", x, g.weight("stem", (8, 3, 3, 3)), strides=[2, 2], pads=[1, 1, 1, 1]))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = g.op(
        "Relu", g.op("Conv", x, g.weight("body", (16, 8, 3, 3)), g.weight("bias", (16,), "zeros"), pads=[1, 1, 1, 1])
    )
    x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
    y = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    return g.finish([(g.linear(y, "head", 16, 10), "y", ["batch", 10]), (x, "map", ["batch", 16, "h", "w"])])


def decoder() -> onnx.ModelProto:
    """Open batch, height and width; transposed convolutions with and without a rest, a border, a residual."""
    g = Graph("decoder")
    x = g.input("x", F32, ["batch", 6, "height", "width"])
    up = g.op("ConvTranspose", x, g.weight("up", (6, 8, 4, 4)), strides=[2, 2], pads=[1, 1, 1, 1])
    rest = g.op(
        "ConvTranspose", x, g.weight("rest", (6, 8, 3, 3)), g.weight("bias", (8,), "zeros"),
        strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1],
    )  # fmt: skip
    y = g.op("Relu", g.op("Add", up, rest))
    y = g.op("ConvTranspose", y, g.weight("wide", (8, 4, 3, 2)), strides=[1, 3], pads=[0, 1, 2, 0])
    return g.finish([(g.op("Tanh", y), "y", ["batch", 4, "h", "w"])])


def residual() -> onnx.ModelProto:
    """As ResNet: strided stem, max pool, blocks that halve on two ways, global average pool, Gemm."""
    g = Graph("residual")
    x = g.input("x", F32, ["batch", 3, "height", "width"])

    def conv(x: str, name: str, channels: tuple[int, int], kernel: int, stride: int) -> str:
        weights = g.weight(name, (channels[1], channels[0], kernel, kernel)), g.weight(f"{name}.b", (channels[1],))
        return g.op("Conv", x, *weights, strides=[stride] * 2, pads=[kernel // 2] * 4)

    x = g.op("Relu", conv(x, "stem", (3, 8), 7, 2))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for i, (a, b) in enumerate([(8, 16), (16, 24)]):
        y = conv(g.op("Relu", conv(x, f"a{i}", (a, b), 3, 2)), f"b{i}", (b, b), 3, 1)
        x = g.op("Relu", g.op("Add", y, conv(x, f"short{i}", (a, b), 1, 2)))
    y = g.op("Flatten", g.op("GlobalAveragePool", x), axis=1)
    y = g.op("Gemm", y, g.weight("head", (10, 24)), g.weight("head.b", (10,), "zeros"), transB=1)
    return g.finish([(y, "y", ["batch", 10])])


def unet() -> onnx.ModelProto:
    """Twice down and up again; its sizes are multiples of 4."""
    g = Graph("unet")
    x = g.input("x", F32, ["batch", 3, "4*h", "4*w"])

    def conv(x: str, name: str, a: int, b: int) -> str:
        return g.op("Relu", g.op("Conv", x, g.weight(name, (b, a, 3, 3)), pads=[1, 1, 1, 1]))

    def join(x: str, left: str, name: str, a: int, b: int) -> str:
        return g.op("Concat", g.op("ConvTranspose", x, g.weight(name, (a, b, 2, 2)), strides=[2, 2]), left, axis=1)

    top = conv(x, "down0", 3, 8)
    middle = conv(g.op("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), "down1", 8, 16)
    x = conv(g.op("MaxPool", middle, kernel_shape=[2, 2], strides=[2, 2]), "down2", 16, 16)
    x = conv(join(x, middle, "up1", 16, 8), "side1", 24, 16)
    y = conv(join(x, top, "up0", 16, 8), "side0", 16, 2)
    return g.finish([(y, "y", ["batch", 2, "4*h", "4*w"])])


def superresolution() -> onnx.ModelProto:
    """Padded to multiples of 4 by what a run alone knows, convolved between borders of every kind, and shuffled up."""
    g = Graph("superresolution")
    x = g.input("x", F32, ["batch", 3, "height", "width"])
    sizes = [g.op("Unsqueeze", extent(g, x, axis), g.constant([0])) for axis in (2, 3)]
    to_four = [g.op("Mod", g.op("Sub", g.constant([0]), size), g.constant([4])) for size in sizes]
    y = g.op("Pad", x, g.op("Concat", g.constant([0] * 6), *to_four, axis=0), mode="reflect")
    for i, (mode, channels) in enumerate([("reflect", (3, 16)), ("edge", (16, 16)), ("wrap", (16, 12))]):
        y = g.op("Pad", y, g.constant([0, 0, 1, 1, 0, 0, 1, 1]), mode=mode)
        y = g.op("Conv", y, g.weight(f"conv{i}", (channels[1], channels[0], 3, 3)))
        y = g.op(
            "Add", y, g.op("Mul", g.op("Slice", y, *map(g.constant, ([-1], [-(2**63)], [3], [-1]))), g.scalar(0.5))
        )
    y = g.op("DepthToSpace", y, blocksize=2, mode="CRD")
    half = g.op("SpaceToDepth", y, blocksize=4)
    to = [g.op("Mul", size, g.constant([2])) for size in sizes]
    y = g.op("Slice", y, g.constant([0, 0]), g.op("Concat", *to, axis=0), g.constant([2, 3]))
    return g.finish([(y, "y", ["batch", 3, "h", "w"]), (half, "half", ["batch", 48, "hh", "hw"])])


def convolution(g: Graph, x: str, name: str, a: int, b: int, size: int, stride: int) -> str:
    return g.op("Conv", x, g.weight(name, (b, a, size, size)), pads=[size // 2] * 4, strides=[stride] * 2)


def pyramid() -> onnx.ModelProto:
    """As a detector's neck: what comes from below is doubled and added to what stands beside it."""
    g = Graph("pyramid")
    x = g.input("x", F32, ["batch", 3, "4*h", "4*w"])

    conv = functools.partial(convolution, g)
    wide = g.op("Relu", conv(x, "stem", 3, 8, 3, 2))
    deep = g.op("Relu", conv(wide, "body", 8, 12, 3, 2))
    twice = g.constant([1, 1, 2, 2], np.float32)
    up = g.op("Resize", conv(deep, "top", 12, 6, 1, 1), "", twice, mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")  # fmt: skip
    joined = g.op("Add", up, conv(wide, "side", 8, 6, 1, 1))
    y = g.op("Resize", joined, "", twice, mode="linear", coordinate_transformation_mode="align_corners")
    half = g.op("Resize", joined, "", g.constant([1, 1, 0.5, 0.5], np.float32), mode="linear")
    return g.finish([(y, "y", ["batch", 6, "4*h", "4*w"]), (half, "half", ["batch", 6, "h", "w"])])


def hourglass() -> onnx.ModelProto:
    """Two ways to a quarter and up to a half again, that meet where the sizes are 4*n or 4*n-1."""
    g = Graph("hourglass")
    x = g.input("x", F32, ["batch", 3, "height", "width"])

    conv = functools.partial(convolution, g)
    half = g.op("Relu", conv(x, "stem", 3, 8, 3, 2))
    short = conv(g.op("MaxPool", half, kernel_shape=[2, 2], strides=[2, 2]), "short", 8, 12, 1, 1)
    quarter = g.op("Relu", g.op("Add", conv(half, "long", 8, 12, 3, 2), short))
    up = g.op("Resize", quarter, "", g.constant([1, 1, 2, 2], np.float32), mode="linear")
    y = conv(g.op("Concat", up, half, axis=1), "out", 20, 4, 3, 1)
    z = g.op("Add", g.op("MaxPool", up, kernel_shape=[2, 2], strides=[2, 2]), g.op("Sigmoid", quarter))
    return g.finish([(y, "y", ["batch", 4, "h", "w"]), (z, "z", ["batch", 12, "hh", "ww"])])


def segmentation() -> onnx.ModelProto:
    """Scores of a coarse map, at the image's size, which need be no multiple of it."""
    g = Graph("segmentation")
    x = g.input("x", F32, ["batch", 3, "height", "width"])
    y = x
    for name, a, b in (("stem", 3, 8), ("body", 8, 5)):
        y = g.op("Relu", g.op("Conv", y, g.weight(name, (b, a, 3, 3)), pads=[1] * 4, strides=[2, 2]))
    results = []
    for mode, coordinate in (("linear", "pytorch_half_pixel"), ("cubic", "half_pixel"), ("nearest", "asymmetric")):
        # As F.interpolate(y, size=x.shape[2:]) is exported.
        lead, size = (g.op("Slice", g.op("Shape", v), *(g.constant([n]) for n in cut)) for v, cut in ((y, (0, 2)), (x, (2, 4))))  # fmt: skip
        sizes = g.op("Concat", lead, size, axis=0)
        up = g.op(
            "Resize", y, "", "", sizes, mode=mode, coordinate_transformation_mode=coordinate, nearest_mode="floor"
        )
        results.append((g.op("Sigmoid", up), mode, ["batch", 5, "height", "width"]))
    return g.finish(results)


def recognition() -> onnx.ModelProto:
    """As text of any width is read: columns of an image as steps of recurrences."""
    g = Graph("recognition")
    y = g.op("Conv", g.input("x", F32, ["batch", 1, 4, "2*width"]), g.weight("stem", (8, 1, 3, 3)), pads=[1] * 4)
    y = g.op("MaxPool", y, kernel_shape=[4, 2], strides=[4, 2])
    y = g.op("Transpose", g.op("Squeeze", y, g.constant([2])), perm=[2, 0, 1])
    y = g.op(
        "LSTM", y, g.weight("w", (2, 48, 8)), g.weight("r", (2, 48, 12)), hidden_size=12, direction="bidirectional"
    )
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant([0, 0, 24]))
    y = g.op("GRU", y, g.weight("gw", (1, 30, 24)), g.weight("gr", (1, 30, 10)), hidden_size=10, linear_before_reset=1)
    return g.finish([(g.op("MatMul", y, g.weight("dense", (10, 7))), "y", ["width", 1, "batch", 7])])


def extent(g: Graph, x: str, axis: int) -> str:
    """As PyTorch's exporter reads one dimension."""
    return g.op("Gather", g.op("Shape", x), g.constant(axis))


def dims(g: Graph, *values: str | int) -> str:
    """The target of a Reshape."""
    listed = [g.constant([v]) if isinstance(v, int) else g.op("Unsqueeze", v, g.constant([0])) for v in values]
    return g.op("Concat", *listed, axis=0)


def attention(g: Graph, x: str, bias: str, name: str, batch: str, length: str) -> str:
    head = WIDTH // HEADS

    def project(what: str) -> str:
        y = g.linear(x, f"{name}.{what}", WIDTH, WIDTH)
        return g.op("Transpose", g.op("Reshape", y, dims(g, batch, length, HEADS, head)), perm=[0, 2, 1, 3])

    query, key, value = project("query"), project("key"), project("value")
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    scores = g.op("Add", g.op("Div", scores, g.scalar(head**0.5)), bias)
    context = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), value), perm=[0, 2, 1, 3])
    return g.linear(g.op("Reshape", context, dims(g, batch, length, WIDTH)), f"{name}.out", WIDTH, WIDTH)


def transformer(causal: bool, layers: int = 2) -> onnx.ModelProto:
    """BERT's encoder, or GPT-2's decoder, with open batch and length, in the nodes that exporters write."""
    g = Graph("gpt" if causal else "bert")
    ids = g.input("input_ids", I64, ["batch", "length"])
    batch, length = extent(g, ids, 0), extent(g, ids, 1)
    words = g.op("Gather", g.weight("words", (VOCABULARY, WIDTH), "embedding"), ids)
    table = g.weight("places", (POSITIONS, WIDTH), "embedding")
    to = g.op("Unsqueeze", length, g.constant([0]))
    x = g.op("Add", words, g.op("Slice", table, g.constant([0]), to, g.constant([0]), g.constant([1])))
    if causal:
        at = g.op("Range", g.constant(0), length, g.constant(1))
        before = g.op("LessOrEqual", g.op("Unsqueeze", at, g.constant([0])), g.op("Unsqueeze", at, g.constant([1])))
        bias = g.op("Where", before, g.scalar(0.0), g.scalar(-1e9))
    else:
        mask = g.input("attention_mask", I64, ["batch", "length"])
        kept = g.op("Cast", g.op("Unsqueeze", mask, g.constant([1, 2])), to=F32)
        bias = g.op("Mul", g.op("Sub", g.scalar(1.0), kept), g.scalar(-1e9))
    for i in range(layers):
        x = g.layer_norm(g.op("Add", attention(g, x, bias, f"layer{i}", batch, length), x), f"norm{i}a", WIDTH, 1e-5)
        inner = g.gelu(g.linear(x, f"up{i}", WIDTH, 64), f"gelu{i}")
        x = g.layer_norm(g.op("Add", g.linear(inner, f"down{i}", 64, WIDTH), x), f"norm{i}b", WIDTH, 1e-5)
    return g.finish([(x, "hidden", ["batch", "length", WIDTH])])


def derived() -> onnx.ModelProto:
    """Extents that follow from others: a sum, a product, and an input that must be twice as long as another."""
    g = Graph("derived")
    x, y = g.input("x", F32, ["n", 6]), g.input("y", F32, ["2*n", 6])
    both = g.op("Concat", x, y, axis=0)
    flat = g.op("Reshape", both, g.constant([-1]))
    odd = g.op("Slice", x, g.constant([1]), g.constant([2**63 - 1]), g.constant([0]), g.constant([2]))
    narrow = g.op("Max", g.op("Cast", extent(g, x, 0), to=TensorProto.INT32), g.constant(1, np.int32))
    count = g.op("Cast", narrow, to=F32)
    return g.finish([
        (g.op("Tanh", flat), "flat", ["flat"]), (g.op("Exp", odd), "odd", ["odd", 6]),
        (g.op("Div", g.op("ReduceSum", x, keepdims=0), count), "mean", []),
    ])  # fmt: skip


def ranking() -> onnx.ModelProto:
    """Boxes in an open number: the best few by their scores, and all in order, as PyTorch exports a sort."""
    g = Graph("ranking")
    scores, boxes = g.input("scores", F32, ["batch", "n"]), g.input("boxes", F32, ["batch", "n", 4])
    best, at = g.op("TopK", scores, g.constant([5]), axis=-1, outputs=2)
    every = g.op("Unsqueeze", extent(g, scores, 1), g.constant([0]))
    ordered, order = g.op("TopK", scores, every, axis=1, largest=0, outputs=2)
    rows = g.op("Expand", g.op("Unsqueeze", at, g.constant([2])), g.constant([1, 1, 4]))
    few = g.op("GatherElements", boxes, rows, axis=1)
    at, order = (g.op("Cast", places, to=F32) for places in (at, order))
    outputs = [(best, "best", 5), (at, "at", 5), (ordered, "ordered", "n"), (order, "order", "n")]
    return g.finish([(few, "few", ["batch", 5, 4]), *((v, name, ["batch", d]) for v, name, d in outputs)])


def inputs_at(model: onnx.ModelProto, **sizes: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(sum(sizes.values()))
    arrays = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [inlay.ir.dims.canonical(d.dim_param, sizes) if d.dim_param else d.dim_value for d in tensor.shape.dim]
        if "mask" in info.name:
            arrays[info.name] = np.ones(shape, np.int64)
            arrays[info.name][..., shape[-1] // 2 + 1 :] = 0
        elif tensor.elem_type == I64:
            arrays[info.name] = generator.integers(0, VOCABULARY, shape)
        else:
            arrays[info.name] = generator.standard_normal(shape).astype(np.float32)
    return arrays


CASES = {
    "mlp": (mlp, [{"batch": n} for n in (1, 7, 64, 1000, 3)]),
    "bert": (lambda: transformer(False), [{"batch": b, "length": s} for b, s in ((1, 1), (2, 7), (5, 40), (1, 13))]),
    "gpt": (lambda: transformer(True), [{"batch": b, "length": s} for b, s in ((1, 1), (1, 37), (3, 8), (1, 40))]),
    "cnn": (
        cnn,
        [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 32, 32), (3, 17, 40), (2, 7, 5), (1, 64, 9))],
    ),
    "decoder": (decoder, [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 16, 16), (3, 1, 9), (2, 7, 2))]),
    "residual": (
        residual,
        [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 64, 64), (2, 37, 61), (1, 33, 7), (3, 1, 95))],
    ),
    "unet": (unet, [{"batch": b, "h": h, "w": w} for b, h, w in ((1, 8, 8), (2, 5, 3), (1, 1, 13))]),
    "superresolution": (
        superresolution,
        [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 32, 32), (2, 9, 14), (1, 5, 51))],
    ),
    "pyramid": (pyramid, [{"batch": b, "h": h, "w": w} for b, h, w in ((1, 20, 20), (2, 5, 3), (1, 1, 17))]),
    "hourglass": (
        hourglass,
        [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 32, 32), (2, 7, 12), (3, 4, 35), (1, 63, 3))],
    ),
    "segmentation": (
        segmentation,
        [{"batch": b, "height": h, "width": w} for b, h, w in ((1, 64, 64), (2, 37, 75), (1, 3, 5), (1, 1, 131))],
    ),
    "recognition": (recognition, [{"batch": b, "width": w} for b, w in ((1, 1), (1, 40), (2, 17), (6, 9))]),
    "ranking": (ranking, [{"batch": b, "n": n} for b, n in ((1, 5), (3, 7), (2, 1009), (1, 10007))]),
    "derived": (derived, [{"n": n} for n in (1, 2, 31, 500)]),
}


def config(**options) -> inlay.CompilationConfig:
    return inlay.config.cpu(executor="vm", **options)


def build(model: onnx.ModelProto, client, **options) -> inlay.Executable:
    return inlay.build(inlay.from_onnx(model, executor="vm"), config(**options), server=client)


@pytest.mark.parametrize("mcpu", ["x86-64-v3", "native"])
@pytest.mark.parametrize("name", CASES)
def test_every_size_agrees_with_onnxruntime(name, mcpu, client, tmp_path):
    make, sizes = CASES[name]
    model = make()
    module = inlay.from_onnx(model, executor="vm")
    executable = inlay.build(module, inlay.config.cpu(mcpu, executor="vm", num_threads=1), server=client)
    exported = inlay.load_library(executable.export_library(tmp_path / "model.so"))
    here = executable.jit()
    with executable.jit(remote=True) as remote:
        for size in sizes:
            inputs = inputs_at(model, **size)
            want = reference(model, inputs)
            for module in (exported, here, remote):
                got = module["main"](**inputs)
                check_close(list(got) if isinstance(got, tuple) else [got], want)
    assert executable.inputs[0][2][0] in ("batch", "n")


def test_a_size_compiles_nothing(client):
    """One artifact serves all sizes, and the same model again is all hits."""
    build(mlp(), client)
    assert build(mlp(), client).report.actions_run == 0


def test_products_take_what_follows_them(client):
    """As where all sizes are known: biases, activations and residuals are no passes over memory of their own."""
    ops = [p.ops for p in build(transformer(False), client, num_threads=1).report.partitions]
    for fused in (["matmul", "add"], ["matmul", "add", "gelu"], ["matmul", "add", "add"]):
        assert fused in ops
    assert ["add"] not in ops
    # Attention from the heads that are split off to those that are joined.
    attention = [one for one in ops if "softmax" in one]
    assert all(one.count("matmul") == 2 and one[-1] == "reshape" for one in attention)
    assert attention
    ops = [p.ops for p in build(cnn(), client, num_threads=1).report.partitions]
    assert ["conv", "relu"] in ops
    assert ["relu"] not in ops


def test_two_threads(client):
    model = transformer(False)
    module = build(model, client, num_threads=2).jit()
    for size in ({"batch": 3, "length": 29}, {"batch": 1, "length": 2}):
        inputs = inputs_at(model, **size)
        check_close([module["main"](**inputs)], reference(model, inputs))


def test_two_threads_sort_rows_of_their_own(client):
    model = ranking()
    inputs = inputs_at(model, batch=64, n=1009)
    check_close(build(model, client, num_threads=2).jit()["main"](**inputs), reference(model, inputs))


def test_the_same_sizes_again_take_no_memory(client):
    model = transformer(False)
    with build(model, client, num_threads=1).jit(remote=True) as remote:

        def memory() -> int:
            return next(h.memory_bytes for h in client.handles() if h.handle == remote.handle)

        remote["main"](**inputs_at(model, batch=4, length=32))
        before = memory()
        for size in ({"batch": 4, "length": 32}, {"batch": 1, "length": 3}, {"batch": 2, "length": 32}):
            remote["main"](**inputs_at(model, **size))
            assert memory() == before
        remote["main"](**inputs_at(model, batch=8, length=40))
        assert memory() > before


def test_wrong_sizes_are_named(client, tmp_path):
    model = transformer(False)
    executable = build(model, client, num_threads=1)
    ids, mask = np.zeros((2, 5), np.int64), np.ones((2, 7), np.int64)
    exported = inlay.load_library(executable.export_library(tmp_path / "model.so"))
    with executable.jit(remote=True) as remote:
        for module in (exported, remote):
            with pytest.raises(
                inlay.InlayError, match="'attention_mask': dimension 1 is 7, but 'length' is 5 from input"
            ):
                module["main"](ids, mask)
            with pytest.raises(inlay.InlayError, match=r"input 0 .*input_ids"):
                module["main"](np.zeros((2, 5, 1), np.int64), mask)
            long = np.zeros((1, POSITIONS + 1), np.int64)
            with pytest.raises(inlay.InlayError, match="'length' to be 40 or less; it is 41 from input 'input_ids'"):
                module["main"](long, np.ones_like(long))
            assert np.from_dlpack(module["main"](ids, mask[:, :5])).shape == (2, 5, WIDTH)
    with pytest.raises(ValueError, match="expected"):
        exported.ffi["main_into"](ids, mask[:, :5].copy(), np.zeros((2, 4, WIDTH), np.float32))
    twice = inlay.build(inlay.from_onnx(derived(), executor="vm"), config(), server=client).jit()
    with pytest.raises(inlay.InlayError, match=r"'y': dimension 0 is 5, but '2\*n' is 6 \(n = 3 from input 'x'\)"):
        twice["main"](np.zeros((3, 6), np.float32), np.zeros((5, 6), np.float32))


def test_sizes_that_are_no_multiple_are_named(client):
    module = build(unet(), client).jit()
    with pytest.raises(inlay.InlayError, match=r"input 'x': dimension 2 is 30; it must be 4\*h"):
        module["main"](np.zeros((1, 3, 30, 16), np.float32))


def test_sizes_at_which_two_ways_do_not_meet_are_named(client, tmp_path):
    """As onnxruntime, which finds out at the operator that joins them."""
    model = hourglass()
    module = inlay.from_onnx(model, executor="vm")
    executable = inlay.build(module, config(), server=client)
    exported = inlay.load_library(executable.export_library(tmp_path / "model.so"))
    with executable.jit(remote=True) as remote:
        for symbol, sizes, ways in (
            ("height", {"height": 9, "width": 8}, "2 and 3"),
            ("width", {"height": 7, "width": 22}, "5 and 6"),
        ):
            inputs = inputs_at(model, batch=1, **sizes)
            with pytest.raises(Exception, match="ONNXRuntimeError.*running Add node"):
                reference(model, inputs)
            why = f"the model needs '(({symbol}+1)/4)' and '(({symbol}+3)/4)' to be equal; they are {ways} "
            why += f"({symbol} = {sizes[symbol]} from input 'x')"
            for run in (exported, remote):
                with pytest.raises(inlay.InlayError, match=re.escape(why)):
                    run["main"](**inputs)
    # The slices are read where the join does.
    assert ["slice", "concat"] in [p.ops for p in executable.report.partitions]


def test_sizes_that_are_said_to_be_equal_are_named(client):
    """By whoever made the module; a size that is said to be one number, too."""
    g = Graph("equal")
    model = g.finish([(g.op("Tanh", g.input("x", F32, ["rows", "columns"])), "y", ["rows", "columns"])])
    module = inlay.from_onnx(model, executor="vm")
    for required, sizes, why in [
        (["rows-2*columns", "2*columns-rows"], (3, 2), "'2*columns' and 'rows' to be equal; they are 4 and 3"),
        (["2*columns-rows", "rows-2*columns"], (5, 2), "'2*columns' and 'rows' to be equal; they are 4 and 5"),
        (["rows-4", "4-rows"], (3, 2), "'rows' to be 4; it is 3 from input 'x'"),
    ]:
        main = inlay.build(module.with_required_extents(required), config(), server=client).jit()["main"]
        assert np.from_dlpack(main(np.zeros((4, 2), np.float32))).shape == (4, 2)
        with pytest.raises(inlay.InlayError, match=re.escape(f"the model needs {why}")):
            main(np.zeros(sizes, np.float32))


def test_sizes_of_no_image_are_named(client):
    """A map that has no elements can't be made larger."""
    g = Graph("up")
    sizes = g.op("Shape", g.input("y", F32, [1, 2, "height", "width"]))
    up = g.op("Resize", g.input("x", F32, [1, 2, "h", "w"]), "", "", sizes, mode="linear")
    module = build(g.finish([(up, "up", [1, 2, "height", "width"])]), client).jit()
    with pytest.raises(inlay.InlayError, match="the model needs 'h' to be 1 or more; it is 0 from input 'x'"):
        module["main"](x=np.zeros((1, 2, 0, 4), np.float32), y=np.zeros((1, 2, 3, 8), np.float32))


def test_sizes_that_are_too_small_are_named(client):
    """What a pad or a slice needs, though no extent outside of the kernel says so."""
    g = Graph("least")
    x = g.input("x", F32, ["n", 4])
    y = g.op("Pad", x, g.constant([3, 0, 0, 0]), mode="reflect")
    room = g.op("Sub", g.constant([10]), g.op("Unsqueeze", extent(g, x, 0), g.constant([0])))
    z = g.op("Neg", g.op("Pad", x, g.op("Concat", g.constant([0] * 2), room, g.constant([0]), axis=0)))
    model = g.finish([(g.op("Neg", y), "y", ["n+3", 4]), (z, "z", [10, 4])])
    here = build(model, client).jit()
    for n in (4, 10):
        inputs = inputs_at(model, n=n)
        check_close(here["main"](**inputs), reference(model, inputs))
    for n, what in ((3, "4 or more"), (12, "10 or less")):
        with pytest.raises(inlay.InlayError, match=f"the model needs 'n' to be {what}; it is {n} from input 'x'"):
            here["main"](x=np.zeros((n, 4), np.float32))


def test_fewer_than_the_largest_few_are_named(client):
    here = build(ranking(), client).jit()
    with pytest.raises(inlay.InlayError, match="the model needs 'n' to be 5 or more; it is 4 from input 'scores'"):
        here["main"](scores=np.zeros((2, 4), np.float32), boxes=np.zeros((2, 4, 4), np.float32))


def bounded() -> tuple[onnx.ModelProto, inlay.IRModule]:
    """Of which a run with others than 4 to 9 rows of x, or more columns of y than rows, is refused."""
    g = Graph("bounded")
    y = g.op("Exp", g.input("y", F32, [3, "columns"]))
    model = g.finish([(g.op("Tanh", g.input("x", F32, ["rows", 8])), "t", ["rows", 8]), (y, "e", [3, "columns"])])
    module = inlay.from_onnx(model, executor="vm").with_required_extents(["rows-columns"])
    return model, module.with_bounds({"rows": (4, 9)})


BROKEN = [
    (3, 1, "the model needs 'rows' to be 4 or more; it is 3 from input 'x'"),
    (10, 1, "the model needs 'rows' to be 9 or less; it is 10 from input 'x'"),
    (3, 7, "the model needs 'rows' to be 4 or more; it is 3 from input 'x'"),
    (5, 7, "the model needs '-columns+rows' to be 0 or more; it is -2 (columns = 7 from input 'y', rows = 5 from input 'x')"),
]  # fmt: skip


def test_bounds(client, tmp_path):
    """In every way to run, however else the same model was compiled before."""
    model, module = bounded()
    unbounded = inlay.build(module.with_required_extents([]), config(), server=client)
    executable = inlay.build(module, config(), server=client)
    exported = inlay.load_library(executable.export_library(tmp_path / "model.so"))
    saved = inlay.load_module(module.save(tmp_path / "model.inlay"))
    with executable.jit(remote=True) as remote:
        for run in (exported, executable.jit(), remote, inlay.build(saved, config(), server=client).jit()):
            for rows, columns in ((4, 4), (9, 0), (7, 5)):
                inputs = inputs_at(model, rows=rows, columns=columns)
                check_close(list(run["main"](**inputs)), reference(model, inputs))
            for rows, columns, what in BROKEN:
                with pytest.raises(inlay.InlayError, match=re.escape(what)):
                    run["main"](**inputs_at(model, rows=rows, columns=columns))
    for rows, columns, _ in BROKEN:
        inputs = inputs_at(model, rows=rows, columns=columns)
        check_close(list(unbounded.jit()["main"](**inputs)), reference(model, inputs))


def test_bounds_of_a_bundle(client, tmp_path):
    model, module = bounded()
    folder = tmp_path / "bundle"
    inlay.build(module, config(), server=client).export_bundle(folder)
    for rows, columns, what in [(4, 4, None), *BROKEN]:
        np.savez(tmp_path / "x.npz", **inputs_at(model, rows=rows, columns=columns))
        ran = subprocess.run(
            [folder / "run", "--input", tmp_path / "x.npz"], capture_output=True, text=True, check=False
        )
        assert ran.returncode == (0 if what is None else 1), ran.stderr
        assert what is None or what in ran.stderr


def test_bounds_of_weights_and_control_flow(client):
    """What passes make of main keeps them: weights' work that is lifted, an If whose branches become functions."""
    b = FunctionBuilder()
    x, flag = b.param("x", "f32", ("n", 6)), b.param("flag", "bool", ())
    w = b.op("exp", b.weight(np.ones((6, 6), np.float32), "w"))
    y = b.op("matmul", x, b.op("reduce_max", w, axes=[0], keepdims=True), transpose_b=True)
    (y,) = b.if_(flag, lambda: [b.op("tanh", y)], lambda: [b.op("neg", y)])
    run = inlay.build(b.finish([y]).with_bounds({"n": (2, None)}), config(), server=client).jit()
    assert np.from_dlpack(run["main"](np.ones((2, 6), np.float32), np.array(False))).shape == (2, 1)
    with pytest.raises(inlay.InlayError, match="the model needs 'n' to be 2 or more; it is 1 from input 'x'"):
        run["main"](np.ones((1, 6), np.float32), np.array(True))


def test_bounds_the_server_refuses(client):
    _, module = bounded()
    proto = type(module.proto).FromString(module.proto.SerializeToString())
    proto.functions["main"].attrs["required_extents"].strings.v.append("rows-k")
    with pytest.raises(inlay.InlayError, match="'required_extents' has 'rows-k', and no parameter has the symbol 'k'"):
        inlay.build(inlay.IRModule(proto, module.weights), config(), server=client)


def test_no_rows_at_all(client):
    executable = build(mlp(), client)
    assert np.from_dlpack(executable.jit()["main"](np.zeros((0, 24), np.float32))).shape == (0, 17)


def test_other_executors_name_the_dimension(client):
    for executor in ("graph", "aot"):
        with pytest.raises(
            inlay.InlayError, match=r"symbolic extent 'batch'; fix it, as in --shape batch=1, or use executor vm"
        ):
            inlay.build(inlay.from_onnx(mlp()), inlay.config.cpu(executor=executor), server=client)


def test_what_has_no_code_is_named(client):
    """A transposed convolution of which more is cropped than a phase."""
    g = Graph("cropped")
    y = g.op("ConvTranspose", g.input("x", F32, [1, 4, "length"]), g.weight("w", (4, 3, 2)), strides=[2], pads=[2, 2])
    with pytest.raises(inlay.InlayError, match=r"conv_transpose.*with dimension '2\*length-4' left open"):
        build(g.finish([(y, "y", [1, 3, "2*length-4"])]), client)


def test_measuring_wants_sizes(client):
    with pytest.raises(
        inlay.InlayError, match=r"search.mode is MEASURED, and config.executor.kind VM leaves dimension 'batch' open"
    ):
        build(mlp(), client, search="measured")


def test_hints(client):
    model = mlp()
    executable = build(model, client, dim_hints={"batch": 512})
    inputs = inputs_at(model, batch=5)
    check_close([executable.jit()["main"](**inputs)], reference(model, inputs))
    with pytest.raises(inlay.InlayError, match="dim_hints: batch is 0; it must be 1 to"):
        build(model, client, dim_hints={"batch": 0})
    with pytest.raises(inlay.InlayError, match="dim_hints are for dimensions that are left open"):
        inlay.build(inlay.from_onnx(model, {"batch": 2}), inlay.config.cpu(dim_hints={"batch": 2}), server=client)


def test_bundle(client, tmp_path):
    model = transformer(False)
    folder = tmp_path / "bundle"
    build(model, client, num_threads=1).export_bundle(folder)
    info = subprocess.run([folder / "run", "--info"], capture_output=True, text=True, check=True).stdout
    assert "input input_ids: i64[batch, length]" in info
    for size in ({"batch": 2, "length": 9}, {"batch": 1, "length": 31}):
        inputs = inputs_at(model, **size)
        np.savez(tmp_path / "x.npz", **inputs)
        subprocess.run([folder / "run", "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz"], check=True)
        check_close([np.load(tmp_path / "y.npz")["hidden"]], reference(model, inputs))
    np.savez(tmp_path / "x.npz", **{**inputs, "attention_mask": np.ones((1, 3), np.int64)})
    wrong = subprocess.run([folder / "run", "--input", tmp_path / "x.npz"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "'attention_mask': dimension 1 is 3, but 'length' is 31 from input 'input_ids'" in wrong.stderr
    wrong = subprocess.run([folder / "run", "--random", "1"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1 and "i64[batch, length], of no one size" in wrong.stderr


def test_command_line(client, tmp_path):
    from click.testing import CliRunner

    from inlay.cli import main

    model = mlp()
    onnx.save(model, tmp_path / "mlp.onnx")
    library = str(tmp_path / "mlp.so")
    runner = CliRunner()
    made = runner.invoke(
        main,
        ["compile", str(tmp_path / "mlp.onnx"), "--executor", "vm", "--dim-hint", "batch=8", "-o", library,
         "--server", client.address, "--json"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["batch", 24]}]
    assert "f32[batch, 24]" in runner.invoke(main, ["inspect", library]).output
    inputs = inputs_at(model, batch=11)
    np.savez(tmp_path / "x.npz", **inputs)
    ran = runner.invoke(main, ["run", library, "--input", str(tmp_path / "x.npz"), "--output", str(tmp_path / "y.npz")])
    assert ran.exit_code == 0, ran.output
    check_close([np.load(tmp_path / "y.npz")["y"]], reference(model, inputs))
    refused = runner.invoke(main, ["run", library, "--random", "1"])
    assert refused.exit_code != 0
    assert "'batch' may be any number, so say which (--size batch=N)" in refused.output
    sized = runner.invoke(main, ["run", library, "--random", "1", "--size", "batch=7", "--json"])
    assert sized.exit_code == 0, sized.output
    assert json.loads(sized.stdout)["outputs"][0]["shape"] == [7, 17]
    profiled = runner.invoke(main, ["profile", library, "--size", "batch=7", "--runs", "3", "--offline", "--json"])
    assert profiled.exit_code == 0, profiled.output
    partitions = json.loads(profiled.stdout)["partitions"]
    assert sum(p["flops"] * p["calls"] for p in partitions) >= 2 * 7 * (24 * 40 + 40 * 17)
    wrong = runner.invoke(main, ["run", library, "--random", "1", "--size", "batch"])
    assert wrong.exit_code == 2 and "NAME=N" in wrong.output


def test_profile(client):
    model = mlp()
    module = build(model, client, num_threads=1).jit()
    times = np.from_dlpack(module.ffi["profile"](3, *inputs_at(model, batch=9).values()))
    assert times.shape[0] == 3 and (times >= 0).all()


@pytest.mark.parametrize("model", [mlp, cnn])
def test_profile_counts_the_work_of_the_run(model, client):
    """As much arithmetic, and as many bytes of weights, as of the model that was compiled for these sizes."""
    sizes = {"batch": 3} if model is mlp else {"batch": 2, "height": 33, "width": 47}
    limits = roofline.Roofline(100.0, "a test", {1 << n: 20.0 for n in range(15, 29)})
    work = []
    for shape in ({}, sizes):
        config = inlay.config.cpu("native", executor="vm", num_threads=1)
        module = inlay.from_onnx(model(), shape=shape, executor="vm")
        built = inlay.build(module, config, server=client, want_plan=True)
        result = profiling.profile_module(built.jit(), built.plan, inputs_at(model(), **sizes), 3, limits)
        work.append([sum(p[key] * p["calls"] for p in result["partitions"]) for key in ("flops", "constant_bytes")])
    assert work[0] == work[1]
    assert work[0][0] > 9000


def test_a_branch(client):
    """An If over tensors whose sizes a run alone knows."""
    then = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["t"])], "then", [], [helper.make_empty_tensor_value_info("t")]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["e"])], "else", [], [helper.make_empty_tensor_value_info("e")]
    )
    x = helper.make_tensor_value_info("x", F32, ["n", 3])
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    y = helper.make_tensor_value_info("y", F32, ["n", 3])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    graph = helper.make_graph([node], "choice", [x, c], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = build(model, client).jit()
    for n in (1, 5, 300):
        data = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        for flag in (True, False):
            inputs = {"x": data, "c": np.array(flag)}
            check_close([module["main"](**inputs)], reference(model, inputs))
