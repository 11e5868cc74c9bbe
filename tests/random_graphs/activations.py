"""Activations, in the several ways exporters write them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .builder import Builder


def _gelu(b: Builder, x: str) -> str:
    way = b.pick(("op", "tanh op", "erf", "erf", "tanh"))
    if way == "op":
        return b.node("Gelu", x)
    if way == "tanh op":
        return b.node("Gelu", x, approximate="tanh")
    if way == "erf":
        e = b.node("Erf", b.node("Div", x, b.number(math.sqrt(2))))
        one = b.node("Add", *b.either_way(e, b.number(1)))
        if b.chance(0.5):
            return b.node("Mul", b.node("Mul", *b.either_way(x, one)), b.number(0.5))
        return b.node("Mul", b.node("Mul", x, b.number(0.5)), one)
    cube = b.node("Mul", x, b.node("Mul", x, x)) if b.chance(0.5) else b.node("Pow", x, b.number(3))
    inner = b.node("Add", x, b.node("Mul", cube, b.number(0.044715)))
    t = b.node("Tanh", b.node("Mul", inner, b.number(math.sqrt(2 / math.pi))))
    return b.node("Mul", b.node("Mul", x, b.number(0.5)), b.node("Add", t, b.number(1)))


def _hard_swish(b: Builder, x: str) -> str:
    if b.chance(0.4):
        return b.node("HardSwish", x)
    if b.chance(0.5):
        return b.node("Mul", x, b.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    six = b.node("Clip", b.node("Add", x, b.number(3)), b.constant(np.float32(0)), b.constant(np.float32(6)))
    return b.node("Div", b.node("Mul", x, six), b.number(6))


ACTIVATIONS: dict[str, Callable[[Builder, str], str]] = {
    "relu": lambda b, x: b.node("Relu", x),
    "relu6": lambda b, x: b.node("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(6))),
    "sigmoid": lambda b, x: b.node("Sigmoid", x),
    "tanh": lambda b, x: b.node("Tanh", x),
    "silu": lambda b, x: b.node("Mul", *b.either_way(x, b.node("Sigmoid", x))),
    "gelu": _gelu,
    "hard_swish": _hard_swish,
    "hard_sigmoid": lambda b, x: b.node("HardSigmoid", x, alpha=0.2, beta=0.5),
    "leaky_relu": lambda b, x: b.node("LeakyRelu", x, alpha=0.1),
    "elu": lambda b, x: b.node("Elu", x, alpha=0.9),
    "selu": lambda b, x: b.node("Selu", x),
    "celu": lambda b, x: b.node("Celu", x, alpha=1.3),
    "mish": lambda b, x: b.node("Mish", x),
    "softplus": lambda b, x: b.node("Softplus", x),
    "softsign": lambda b, x: b.node("Softsign", x),
    "prelu": lambda b, x: (
        b.node("PRelu", x, b.weight((b.shape(x)[1], *[1] * (len(b.shape(x)) - 2)), 0.3))
        if len(b.shape(x)) > 2
        else b.node("PRelu", x, b.weight((1,), 0.3))
    ),
    "quick_gelu": lambda b, x: b.node("Mul", x, b.node("Sigmoid", b.node("Mul", x, b.number(1.702)))),
    "clip": lambda b, x: b.node("Clip", x, b.constant(np.float32(-0.7)), b.constant(np.float32(1.1))),
    "squared_relu": lambda b, x: b.node("Mul", b.node("Relu", x), b.node("Relu", x)),
}


def activation(b: Builder, x: str) -> str:
    return ACTIVATIONS[b.pick(list(ACTIVATIONS))](b, x)
