"""Every converter of torch_import against eager PyTorch: the imported module, evaluated by the reference evaluator, on odd
shapes, dtypes, NaN and Infinity; with all sizes known, and with all of them open."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from reference.evaluator import evaluate
from reference.open_sizes import at_sizes
from torch.export import Dim
from torch.nn import functional as F

import inlay
from inlay import UnsupportedOperatorError
from inlay.torch_import.registry import CONVERTERS
from inlay.torch_import.weights import as_array

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.7, -11.0, 80.0, math.inf, -math.inf, math.nan]
TOLERANCE = {torch.float16: (2e-3, 2e-3), torch.bfloat16: (2e-2, 2e-2), torch.float64: (1e-9, 1e-12)}


class Of(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Around(torch.nn.Module):
    """A function of a module and the inputs."""

    def __init__(self, inner, function):
        super().__init__()
        self.inner, self.function = inner, function

    def forward(self, *args):
        return self.function(self.inner, *args)


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ints(*shape, low=-9, high=10, dtype=torch.int64, seed=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def outputs(module, inputs):
    arrays = [as_array(x.contiguous()) for x in inputs]
    return evaluate(at_sizes(module.proto, arrays), module.weights, arrays)


def ops_of(module):
    return [b.call.op for b in module.functions["main"].body.bindings if b.WhichOneof("expr") == "call"]


def eager(network, inputs):
    with torch.no_grad():
        return torch.utils._pytree.tree_leaves(network(*(x.clone() for x in inputs)))


def compare(module, network, inputs, tolerance=None):
    """Of the same inputs the module makes what the network does."""
    got, want = outputs(module, inputs), eager(network, inputs)
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, map(torch.as_tensor, want), strict=True)):
        rtol, atol = tolerance or TOLERANCE.get(b.dtype, (1e-5, 1e-6))
        b = as_array(b.contiguous())
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"result {i}"
        wide = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_allclose(*wide, rtol=rtol, atol=atol, err_msg=f"result {i}")


def opened(network, inputs, fixed=(), shape=None):
    """The module of the network for any sizes, but for those of the axes `fixed`."""
    auto = tuple({i: Dim.AUTO for i in range(x.dim()) if i not in fixed} for x in inputs)
    return inlay.from_torch(Of(network).eval(), inputs, dynamic_shapes={"args": auto}, shape=shape)


# What from_torch says of the cases that it refuses with open sizes.
REFUSED = {
    # As many values as two sizes have that are equal in this call alone.
    "index_put": "(aten.index_put.default): expand: shapes [2,",
    # Which of two sides ends it, a run alone says; of squares it is known.
    "diagonal": "(aten.diagonal.default): it depends on whether",
    # Tables of positions, made while importing.
    "antialias": "(aten._upsample_bilinear2d_aa.vec): it is not imported for open sizes",
    "avg_pool2d_divisor": "(aten.avg_pool2d.default): a pad is", "avg_pool_divisor": "(aten.avg_pool2d.default): a pad is",
    "bilinear_half": "times 1.7, which is no short fraction",
}  # fmt: skip


def check(function, *inputs, tolerance=None, fixed=(), refused=None, sizes_known=False):
    """Imports function(*inputs) and compares; returns the module. Then with open sizes, all but those of the axes `fixed`,
    or `refused`: a part of what from_torch, or torch.export, says to these; unless `sizes_known` (half a second less, where
    another case has the same operators open)."""
    network = function if isinstance(function, torch.nn.Module) else Of(function)
    module = inlay.from_torch(network.eval(), inputs)
    compare(module, network, inputs, tolerance)
    if sizes_known:
        return module
    try:
        any_size = opened(network, inputs, fixed)
    except (UnsupportedOperatorError, RuntimeError) as error:
        assert refused and refused in str(error), error
        return module
    assert not refused, f"it is imported with open sizes now: it must no longer be listed as refused ({refused})"
    compare(any_size, network, inputs, tolerance)
    return module


# --- Elementwise -----------------------------------------------------------------------------------------------------

UNARY = [
    "exp", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "erf", "sigmoid",
    "neg", "abs", "sign", "sgn", "relu", "floor", "ceil", "round", "trunc", "frac", "exp2", "erfc", "expm1", "isnan",
    "isinf", "isposinf", "isneginf", "isfinite", "logical_not", "positive", "log", "log2", "log10", "log1p",
    "square", "asin", "acos", "acosh", "atanh", "nan_to_num", "signbit", "deg2rad",
]  # fmt: skip


def test_unary_on_special_values():
    x = torch.tensor(SPECIAL)
    names = [n for n in UNARY if n != "frac"]  # of Infinity it is NaN or 0, by the kernel that PyTorch takes
    module = check(lambda x: tuple(getattr(torch, n)(x) for n in names), x)
    assert module.outputs()[0] == "output_0"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.bool, torch.uint8])
def test_unary_of_dtypes(dtype):
    float_only = {"frac", "isposinf", "isneginf", "signbit", "nan_to_num"}
    refused = {
        torch.bool: {"neg", "abs", "sign", "sgn", "floor", "ceil", "round", "trunc", "positive", "square", "relu"}
    }
    names = [n for n in UNARY if dtype.is_floating_point or n not in float_only]
    names = [n for n in names if n not in refused.get(dtype, ())]
    x = (randn(3, 5).abs() * 0.9 + 0.05).to(dtype) if dtype.is_floating_point else ints(3, 5, low=0, high=4).to(dtype)
    tolerance = (3e-2, 1e-2) if dtype in (torch.float16, torch.bfloat16) else None
    check(lambda x: tuple(getattr(torch, n)(x) for n in names), x, tolerance=tolerance, sizes_known=True)


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "elu": lambda x: F.elu(x, 1.3),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x: F.hardtanh(x, -0.3, 0.7),
    "mish": F.mish,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, 2.0, 5.0),
    "logsigmoid": F.logsigmoid,
    "threshold": lambda x: F.threshold(x, 0.1, -7.0),
    "softsign": F.softsign,
    "softshrink": lambda x: F.softshrink(x, 0.4),
    "hardshrink": lambda x: F.hardshrink(x, 0.4),
    "tanhshrink": F.tanhshrink,
    "glu": lambda x: F.glu(x, 1),
    "prelu": lambda x: F.prelu(x, torch.tensor([0.3, -0.2, 0.1, 0.9])),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clamp_min": lambda x: x.clamp_min(0.1),
    "clamp_max": lambda x: x.clamp(max=0.1),
    "clamp_tensor": lambda x: torch.clamp(x, x.mean(), x.mean() + 1),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    check(ACTIVATIONS[name], randn(3, 4, 5) * 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_activations_of_16_bits(dtype):
    functions = [f for n, f in ACTIVATIONS.items() if n not in ("prelu", "glu")]
    check(lambda x: tuple(f(x) for f in functions), randn(3, 4, dtype=dtype), tolerance=(2e-2, 2e-2))


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "atan2": torch.atan2,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
    "alpha": lambda a, b: torch.add(a, b, alpha=2),
    "rsub": lambda a, b: torch.rsub(a, b),
    "copysign": torch.copysign,
    "hypot": torch.hypot,
    "where": lambda a, b: torch.where(a > b, a, b),
}


def test_binary_on_special_values():
    values = torch.tensor([v for v in SPECIAL if v or math.copysign(1, v) > 0])  # without -0: OPS.md says nothing of it
    a, b = torch.meshgrid(values, values, indexing="ij")
    check(lambda a, b: tuple(f(a, b) for f in BINARY.values()), a.contiguous(), b.contiguous())


@pytest.mark.parametrize("pair", [("f", "i"), ("i", "f"), ("h", "f"), ("u", "i"), ("i", "l"), ("b", "i"), ("d", "f")])
def test_promotion(pair):
    made = {
        "f": randn(3, 1, 5), "h": randn(3, 1, 5, dtype=torch.float16), "d": randn(3, 1, 5, dtype=torch.float64),
        "i": ints(4, 1, low=1, dtype=torch.int32), "l": ints(4, 1, low=1), "u": ints(4, 5, low=1, dtype=torch.uint8),
        "b": ints(4, 5, low=0, high=2, dtype=torch.bool),
    }  # fmt: skip
    a, b = made[pair[0]], made[pair[1]] if pair[0] != pair[1] else made[pair[1]] + 1
    names = [n for n in BINARY if not ("b" in pair and n in ("sub", "rsub", "alpha"))]
    if torch.result_type(a, b).is_floating_point is False:
        names.remove("hypot")
    check(lambda a, b: tuple(BINARY[n](a, b) for n in names), a, b, sizes_known=True)


def test_scalars():
    def function(x, i, h):
        return (
            x + 1, 2 - x, x * 0.1, x / 3, 1 / x, x**2, x**3, x**0.5, x**-1, 2**x, x % 0.7, x // 0.3, x > 0.2, x == 0,
            i + 1.5, i * 2, i / 4, i // 3, i % 4, i**2, i > 1, i & 3, i | 4, i ^ 1, ~i, i << 2, i >> 1,
            h + 1e-3, h * 3.3, -h, h.float() * 2, h < 0.1, x.to(torch.int32), i.to(torch.float16), x.bool(),
        )  # fmt: skip

    check(function, randn(3, 4).abs() + 0.1, ints(3, 4), randn(3, 4, dtype=torch.float16))


@pytest.mark.parametrize("low", [-3, 2])
def test_integer_division(low):
    a, b = ints(40, low=-20), ints(40, low=low, high=9, seed=1)
    b[b == 0] = 5
    names = ["floor", "trunc", "floor_divide", "fmod", "remainder", "div"]
    check(lambda a, b: tuple(BINARY[n](a, b) for n in names), a, b)


def test_bounds_that_an_integer_dtype_can_not_hold():
    x = ints(9, low=0, high=255, dtype=torch.uint8)
    check(lambda x: (x.clamp(-2, 3), x.clamp(2, 200), x.clamp(5, 1), x.clamp_min(-1)), x)


# --- Reductions ------------------------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": lambda x: (x.sum(), x.sum(1), x.sum((0, -1), keepdim=True)),
    "mean": lambda x: (x.mean(), x.mean(-1), x.mean((0, 2))),
    "prod": lambda x: (x.prod(), x.prod(1, keepdim=True)),
    "amax": lambda x: (x.amax(), x.amax((0, 1)), x.max(), x.amin(2), x.min()),
    "max": lambda x: (*x.max(1), *x.min(0, keepdim=True)),
    "argmax": lambda x: (x.argmax(), x.argmax(2), x.argmin(0, keepdim=True)),
    "aminmax": lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)),
    "any": lambda x: ((x > 1).any(), (x > 1).any(1), (x > -2).all(), (x > -1).all(-1, keepdim=True), x.any(0)),
    "cumsum": lambda x: (x.cumsum(0), x.cumsum(-1)),
    "cumprod": lambda x: (x.cumprod(1),),
    "cummax": lambda x: (*x.cummax(0), *x.cummin(-1), *x.int().cummax(1), *(x > 0).cummin(0), *x.half().cummax(1)),
    "logcumsumexp": lambda x: (x.logcumsumexp(1), (x * 20).logcumsumexp(-1), x[0, 0, 0].logcumsumexp(0)),
    "nanmedian": lambda x: (x.nanmedian(), *x.nanmedian(1), x.int().nanmedian()),
    "var": lambda x: (x.var(), x.var(1), x.var((0, 2), correction=0, keepdim=True), *torch.var_mean(x, dim=1)),
    "std": lambda x: (x.std(), x.std(-1), *torch.std_mean(x, dim=(0, 1))),
    "norm": lambda x: (x.norm(), x.norm(dim=1), x.norm(1, dim=0), x.norm(math.inf), x.norm(3.0, dim=2), F.normalize(x)),
    "logsumexp": lambda x: (torch.logsumexp(x, 1), torch.logsumexp(x, (0, 2), keepdim=True)),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0), F.softmin(x, 1)),
    "topk": lambda x: (*x.topk(2), *x.topk(3, dim=1, largest=False)),
    "sort": lambda x: (*x.sort(1), *x.sort(descending=True), x.argsort(0)),
    "median": lambda x: (x.median(), *x.median(1), *x.median(0, keepdim=True), *x.kthvalue(2, 1), x.int().median()),
    "histc": lambda x: (torch.histc(x, 7, -1, 1.5), torch.histc((x * 2).round(), bins=5, min=0, max=4)),
    "count": lambda x: (torch.count_nonzero(x > 0), (x > 0).sum(1)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name):
    check(REDUCTIONS[name], randn(3, 4, 5), refused=REFUSED.get(name))


@pytest.mark.parametrize("size", [4, 1, 5])
def test_diagonals_of_squares(size):
    def diagonals(x):
        square = x[..., None] * 2 - x[:, None]
        return (square.diagonal(0, 1, 2), square.diagonal(-1, 2, 1), square.diagonal(1, -2, -1), torch.diag_embed(x),
                square.diagonal_scatter(x, 0, 1, 2), square.diagonal_scatter(x[:, 1:], -1, 1, 2))  # fmt: skip

    check(diagonals, randn(3, 4))
    compare(opened(Of(diagonals), (randn(3, 4),)), Of(diagonals), (randn(2, size),))


def test_reductions_of_scalars_and_nan():
    scalar, nan = randn(()), torch.tensor([[1.0, math.nan, 3.0], [-math.inf, 2.0, math.inf]])
    check(lambda s: (s.sum(), s.softmax(0), s.amax(), s.cumsum(0), *s.max(0), *s.sort(), s.mean(0)), scalar)
    check(lambda x: (x.amax(1), x.amin(), x.sum(0), x.max(), x.mean(1), torch.logsumexp(x[1], 0)), nan)


def test_scans_and_medians_of_nan_and_equals():
    x = torch.tensor([[1, 3, 3, math.nan, 5], [-math.inf, -math.inf, -1, -1, math.inf], [math.nan] * 5])
    check(
        lambda x: (*x.cummax(1), *x.cummin(1), *x.cummax(0), x.nanmedian(), x.nanmedian(1)[0], x.nanmedian(0)[0]),
        x,
    )
    check(lambda x: x.logcumsumexp(1), x[1:])


def test_reductions_of_integers():
    check(
        lambda i: (i.sum(), i.sum(1), i.prod(0), i.amax(1), i.cumsum(1), i.max(), i.argmax(1)),
        ints(3, 4, dtype=torch.int32),
    )
    check(
        lambda b: (b.sum(), b.any(), b.cumsum(0), b.all(1), b.float().mean()),
        ints(3, 4, low=0, high=2, dtype=torch.bool),
    )


# --- Moving data -----------------------------------------------------------------------------------------------------

MOVES = {
    "view": lambda x: (x.view(4, -1), x.reshape(-1), x.flatten(1), x.unflatten(2, (3, 2)), x.ravel()),
    "unsqueeze": lambda x: (x.unsqueeze(0), x[:, None], x.unsqueeze(-1).squeeze(-1), x[:1].squeeze(), x[:, :1].squeeze((0, 1))),
    "permute": lambda x: (x.permute(2, 0, 1), x.transpose(0, -1), x.mT, x[0].t(), x.movedim(0, 1), x[0].T),
    "expand": lambda x: (x[:1].expand(5, -1, 6), x.expand(2, 4, 3, 6), x[0, 0].expand_as(x)),
    "slice": lambda x: (x[1:3], x[:, ::2], x[..., -2:], x[5:], x[:, 1:100:2], x[-1], x[..., 0], x[2:1]),
    "cat": lambda x: (torch.cat([x, x[:1]]), torch.stack([x, x], 1), torch.cat([x, torch.empty(0)]), torch.hstack([x, x])),
    "split": lambda x: (*x.split(4, 2), *x.chunk(4, -1), *x.split([1, 2], 1), *x.unbind(1), *torch.tensor_split(x, 4, 2)),
    "repeat": lambda x: (x.repeat(2, 1, 3), x.tile((2,)), x.repeat_interleave(2, 1), x.repeat(2, 1, 1, 1)),
    "flip": lambda x: (x.flip(0), x.flip((1, 2)), x.fliplr(), torch.rot90(x)),
    "roll": lambda x: (x.roll(1), x.roll((2, -1), (0, 2))),
    "pad": lambda x: (
        F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=3.0), F.pad(x, (-1, 1)), F.pad(x, (2, 1), "reflect"),
        F.pad(x, (2, 3), "replicate"), F.pad(x, (1, 2), "circular"), F.pad(x, (-2, 2), "replicate"), F.pad(x[..., :3], (-1, 2), "reflect"), F.pad(x > 0, (1, 1)),
    ),
    "diagonal": lambda x: (x.diagonal(), x.diagonal(1, 1, 2), torch.diag_embed(x[0]), x[0].diag(), torch.trace(x[0])),
    "scatters": lambda x: (x[0].diagonal_scatter(x[0, :, 0]), x.diagonal_scatter(x[:, :, 0].t(), 1, 0, 2)),
    "triangle": lambda x: (x.tril(), x.triu(1), x[0].tril(-1), (x > 0).tril()),
    "unfold": lambda x: (x.unfold(2, 3, 2), F.unfold(x[None], 2)),
    "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    "copies": lambda x: (x.clone(), x.contiguous(), x.detach(), x.type(torch.float64), x.to(x.dtype)),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_move(name):
    check(MOVES[name], randn(4, 3, 6), refused=REFUSED.get(name))


INDEXING = {
    "embedding": lambda x, i: (F.embedding(i, x[:, :, 0]), F.one_hot(i, 5)),
    "index_select": lambda x, i: (x.index_select(1, i[0] % 3), torch.take_along_dim(x, i[:, :1, None] % 4, 0)),
    "gather": lambda x, i: (x.gather(0, (i % 3)[:, :, None]), x.gather(2, (i % 3)[:, :, None].expand(-1, -1, 2))),
    "advanced": lambda x, i: (x[i], x[:, i % 3], x[i, i % 3], x[i[0], :, i[1]], x[..., i], x[:, i[0] % 3, i[1]]),
    "negative": lambda x, i: (x[-1 - i], x[:, [-1, 0]]),
    "scatter": lambda x, i: (
        x.scatter(0, i[:, :, None], x), x.scatter(1, (i % 3)[:, :, None], 7.0), x.scatter_add(0, i[:, :, None], x),
        x.scatter_reduce(0, i[:, :, None], x, "amax"), x.scatter(2, i[:2, :1, None], x),
    ),
    "index_write": lambda x, i: (
        x.index_add(0, i[0], x[:2], alpha=2), x.index_fill(0, i[0], 3.0), x.index_copy(0, torch.tensor([2, 0]), x[:2]),
    ),
    "index_put": lambda x, i: (
        torch.index_put(x, (i[0],), x[0, 0, 0]), torch.index_put(x, (i[0], i[1] % 3), x[:2, 0], accumulate=True),
        x.masked_fill(x > 0, -1.0), x.masked_scatter(x > 0, x.flip(0)), x.masked_scatter(x[:, :1] > 0, x.flip(0)),
        torch.searchsorted(x[0, 0].sort()[0], x), torch.searchsorted(x.sort()[0], x, right=True),
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])), torch.where(x > 0, 0.0, x),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INDEXING)
def test_indexing(name):
    check(INDEXING[name], randn(4, 3, 6), torch.tensor([[0, 2], [3, 1]]), refused=REFUSED.get(name))


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_scatter_reductions(dtype, include):
    index = torch.tensor([0, 2, 2, 0, 2])
    x, y = (ints(n, 3, seed=n).to(dtype) for n in (4, 5))

    def function(x, y):
        wide = index[:, None].expand(5, 3)
        return (
            *(
                x.scatter_reduce(0, wide, y, way, include_self=include)
                for way in ("sum", "prod", "mean", "amax", "amin")
            ),
            *(x.index_reduce(0, index, y, way, include_self=include) for way in ("prod", "mean", "amax", "amin")),
        )

    # The index is a constant, for five rows, and nothing asks PyTorch whether that is so.
    check(function, x, y, refused="(aten.index_reduce.default): expand: shapes [5, 1]")


def test_put():
    at = torch.tensor([3, -1, 0])
    check(lambda x, y: (x.put(at, y), x.put(at[None] % 2, y[None], accumulate=True)), randn(3, 4), randn(3, seed=1))


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode, padding):
    bag = nn.EmbeddingBag(6, 4, mode=mode, padding_idx=padding)
    check(bag, ints(5, 3, low=0, high=6))
    check(bag, ints(11, low=0, high=6), torch.tensor([0, 3, 3, 8]))
    if mode == "sum":
        weighted = Around(bag, lambda bag, index, weights: bag(index, per_sample_weights=weights))
        check(weighted, ints(5, 3, low=0, high=6), randn(5, 3))
    bag = nn.EmbeddingBag(6, 4, mode=mode, padding_idx=padding, include_last_offset=True)
    check(bag, ints(11, low=0, high=6), torch.tensor([0, 3, 3, 8, 11]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_keep_what_is_not_finite(mode):
    bag = nn.EmbeddingBag(6, 2, mode=mode)
    bag.weight.data[3] = math.inf
    check(bag, torch.tensor([0, 1, 3, 2]), torch.tensor([0, 2, 3, 3]))


@pytest.mark.parametrize("weights", [(False, True), (True, True), (True, False)], ids=["none", "average", "each"])
def test_fused_attention(weights):
    causal, padding = torch.ones(5, 5).triu(1) > 0, torch.arange(5) >= torch.tensor([[5], [2]])
    given = (randn(24, 8, seed=1), randn(24, seed=2), randn(8, 8, seed=3), randn(8, seed=4))

    def function(x):
        masks = ((None, None), (causal, 0), (padding, 1), ((causal | padding[:, None, None]).expand(2, 2, 5, 5), 2))
        made = (torch._native_multi_head_attention(x, x, x, 8, 2, *given, mask, *weights, kind) for mask, kind in masks)
        return [result for both in made for result in both[: 1 + weights[0]]]

    # Masks of this size alone; one without a mask: test_torch_sizes.py.
    check(
        function, randn(2, 5, 8), fixed=[2], refused="(aten._native_multi_head_attention.default): where: shapes [5, 5]"
    )


def test_writes_into_views():
    def function(x, y):
        a = x.clone()
        a[1:3, ::2] = 5.0
        a[0] += 1
        a[:, 1] = y
        a[x > 1] = 0.0
        a.mul_(2).clamp_(max=8)
        b = torch.zeros(4, 6)
        b[[1, 3]] = y[[0, 1]]
        b.copy_(b.t().contiguous().view(4, 6))
        c = x.new_zeros(3)
        c.fill_(2.0)
        return a, b, c

    step = "(aten.slice_scatter.default): it wants the number"
    check(function, randn(4, 3, 6), randn(4, 6, seed=1), refused=step)


def test_a_diagonal_is_filled():
    made = lambda x: (x.clone().fill_diagonal_(2), x.clone().fill_diagonal_(3, wrap=True))
    check(made, randn(7, 3), refused="Cannot call numel() on tensor with symbolic sizes")  # torch.export does


def test_creation():
    def function(x):
        return (
            torch.arange(5), torch.arange(1, 9, 3), torch.arange(0, 1, 0.3), torch.zeros(2, 3), torch.ones(3, dtype=torch.int32),
            torch.full((2,), 7), torch.full_like(x, 0.5), torch.zeros_like(x), torch.eye(3), torch.linspace(0, 1, 5),
            x.new_ones(2), x.new_full((1,), 3), torch.tensor([1.0, 2.0]), torch.tril_indices(3, 3), x + torch.tensor(2),
            torch.ones_like(x, dtype=torch.bool), torch.tensor([[1, 2]]) + 0,
        )  # fmt: skip

    check(function, randn(2, 3))


# --- Layers ----------------------------------------------------------------------------------------------------------


def seeded(make):
    torch.manual_seed(0)
    module = make()
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.uniform_(-0.5, 0.5)
            part.running_var.uniform_(0.5, 1.5)
        if hasattr(part, "weight") and isinstance(part.weight, torch.nn.Parameter) and part.weight.dim() == 1:
            part.weight.data.uniform_(0.5, 1.5)
    return module


nn = torch.nn
LAYERS = {
    "linear": (lambda: nn.Linear(6, 4), (3, 5, 6)),
    "linear_no_bias": (lambda: nn.Linear(6, 4, bias=False), (6,)),
    "bilinear": (lambda: Of(lambda x: torch.einsum("bij,bkj->bik", x, x)), (2, 3, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), (2, 4, 11)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 1), padding=(1, 0), groups=2), (2, 4, 7, 5)),
    "conv2d_same": (lambda: nn.Conv2d(3, 2, 4, padding="same"), (1, 3, 7, 6)),
    "conv2d_lone": (lambda: nn.Conv2d(3, 2, 3), (3, 7, 6)),
    "conv2d_reflect": (lambda: nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), (1, 3, 7, 6)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 5, 3)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1), (2, 4, 5)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, groups=2), (1, 4, 5, 4)),
    "batch_norm1d": (lambda: nn.BatchNorm1d(4), (3, 4)),
    "batch_norm2d": (lambda: nn.BatchNorm2d(4), (2, 4, 3, 5)),
    "batch_norm_plain": (lambda: nn.BatchNorm2d(4, affine=False), (2, 4, 3, 5)),
    "batch_norm_batch": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 3, 5)),
    "layer_norm": (lambda: nn.LayerNorm(5), (2, 4, 5)),
    "layer_norm2": (lambda: nn.LayerNorm((4, 5), eps=1e-3, bias=False), (2, 4, 5)),
    "layer_norm_plain": (lambda: nn.LayerNorm(5, elementwise_affine=False), (2, 4, 5)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 5)),
    "instance_norm": (lambda: nn.InstanceNorm2d(4, affine=True), (2, 4, 3, 5)),
    "rms_norm": (lambda: nn.RMSNorm(5), (2, 4, 5)),
    "local_response": (lambda: nn.LocalResponseNorm(3), (2, 4, 3, 5)),
    "max_pool1d": (lambda: nn.MaxPool1d(3, 2, 1), (2, 3, 8)),
    "max_pool2d": (lambda: nn.MaxPool2d((3, 2), 2, (1, 0), ceil_mode=True), (2, 3, 8, 7)),
    "max_pool2d_lone": (lambda: nn.MaxPool2d(2, dilation=2, stride=1), (3, 8, 7)),
    "max_pool3d": (lambda: nn.MaxPool3d(2), (1, 2, 4, 5, 4)),
    "max_pool1d_indices": (lambda: nn.MaxPool1d(3, 2, 1, return_indices=True), (2, 3, 8)),
    "max_pool2d_indices": (lambda: nn.MaxPool2d((3, 2), 2, (1, 0), ceil_mode=True, return_indices=True), (2, 3, 8, 7)),
    "max_unpool": (lambda: Around(nn.MaxPool2d(2, return_indices=True), lambda m, x: F.max_unpool2d(*m(x), 2)), (2, 3, 8, 6)),
    "avg_pool1d": (lambda: nn.AvgPool1d(3, 2, 1), (2, 3, 8)),
    "avg_pool2d": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), (2, 3, 8, 7)),
    "avg_pool2d_excluding": (lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 8, 7)),
    "avg_pool2d_divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), (2, 3, 8, 7)),
    "avg_pool2d_larger_than_all": (lambda: nn.AvgPool2d(20, ceil_mode=True), (2, 3, 8, 7)),
    "max_pool2d_larger_than_all": (lambda: nn.MaxPool2d((9, 2), ceil_mode=True), (2, 3, 8, 7)),
    "adaptive_avg1": (lambda: nn.AdaptiveAvgPool2d(1), (2, 3, 8, 7)),
    "adaptive_avg_even": (lambda: nn.AdaptiveAvgPool2d((4, 7)), (2, 3, 8, 7)),
    "adaptive_avg_odd": (lambda: nn.AdaptiveAvgPool2d((3, None)), (2, 3, 8, 7)),
    "adaptive_avg1d": (lambda: nn.AdaptiveAvgPool1d(3), (2, 3, 8)),
    "adaptive_max": (lambda: nn.AdaptiveMaxPool2d((3, 2)), (2, 3, 8, 7)),
    "lp_pool": (lambda: nn.LPPool2d(2, 2), (2, 3, 8, 6)),
    "nearest": (lambda: nn.Upsample(scale_factor=2), (1, 2, 3, 5)),
    "nearest_size": (lambda: nn.Upsample(size=(7, 4)), (1, 2, 3, 5)),
    "nearest_exact": (lambda: nn.Upsample(size=(7, 4), mode="nearest-exact"), (1, 2, 3, 5)),
    "bilinear_half": (lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), (1, 2, 3, 5)),
    "bilinear_corners": (lambda: nn.Upsample(size=(7, 9), mode="bilinear", align_corners=True), (1, 2, 3, 5)),
    "bicubic": (lambda: nn.Upsample(size=(7, 9), mode="bicubic"), (1, 2, 4, 5)),
    "linear1d": (lambda: nn.Upsample(size=7, mode="linear"), (1, 2, 4)),
    "trilinear": (lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 2, 3, 2)),
    "pixel_shuffle": (lambda: nn.Sequential(nn.PixelShuffle(2), nn.PixelUnshuffle(2)), (1, 8, 3, 2)),
    "channel_shuffle": (lambda: nn.ChannelShuffle(2), (1, 4, 3, 2)),
    "lstm": (lambda: nn.LSTM(4, 5, 2), (3, 2, 4)),
    "lstm_full": (lambda: nn.LSTM(4, 5, 2, batch_first=True, bidirectional=True, bias=False), (2, 3, 4)),
    "lstm_lone": (lambda: nn.LSTM(4, 5), (3, 4)),
    "gru": (lambda: nn.GRU(4, 5, 2, bidirectional=True), (3, 2, 4)),
    "gru_batch_first": (lambda: nn.GRU(4, 5, batch_first=True), (1, 3, 4)),
    "rnn_tanh": (lambda: nn.RNN(4, 5), (3, 2, 4)),
    "rnn_relu": (lambda: nn.RNN(4, 5, nonlinearity="relu", bidirectional=True), (3, 2, 4)),
    "lstm_cell": (lambda: Around(nn.LSTMCell(4, 5), lambda m, x: m(x)), (2, 4)),
    "encoder": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "decoder": (
        lambda: Around(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), lambda m, x: m(x, x * 2)), (2, 5, 8)
    ),
    "multihead": (lambda: Around(nn.MultiheadAttention(8, 2), lambda m, x: m(x, x, x)), (5, 2, 8)),
    "bilinear_layer": (lambda: Around(nn.Bilinear(4, 3, 5), lambda m, x: m(x, x[..., 1:] * 2)), (2, 3, 4)),
    "antialias": (
        lambda: Of(lambda x: tuple(
            F.interpolate(x, mode=mode, antialias=True, align_corners=align, **size)
            for mode in ("bilinear", "bicubic") for align in (False, True)
            for size in ({"size": (3, 5)}, {"size": (9, 2)}, {"scale_factor": (0.4, 1.7)})
        )),
        (2, 3, 7, 8),
    ),
    "rrelu": (lambda: nn.RReLU(), (3, 4)),
    "avg_pool_divisor": (
        lambda: Of(lambda x: (
            F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, divisor_override=5), F.avg_pool2d(x, 2, 3, divisor_override=3),
        )),
        (2, 3, 7, 8),
    ),
    "cosine": (lambda: Of(lambda x: F.cosine_similarity(x, x.flip(0))), (3, 4)),
    "losses": (lambda: Of(lambda x: (F.mse_loss(x, x * 2), F.l1_loss(x, x + 1), F.smooth_l1_loss(x, x * 2))), (3, 4)),
    "grid_sample": (lambda: Of(lambda x: F.grid_sample(x, x[:, :, :, :2].permute(0, 2, 1, 3) / 3)), (1, 3, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layer(name):
    make, shape = LAYERS[name]
    check(seeded(make), randn(*shape), refused=REFUSED.get(name))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["linear", "conv2d", "batch_norm2d", "layer_norm", "group_norm", "rms_norm", "gru"])
def test_layer_of_dtypes(name, dtype):
    make, shape = LAYERS[name]
    tolerance = {torch.float16: (1e-2, 1e-2), torch.bfloat16: (6e-2, 6e-2)}.get(dtype)
    check(seeded(make).to(dtype), randn(*shape, dtype=dtype), tolerance=tolerance, sizes_known=True)


def test_products():
    def function(a, b, c):
        return (
            a @ b, torch.mm(a[0], b), torch.bmm(a, a.mT), a[0] @ b[:, 0], torch.dot(b[:, 0], b[:, 1]), torch.mv(b.t(), a[0, 0]),
            torch.addmm(c, a[0], b, beta=0.5, alpha=2), torch.addmm(c, a[0], b, beta=0), torch.baddbmm(c, a, b.expand(2, 4, 5)),
            torch.outer(c, c), torch.einsum("bij,jk->bik", a, b), torch.einsum("ij,j->i", b, c), torch.tensordot(a, b, 1),
            torch.kron(c, c), torch.cdist(a, a + 1), torch.addbmm(c, a, b.expand(2, 4, 5)), torch.linalg.vector_norm(a, dim=-1), torch.chain_matmul(b, b.t(), b), (a * 9).int() @ (b * 9).int(),
        )  # fmt: skip

    check(function, randn(2, 3, 4), randn(4, 5, seed=1), randn(5, seed=2))


@pytest.fixture
def grouped_mm():
    """transformers' operator for mixtures of experts; the package is not installed where these tests run."""
    name = "transformers::grouped_mm_fallback"

    @torch.library.custom_op(name, mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor")
    def grouped(x, weight, ends):
        y, begin = x.new_zeros(x.shape[0], weight.shape[2]), 0
        for expert, end in enumerate(ends.tolist()):
            y[begin:end] = x[begin:end] @ weight[expert]
            begin = end
        return y

    grouped.register_fake(lambda x, weight, ends: x.new_empty(x.shape[0], weight.shape[2]))
    return grouped


def test_experts(grouped_mm):
    for ends in ([3, 3, 7, 9], [0, 0, 0, 10], [10, 10, 10, 10], [0, 0, 0, 0]):
        for kind in (torch.int32, torch.int64):
            given = randn(10, 5), randn(4, 5, 6, seed=1), torch.tensor(ends, dtype=kind)
            check(grouped_mm, *given, sizes_known=True)
    half = randn(3, 5, dtype=torch.bfloat16), randn(1, 5, 2, dtype=torch.bfloat16)
    check(grouped_mm, *half, torch.tensor([2]), sizes_known=True)
    # Matrices that lie transposed, as layers' do, and PyTorch's own operator, which is for bf16.
    ends = torch.tensor([3, 3, 10], dtype=torch.int32)
    check(lambda x, w, ends: grouped_mm(x, w.mT, ends), randn(10, 5), randn(3, 6, 5, seed=1), ends, sizes_known=True)
    half = randn(10, 8, dtype=torch.bfloat16), randn(3, 16, 8, dtype=torch.bfloat16, seed=1)
    check(lambda x, w, ends: F.grouped_mm(x, w.mT, offs=ends), *half, ends, sizes_known=True)
    with pytest.raises(UnsupportedOperatorError, match="rows of a matrix"):
        check(lambda x, w, ends: F.grouped_mm(x.mT, w[0].mT[:, :8].contiguous(), offs=ends), half[0], half[1], ends)


# --- Attention -------------------------------------------------------------------------------------------------------


def qkv(queries=5, keys=7, heads=4, groups=4, dtype=torch.float32):
    return (
        randn(2, heads, queries, 8, dtype=dtype), randn(2, groups, keys, 8, seed=1, dtype=dtype),
        randn(2, groups, keys, 6, seed=2, dtype=dtype),
    )  # fmt: skip


ATTENTION = {
    "plain": {},
    "scale": {"scale": 0.3},
    "causal": {"is_causal": True},
    "additive": {"attn_mask": randn(2, 1, 5, 7)},
    "boolean": {"attn_mask": ints(2, 1, 5, 7, low=0, high=2, dtype=torch.bool)},
    "rank2": {"attn_mask": ints(5, 7, low=0, high=2, dtype=torch.bool)},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name):
    module = check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **ATTENTION[name]), *qkv(), fixed=[1, 3])
    assert ops_of(module).count("matmul") == 2 and ops_of(module).count("softmax") == 1


def test_a_query_without_keys_gives_zero():
    masks = torch.tensor([[True, False, True], [False, False, False]])
    infinite = torch.zeros(2, 3).masked_fill(~masks, -math.inf)
    q, kv = randn(1, 2, 2, 4), randn(1, 2, 3, 4)
    for given in (masks, infinite):
        check(lambda q, kv, m: F.scaled_dot_product_attention(q, kv, kv, attn_mask=m), q, kv, given, fixed=[3])


def test_grouped_and_half_attention():
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), *qkv(groups=2), fixed=[1, 3])
    half = qkv(dtype=torch.float16)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *half, tolerance=(1e-2, 1e-2), fixed=[1, 3])
    check(lambda q, k, v: F.scaled_dot_product_attention(q[0, 0], k[0, 0], v[0, 0]), *qkv(), fixed=[3])
    with pytest.raises(UnsupportedOperatorError, match="wants the number"):  # by the root of a width they are divided
        opened(Of(F.scaled_dot_product_attention), qkv())


def test_what_the_ir_has_whole_stays_whole():
    network = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax(-1))
    ops = ops_of(inlay.from_torch(network.eval(), (randn(3, 4),)))
    assert ops == ["matmul", "add", "gelu", "layer_norm", "softmax"]
    assert "lstm" in ops_of(inlay.from_torch(nn.LSTM(4, 5).eval(), (randn(3, 2, 4),)))


def test_empty_tensors():
    check(lambda x: (x.sum(1), x + 1, torch.cat([x, x], 1), x.reshape(-1, 2), x.amax(0), x @ x.t()), torch.empty(4, 0))


def test_every_converter_has_an_operator():
    """A misspelt overload would never be found by a graph."""
    for name in CONVERTERS:
        packet, _, overload = name.rpartition(".")
        if "::" in packet:  # another library's, whose operators are there once it is imported
            continue
        assert hasattr(getattr(torch.ops.aten, packet), overload), name
