"""One module for all sizes: exported at some, imported with open ones, and compared with eager PyTorch at others. A number of
the export that stayed in the module would be seen here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from test_torch_ops import Around, Of, compare, ints, opened, qkv, randn, seeded
from torch import nn
from torch.nn import functional as F

from inlay.ir import dims


@dataclasses.dataclass
class Case:
    """The sizes: `make` takes them; those of the export first. Axes `fixed` have one size."""

    function: Callable[..., Any]
    sizes: Sequence[tuple[int, ...]]
    make: Callable[..., tuple] = lambda *shape: (randn(*shape),)
    fixed: Sequence[int] = ()


TWO = [(6, 8), (11, 13), (4, 5), (7, 31)]
THREE = [(4, 5, 6), (3, 7, 11), (2, 13, 4)]
IMAGE = [(2, 4, 8, 7), (3, 4, 13, 11), (5, 4, 9, 16)]


FUSED = randn(24, 8, seed=1), randn(24, seed=2), randn(8, 8, seed=3), randn(8, seed=4)


def rows(r, c, n):
    """x [r, c], an index [n] of its rows, values [n, c]."""
    return randn(r, c), ints(n, low=0, high=r), randn(n, c, seed=1)


def writes(x):
    y = x.clone()
    y[1:3] = 5.0
    y[0] += 1
    y[:, -1] = 7.0
    y[:, 1:-1] *= 2
    y[-2:] = x[:2]
    y[:, 3:] = 0.5
    return y


VIEWS = {
    "view": lambda x: (x.view(-1), x.flatten(), x.reshape(1, -1), x.view(x.shape[0], 1, -1), x.unsqueeze(1), x.t()),
    "expand": lambda x: (x[:1].expand(x.shape[1], -1), x[None].expand(3, -1, -1), x[:, :1].expand(x.shape[0], 5)),
    "select": lambda x: (x[2], x[-1], x[-3], x[:, 0], x[:, -2]),
    "cat": lambda x: (torch.cat([x, x[:2], x * 2]), torch.cat([x, torch.ones(x.shape[0], 1), x], 1), torch.stack([x, -x], 1)),
    "roll": lambda x: (x.roll(1, 0), x.roll(-2, 1), x.roll(3), x.roll((2, -1), (0, 1))),
    "flip": lambda x: (x.flip(0), x.flip((0, 1)), torch.rot90(x)),
    "repeat": lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.repeat(1, x.shape[0]), x.repeat_interleave(2, 1)),
    "unfold": lambda x: (x.unfold(1, 3, 2), x.unfold(0, 2, 1)),
    "triangle": lambda x: (x.tril(), x.triu(1), x.tril(-2), torch.ones(x.shape[0], x.shape[0]).tril()),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=3.0), F.pad(x, (-1, 1)), F.pad(x > 0, (0, 0, -2, 3))),
    "writes": writes,
    "sizes": lambda x: (x.shape[0], x.shape[0] + x.shape[1], x.numel(), x),
    "arithmetic": lambda x: (
        x * x.shape[0], x / x.shape[1], x + x.shape[0] - x.shape[1], x * ((x.shape[0] + 1) // 2), x.half() * x.shape[0],
        x * x.numel(), x**x.shape[0], x * (x.shape[0] % 3), x > x.shape[0] - 3, x.clamp(max=x.shape[1] - 4),
        torch.add(x, x, alpha=x.shape[0]), x.int() // x.shape[1], x * x.shape[0] ** -0.5,
    ),
    "create": lambda x: (
        torch.full((x.shape[0], 3), 2.0), torch.zeros(x.shape), torch.full((2,), x.shape[0]), x.new_ones(x.shape[1]),
        torch.eye(x.shape[0]), torch.eye(x.shape[0], x.shape[1]), torch.eye(3, x.shape[1]),
    ),
    "arange": lambda x: (
        torch.arange(x.shape[0]), torch.arange(2, x.shape[1] + 2), torch.arange(0, x.shape[1], 3),
        torch.arange(x.shape[0], 0, -1), torch.arange(x.shape[0] - 1, -1, -2), torch.arange(0, x.shape[0], dtype=torch.float32),
        torch.arange(x.shape[0], x.shape[0] + x.shape[1]),
    ),
    "masked": lambda x: (x.masked_fill(x > 0, 0), torch.where(x > 0, x, 0.5), x.masked_scatter(x > 0, x.flip(0))),
    "places": lambda x: (x[:, torch.arange(x.shape[1]) // 2], x[:, [-1, 0]], x[:, torch.arange(x.shape[1] - 1, -1, -1)]),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.cosine_similarity(x, x.flip(0)), (x - x.mean()) / x.std()),
    "merge": lambda x: x[:, :, None].expand(-1, -1, 3).reshape(-1, 3).view(x.shape[0], x.shape[1], 3).flatten(1),
}  # fmt: skip

# Of an axis of 8 first; the others are within what PyTorch guards (`x.shape[1] >= 3`, for one).
SLICES = {
    "1:3": lambda x: x[:, 1:3],
    "5:": lambda x: x[:, 5:],
    "-2:": lambda x: x[:, -2:],
    ":-2": lambda x: x[:, :-2],
    "1:-1": lambda x: x[:, 1:-1],
    "-3:-1": lambda x: x[:, -3:-1],
    ":100": lambda x: x[:, :100],
    "100:": lambda x: x[:, 100:],
    "2:1": lambda x: x[:, 2:1],
    "::2": lambda x: (x[:, ::2], x[:, 1::2], x[:, 1::3]),
    "1:100:2": lambda x: x[:, 1:100:2],
    "half": lambda x: (x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :]),
    "quarter": lambda x: x[:, x.shape[1] // 4 : x.shape[1] // 2],
    "the last, by the size": lambda x: (x[:, x.shape[1] - 3 :], x[:, x.shape[1] - 3 : x.shape[1] - 1]),
    "by another size": lambda x: (x[:, : x.shape[0]], x[:, x.shape[0] :]),
    "turned": lambda x: torch.cat([x[:, 1:], x[:, :1]], 1),
    "chunk": lambda x: x.chunk(2, 1),
    "split": lambda x: x.split([3, x.shape[1] - 3], 1),
}

REDUCTIONS = {
    "sums": lambda x: (x.sum(1), x.mean(), x.mean((0, 2)), x.prod(1), x.amax(1), x.half().mean(1), x.cumsum(1)),
    "var": lambda x: (x.var(), x.var(1), x.var((0, 2), correction=0, keepdim=True), *torch.var_mean(x, dim=1), x.std(-1)),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0), x.logsumexp(1), F.normalize(x), x.argmax(), x.argmax(1)),
    "pad_reflect": lambda x: (F.pad(x, (2, 1), "reflect"), F.pad(x, (-1, 2), "reflect")),
    "pad_replicate": lambda x: (F.pad(x, (2, 3), "replicate"), F.pad(x, (-2, 2), "replicate")),
    "pad_circular": lambda x: (F.pad(x, (1, 2), "circular"), F.pad(x, (-1, 2), "circular")),
    "linear": lambda x: (F.interpolate(x, 7, mode="linear"), F.interpolate(x, scale_factor=3, mode="linear")),
    "flatten": lambda x: (x.flatten(1), x.flatten(0, 1).sum(0), x.reshape(x.shape[0], -1), x.permute(2, 0, 1)),
    "positions": lambda x: x + (torch.arange(x.shape[1])[None] - torch.arange(x.shape[1])[:, None]).abs()[None, :, :1] * 0.5,
}  # fmt: skip

IMAGES = {
    "max_pool": lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, 1, dilation=2)),
    "max_pool_ceil": lambda x: F.max_pool2d(x, (3, 2), 2, (1, 0), ceil_mode=True),
    "avg_pool": lambda x: (F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
    "avg_pool_ceil": lambda x: (
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 3, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    ),
    "adaptive": lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_avg_pool2d(x, (4, None))),
    "adaptive_max": lambda x: (F.adaptive_max_pool2d(x, 1), F.adaptive_max_pool2d(x, (3, 2))),
    "scaled": lambda x: (
        F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=1.5), F.interpolate(x, scale_factor=0.5),
        F.interpolate(x, scale_factor=2.5, mode="bilinear"), F.interpolate(x, scale_factor=(3, 1), mode="bicubic"),
        F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    ),
    "sized": lambda x: (
        F.interpolate(x, (7, 9)), F.interpolate(x, (7, 9), mode="nearest-exact"), F.interpolate(x, (5, 9), mode="bilinear"),
        F.interpolate(x, (4, 9), mode="bilinear", align_corners=True), F.interpolate(x, (7, 9), mode="bicubic"),
        F.interpolate(x, (x.shape[3], x.shape[2]), mode="bilinear"), F.interpolate(x, (x.shape[2] * 2, x.shape[3] + 1)),
    ),
    "down_and_up": lambda x: F.interpolate(F.avg_pool2d(x, 2), x.shape[2:], mode="bilinear") + x,
    "unfold": lambda x: F.unfold(x, 2),
    "convolutions": seeded(lambda: nn.Sequential(
        nn.Conv2d(4, 6, 3, padding=1, stride=2), nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1),
        nn.Conv2d(4, 3, 4, padding="same"), nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
    )),
    "norms": seeded(lambda: nn.Sequential(
        nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4, track_running_stats=False),
        nn.LocalResponseNorm(3),
    )),
}  # fmt: skip

OTHERS = {
    "layer_norm": Case(lambda x: (F.layer_norm(x, x.shape[1:]), F.rms_norm(x, x.shape[2:])), THREE),
    "index": Case(lambda x, i, v: (x[i], x[i, i % 4], x[..., i % 4], x[-1 - i]), [(6, 8, 3), (5, 13, 7), (17, 4, 2)], rows),
    "index_put": Case(
        lambda x, i, v: (
            torch.index_put(x, (i,), x[0]), torch.index_put(x, (i, i % 4), i / 2, accumulate=True),
            torch.index_put(x, (i,), torch.tensor(3.0)),
        ),
        [(6, 8, 3), (5, 13, 2), (17, 4, 5)], lambda r, c, n: (randn(r, c), torch.randperm(r)[:n], randn(n, c, seed=1)),
    ),
    "index_add": Case(
        lambda x, i, v: (x.index_add(0, i, v * x[:1]), x.index_select(0, i), x.index_fill(0, i, 2.0)),
        [(6, 8, 3), (5, 13, 7), (17, 4, 2)], rows,
    ),
    "gather": Case(
        lambda x, i: (x.gather(0, i), x.gather(1, i)), [(6, 8, 3, 2), (5, 13, 5, 4), (17, 6, 2, 3)],
        lambda r, c, n, m: (randn(r, c), ints(n, m, low=0, high=min(r, c))),
    ),
    "scatter": Case(
        lambda x, i, v: (x.scatter_add(0, i, v), x.scatter(1, i % 2, 5.0), x.scatter_reduce(1, i, v, "amax", include_self=False)),
        [(6, 8, 3, 2), (5, 13, 5, 4), (17, 6, 2, 3)],
        lambda r, c, n, m: (randn(r, c), ints(n, m, low=0, high=min(r, c)), randn(n, m + 1, seed=1)),
    ),
    "embedding": Case(
        lambda w, i: (F.embedding(i, w), F.one_hot(i, 7)), [(4, 8, 3, 2), (7, 5, 1, 4), (3, 6, 5, 3)],
        lambda r, c, n, m: (randn(r, c), ints(n, m, low=0, high=min(r, 7))),
    ),
    "embedding_bag": Case(
        Around(nn.EmbeddingBag(6, 4, mode="mean", padding_idx=2), lambda bag, i: bag(i)), [(5, 3), (7, 2), (3, 8)],
        lambda n, m: (ints(n, m, low=0, high=6),),
    ),
    "slice_scatter": Case(
        lambda x, v: torch.slice_scatter(x, v * x[:3], 0, 1, 4), [(6, 8), (11, 5)], lambda r, c: (randn(r, c), randn(1, c)),
    ),
    "select_scatter": Case(
        lambda x: (torch.select_scatter(x, x[0] * 2, 0, 2), torch.select_scatter(x, x[0], 0, -1), torch.slice_scatter(x, x[:, :3], 1, 2, 5)),
        TWO,
    ),
    "matmul": Case(
        lambda a, b: (a @ b, torch.bmm(a, a.mT), torch.einsum("bij,jk->bik", a, b), torch.addmm(b[0], a[0], b), torch.cdist(a, a + 1)),
        [(2, 3, 4, 5), (5, 2, 7, 3), (3, 11, 3, 4)], lambda b, n, k, m: (randn(b, n, k), randn(k, m, seed=1)),
    ),
    "heads": Case(
        lambda x: x.view(x.shape[0], x.shape[1], 2, -1).transpose(1, 2).reshape(-1, x.shape[1], 4).softmax(-1),
        [(2, 5, 8), (3, 7, 8), (7, 11, 8)], fixed=[2],
    ),
    "rotary": Case(
        lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1) * torch.arange(x.shape[1])[:, None],
        [(2, 5, 8), (3, 7, 8), (7, 11, 8)], fixed=[2],
    ),
    "positions of a table": Case(
        lambda x, w: (x + w[: x.shape[1]], x * w[3 : 3 + x.shape[1]]), [(2, 5), (3, 13), (4, 2)],
        lambda b, n: (randn(b, n, 6), randn(16, 6, seed=1)), fixed=[2],
    ),
    "attention": Case(
        lambda q, k, v: (
            F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
            F.scaled_dot_product_attention(q[0], k[0], v[0]),
        ),
        [(5, 7), (3, 11), (13, 2)], qkv, fixed=[1, 3],
    ),
    "attention_grouped": Case(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), [(5, 7), (3, 11), (13, 2)],
        lambda q, k: qkv(q, k, groups=2), fixed=[1, 3],
    ),
    "attention_masked": Case(
        lambda q, k, v, m: (
            F.scaled_dot_product_attention(q, k, v, attn_mask=m[:, 0]),
            F.scaled_dot_product_attention(q, k, v, attn_mask=m[:, 0] > 0),
        ),
        [(5, 7), (3, 11), (13, 2)], lambda q, k: (*qkv(q, k), randn(q, 1, k, seed=3)), fixed=[1, 3],
    ),
    "attention_module": Case(
        seeded(lambda: Around(nn.MultiheadAttention(8, 2, batch_first=True), lambda m, x: m(x, x, x)[0])),
        [(2, 5, 8), (3, 7, 8), (5, 2, 8)], fixed=[2],
    ),
    "attention_fused": Case(
        lambda x: torch._native_multi_head_attention(x, x, x, 8, 2, *FUSED, None, True, True, None)[:2],
        [(2, 5, 8), (3, 7, 8), (5, 2, 8)], fixed=[2],
    ),
    "encoder": Case(
        seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)), [(2, 5, 8), (3, 7, 8), (5, 2, 8)], fixed=[2]
    ),
    "lstm": Case(seeded(lambda: nn.LSTM(4, 5, 2, bidirectional=True)), [(3, 2, 4), (3, 5, 4), (3, 7, 4)], fixed=[0, 2]),
    "halves that meet": Case(
        lambda x: (
            x - F.interpolate(F.avg_pool1d(x, 2), scale_factor=2),
            torch.cat([F.interpolate(F.avg_pool1d(x, 2), scale_factor=2), x], 1).flatten(1),
        ),
        [(2, 3, 8), (3, 5, 14), (4, 7, 4)],
    ),
    "gru": Case(seeded(lambda: nn.GRU(4, 5, 2, batch_first=True)), [(2, 3, 4), (5, 3, 4), (7, 3, 4)], fixed=[1, 2]),
}  # fmt: skip

CASES = {
    **{n: Case(f, TWO) for n, f in VIEWS.items()},
    **{n: Case(f, [(3, 8), (4, 11), (5, 24)]) for n, f in SLICES.items()},
    **{n: Case(f, THREE) for n, f in REDUCTIONS.items()},
    **{n: Case(f, IMAGE) for n, f in IMAGES.items()},
    **OTHERS,
}


@pytest.mark.parametrize("name", CASES)
def test_other_sizes_than_those_of_the_export(name):
    case = CASES[name]
    network = (case.function if isinstance(case.function, nn.Module) else Of(case.function)).eval()
    module = opened(network, case.make(*case.sizes[0]), case.fixed)
    assert any(dims.symbols(type_.shape) for _, type_ in module.inputs())
    for sizes in case.sizes:
        compare(module, network, case.make(*sizes), (1e-4, 1e-5))


# --- Runs that are refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "bounds"),
    [
        (lambda x: torch.cat([x, x[:2]]), (2, None)),  # PyTorch's guards hold from 2 on, and say nothing of less
        (lambda x: torch.cat([x, x[-2:]]), (2, None)),
        (lambda x: x[:3], (3, None)),
        (lambda x: x[1], (2, None)),
        (lambda x: x[:100], (None, 99)),
    ],
)
def test_more_rows_are_taken_than_there_are(function, bounds):
    module = opened(Of(function), (randn(6, 3),), fixed=[1], shape={"args_0": ["n", 3]})
    assert module.bounds() == {"n": bounds}


def test_a_border_may_show_what_is_cropped():
    """The other way round a reflection would be that of what is left, and a run of few elements refused."""

    def function(x):
        return F.pad(x, (-1, 2), "reflect"), F.pad(x, (2, -2), "replicate"), F.pad(x, (2, -1), "reflect")

    module = opened(Of(function), (randn(2, 4, 6),))
    for extent in (3, 4, 5):
        compare(module, Of(function), (randn(3, 2, extent),))
