"""Attention as exporters write it, against onnxruntime: whose heads of q share keys and values, as language models have
it, of which no head of k or v is repeated in memory; and PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import check_close, reference
from onnx import TensorProto

import inlay
from inlay.models.graph import Graph

F32 = TensorProto.FLOAT
SIZE = 16


def decoder(
    heads: int, shared: int, rows: int, *, past: int | str = 0, batch: int = 2, mask: str = ""
) -> onnx.ModelProto:
    """A block of attention as PyTorch's exporter writes repeat_kv: Unsqueeze, Expand, Reshape, of what the caches have
    and `rows` new positions. mask: "" | keys | heads."""
    g = Graph("decoder", seed=heads)
    total = f"{past} + {rows}" if isinstance(past, str) else past + rows
    q = g.input("q", F32, [batch, rows, heads * SIZE])
    bias = g.input("mask", F32, [batch, heads if mask == "heads" else 1, rows, total]) if mask else ""

    def split(x: str, count: int) -> str:
        return g.op("Transpose", g.op("Reshape", x, g.constant([batch, rows, count, SIZE])), perm=[0, 2, 1, 3])

    def repeated(x: str) -> str:
        length = g.op("Slice", g.op("Shape", x), g.constant([2]), g.constant([3]))
        wide = g.op("Concat", g.constant([batch, shared, heads // shared]), length, g.constant([SIZE]), axis=0)
        flat = g.op("Concat", g.constant([batch, heads]), length, g.constant([SIZE]), axis=0)
        return g.op("Reshape", g.op("Expand", g.op("Unsqueeze", x, g.constant([2])), wide), flat)

    outputs = []

    def cached(name: str) -> str:
        new = split(g.input(name, F32, [batch, rows, shared * SIZE]), shared)
        cache = g.input(f"past_{name}", F32, [batch, shared, past, SIZE])
        whole = g.op("Concat", cache, new, axis=2)
        outputs.append((whole, f"present_{name}", [batch, shared, total, SIZE]))
        return repeated(whole)

    keys, values = cached("k"), cached("v")
    scores = g.op("MatMul", split(q, heads), g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    scores = g.op("Mul", scores, g.scalar(SIZE**-0.5))
    if mask:
        scores = g.op("Add", scores, bias)
    context = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), values), perm=[0, 2, 1, 3])
    y = g.linear(g.op("Reshape", context, g.constant([batch, rows, heads * SIZE])), "out", heads * SIZE, 24)
    return g.finish([(y, "y", [batch, rows, 24]), *outputs])


def inputs_at(model: onnx.ModelProto, **sizes: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(3)
    arrays = {}
    for info in model.graph.input:
        shape = info.type.tensor_type.shape.dim
        extents = [inlay.ir.dims.canonical(d.dim_param, sizes) if d.dim_param else d.dim_value for d in shape]
        arrays[info.name] = generator.standard_normal(extents).astype(np.float32)
    return arrays


def ops_of(executable: inlay.Executable) -> set[str]:
    return {op for p in executable.report.partitions for op in p.ops}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("heads", "shared", "rows", "past", "mask"),
    [
        (12, 4, 1, 37, "keys"), (12, 4, 5, 3, "keys"), (12, 4, 40, 9, "heads"), (12, 4, 1, 20, "heads"), (8, 1, 1, 600, ""),
        (8, 1, 7, 1, "keys"), (6, 2, 2, 1030, ""), (32, 2, 1, 11, "keys"), (4, 4, 3, 5, "keys"), (9, 3, 100, 0, "keys"),
    ],
)  # fmt: skip
def test_as_onnxruntime(client, heads, shared, rows, past, mask, threads):
    model = decoder(heads, shared, rows, past=past, mask=mask)
    config = inlay.config.cpu(backends=["native"], num_threads=threads)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_at(model)
    check_close(list(executable.jit()["main"](**inputs)), reference(model, inputs))
    assert "expand" not in ops_of(executable)


@pytest.mark.parametrize(
    ("heads", "shared", "rows", "batch", "mask"),
    [(12, 4, 1, 1, "keys"), (12, 4, 1, 3, "heads"), (8, 1, 1, 2, ""), (12, 4, 6, 2, "keys"), (8, 1, 3, 2, "keys")],
)
def test_caches_of_open_length(client, heads, shared, rows, batch, mask):
    model = decoder(heads, shared, rows, past="past", batch=batch, mask=mask)
    config = inlay.config.cpu(executor="vm", num_threads=1)
    executable = inlay.build(inlay.from_onnx(model, executor="vm"), config, server=client)
    main = executable.jit()["main"]
    for past in (0, 1, 40, 333, 7):
        inputs = inputs_at(model, past=past)
        check_close(list(main(**inputs)), reference(model, inputs))
    assert "expand" not in ops_of(executable)


def test_another_cpu_and_executor(client):
    model = decoder(12, 3, 1, past=50, mask="keys")
    inputs = inputs_at(model)
    config = inlay.config.cpu("x86-64-v2", executor="aot", num_threads=1)
    main = inlay.build(inlay.from_onnx(model), config, server=client).jit()["main"]
    check_close(list(main(**inputs)), reference(model, inputs))


def sdpa(rows: int, keys: int, heads: int = 4) -> onnx.ModelProto:
    """As PyTorch exports scaled_dot_product_attention with a mask: q and k scaled by the root of the scale, k after it
    is transposed, and 0 for queries that see no key."""
    g = Graph("sdpa", seed=rows)
    q, k, v = (g.input(name, F32, [2, heads, n, SIZE]) for name, n in (("q", rows), ("k", keys), ("v", keys)))
    mask = g.input("mask", F32, [2, 1, rows, keys])
    root = g.scalar(SIZE**-0.25)
    keys_first = g.op("Mul", g.op("Transpose", k, perm=[0, 1, 3, 2]), root)
    scores = g.op("Add", g.op("MatMul", g.op("Mul", q, root), keys_first), mask)
    weights = g.op("Softmax", scores, axis=-1)
    weights = g.op("Where", g.op("IsNaN", weights), g.scalar(0.0), weights)
    return g.finish([(g.op("MatMul", weights, v), "y", [2, heads, rows, SIZE])])


@pytest.mark.parametrize(("rows", "keys"), [(1, 9), (1, 300), (7, 33), (40, 40), (100, 17)])
def test_scaled_dot_product_attention(client, rows, keys):
    model = sdpa(rows, keys)
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(backends=["native"]), server=client)
    inputs = inputs_at(model)
    inputs["mask"] = np.where(inputs["mask"] > 0.5, -np.inf, 0).astype(np.float32)
    inputs["mask"][1, :, rows // 2] = -np.inf
    got = np.from_dlpack(executable.jit()["main"](**inputs))
    check_close(got, reference(model, inputs))
    assert not np.isnan(got).any()
    assert not got[1, :, rows // 2].any()
    assert len(executable.report.partitions) == 1
