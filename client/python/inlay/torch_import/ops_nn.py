"""Convolutions, normalisation, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlay.torch_import.registry import Extent, NodeContext, Unsupported, Var, converter


def per_axis(values: Any, count: int) -> list[int]:
    """One number an axis; PyTorch also gives one for all, or none."""
    values = [values] if isinstance(values, (int, Extent)) else list(values)
    return values * count if len(values) == 1 else values


@converter("convolution.default")
def convolution(
    ctx: NodeContext, x: Var, w: Var, bias: Var | None, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Var:  # fmt: skip
    n = w.rank - 2
    lone = x.rank == n + 1  # without a batch
    if lone:
        x = ctx.reshape(x, [1, *x.shape])
    args = [x, w] if bias is None else [x, w, bias]
    attrs: dict[str, Any] = {
        "strides": per_axis(stride, n), "dilations": per_axis(dilation, n), "pads": per_axis(padding, n) * 2,
        "groups": groups,
    }  # fmt: skip
    if transposed:
        y = ctx.op("conv_transpose", *args, output_padding=per_axis(output_padding, n), **attrs)
    else:
        y = ctx.op("conv", *args, **attrs)
    return ctx.reshape(y, y.shape[1:]) if lone else y


# --- Normalisation ---------------------------------------------------------------------------------------------------


def _in_f32(ctx: NodeContext, x: Var, parts: Sequence[Var | None]) -> tuple[str, Var, list[Var | None]]:
    """PyTorch takes 16-bit activations with f32 statistics: everything in f32 then."""
    wide = [ctx.wide(v) if v is not None else None for v in parts]
    return (
        x.dtype,
        ctx.wide(x),
        [None if v is None else ctx.cast(v, "f64" if x.dtype == "f64" else "f32") for v in wide],
    )


@converter("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    ctx: NodeContext, x: Var, scale: Var | None, bias: Var | None, mean: Var, var: Var, momentum: float, eps: float
) -> tuple:
    return _batch_norm(ctx, x, scale, bias, mean, var, eps), None, None


@converter("batch_norm.default")
def batch_norm(
    ctx: NodeContext, x: Var, scale: Var | None, bias: Var | None, mean: Var | None, var: Var | None, training: bool,
    momentum: float, eps: float, cudnn: bool = False,
) -> Var:  # fmt: skip
    if training or mean is None or var is None:
        return _batch_statistics(ctx, x, scale, bias, eps)
    return _batch_norm(ctx, x, scale, bias, mean, var, eps)


def _batch_norm(ctx: NodeContext, x: Var, scale: Any, bias: Any, mean: Var, var: Var, eps: float) -> Var:
    dtype, wide, parts = _in_f32(ctx, x, [scale, bias, mean, var])
    channels = [x.shape[1]]
    if parts[0] is None:
        parts[0] = ctx.full(channels, 1.0, wide.dtype)
    if parts[1] is None:
        parts[1] = ctx.full(channels, 0.0, wide.dtype)
    return ctx.narrow(ctx.op("batch_norm", wide, *parts, epsilon=eps), dtype)  # type: ignore[arg-type]


def _batch_statistics(ctx: NodeContext, x: Var, scale: Var | None, bias: Var | None, eps: float) -> Var:
    """With the batch's own mean and variance (track_running_stats=False)."""
    dtype, wide, parts = _in_f32(ctx, x, [scale, bias])
    axes = [i for i in range(x.rank) if i != 1]
    mean = ctx.op("reduce_mean", wide, axes=axes, keepdims=True)
    centred = ctx.op("sub", wide, mean)
    var = ctx.op("reduce_mean", ctx.op("mul", centred, centred), axes=axes, keepdims=True)
    y = ctx.op("div", centred, ctx.op("sqrt", ctx.op("add", var, ctx.like(eps, wide))))
    return ctx.narrow(_affine(ctx, y, *parts), dtype)


def _affine(ctx: NodeContext, y: Var, scale: Var | None, bias: Var | None) -> Var:
    """y * scale + bias, both a number a channel."""
    shape = [y.shape[1], *[1] * (y.rank - 2)]
    y = y if scale is None else ctx.op("mul", y, ctx.reshape(scale, shape))
    return y if bias is None else ctx.op("add", y, ctx.reshape(bias, shape))


@converter("layer_norm.default")
def layer_norm(
    ctx: NodeContext, x: Var, shape: Sequence[int], scale: Var | None = None, bias: Var | None = None,
    eps: float = 1e-5, cudnn: bool = True,
) -> Var:  # fmt: skip
    dtype, wide, parts = _in_f32(ctx, x, [scale, bias])
    one, zero = ctx.literal([1.0], wide.dtype), ctx.literal([0.0], wide.dtype)
    y = ctx.op("layer_norm", wide, parts[0] or one, parts[1] or zero, axis=x.rank - len(shape), epsilon=eps)
    return ctx.narrow(y, dtype)


@converter("native_layer_norm.default")
def native_layer_norm(ctx: NodeContext, x: Var, shape: Any, scale: Var | None, bias: Var | None, eps: float) -> tuple:
    return layer_norm(ctx, x, shape, scale, bias, eps), None, None


@converter("group_norm.default")
def group_norm(
    ctx: NodeContext, x: Var, groups: int, scale: Var | None = None, bias: Var | None = None, eps: float = 1e-5,
    cudnn: bool = True,
) -> Var:  # fmt: skip
    dtype, wide, parts = _in_f32(ctx, x, [scale, bias])
    one, zero = ctx.literal([1.0], wide.dtype), ctx.literal([0.0], wide.dtype)
    split = ctx.reshape(wide, [x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]])
    y = ctx.reshape(ctx.op("layer_norm", split, one, zero, axis=2, epsilon=eps), x.shape)
    return ctx.narrow(_affine(ctx, y, *parts), dtype)


@converter("native_group_norm.default")
def native_group_norm(
    ctx: NodeContext, x: Var, scale: Var | None, bias: Var | None, n: int, c: int, hxw: int, groups: int, eps: float
) -> tuple:
    return group_norm(ctx, x, groups, scale, bias, eps), None, None


@converter("instance_norm.default")
def instance_norm(
    ctx: NodeContext, x: Var, scale: Var | None, bias: Var | None, mean: Var | None, var: Var | None,
    use_input_stats: bool, momentum: float, eps: float, cudnn: bool,
) -> Var:  # fmt: skip
    if not use_input_stats and mean is not None and var is not None:
        return _batch_norm(ctx, x, scale, bias, mean, var, eps)
    return group_norm(ctx, x, x.shape[1], scale, bias, eps)


@converter("rms_norm.default")
def rms_norm(ctx: NodeContext, x: Var, shape: Sequence[int], scale: Var | None = None, eps: float | None = None) -> Var:
    """x / sqrt(mean(x^2) + eps) * scale."""
    dtype, wide, (factor,) = _in_f32(ctx, x, [scale])
    epsilon = eps if eps is not None else (2.0**-52 if x.dtype == "f64" else 2.0**-23)
    axes = list(range(x.rank - len(shape), x.rank))
    square = ctx.op("reduce_mean", ctx.op("mul", wide, wide), axes=axes, keepdims=True)
    y = ctx.op("mul", wide, ctx.op("rsqrt", ctx.op("add", square, ctx.like(epsilon, wide))))
    return ctx.narrow(y if factor is None else ctx.op("mul", y, factor), dtype)


@converter("_fused_rms_norm.default")
def fused_rms_norm(ctx: NodeContext, x: Var, shape: Sequence[int], scale: Var | None, eps: float | None) -> tuple:
    return rms_norm(ctx, x, shape, scale, eps), None


# --- Recurrent -------------------------------------------------------------------------------------------------------

_ORDER = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2], "rnn": [0]}  # the IR's gates (i o f c; z r h) in PyTorch's


@converter("lstm.input")
def lstm(
    ctx: NodeContext, x: Var, state: Sequence[Var], params: Sequence[Var], biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple:  # fmt: skip
    return _recurrent(ctx, "lstm", x, state, params, biases, layers, dropout, train, bidirectional, batch_first, {})


@converter("gru.input", "rnn_tanh.input", "rnn_relu.input")
def gru(
    ctx: NodeContext, x: Var, state: Var, params: Sequence[Var], biases: bool, layers: int, dropout: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple:  # fmt: skip
    kind = "gru" if ctx.name.startswith("gru") else "rnn"
    more = {"linear_before_reset": True} if kind == "gru" else {"activation": ctx.name[4:8]}
    return _recurrent(ctx, kind, x, [state], params, biases, layers, dropout, train, bidirectional, batch_first, more)


def _recurrent(
    ctx: NodeContext, kind: str, x: Var, states: Sequence[Var], params: Sequence[Var], biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool, more: dict[str, Any],
) -> tuple:  # fmt: skip
    """x [seq, batch, in] ([batch, seq, in] if batch_first, no batch axis at all if its rank is 2)."""
    if train and dropout:
        raise Unsupported("dropout between the layers drops at random; export model.eval()")
    directions, each = 2 if bidirectional else 1, 4 if biases else 2
    if len(params) != each * directions * layers:
        raise Unsupported("projections (proj_size)")
    lone = x.rank == 2
    if lone:
        x, states = (
            ctx.reshape(x, [x.shape[0], 1, x.shape[1]]),
            [ctx.reshape(s, [s.shape[0], 1, s.shape[1]]) for s in states],
        )
    elif batch_first:
        x = ctx.transpose(x, [1, 0, 2])
    hidden = params[1].shape[-1]
    finals: list[list[Var]] = [[] for _ in states]
    for layer in range(layers):
        own = params[layer * directions * each : (layer + 1) * directions * each]
        weights = _weights(ctx, kind, own, each, directions, hidden)
        initial = [ctx.slice(s, 0, layer * directions, (layer + 1) * directions) for s in states]
        way = "bidirectional" if bidirectional else "forward"
        y, *last = ctx.op(kind, x, *weights, *initial, direction=way, hidden_size=hidden, **more)
        for into, value in zip(finals, last, strict=True):
            into.append(value)
        steps, _, batch, _ = y.shape  # [seq, directions, batch, hidden]
        x = ctx.reshape(ctx.transpose(y, [0, 2, 1, 3]), [steps, batch, directions * hidden])
    ends = [parts[0] if layers == 1 else ctx.op("concat", *parts, axis=0) for parts in finals]
    if lone:
        return (ctx.reshape(x, [x.shape[0], x.shape[2]]), *(ctx.reshape(e, [e.shape[0], e.shape[2]]) for e in ends))
    return (ctx.transpose(x, [1, 0, 2]) if batch_first else x, *ends)


def _weights(ctx: NodeContext, kind: str, params: Sequence[Var], each: int, directions: int, hidden: int) -> list[Var]:
    """[w, r, b] of a layer, each with the directions as first axis."""
    order = _ORDER[kind]

    def gates(value: Var) -> Var:
        if len(order) == 1:
            return value
        parts = ctx.op("split", value, axis=0, sizes=[hidden] * len(order))
        return ctx.op("concat", *(parts[i] for i in order), axis=0)

    rows: list[list[Var]] = [[], [], []]
    for d in range(directions):
        w, r, *bias = params[d * each : (d + 1) * each]
        rows[0].append(gates(w))
        rows[1].append(gates(r))
        zero = ctx.full([2 * len(order) * hidden], 0.0, w.dtype)
        rows[2].append(ctx.op("concat", *(gates(b) for b in bias), axis=0) if bias else zero)
    made = []
    for parts in rows:
        parts = [ctx.reshape(p, [1, *p.shape]) for p in parts]
        made.append(parts[0] if directions == 1 else ctx.op("concat", *parts, axis=0))
    return made


@converter("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
def packed(ctx: NodeContext, *args: Any, **named: Any) -> tuple:
    raise Unsupported("packed sequences; pad them instead")
