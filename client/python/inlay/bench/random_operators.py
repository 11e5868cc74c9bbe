"""Single operators, with what follows them in real models, of sizes as those have them, for random_architectures."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

Sizes = dict[str, Any]

# Multiply-adds, or for what has none a tenth of its elements: enough that a call is no part of it, and few enough to
# wait for.
_LEAST_WORK, _MOST_WORK = 1e6, 1.5e9
_ELEMENTS_WORK = 10

_CHANNELS = (3, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 768)
_SIDES = (7, 8, 10, 13, 14, 16, 19, 20, 24, 28, 32, 33, 40, 52, 56, 64, 80, 96, 112, 128, 160, 224)
_LENGTHS = (31, 50, 64, 100, 128, 187, 250, 400, 512, 1000, 1600, 3000, 8000)
_ROWS = (1, 1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 25, 32, 49, 50, 64, 77, 100, 128, 196, 197, 256, 384, 512, 1024)
_WIDTHS = (10, 32, 64, 80, 96, 128, 192, 256, 300, 320, 384, 512, 640, 768, 1000, 1024, 1280, 1536, 2048, 3072, 4096)
_HEADS = ((12, 64), (6, 64), (8, 32), (12, 32), (3, 32), (16, 64), (8, 80), (32, 64), (8, 128), (1, 512))
_ACTIVATIONS = ("", "", "ReLU", "ReLU", "SiLU", "GELU", "Hardswish", "LeakyReLU", "Sigmoid", "Tanh")


@dataclasses.dataclass(frozen=True)
class _Operator:
    """sizes: drawn. shapes: of the inputs, without the batch. work: of one of the batch. network: the PyTorch module."""

    sizes: Callable[[random.Random], Sizes]
    shapes: Callable[[Sizes], list[tuple[int, ...]]]
    work: Callable[[Sizes], float]
    network: Callable[[Sizes], Any]


def draw(r: random.Random) -> tuple[str, Sizes]:
    """(operator, its sizes)."""
    names = sorted(_OPERATORS)
    (name,) = r.choices(names, [_OFTEN.get(name, 1) for name in names])
    while True:
        sizes = _OPERATORS[name].sizes(r)
        if _LEAST_WORK <= _OPERATORS[name].work(sizes) <= _MOST_WORK:
            return name, sizes


def input_names(family: str, _sizes: Sizes) -> list[str]:
    return ["x", "y", "z"][: _INPUTS.get(family, 1)]


def inputs(family: str, sizes: Sizes, batch: int, generator: Any) -> tuple[Any, ...]:
    """f32 [batch, ...], of an embedding ids (i64 [batch, length])."""
    import torch

    shapes = _OPERATORS[family].shapes(sizes)
    if family == "embedding":
        return tuple(torch.randint(0, sizes["rows"], (batch, *shape), generator=generator) for shape in shapes)
    return tuple(torch.randn(batch, *shape, generator=generator) for shape in shapes)


def network(family: str, sizes: Sizes, _attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor."""
    return _OPERATORS[family].network(sizes)


def _lambda(function: Callable[..., Any]) -> Any:
    """A module of no weights."""
    import torch

    class Function(torch.nn.Module):
        def forward(self, *inputs):
            return function(*inputs)

    return Function()


def _followed(operator: Any, activation: str) -> Any:
    from torch import nn

    return nn.Sequential(operator, getattr(nn, activation)()) if activation else operator


# --- convolutions


def _extent(r: random.Random, dims: int) -> tuple[int, ...]:
    if dims == 1:
        return (r.choice(_LENGTHS),)
    side = r.choice(_SIDES)
    if dims == 3:
        return (r.choice((4, 8, 16)), side, side)
    return (side, side) if r.random() < 0.8 else (side, r.choice(_SIDES))


def _kernel(r: random.Random, dims: int) -> tuple[int, ...]:
    if dims == 1:
        return (r.choice((1, 2, 3, 3, 3, 4, 5, 5, 7, 8, 9, 11, 15, 16, 21, 31)),)
    if dims == 3:
        return r.choice(((3, 3, 3), (1, 3, 3), (3, 1, 1), (1, 1, 1), (2, 2, 2), (5, 5, 5)))
    if r.random() < 0.12:
        one, other = r.choice(((1, 3), (1, 5), (1, 7), (3, 5), (2, 3), (1, 11), (5, 1), (41, 11)))
        return (one, other) if r.random() < 0.5 else (other, one)
    return (r.choice((1, 1, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7, 8, 9, 11)),) * 2


def _convolution_sizes(dims: int) -> Callable[[random.Random], Sizes]:
    def sizes(r: random.Random) -> Sizes:
        channels, filters, groups = r.choice(_CHANNELS), r.choice(_CHANNELS), 1
        if r.random() < 0.2:
            of_a_group = r.choice((4, 8, 16, 24, 32, 64))
            if channels % of_a_group == 0:
                filters, groups = channels, channels // of_a_group
        return {"in": channels, "out": filters, "groups": groups, **_window(r, dims)}

    return sizes


def _depthwise_sizes(dims: int) -> Callable[[random.Random], Sizes]:
    def sizes(r: random.Random) -> Sizes:
        channels = r.choice(_CHANNELS)
        return {"in": channels, "out": channels * r.choice((1, 1, 1, 1, 2)), "groups": channels, **_window(r, dims)}

    return sizes


def _window(r: random.Random, dims: int) -> Sizes:
    while True:
        extent, kernel = _extent(r, dims), _kernel(r, dims)
        dilation = r.choice((1, 1, 1, 1, 1, 1, 2, 4)) if max(kernel) <= 5 else 1
        stride = r.choice((1, 1, 1, 2, 2, 4))
        if stride > max(kernel):
            stride = 1
        reach = [dilation * (k - 1) for k in kernel]
        padding = tuple(one // 2 for one in reach) if r.random() < 0.85 else (0,) * dims
        if all(n + 2 * p > one for n, p, one in zip(extent, padding, reach, strict=True)):
            window = {"extent": extent, "kernel": kernel, "stride": stride, "dilation": dilation, "padding": padding}
            return {**window, "then": r.choice(_ACTIVATIONS)}


def _results(s: Sizes) -> list[int]:
    return [
        (n + 2 * p - s["dilation"] * (k - 1) - 1) // s["stride"] + 1
        for n, k, p in zip(s["extent"], s["kernel"], s["padding"], strict=True)
    ]


def _convolution(dims: int, sizes: Callable[[random.Random], Sizes]) -> _Operator:
    def network(s: Sizes) -> Any:
        from torch import nn

        window = {"padding": s["padding"], "dilation": s["dilation"], "groups": s["groups"]}
        layer = getattr(nn, f"Conv{dims}d")(s["in"], s["out"], s["kernel"], s["stride"], **window)
        return _followed(layer, s["then"])

    def work(s: Sizes) -> float:
        return math.prod(_results(s)) * s["out"] * s["in"] // s["groups"] * math.prod(s["kernel"])

    return _Operator(sizes, lambda s: [(s["in"], *s["extent"])], work, network)


def _transposed(dims: int) -> _Operator:
    def sizes(r: random.Random) -> Sizes:
        kernel, stride, padding = r.choice(
            ((2, 2, 0), (4, 2, 1), (3, 2, 1), (3, 1, 1), (4, 4, 0), (8, 4, 2), (16, 8, 4))
        )
        extent = _extent(r, dims)
        channels = {"in": r.choice(_CHANNELS[1:]), "out": r.choice(_CHANNELS)}
        return {**channels, "extent": extent, "kernel": kernel, "stride": stride, "padding": padding}

    def work(s: Sizes) -> float:
        return math.prod(s["extent"]) * s["in"] * s["out"] * s["kernel"] ** dims

    def network(s: Sizes) -> Any:
        from torch import nn

        layer = getattr(nn, f"ConvTranspose{dims}d")
        return layer(s["in"], s["out"], s["kernel"], s["stride"], s["padding"])

    return _Operator(sizes, lambda s: [(s["in"], *s["extent"])], work, network)


# --- products


def _linear() -> _Operator:
    def sizes(r: random.Random) -> Sizes:
        features = {"in": r.choice(_WIDTHS), "out": r.choice((*_WIDTHS, 2, 5, 21128, 50257))}
        return {"rows": r.choice(_ROWS), **features, "then": r.choice(_ACTIVATIONS)}

    def network(s: Sizes) -> Any:
        from torch import nn

        return _followed(nn.Linear(s["in"], s["out"]), s["then"])

    return _Operator(sizes, lambda s: [(s["rows"], s["in"])], lambda s: s["rows"] * s["in"] * s["out"], network)


def _product() -> _Operator:
    """Of two activations: scores and what they weigh."""

    def sizes(r: random.Random) -> Sizes:
        heads, width = r.choice(_HEADS)
        rows, columns, scores = r.choice(_ROWS), r.choice(_ROWS[2:]), r.random() < 0.5
        m, n, k = (rows, columns, width) if scores else (rows, width, columns)
        return {"heads": heads, "m": m, "n": n, "k": k, "transposed": scores}

    def shapes(s: Sizes) -> list[tuple[int, ...]]:
        other = (s["n"], s["k"]) if s["transposed"] else (s["k"], s["n"])
        return [(s["heads"], s["m"], s["k"]), (s["heads"], *other)]

    def network(s: Sizes) -> Any:
        transposed = s["transposed"]
        return _lambda(lambda x, y: x @ (y.transpose(-1, -2) if transposed else y))

    return _Operator(sizes, shapes, lambda s: s["heads"] * s["m"] * s["n"] * s["k"], network)


def _attention() -> _Operator:
    def sizes(r: random.Random) -> Sizes:
        heads, width = r.choice(_HEADS)
        queries = r.choice(_ROWS)
        causal = r.random() < 0.4
        return {"heads": heads, "width": width, "queries": queries, "keys": queries if causal else r.choice(_ROWS[4:]), "causal": causal}  # fmt: skip

    def shapes(s: Sizes) -> list[tuple[int, ...]]:
        keys = (s["heads"], s["keys"], s["width"])
        return [(s["heads"], s["queries"], s["width"]), keys, keys]

    def network(s: Sizes) -> Any:
        import torch

        scale, causal, shape = 1 / math.sqrt(s["width"]), s["causal"], (s["queries"], s["keys"])

        def attention(q, k, v):
            scores = q @ k.transpose(-1, -2) * scale
            if causal:
                scores = scores + torch.full(shape, -1e30).triu(1)
            return torch.softmax(scores, -1) @ v

        return _lambda(attention)

    return _Operator(sizes, shapes, lambda s: 2 * s["heads"] * s["queries"] * s["keys"] * s["width"], network)


def _recurrent(kind: str) -> _Operator:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]

    def sizes(r: random.Random) -> Sizes:
        widths = {
            "in": r.choice((32, 64, 80, 128, 256, 512)),
            "hidden": r.choice((32, 64, 100, 128, 256, 384, 512, 1024)),
        }
        return {"length": r.choice((10, 25, 50, 64, 100, 200)), **widths, "bidirectional": r.random() < 0.3}

    def work(s: Sizes) -> float:
        return s["length"] * gates * s["hidden"] * (s["in"] + s["hidden"])

    def network(s: Sizes) -> Any:
        from torch import nn

        layer = getattr(nn, kind)(s["in"], s["hidden"], batch_first=True, bidirectional=s["bidirectional"])

        class Outputs(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = layer

            def forward(self, x):
                return self.layer(x)[0]

        return Outputs()

    return _Operator(sizes, lambda s: [(s["length"], s["in"])], work, network)


# --- what memory bounds


def _image(r: random.Random) -> Sizes:
    return {"channels": r.choice(_CHANNELS), "extent": _extent(r, 2)}


def _of_images(sizes: Callable[[random.Random], Sizes], network: Callable[[Sizes], Any], inputs: int = 1) -> _Operator:
    return _Operator(
        lambda r: {**_image(r), **sizes(r)},
        lambda s: [(s["channels"], *s["extent"])] * inputs,
        lambda s: s["channels"] * math.prod(s["extent"]) * _ELEMENTS_WORK,
        network,
    )


def _of_tokens(sizes: Callable[[random.Random], Sizes], network: Callable[[Sizes], Any]) -> _Operator:
    return _Operator(
        lambda r: {"rows": r.choice(_ROWS), "width": r.choice(_WIDTHS), **sizes(r)},
        lambda s: [(s["rows"], s["width"])],
        lambda s: s["rows"] * s["width"] * _ELEMENTS_WORK,
        network,
    )


def _pooling(r: random.Random) -> Sizes:
    kernel, stride = r.choice(((2, 2), (3, 2), (3, 1), (3, 3), (5, 1), (7, 7), (13, 1)))
    return {"kind": r.choice(("MaxPool2d", "AvgPool2d")), "kernel": kernel, "stride": stride}


def _pooling_network(s: Sizes) -> Any:
    from torch import nn

    return getattr(nn, s["kind"])(s["kernel"], s["stride"], s["kernel"] // 2)


def _normalisation(s: Sizes) -> Any:
    import torch
    from torch import nn

    if s["kind"] == "rms":
        weight = nn.Parameter(torch.ones(s["width"]))

        class Rms(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = weight

            def forward(self, x):
                return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

        return Rms()
    return {"layer": nn.LayerNorm(s["width"]), "softmax": nn.Softmax(-1), "log_softmax": nn.LogSoftmax(-1)}[s["kind"]]


def _image_normalisation(s: Sizes) -> Any:
    from torch import nn

    if s["kind"] == "instance":
        return nn.InstanceNorm2d(s["channels"], affine=True)
    return nn.GroupNorm(math.gcd(s["channels"], s["groups"]), s["channels"])


def _activation(s: Sizes) -> Any:
    from torch import nn

    return getattr(nn, s["kind"])()


def _reduction(s: Sizes) -> Any:
    import torch

    kind, axes = s["kind"], s["axes"]
    return _lambda(lambda x: getattr(torch, kind)(x, dim=axes))


def _permutation(s: Sizes) -> Any:
    order = s["order"]
    return _lambda(lambda x: x.permute(*order).contiguous() * 2.0)


def _concatenation(s: Sizes) -> Any:
    import torch

    axis = s["axis"]
    return _lambda(lambda x, y: torch.relu(torch.cat((x, y), axis)))


def _resizing(s: Sizes) -> Any:
    from torch import nn

    corners = {"align_corners": s["align_corners"]} if s["mode"] == "bilinear" else {}
    return nn.Upsample(scale_factor=s["scale"], mode=s["mode"], **corners)


def _embedding() -> _Operator:
    def network(s: Sizes) -> Any:
        from torch import nn

        return nn.Embedding(s["rows"], s["width"])

    return _Operator(
        lambda r: {"rows": r.choice((512, 5000, 30522)), "width": r.choice(_WIDTHS), "length": r.choice(_ROWS[8:])},
        lambda s: [(s["length"],)],
        lambda s: s["length"] * s["width"] * _ELEMENTS_WORK,
        network,
    )


_ALL_ACTIVATIONS = tuple(sorted({*_ACTIVATIONS} - {""})) + ("ELU", "Softplus", "Mish", "ReLU6", "Hardsigmoid")
_OPERATORS = {
    "conv1d": _convolution(1, _convolution_sizes(1)),
    "conv2d": _convolution(2, _convolution_sizes(2)),
    "conv3d": _convolution(3, _convolution_sizes(3)),
    "depthwise1d": _convolution(1, _depthwise_sizes(1)),
    "depthwise2d": _convolution(2, _depthwise_sizes(2)),
    "conv_transpose1d": _transposed(1),
    "conv_transpose2d": _transposed(2),
    "linear": _linear(),
    "matmul": _product(),
    "attention": _attention(),
    "lstm": _recurrent("LSTM"),
    "gru": _recurrent("GRU"),
    "pooling": _of_images(_pooling, _pooling_network),
    "normalisation": _of_tokens(
        lambda r: {"kind": r.choice(("layer", "rms", "softmax", "log_softmax"))}, _normalisation
    ),
    "image_normalisation": _of_images(
        lambda r: {"kind": r.choice(("group", "instance")), "groups": r.choice((8, 16, 32))}, _image_normalisation
    ),
    "activation": _of_tokens(lambda r: {"kind": r.choice(_ALL_ACTIVATIONS)}, _activation),
    "reduction": _of_images(
        lambda r: {"kind": r.choice(("mean", "sum", "amax")), "axes": r.choice(((1,), (2,), (3,), (2, 3), (1, 2, 3)))},
        _reduction,
    ),
    "permutation": _of_images(
        lambda r: {"order": r.choice(((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2), (0, 3, 2, 1)))},
        _permutation,
    ),
    "concatenation": _of_images(lambda r: {"axis": r.choice((1, 2, 3))}, _concatenation, inputs=2),
    "resizing": _of_images(
        lambda r: {
            "scale": r.choice((2, 2, 4)),
            "mode": r.choice(("nearest", "bilinear")),
            "align_corners": r.random() < 0.3,
        },
        _resizing,
    ),
    "embedding": _embedding(),
}
KINDS = tuple(_OPERATORS)
_INPUTS = {"matmul": 2, "attention": 3, "concatenation": 2}
_OFTEN = {"conv2d": 6, "linear": 5, "conv1d": 3, "depthwise2d": 3, "matmul": 2, "attention": 2, "conv_transpose2d": 2}
