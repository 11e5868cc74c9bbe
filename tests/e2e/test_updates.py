"""Inputs that a model updates in place: a decoder's caches, counters, whatever PyTorch's modules write to. Against NumPy and
eager PyTorch, by each executor, and without a copy where none is needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import ATOL, RTOL, check_close, reference
from torch import nn

import inlay
from inlay.ir import FunctionBuilder

EXECUTORS = ("graph", "aot", "vm")
SHAPE = (2, 3, 16, 4)  # of a cache: batch, heads, positions, channels


def config(executor="graph", threads=1):
    return inlay.config.cpu("native", executor=executor, num_threads=threads)


def copied(executable, path) -> list[str]:
    """The outputs that a run copies, once a copy."""
    executable.export_library(path)
    return [step["name"] for step in inlay.library.read_manifest(path).data["plan"]["run"] if step["do"] == "copy"]


def cache_module(read_old: str = "") -> inlay.IRModule:
    """Writes rows of a cache and reads the new one; the old one too: "" | before | after | returned."""
    b = FunctionBuilder()
    cache, at, rows = b.param("cache", "f32", SHAPE), b.param("at", "i64", [3]), b.param("rows", "f32", (2, 3, 3, 4))
    index = b.op("expand", b.op("reshape", at, shape=[1, 1, 3, 1]), shape=[2, 3, 3, 4])
    results = {}
    if read_old == "before":
        rows = b.op("add", rows, b.op("reduce_sum", cache, axes=[2], keepdims=True))
    new = b.op("scatter_elements", cache, index, rows, axis=2)
    if read_old == "after":
        # Of the result, so that it can't be computed before.
        new_sum = b.op("reduce_sum", new, axes=[2], keepdims=True)
        results["old"] = b.op(
            "reduce_max", b.op("matmul", cache, b.op("transpose", new_sum, perm=[0, 1, 3, 2])), axes=[2]
        )
    if read_old == "returned":
        results["old"] = cache
    results["sum"] = b.op("reduce_sum", new, axes=[2])
    results["new"] = new
    return b.finish(list(results.values()), list(results)).with_updates({"new": "cache"})


def expected(read_old: str, cache, at, rows) -> dict[str, np.ndarray]:
    new, result = cache.copy(), {}
    if read_old == "before":
        rows = rows + cache.sum(2, keepdims=True)
    new[:, :, at] = rows
    if read_old == "after":
        result["old"] = (cache @ new.sum(2, keepdims=True).swapaxes(2, 3)).max(2, keepdims=True)
    if read_old == "returned":
        result["old"] = cache.copy()
    return result | {"sum": new.sum(2, keepdims=True), "new": new}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("read_old", ["", "before", "after", "returned"])
def test_a_cache(executor, read_old, client, tmp_path):
    module = cache_module(read_old)
    assert module.updates() == {"new": "cache"}
    executable = inlay.build(module, config(executor), server=client)
    random = np.random.default_rng(0)
    with executable.jit(remote=True) as remote:
        for run in (executable.jit(), remote):
            cache = random.standard_normal(SHAPE, dtype=np.float32)
            for _ in range(3):
                at, rows = random.permutation(16)[:3], random.standard_normal((2, 3, 3, 4), dtype=np.float32)
                want = expected(read_old, cache, at, rows)
                got = run["main"](cache, at, rows)
                for name, value in zip(module.outputs(), got, strict=True):
                    value = np.asarray(np.from_dlpack(value))
                    np.testing.assert_allclose(value.reshape(want[name].shape), want[name], 1e-5, 1e-5, err_msg=name)
                np.testing.assert_allclose(cache, want["new"], 1e-5, 1e-5)
                assert np.shares_memory(np.from_dlpack(got[-1]), cache)
    if executor == "graph":
        copies = {"": [], "before": [], "after": ["new"], "returned": ["old", "new"]}[read_old]
        assert copied(executable, tmp_path / "cache.so") == copies


@pytest.mark.parametrize("executor", EXECUTORS)
def test_inputs_that_change_places(executor, client):
    b = FunctionBuilder()
    x, y, z = (b.param(name, "f32", [5]) for name in "xyz")
    module = b.finish([y, x, b.op("add", x, y), z], ["a", "b", "c", "d"])
    module = module.with_updates({"a": "x", "b": "y", "c": "z"})
    run = inlay.build(module, config(executor), server=client).jit()["main"]
    x, y, z = (np.arange(5, dtype=np.float32) + i for i in (0, 10, 20))
    for turn in range(2):
        was = z.copy()
        *_, old_z = run(x, y, z)
        assert x[0] == (10, 0)[turn] and y[0] == (0, 10)[turn]
        np.testing.assert_array_equal(z, x + y)
        np.testing.assert_array_equal(np.from_dlpack(old_z), was)


def test_of_open_size(client):
    """One artifact, caches of any length."""
    b = FunctionBuilder()
    cache, at, row = b.param("cache", "f32", [2, "n", 4]), b.param("at", "i64", [1]), b.param("row", "f32", [2, 1, 4])
    index = b.op("expand", b.op("reshape", at, shape=[1, 1, 1]), shape=[2, 1, 4])
    new = b.op("scatter_elements", cache, index, row, axis=1)
    module = b.finish([new, b.op("reduce_sum", new, axes=[1])], ["new", "sum"]).with_updates({"new": "cache"})
    run = inlay.build(module, config("vm"), server=client).jit()["main"]
    for n in (1, 7, 100):
        cache, row = np.ones((2, n, 4), np.float32), np.full((2, 1, 4), 5, np.float32)
        want = cache.copy()
        want[:, n // 2] = 5
        _, total = run(cache, np.array([n // 2]), row)
        np.testing.assert_array_equal(cache, want)
        np.testing.assert_array_equal(np.asarray(np.from_dlpack(total)).reshape(2, 4), want.sum(1))


def test_what_can_not_be_written_to_is_refused(client):
    executable = inlay.build(cache_module(), config(), server=client)
    at, rows = np.arange(3), np.zeros((2, 3, 3, 4), np.float32)
    frozen = np.zeros(SHAPE, np.float32)
    frozen.flags.writeable = False
    turned = np.zeros(SHAPE[::-1], np.float32).T
    with executable.jit(remote=True) as remote:
        for run in (executable.jit()["main"], remote["main"]):
            for cache in (frozen, turned, torch.zeros(SHAPE[::-1]).permute(3, 2, 1, 0)):
                with pytest.raises(
                    TypeError, match="input 'cache': the model updates it in place; give a tensor that is"
                ):
                    run(cache, at, rows)
    memory = np.zeros(2 * 3 * 16 * 4 + 72, np.float32)
    cache, rows = memory[: 2 * 3 * 16 * 4].reshape(SHAPE), memory[300:372].reshape(2, 3, 3, 4)
    with pytest.raises(inlay.RunError, match="input 0 'cache' is updated in place, and overlaps input 2 'rows'"):
        executable.jit()["main"](cache, at, rows)
    cache, rows = memory[72:].reshape(SHAPE), memory[1:73].reshape(2, 3, 3, 4)  # begins before
    with pytest.raises(inlay.RunError, match="input 0 'cache' is updated in place, and overlaps input 2 'rows'"):
        executable.jit()["main"](cache, at, rows)
    executable.jit()["main"](cache, at, memory[:72].reshape(2, 3, 3, 4))  # neighbours
    into = executable.jit().ffi.get_function("main_into")
    cache, rows, total = (np.zeros(s, np.float32) for s in (SHAPE, (2, 3, 3, 4), (2, 3, 1, 4)))
    total = total.reshape([int(d) for d in executable.outputs[0][2]])
    rows += 1
    into(*map(_tensor, (cache, at, rows, total, cache)))
    assert cache.sum() == rows.sum()
    other = np.empty_like(cache)
    into(*map(_tensor, (cache, at, rows * 2, total, other)))
    assert other.sum() == 2 * rows.sum() and cache.sum() == rows.sum(), "a result of its own: the input stays"
    with pytest.raises(ValueError, match="output 0 'sum' overlaps input 0 'cache'"):
        into(*map(_tensor, (cache, at, rows, cache.reshape(-1)[: total.size].reshape(total.shape), other)))


def _tensor(array):
    return inlay.tensors.to_tensor(array)[0]


def test_names_are_checked(client):
    module = cache_module()
    with pytest.raises(ValueError, match="no output 'now'; main has 'sum', 'new'"):
        module.with_updates({"now": "cache"})
    with pytest.raises(ValueError, match="no input 'cash'"):
        module.with_updates({"new": "cash"})
    with pytest.raises(ValueError, match="two outputs update one input"):
        module.with_updates({"new": "cache", "sum": "cache"})
    with pytest.raises(inlay.CompileError, match="is the new value of input 2 'rows', which is"):
        inlay.build(module.with_updates({"new": "rows"}), config(), server=client)
    assert module.with_updates({}).updates() == {}


# --- PyTorch ---------------------------------------------------------------------------------------------------------


class Layer(nn.Module):
    """Attention of one position on a static cache; counts its calls."""

    def __init__(self, by: str):
        super().__init__()
        self.by = by
        self.project = nn.Linear(24, 72)
        self.register_buffer("keys", torch.zeros(2, 3, 32, 8))
        self.register_buffer("values", torch.zeros(2, 3, 32, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x, at):
        q, k, v = self.project(x).view(2, 3, 3, 1, 8).unbind(1)
        if self.by == "index_copy":
            self.keys.index_copy_(2, at, k)
            self.values.index_copy_(2, at, v)
        else:
            self.keys[:, :, at] = k
            self.values[:, :, at] = v
        self.calls.add_(1)
        mask = torch.arange(32) <= at
        y = nn.functional.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask[None, None, None])
        return y.reshape(2, 24)


@pytest.mark.parametrize("by", ["index_copy", "index_put"])
def test_buffers_that_a_program_writes_to(by, client, tmp_path):
    torch.manual_seed(0)
    layer = Layer(by).eval()
    example = torch.randn(2, 24), torch.tensor([0])
    with torch.no_grad():
        program = torch.export.export(layer, example)
        module = inlay.from_torch(program)
    assert [name for name, _ in module.inputs()] == ["x", "at", "keys", "values", "calls"]
    assert module.updates() == {name: name for name in ("keys", "values", "calls")}
    executable = inlay.build(module, config(), server=client)
    assert copied(executable, tmp_path / "layer.so") == ["calls"]
    run = executable.jit()["main"]
    state = {name: program.state_dict[name].clone() for name in module.updates()}
    with torch.no_grad():
        for at in (0, 1, 2, 9, 31):
            x, at = torch.randn(2, 24), torch.tensor([at])
            want = layer(x, at)
            torch.testing.assert_close(torch.from_dlpack(run(x=x, at=at, **state)[0]), want, rtol=1e-4, atol=1e-5)
            for name, value in state.items():
                torch.testing.assert_close(value, getattr(layer, name), rtol=1e-5, atol=1e-6)


def test_torch_compile_writes_in_place(client, shared_daemon, caplog):
    """Also to what is not contiguous; and another graph sees what was written to a buffer that is its weight."""
    from inlay.torch_backend import compile_graph

    torch.manual_seed(0)
    eager, layer = Layer("index_copy").eval(), Layer("index_copy").eval()
    layer.load_state_dict(eager.state_dict())
    options = {"server": shared_daemon.address, "threads": 1}
    compiled = torch.compile(layer, backend=compile_graph, options=options, fullgraph=True)
    looks = torch.compile(lambda: layer.keys.sum((0, 1)) + 1, backend=compile_graph, options=options, fullgraph=True)
    address = layer.keys.data_ptr()
    with torch.no_grad():
        for at in (0, 5, 31):
            x, at = torch.randn(2, 24), torch.tensor([at])
            torch.testing.assert_close(compiled(x, at), eager(x, at), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(layer.keys, eager.keys, rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(looks(), eager.keys.sum((0, 1)) + 1, rtol=1e-4, atol=1e-5)
        assert layer.calls == 3 and layer.keys.data_ptr() == address
        layer.keys = torch.zeros(32, 3, 2, 8).permute(2, 1, 0, 3)
        eager.keys.zero_()
        torch.testing.assert_close(compiled(x, at), eager(x, at), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.keys, eager.keys, rtol=1e-5, atol=1e-6)
    torch.compiler.reset()


def test_a_language_model_with_a_static_cache(client, tmp_path):
    """As transformers exports it: grouped heads, rotary positions, layers whose caches are buffers."""
    transformers = pytest.importorskip("transformers")
    from inlay.bench.random_architectures import repair_torchvision

    repair_torchvision()
    from transformers.integrations.executorch import TorchExportableModuleWithStaticCache

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8}
    model = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=50, max_position_embeddings=160)
    ).eval()
    cache = {"batch_size": 1, "max_cache_len": 160}
    model.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=160, cache_config=cache
    )
    with torch.no_grad():
        exportable = TorchExportableModuleWithStaticCache(model, **cache)
        tokens = {"input_ids": torch.tensor([[7]]), "cache_position": torch.tensor([0])}
        module = inlay.from_torch(torch.export.export(exportable, (), tokens, strict=True))
        executable = inlay.build(module, config(), server=client)
        assert all(name.startswith("cumulative_length") for name in copied(executable, tmp_path / "llama.so"))
        run = executable.jit()["main"]
        state = {}
        for name, kind in module.inputs():
            if name in module.updates().values():
                state[name] = torch.zeros(kind.shape, dtype=torch.int64 if kind.dtype == "i64" else torch.float32)
        assert len(state) == 6, "keys, values and the length, of each layer"
        for at, token in enumerate([7, 3, 49, 0, 11]):
            tokens = {"input_ids": torch.tensor([[token]]), "cache_position": torch.tensor([at])}
            logits, *_ = run(**tokens, **state)
            torch.testing.assert_close(torch.from_dlpack(logits), exportable(**tokens), rtol=1e-4, atol=1e-4)


# --- ONNX ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [16, "capacity"])
def test_group_query_attention_on_shared_caches(capacity, client, tmp_path):
    """What onnxruntime's genai calls past_present_share_buffer: caches of the length that they may have, filled as the
    mask says, against the model on caches of the length that they have."""
    from contrib_language_model import HEADS, KV_HEADS, LAYERS, SIZE, LanguageModel

    assert HEADS > KV_HEADS
    language = LanguageModel(None)
    model = language.model("new", "cached")
    executor = "graph" if isinstance(capacity, int) else "vm"
    names = [f"{layer}.{name}" for layer in range(LAYERS) for name in ("key", "value")]
    runs = {}
    for new in (1, 5):
        module = inlay.from_onnx(model, {"new": new, "cached": capacity, "total": capacity}, executor=executor)
        module = module.with_updates({f"present.{name}": f"past.{name}" for name in names})
        executable = inlay.build(module, config(executor), server=client)
        if executor == "graph":
            assert copied(executable, tmp_path / f"{new}.so") == []
        runs[new] = executable.jit()["main"]
    random = np.random.default_rng(0)
    shared = {f"past.{name}": random.standard_normal((1, KV_HEADS, 16, SIZE), dtype=np.float32) for name in names}
    caches = None
    for new in (5, 1, 1, 5, 1):
        inputs = language.inputs(random.integers(0, 99, (1, new)), caches)
        want, *caches = reference(model, inputs)
        length = caches[0].shape[2]
        mask = (np.arange(16) < length).astype(np.int64)[None]
        logits, *_ = runs[new](input_ids=inputs["input_ids"], attention_mask=mask, **shared)
        check_close(logits, [want])
        for name, cache in zip(names, caches, strict=True):
            np.testing.assert_allclose(shared[f"past.{name}"][:, :, :length], cache, RTOL, ATOL)
