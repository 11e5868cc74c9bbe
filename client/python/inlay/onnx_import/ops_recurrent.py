"""LSTM, GRU, RNN."""

from __future__ import annotations

import numpy as np

from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}


def _zeros(ctx: NodeContext, shape: list, like: Value) -> Value:
    return ctx.op("full", shape=shape, value=0.0, dtype=like.dtype)


def _activations(ctx: NodeContext, kind: str, count: int) -> list[str]:
    """The activations of one direction, lower case; both directions must have the same."""
    given = [a.lower() for a in ctx.attr("activations") or _ACTIVATIONS[kind] * count]
    each = len(_ACTIVATIONS[kind])
    if len(given) != each * count or any(given[i] != given[i % each] for i in range(len(given))):
        raise Unsupported(f"activations {given} differ between the directions")
    if ctx.attr("activation_alpha") or ctx.attr("activation_beta"):
        raise Unsupported("parameters of activations")
    if kind != "RNN" and given[:each] != _ACTIVATIONS[kind]:
        raise Unsupported(f"activations {given}")
    if kind == "RNN" and given[0] not in ("tanh", "relu", "sigmoid"):
        raise Unsupported(f"activation {given[0]}")
    return given[:each]


def _check_lengths(ctx: NodeContext, steps) -> None:
    if ctx.has(4):
        lengths = ctx.const(4, "sequence_lens")
        if np.any(lengths != steps):
            raise Unsupported(f"sequence_lens {lengths.tolist()} other than the whole sequence of {steps}")


@converter("LSTM", "GRU", "RNN")
def recurrent(ctx: NodeContext) -> tuple:
    kind = ctx.node.op_type
    x, w, r = ctx[0], ctx[1], ctx[2]
    direction = ctx.attr("direction", "forward")
    count = 2 if direction == "bidirectional" else 1
    hidden = ctx.attr("hidden_size") or r.shape[-1]
    if ctx.attr("clip") is not None:
        raise Unsupported("clip")
    if ctx.attr("input_forget", 0):
        raise Unsupported("input_forget")
    activations = _activations(ctx, kind, count)
    batch_first = bool(ctx.attr("layout", 0))
    if batch_first:
        x = ctx.transpose(x, [1, 0, 2])
    steps, batch = x.shape[0], x.shape[1]
    _check_lengths(ctx, steps)
    bias = ctx.get(3) or _zeros(ctx, [count, 2 * _GATES[kind] * hidden], x)

    def state(i: int) -> Value:
        given = ctx.get(i)
        if given is None:
            return _zeros(ctx, [count, batch, hidden], x)
        return ctx.transpose(given, [1, 0, 2]) if batch_first else given

    args, attrs = [x, w, r, bias, state(5)], {"direction": direction, "hidden_size": hidden}
    if kind == "LSTM":
        args.append(state(6))
        if ctx.has(7):
            args.append(ctx[7])
    elif kind == "GRU":
        attrs["linear_before_reset"] = bool(ctx.attr("linear_before_reset", 0))
    else:
        attrs["activation"] = activations[0]
    y, *states = ctx.op(kind.lower(), *args, **attrs)
    if batch_first:
        y = ctx.transpose(y, [2, 0, 1, 3])
        states = [ctx.transpose(s, [1, 0, 2]) for s in states]
    return (y, *states)
