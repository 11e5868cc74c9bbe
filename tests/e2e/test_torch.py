"""PyTorch models through a daemon, by torch.export and by torch.compile, against eager PyTorch."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
import warnings

import onnx
import pytest
import torch
from conftest import ATOL, RTOL, environment
from onnx import numpy_helper
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import inlay
from inlay import models
from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, torch_forms, vit
from inlay.torch_backend import compile_graph

SMALL = {
    "resnet": (resnet.TINY, resnet.build),
    "mobilenet": (mobilenet.TINY, mobilenet.build),
    "bert": (bert.TINY, lambda c: bert.build(c, 2, 16)),
    "gpt2": (gpt2.TINY, lambda c: gpt2.build(c, 1, 16)),
    "vit": (vit.TINY, vit.build),
    "lstm": (recurrent.TINY_LSTM, recurrent.build_lstm),
    "mlp": (recurrent.TINY_MLP, recurrent.build_mlp),
}


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Dynamo knows code by its code object: what one test compiled must not count in the next. RNNs are not traced unless
    asked for."""
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        yield
    torch.compiler.reset()


@pytest.fixture
def compiled(shared_daemon):
    """compiled(model, **options): by torch.compile, on the shared daemon."""

    def make(model, dynamic=None, fullgraph=True, **options):
        options = {"server": shared_daemon.address, "threads": 1, **options}
        return torch.compile(model, backend=compile_graph, options=options, dynamic=dynamic, fullgraph=fullgraph)

    return make


def torch_form(onnx_model, config):
    """(the PyTorch form of a built-in model, seeded inputs)."""
    weights = {t.name: numpy_helper.to_array(t) for t in onnx_model.graph.initializer}
    generator = torch.Generator().manual_seed(1)
    inputs = []
    for value in onnx_model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        floating = value.type.tensor_type.elem_type == 1
        made = torch.randn(shape, generator=generator) if floating else torch.randint(0, 2, shape, generator=generator)
        inputs.append(made)
    return torch_forms.from_weights(config, weights), inputs


def close(got, want) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=RTOL, atol=ATOL, equal_nan=True)


def check_both(network, inputs, client, compiled):
    want = network(*inputs)
    executable = inlay.build(inlay.from_torch(network, inputs), inlay.config.cpu(num_threads=1), server=client)
    all_close(executable.jit()["main"](*inputs), want)
    function = compiled(network)
    all_close(function(*inputs), want)
    all_close(function(*inputs), want)


def all_close(got, want):
    """One result, or several."""
    got, want = (x if isinstance(x, tuple | list) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        close(torch.from_dlpack(a), b)


@pytest.mark.parametrize("name", SMALL)
def test_small(name, client, compiled):
    config, build = SMALL[name]
    network, inputs = torch_form(build(config), config)
    check_both(network, inputs, client, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.NAMES)
def test_real(name, client, compiled):
    network, inputs = torch_form(models.build(name), models.config(name))
    check_both(network, inputs, client, compiled)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(12))
def test_random_architecture(number, client, compiled):
    from inlay.bench import random_architectures

    which = random_architectures.Which(11, number)
    network, inputs = random_architectures.module(which), random_architectures.inputs(which)
    check_both(network, inputs, client, compiled)


@pytest.mark.parametrize("number", [53, 74])  # of OPT and of GPT-NeoX, of seed 0
def test_a_tokens_step(number, client, compiled):
    """Logits and longer caches."""
    pytest.importorskip("transformers")
    from inlay.bench import random_architectures

    which = random_architectures.Which(0, number)
    network, inputs = random_architectures.module(which), random_architectures.inputs(which)
    assert "_step-" in random_architectures.describe(which)[0]
    check_both(network, inputs, client, compiled)


@pytest.mark.parametrize("number", range(24))
def test_random_operator(number, client, compiled):
    from inlay.bench import random_architectures

    which = random_architectures.Which(11, number, operator=True)
    network, inputs = random_architectures.module(which), random_architectures.inputs(which)
    check_both(network, inputs, client, compiled)


@pytest.mark.parametrize(
    "box",
    [
        (slice(None), slice(1, None)),
        (slice(None), slice(None), slice(2, 5)),
        (slice(1, 2), slice(0, 3), slice(-3, None)),
        (0, slice(None), 6),
        (slice(None), slice(None, None, 2)),
        (slice(None),),
    ],
    ids=str,
)
def test_assignment_to_a_slice_by_way_of_onnx(box, client):
    class Assigning(nn.Module):
        def forward(self, x, y):
            x = x.clone()
            x[box] = x[box] * 2 + y
            return x

    x, y = torch.randn(3, 5, 7), torch.randn(1)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(Assigning(), (x, y), buffer, opset_version=17, dynamo=False)
    module = inlay.from_onnx(onnx.load_from_string(buffer.getvalue()))
    close(torch.from_dlpack(inlay.build(module, server=client).jit()["main"](x, y)), Assigning()(x, y))


# --- torch.compile ---------------------------------------------------------------------------------------------------


def perceptron(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)).eval()


def test_it_is_found_without_importing_inlay(tmp_path, shared_daemon):
    code = f"""
import sys, torch
model = torch.nn.Linear(4, 3).eval()
assert "inlay" in torch._dynamo.list_backends()
f = torch.compile(model, backend="inlay", options={{"server": "{shared_daemon.address}"}})
x = torch.randn(2, 4)
with torch.inference_mode():
    torch.testing.assert_close(f(x), model(x))
assert "inlay.torch_backend" in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment(tmp_path)
    )
    assert done.returncode == 0, done.stderr


def test_graph_breaks_give_several_graphs(compiled, caplog):
    network = perceptron()
    inner = torch.nn.Linear(3, 3).eval()

    def function(x):
        y = network(x)
        torch._dynamo.graph_break()
        return inner(y)

    x = torch.randn(5, 6)
    with caplog.at_level("INFO", logger="inlay.torch"):
        close(compiled(function, fullgraph=False)(x), function(x))
    assert sum("from the cache" in message for message in caplog.messages) >= 2


@pytest.mark.parametrize(("specialise", "count"), [(False, 2), (True, 4)])  # Dynamo has another graph for a batch of 1
def test_dynamic_sizes(specialise, count, compiled, caplog):
    network = perceptron()
    function = compiled(lambda x: network(x).reshape(-1) * x.shape[0], dynamic=True, specialise=specialise)
    with caplog.at_level("INFO", logger="inlay.torch"):
        for batch in (2, 5, 2, 17, 1):
            x = torch.randn(batch, 6)
            close(function(x), network(x).reshape(-1) * batch)
    assert sum("compiled in" in message for message in caplog.messages) == count


def test_changed_weights_are_seen(compiled):
    network = perceptron()
    function, x = compiled(network), torch.randn(4, 6)
    close(function(x), network(x))
    network.load_state_dict(perceptron(1).state_dict())
    close(function(x), network(x))
    network[0].weight.mul_(2)
    close(function(x), network(x))
    network[0].weight = nn.Parameter(torch.ones(8, 6))
    close(function(x), network(x))
    network[2].bias.data = torch.full((3,), 7.0)
    close(function(x), network(x))


def test_writes_to_inputs_and_buffers_happen(compiled):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count.add_(1)
            x[0] = 5.0
            return x * self.count

    network = Counter().eval()
    function = compiled(network)
    for i in range(1, 4):
        x = torch.ones(2, 3)
        close(function(x), torch.tensor([[5.0] * 3, [1.0] * 3]) * i)
        assert x[0].tolist() == [5.0] * 3 and network.count.item() == i


@pytest.mark.parametrize("dynamic", [False, True])
def test_results_that_alias(dynamic, compiled):
    def function(x):
        y = x + 1
        return x, x.view(-1), y, y.t(), x[0]

    x = torch.randn(3, 4)
    same, flat, y, turned, row = compiled(function, dynamic=dynamic)(x)
    assert same is x and flat.data_ptr() == x.data_ptr()
    assert turned.stride() == (1, 4) and turned.data_ptr() == y.data_ptr()
    row.fill_(0)
    assert x[0].tolist() == [0] * 4


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_inputs_are_views(dynamic, compiled):
    """Of inputs of any memory; AOTAutograd looks for the input's strides in the result."""
    network = perceptron()

    def function(x):
        first, second = x.chunk(2, 1)
        return first, second.mT, x[1:, ::2], x[..., None].expand(*x.shape, 3), network(x[0].mT)

    for x in (torch.randn(4, 6, 7), torch.randn(7, 6, 4).permute(2, 1, 0), torch.randn(5, 6, 9)[:, :, :7]):
        views = function(x)
        for got, want in zip(compiled(function, dynamic=dynamic)(x), views, strict=True):
            close(got, want)
            assert got.stride() == want.stride() or want is views[-1]
            assert (got.data_ptr() == want.data_ptr()) == (want is not views[-1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_what_is_not_returned_itself_share_memory(dynamic, compiled):
    def function(x):
        left, right = (x.t() + 1).chunk(2)
        return left[0], left, right.mT, x.sum(0).expand(5, x.shape[1])

    x = torch.randn(3, 4)
    got, want = compiled(function, dynamic=dynamic)(x), function(x)
    for views in (got, want):
        views[0].fill_(7)
    for a, b in zip(got, want, strict=True):
        close(a, b)
        assert a.stride() == b.stride()


def test_results_lie_in_memory_as_eager_s(compiled):
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last)
    for function in (
        convolution,
        lambda x: convolution(x).permute(0, 2, 3, 1),
        lambda x: x.sum(1).t() if x.dim() == 3 else x.transpose(1, 2) * 2,
    ):
        got, want = compiled(function)(x), function(x)
        close(got, want)
        assert got.stride() == want.stride()


def test_inputs_of_any_memory(compiled):
    function = compiled(lambda a, b, c, d: (a + b.t(), c * 2, d[::2] + a[0], a.bool()))
    a, c, d = torch.randn(3, 4), torch.tensor(3.0), torch.randn(8)
    b = torch.randn(4, 3)
    for got, want in zip(function(a, b, c, d), (a + b.t(), c * 2, d[::2] + a[0], a.bool()), strict=True):
        close(got, want)
    a = torch.arange(40.0)[7:31].view(4, 6)
    assert compiled(lambda a: a.as_strided((2, 2), (1, 2), 9) + 1)(a).tolist() == [[10, 12], [11, 13]]  # of its storage
    half = torch.randn(3, 4).bfloat16()
    torch.testing.assert_close(compiled(lambda x: x @ x.t())(half), half @ half.t(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers_of_inference(norm_first, compiled):
    """Without gradients PyTorch takes a path of its own through these layers."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu").eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    padding = torch.arange(6) >= torch.tensor([[6], [4], [1]])
    causal = torch.ones(6, 6).triu(1) > 0

    def function(x):
        y = layer(layer(x), src_key_padding_mask=padding) + layer(x, causal)
        mixed, weights = attention(y, y, y, attn_mask=causal, key_padding_mask=padding)
        other, each = attention(y, x, x, average_attn_weights=False)
        return mixed, weights, other, each, attention(x, x, x, need_weights=False)[0]

    x = torch.randn(3, 6, 8)
    for got, want in zip(compiled(function)(x), function(x), strict=True):
        close(got, want)


def test_threads_may_call_it(compiled):
    network = perceptron()
    function = compiled(network)
    inputs = [torch.randn(4, 6) for _ in range(8)]
    wanted, errors = [network(x) for x in inputs], []
    function(inputs[0])

    def work(i):
        try:
            with torch.no_grad():
                for _ in range(20):
                    close(function(inputs[i]), wanted[i])
        except Exception as error:  # noqa: BLE001  it is reported below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_gradients_are_refused_or_left_to_eager(compiled):
    network, x = perceptron(), torch.randn(4, 6)
    with torch.enable_grad():
        with pytest.raises(
            BackendCompilerFailed, match="needs gradients, and inlay compiles for inference; call the model under"
        ):
            compiled(network)(x)
        torch.compiler.reset()
        with pytest.warns(UserWarning, match="inlay: runs in eager PyTorch: the graph needs gradients"):
            y = compiled(network, fallback=True)(x)
        y.sum().backward()
    assert network[0].weight.grad is not None
    network.requires_grad_(False)
    with torch.enable_grad():
        close(compiled(network)(x), network(x))


def test_a_model_that_turns_gradients_off_itself(compiled):
    network, x = perceptron(), torch.randn(4, 6)

    def function(x):
        with torch.no_grad():
            return network(x) * 2

    with torch.enable_grad():
        close(compiled(function)(x), function(x))


def test_unsupported_operators_are_refused_or_left_to_eager(compiled):
    def function(x):
        return torch.special.i0(x) + torch.rand_like(x) * 0

    x = torch.randn(4)
    with pytest.raises(inlay.UnsupportedOperatorError) as caught:
        compiled(function)(x)
    text = str(caught.value)
    assert "2 unsupported nodes:" in text and "i0.default): there is no converter" in text and "test_torch.py:" in text
    torch.compiler.reset()
    with pytest.warns(UserWarning, match="inlay: a graph runs in eager PyTorch: 2 unsupported nodes"):
        got = compiled(function, fallback=True)(x)
    close(got, function(x))


def test_options_are_checked(compiled):
    with pytest.raises(
        BackendCompilerFailed, match="backend 'inlay' has no option thread; it has target, server, search"
    ):
        compiled(nn.ReLU(), thread=1)(torch.ones(2))
    with pytest.raises(BackendCompilerFailed, match="search 'best' is not one of none, analytic, measured"):
        compiled(nn.ReLU(), search="best")(torch.ones(2))
    with pytest.raises(BackendCompilerFailed, match="backend 'inlay' has no modes such as 'max-autotune'"):
        torch.compile(nn.ReLU(), backend=compile_graph, mode="max-autotune")(torch.ones(2))
    with pytest.raises(
        BackendCompilerFailed, match="inlay's code runs on the CPU, and the model or its inputs are on meta"
    ):
        compiled(nn.ReLU())(torch.ones(2, device="meta"))
    x = torch.randn(3)
    close(compiled(nn.ReLU(), target="llvm -mcpu=x86-64-v3", search="none")(x), x.relu())


def test_another_process_compiles_nothing(tmp_path, shared_daemon):
    """What one process had compiled is in the daemon's cache: the next one compiles no partition."""
    code = f"""
import logging, sys, torch
logging.basicConfig(stream=sys.stdout, format="%(message)s")
logging.getLogger("inlay.torch").setLevel(logging.INFO)
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(13, 29), torch.nn.ReLU(), torch.nn.Linear(29, 7)).eval()
f = torch.compile(model, backend="inlay", options={{"server": "{shared_daemon.address}", "threads": 1}})
with torch.inference_mode():
    f(torch.randn(3, 13))
"""

    def run(seed):
        command = [sys.executable, "-c", code, str(seed)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout.split(",")[-1].strip()

    run(0)
    before = shared_daemon.stat("inlay_actions_run_total")
    hits, _, total, *_ = run(1).split()  # "1 of 1 partitions from the cache"
    assert hits == total and shared_daemon.stat("inlay_actions_run_total") == before


def test_weights_that_an_aliased_module_shares(compiled):
    """The same parameter under two names."""
    layer = nn.Linear(4, 4)
    network = nn.Sequential(layer, nn.ReLU(), layer).eval()
    x = torch.randn(2, 4)
    close(compiled(network)(x), network(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype, client, compiled):
    network, x = perceptron().to(dtype), torch.randn(4, 6).to(dtype)
    module = inlay.build(inlay.from_torch(network, (x,)), server=client).jit()
    tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9}[dtype]
    for got in (torch.from_dlpack(module["main"](x)), compiled(network)(x)):
        assert got.dtype == dtype
        torch.testing.assert_close(got, network(x), rtol=tolerance, atol=tolerance)


def test_warnings_are_ours(compiled):
    """Compiling warns of nothing by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled(perceptron())(torch.randn(2, 6))
