"""PyTorch models whose sizes stay open, by torch.export and by torch.compile, run at many sizes, against eager PyTorch."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ATOL, RTOL
from torch import nn
from torch.export import Dim
from torch.nn import functional as F

import inlay
from inlay.torch_backend import compile_graph

VM = inlay.config.cpu(num_threads=1).replace(executor="vm")
D = Dim.DYNAMIC


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch.compiler.reset()
    with torch.no_grad():
        yield
    torch.compiler.reset()


@pytest.fixture
def compiled(shared_daemon):
    def make(model, dynamic=True, **options):
        options = {"server": shared_daemon.address, "threads": 1, **options}
        return torch.compile(model, backend=compile_graph, options=options, dynamic=dynamic, fullgraph=True)

    return make


def close(got, want):
    got, want = (x if isinstance(x, tuple | list) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        if isinstance(b, int):
            assert int(a if isinstance(a, int) else np.from_dlpack(a)) == b
            continue
        a = a if isinstance(a, torch.Tensor) else torch.from_dlpack(a)
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=RTOL, atol=ATOL, equal_nan=True)


# --- Networks: what people leave open --------------------------------------------------------------------------------


class Images(nn.Module):
    """Any number, height and width: as a residual network with a ceiled pool, an uneven adaptive one, a sharpened mask."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3)
        self.left, self.right = nn.Conv2d(16, 24, 3, 2, 1), nn.Conv2d(16, 24, 1, 2)
        self.norm, self.depthwise = nn.BatchNorm2d(24), nn.Conv2d(24, 24, 3, padding=1, groups=24)
        self.mask, self.head = nn.Conv2d(24, 2, 1), nn.Linear(24 * 9, 5)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.stem(x)), 3, 2, ceil_mode=True)
        y = F.silu(self.norm(self.left(y)) + self.right(y))
        y = self.depthwise(y)
        mask = F.interpolate(self.mask(y), size=x.shape[2:], mode="bilinear", align_corners=False)
        return self.head(F.adaptive_avg_pool2d(y, 3).flatten(1)), mask.softmax(1)


class Hourglass(nn.Module):
    """Two ways to a quarter and up to a half again, that meet where height and width are 4*n or 4*n-1."""

    def __init__(self):
        super().__init__()
        self.stem, self.long = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.short, self.out = nn.Conv2d(8, 12, 1), nn.Conv2d(20, 4, 3, padding=1)

    def forward(self, x):
        half = F.relu(self.stem(x))
        quarter = F.relu(self.long(half) + self.short(F.max_pool2d(half, 2)))
        up = F.interpolate(quarter, scale_factor=2)
        return self.out(torch.cat([up, half], 1)).flatten(2)


class Tokens(nn.Module):
    """Any number and length: embeddings, positions of a table, grouped causal attention, padding, a mean of what is real."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Embedding(100, 32)
        self.qkv, self.out, self.norm = nn.Linear(32, 32 + 2 * 16), nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, ids, real):
        batch, length = ids.shape
        x = self.words(ids) + self.places.weight[:length]
        q, k, v = self.qkv(self.norm(x)).split([32, 16, 16], -1)
        q, k, v = (t.view(batch, length, -1, 8).transpose(1, 2) for t in (q, k, v))
        causal = torch.ones(length, length, dtype=torch.bool).tril() & real[:, None, None, :]
        y = F.scaled_dot_product_attention(q, k, v, causal, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, 32))
        mean = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True)
        return x, mean, x[:, -1], length


class Sound(nn.Module):
    """Any length: strided convolutions, frames, a recurrence."""

    def __init__(self):
        super().__init__()
        self.conv, self.rnn = nn.Conv1d(1, 8, 10, 5), nn.GRU(8, 12, bidirectional=True, batch_first=True)

    def forward(self, x):
        frames = x.unfold(1, 16, 8).mean(-1)
        y = F.gelu(self.conv(x[:, None]))
        return self.rnn(y.transpose(1, 2))[0], frames, y.std(-1), torch.roll(frames, 2, 1)


class Sampling(nn.Module):
    """Any number of sequences and words: the likeliest that are so much together, the best few, the middle; how much is
    left, and the best so far, of any length."""

    def forward(self, scores):
        ordered, at = scores.sort(1, descending=True)
        kept = ordered.softmax(1).cumsum(1) < 0.9
        nucleus = torch.zeros_like(scores).scatter(1, at, kept.float())
        left = (1 - scores.sigmoid() / 8).cumprod(1)
        return (nucleus, *scores.topk(3), scores.argsort(0), *scores.median(1), left, *scores.cummax(1),
                *scores.cummin(0), scores.logcumsumexp(1))  # fmt: skip


class Peaks(nn.Module):
    """Images of any size: where their windows' largest are, those alone in an image again; similarities of its columns."""

    def forward(self, x):
        y, at = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        ceiled, last = F.max_pool2d(x, 3, 2, return_indices=True, ceil_mode=True)
        alone = torch.zeros_like(x).flatten(2).scatter(2, at.flatten(2), y.flatten(2)).view_as(x)
        alike = x.transpose(2, 3) @ x.relu()
        return y, at, ceiled, last, alone, alike.diagonal(0, -2, -1), alike.diagonal(-1, -2, -1)


def images(n, h, w):
    return (torch.randn(n, 3, h, w),)


def tokens(n, length):
    return torch.randint(0, 50, (n, length)), torch.arange(length) < torch.randint(1, length + 1, (n, 1))


def sound(n, length):
    return (torch.randn(n, length),)


CASES = {
    "images": (Images, images, ({0: D, 2: D, 3: D},), [(2, 64, 96), (1, 97, 75), (3, 33, 130)]),
    "hourglass": (Hourglass, images, ({0: D, 2: D, 3: D},), [(2, 32, 64), (1, 55, 8), (3, 36, 31)]),
    "tokens": (Tokens, tokens, ({0: D, 1: D}, {0: D, 1: D}), [(2, 9), (1, 100), (3, 17), (2, 64)]),
    "sound": (Sound, sound, ({0: D},), [(2, 200), (5, 200)]),
    "peaks": (Peaks, images, ({0: D, 2: D, 3: D},), [(2, 20, 32), (1, 5, 7), (3, 33, 12)]),
    "sampling": (Sampling, sound, ({0: D, 1: D},), [(2, 200), (5, 31), (3, 10007), (1, 3)]),
}


def network(kind):
    torch.manual_seed(0)
    return kind().eval()


@pytest.mark.parametrize("name", CASES)
def test_one_import_serves_all_sizes(name, client):
    kind, inputs, dynamic, sizes = CASES[name]
    model = network(kind)
    module = inlay.from_torch(model, inputs(*sizes[0]), dynamic_shapes=dynamic)
    main = inlay.build(module, VM, server=client).jit()["main"]
    for size in sizes:
        given = inputs(*size)
        close(main(*given), model(*given))


@pytest.mark.parametrize(
    "name", ["images", "hourglass", "tokens", "peaks", "sampling"]
)  # PyTorch itself unrolls a recurrence
def test_one_compile_serves_all_sizes(name, compiled, caplog):
    kind, inputs, _, sizes = CASES[name]
    model = network(kind)
    function = compiled(model)
    with caplog.at_level("INFO", logger="inlay.torch"):
        for size in sizes:
            given = inputs(*size)
            close(function(*given), model(*given))
    # Dynamo itself makes another graph for one image or sequence.
    assert sum("compiled in" in message for message in caplog.messages) <= 2
    assert not any("for each size" in message for message in caplog.messages)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "wav2vec2", "whisper", "vit", "swin"])
def test_architectures(name, client, compiled):
    """Of transformers and torchvision, small, with the sizes open that their users leave open."""
    transformers = pytest.importorskip("transformers")
    from inlay.bench.random_architectures import repair_torchvision

    repair_torchvision()
    import torchvision

    small = {
        "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128
    }  # fmt: skip
    speech = {
        "vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "use_cache": False,
        "max_source_positions": 60, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    gpt2 = {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "use_cache": False}
    ids = lambda n, length: (torch.randint(0, 99, (n, length)),)
    make, inputs, dynamic, sizes = {
        "bert": (
            lambda: transformers.BertModel(transformers.BertConfig(**small)),
            lambda n, length: (*ids(n, length), torch.ones(n, length, dtype=torch.long)),
            ({0: D, 1: D}, {0: D, 1: D}), [(2, 16), (3, 29)],
        ),
        "gpt2": (
            lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2)), ids, ({0: D, 1: D},), [(2, 16), (3, 37)]
        ),
        "llama": (
            lambda: transformers.LlamaForCausalLM(
                transformers.LlamaConfig(**small, num_key_value_heads=2, use_cache=False)
            ),
            ids, ({0: D, 1: D},), [(2, 16), (3, 37)],
        ),
        "wav2vec2": (
            lambda: transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**small)),
            sound, ({0: D, 1: D},), [(2, 4000), (3, 5003)],
        ),
        "whisper": (
            lambda: transformers.WhisperModel(transformers.WhisperConfig(**speech)),
            lambda n, length: (torch.randn(n, 80, 120), None, *ids(n, length)),
            ({0: D}, None, {0: D, 1: D}), [(2, 7), (3, 11)],
        ),
        "vit": (lambda: torchvision.models.vit_b_16(image_size=64), images, ({0: D},), [(2, 64, 64), (5, 64, 64)]),
        "swin": (torchvision.models.swin_t, images, ({0: D},), [(2, 64, 64), (3, 64, 64)]),
    }[name]  # fmt: skip

    class First(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network(make)

        def forward(self, *args):
            y = self.inner(*args)
            return y if isinstance(y, torch.Tensor) else y[0]

    model = First().eval()
    module = inlay.from_torch(model, inputs(*sizes[0]), dynamic_shapes={"args": dynamic})
    main = inlay.build(module, VM, server=client).jit()["main"]
    images_alone = inputs is images  # of which torch.compile would leave the height open too, at length
    function = model if images_alone else compiled(model)
    for size in sizes:
        given = inputs(*size)
        want = model(*given)
        close(main(*(x for x in given if x is not None)), want)
        close(function(*given), want)


# --- What a run may be -----------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """Other sizes take other ways."""

    def forward(self, x):
        if x.shape[0] > 4:
            x = x * 2
        return x.reshape(x.shape[0], -1, 4).sum(1)


def test_runs_that_the_program_is_not_for_are_refused(client, tmp_path):
    dynamic = ({0: Dim("rows", min=5, max=64), 1: 4 * Dim("quarter", max=100)},)
    module = inlay.from_torch(network(Branches), (torch.randn(7, 12),), dynamic_shapes=dynamic)
    executable = inlay.build(module, VM, server=client)
    library = inlay.load_library(executable.export_library(tmp_path / "model.so"))
    for run in (executable.jit()["main"], library["main"]):
        for size in ((5, 20), (64, 4)):
            x = torch.randn(*size)
            close(run(x), Branches()(x))
        for size, why in (((4, 12), "5 or more; it is 4"), ((65, 12), "64 or less; it is 65")):
            with pytest.raises(inlay.InlayError, match=why):
                run(torch.randn(*size))
        with pytest.raises(inlay.InlayError):
            run(torch.randn(7, 13))


def test_runs_with_fewer_than_the_largest_few_are_refused(client):
    module = inlay.from_torch(network(Sampling), sound(2, 200), dynamic_shapes=({0: D, 1: D},))
    main = inlay.build(module, VM, server=client).jit()["main"]
    with pytest.raises(inlay.InlayError, match=r"the model needs '\S+' to be 3 or more; it is 2 from input 'scores'"):
        main(*sound(4, 2))


def test_runs_whose_feature_maps_do_not_fit_are_refused(client):
    model = network(Hourglass)
    module = inlay.from_torch(model, images(2, 32, 64), dynamic_shapes=({0: D, 2: D, 3: D},))
    height = module.inputs()[0][1].shape[2]
    main = inlay.build(module, VM, server=client).jit()["main"]
    with pytest.raises(RuntimeError, match="must match the size"):
        model(*images(2, 33, 64))
    ways = rf"they are (17 and 18|8 and 9) \({height} = 33 from input 'x'\)"  # up, or to a quarter
    with pytest.raises(inlay.InlayError, match=rf"the model needs '\S+' and '\S+' to be equal; {ways}"):
        main(*images(2, 33, 64))


def test_the_command_line_takes_open_programs(shared_daemon, tmp_path):
    program = torch.export.export(network(Images), images(2, 64, 96), dynamic_shapes=({0: D, 2: D, 3: D},))
    torch.export.save(program, tmp_path / "model.pt2")
    command = [
        sys.executable,
        "-m",
        "inlay",
        "compile",
        tmp_path / "model.pt2",
        "-o",
        tmp_path / "model.so",
        "--target",
        "llvm",
    ]
    command += ["--executor", "vm", "--server", shared_daemon.address, "--shape", "x=batch,3,h,64"]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    main = inlay.load_library(tmp_path / "model.so")["main"]
    x = images(3, 50, 64)
    close(main(*x), network(Images)(*x))
    with pytest.raises(inlay.InlayError, match="64"):
        main(*images(3, 50, 65))


# --- torch.compile ---------------------------------------------------------------------------------------------------


def test_results_that_are_sizes_views_and_memory_of_other_order(compiled):
    """Dynamo's graphs return sizes, views of what they return, and channels last."""
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def function(x):
        y = convolution(x)
        return y, y.shape[2] * y.shape[3], y.flatten(2), x.view(x.shape[0], -1)[:, : x.shape[2]], y[:, :, -1]

    compiled_function = compiled(function)
    for size in ((2, 3, 9, 7), (5, 3, 12, 8), (3, 3, 5, 31)):
        x = torch.randn(*size)
        got, want = compiled_function(x), function(x)
        close(got, want)
        for a, b in zip(got, want, strict=True):
            assert not isinstance(b, torch.Tensor) or a.stride() == b.stride()
        assert got[3].data_ptr() == x.data_ptr()
        for results in (got, want):
            results[0][:, 1:].zero_()
        close(got, want)


def test_numbers_of_the_caller_are_fixed_or_open(compiled):
    """An int that no tensor has as its size is part of what the code is made for."""
    function = compiled(lambda x, k: x * k + x.shape[0])
    for rows, k in ((3, 7), (5, 7), (5, 9), (4, 11)):
        x = torch.randn(rows, 6)
        close(function(x, k), x * k + rows)


def test_sizes_that_cannot_stay_open_are_compiled_for_each(compiled, caplog):
    def smaller(x):
        return F.interpolate(x, size=(4, 3), mode="bilinear", antialias=True)

    function = compiled(smaller)
    with caplog.at_level("INFO", logger="inlay.torch"):
        for length in (5, 9, 17):
            x = torch.randn(2, 3, length, 6)
            close(function(x), smaller(x))
    assert sum("for each size that occurs" in message for message in caplog.messages) == 1


def test_sizes_that_pytorch_does_not_know_to_be_the_same(compiled, caplog):
    """A decoder's caches grow: their lengths are equal in each call, and no guard says so."""

    def step(q, keys, values):
        return F.scaled_dot_product_attention(q, torch.cat([keys, q], 2), torch.cat([values, q], 2), scale=0.25)

    function = compiled(step)
    with caplog.at_level("INFO", logger="inlay.torch"):
        for length in (5, 6, 7, 30, 3):
            q, keys, values = (torch.randn(2, 4, n, 16) for n in (1, length, length))
            close(function(q, keys, values), step(q, keys, values))
    assert sum("compiled in" in message for message in caplog.messages) <= 2  # 2 are as many as the sequences
    assert not any("for each size" in message for message in caplog.messages)


def test_writes_happen_at_any_size(compiled):
    def function(cache, x):
        cache[:, : x.shape[1]] = x * 2
        return cache.sum()

    compiled_function = compiled(function)
    for length in (3, 5, 8):
        cache, x = torch.zeros(2, 9), torch.randn(2, length)
        mine = cache.clone()
        close(compiled_function(mine, x), function(cache, x))
        close(mine, cache)


def test_numbers_made_of_sizes_are_data(client):
    """A root of a length, a half of a width: floats that a run alone knows."""

    class Scaled(nn.Module):
        def forward(self, x):
            return x / x.shape[1] ** 0.5 + x.shape[0] / 2, F.grid_sample(
                x[None, None], x[None, :2, :2, None].tile(1, 1, 1, 2)
            )

    module = inlay.from_torch(Scaled().eval(), (torch.randn(5, 9),), dynamic_shapes=({0: D, 1: D},))
    main = inlay.build(module, VM, server=client).jit()["main"]
    for size in ((5, 9), (3, 16), (11, 4)):
        x = torch.randn(*size)
        close(main(x), Scaled()(x))


def test_arrays_run_as_tensors_do(client):
    module = inlay.from_torch(network(Branches), (torch.randn(7, 12),), dynamic_shapes=({0: D},))
    main = inlay.build(module, VM, server=client).jit()["main"]
    x = np.random.default_rng(0).standard_normal((6, 12)).astype(np.float32)
    close(main(x), Branches()(torch.from_numpy(x)))
