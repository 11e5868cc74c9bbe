"""Mixtures of experts as exporters write them, against onnxruntime and PyTorch: no expert's weights are copied, and a row
meets its own expert alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import check_close, inputs_of, reference, run_everywhere
from onnx import TensorProto

import inlay
from inlay.bench.random_architectures import repair_torchvision
from inlay.models.graph import Graph

HIDDEN, INNER, EXPERTS = 48, 40, 8


def experts(tokens: int | str, chosen: int, *, rows: bool = False, flat: bool = True) -> onnx.ModelProto:
    """Two layers of a block whose router picks `chosen` of the experts. rows: a token times a matrix, else a matrix times
    a token; flat: the picks of all tokens are one axis."""
    g = Graph("experts", seed=chosen)

    def block(x: str, layer: int) -> str:
        scores = g.op("Softmax", g.linear(x, f"router{layer}", HIDDEN, EXPERTS), axis=-1)
        weights, which = g.op("TopK", scores, g.constant([chosen]), axis=-1, outputs=2)
        if flat:
            which = g.op("Reshape", which, g.constant([-1]))
        each = g.op("Tile", g.op("Unsqueeze", x, g.constant([1])), g.constant([1, chosen, 1]))
        if flat:
            each = g.op("Reshape", each, g.constant([-1, HIDDEN]))

        def product(x: str, name: str, inputs: int, outputs: int) -> str:
            shape = (EXPERTS, inputs, outputs) if rows else (EXPERTS, outputs, inputs)
            matrices = g.op("Gather", g.weight(f"{name}{layer}", shape), which, axis=0)
            axis = g.constant([-2 if rows else -1])
            x = g.op("Unsqueeze", x, axis)
            return g.op("Squeeze", g.op("MatMul", x, matrices) if rows else g.op("MatMul", matrices, x), axis)

        y = product(g.op("Relu", product(each, "up", HIDDEN, INNER)), "down", INNER, HIDDEN)
        y = g.op("Reshape", y, g.constant([-1, chosen, HIDDEN])) if flat else y
        y = g.op("Mul", y, g.op("Unsqueeze", weights, g.constant([-1])))
        return g.op("Add", x, g.op("ReduceSum", y, g.constant([1]), keepdims=0))

    y = block(block(g.input("x", TensorProto.FLOAT, [tokens, HIDDEN]), 0), 1)
    return g.finish([(y, "y", [tokens, HIDDEN])])


def products(executable: inlay.Executable) -> int:
    """Of what is compiled: both layers are one."""
    return sum(p.ops.count("gather_matmul") for p in executable.report.partitions)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("tokens", "chosen"), [(1, 2), (1, 8), (7, 1), (33, 3), (200, 2)])
@pytest.mark.parametrize(("rows", "flat"), [(False, True), (True, True), (True, False)])
def test_as_onnxruntime(client, tokens, chosen, rows, flat, threads):
    model = experts(tokens, chosen, rows=rows, flat=flat)
    config = inlay.config.cpu(num_threads=threads)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    assert products(executable) == 2
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
@pytest.mark.parametrize("executor", ["graph", "aot", "vm"])
def test_each_way_to_run_it(client, cpu, executor, tmp_path):
    model = experts(21, 2)
    config = inlay.config.cpu(cpu, executor=executor)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_of(executable)
    for outputs in run_everywhere(executable, inputs, tmp_path).values():
        check_close(outputs, reference(model, inputs))


@pytest.mark.parametrize("flat", [True, False])
def test_an_open_number_of_tokens(client, flat):
    model = experts("tokens", 2, flat=flat)
    module = inlay.from_onnx(model, executor="vm")
    executable = inlay.build(module, inlay.config.cpu(executor="vm", num_threads=2), server=client)
    assert products(executable) == 2
    main = executable.jit()["main"]
    for tokens in (1, 0, 2, 130, 17):
        x = np.random.default_rng(tokens).standard_normal((tokens, HIDDEN)).astype(np.float32)
        check_close(main(x), reference(model, {"x": x}) if tokens else [np.zeros((0, HIDDEN), np.float32)])


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("how", ["grouped_mm", "batched_mm"])
def test_a_language_model_of_pytorch(client, name, how):
    """transformers' two ways to write them: rows sorted by expert, and each with a copy of its expert's weights."""
    torch = pytest.importorskip("torch")
    repair_torchvision()
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 64, "intermediate_size": 96, "moe_intermediate_size": 48, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2, "vocab_size": 100}
    sizes |= {"num_local_experts": 6, "num_experts": 6, "num_experts_per_tok": 2, "max_position_embeddings": 64}
    config = transformers.AutoConfig.for_model(name, **sizes, use_cache=False)
    config._experts_implementation = how
    torch.manual_seed(5)
    network = transformers.AutoModel.from_config(config).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, ids, mask):
            return self.network(input_ids=ids, attention_mask=mask)[0]

    ids = torch.arange(38).reshape(2, 19) * 7 % 100
    program = torch.export.export(Hidden(), (ids, torch.ones_like(ids)))
    executable = inlay.build(inlay.from_torch(program), inlay.config.cpu(num_threads=2), server=client)
    assert products(executable) == 2
    with torch.no_grad():
        wanted = Hidden()(ids, torch.ones_like(ids)).numpy()
    got = executable.jit()["main"](ids.numpy(), np.ones(ids.shape, np.int64))
    check_close(got, [wanted])


@pytest.mark.parametrize("rows", [3, 300])
def test_weights_of_16_bits(client, rows):
    """Which PyTorch's products of vectors widen first."""
    torch = pytest.importorskip("torch")

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN).bfloat16())

        def forward(self, x, which):
            return torch.bmm(self.weight[which], x.unsqueeze(-1)).squeeze(-1)

    torch.manual_seed(rows)
    layer, x, which = Layer().eval(), torch.randn(rows, HIDDEN).bfloat16(), torch.arange(rows) * 5 % EXPERTS
    executable = inlay.build(inlay.from_torch(torch.export.export(layer, (x, which))), server=client)
    assert products(executable) == 1
    got = torch.from_dlpack(executable.jit()["main"](x, which))
    with torch.no_grad():
        wanted = torch.bmm(layer.weight.double()[which], x.double().unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(got.double(), wanted, rtol=2**-8, atol=1e-2)
