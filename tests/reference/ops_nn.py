"""Normalisation, convolution, pooling, recurrence (see OPS.md)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from reference.evaluator import op
from reference.ops_core import computed_wide, lowest, narrow, sigmoid, wide


@op("layer_norm")
def _layer_norm(args, attrs):
    x, scale, bias = (wide(a) for a in args)
    axes = tuple(range(attrs.get("axis", -1) % x.ndim, x.ndim))
    mean = np.mean(x, axis=axes, keepdims=True)
    variance = np.mean((x - mean) ** 2, axis=axes, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + x.dtype.type(attrs.get("epsilon", 1e-5)))
    return narrow(normal * scale + bias, args[0].dtype)


@op("batch_norm")
def _batch_norm(args, attrs):
    x = wide(args[0])
    scale, bias, mean, var = (wide(a).reshape(-1, *[1] * (x.ndim - 2)) for a in args[1:])
    return narrow(
        (x - mean) / np.sqrt(var + x.dtype.type(attrs.get("epsilon", 1e-5))) * scale + bias, args[0].dtype
    )  # fmt: skip


@op("lrn")
@computed_wide
def _lrn(args, attrs):
    x, size = args[0], attrs["size"]
    square = np.zeros_like(x)
    channels = x.shape[1]
    for c in range(channels):
        low, high = (
            max(0, c - (size - 1) // 2),
            min(channels - 1, c + math.ceil((size - 1) / 2)),
        )
        square[:, c] = np.sum(x[:, low : high + 1] ** 2, axis=1)
    base = attrs.get("bias", 1.0) + attrs.get("alpha", 1e-4) / size * square
    return x / np.power(base, attrs.get("beta", 0.75))


# --- Convolution -----------------------------------------------------------------------------------------------------


def _spatial_pad(x, pads, value):
    n = x.ndim - 2
    return np.pad(
        x,
        [(0, 0), (0, 0), *[(pads[i], pads[n + i]) for i in range(n)]],
        constant_values=value,
    )


def _tap(x, tap, strides, dilations, out):
    """What the kernel's element `tap` sees at each output position."""
    index = [slice(None), slice(None)]
    for t, s, d, o in zip(tap, strides, dilations, out):
        index.append(slice(t * d, t * d + (o - 1) * s + 1, s) if o else slice(0, 0))
    return x[tuple(index)]


@op("conv")
def _conv(args, attrs):
    # Sums in f64: equal channels stay equal, whatever order a BLAS adds in (light_squeezenet's softmax turns on it).
    x, w = args[0].astype(np.float64), args[1].astype(np.float64)
    groups, strides, dilations = (
        attrs.get("groups", 1),
        attrs["strides"],
        attrs["dilations"],
    )
    x = _spatial_pad(x, attrs["pads"], 0)
    kernel = w.shape[2:]
    out = [(e - (k - 1) * d - 1) // s + 1 for e, k, s, d in zip(x.shape[2:], kernel, strides, dilations)]
    per_group, rows = x.shape[1] // groups, w.shape[0] // groups
    y = np.zeros((x.shape[0], w.shape[0], *out), x.dtype)
    for tap in itertools.product(*(range(k) for k in kernel)):
        seen = _tap(x, tap, strides, dilations, out)
        for g in range(groups):
            weights = w[(slice(g * rows, (g + 1) * rows), slice(None), *tap)]
            part = np.tensordot(seen[:, g * per_group : (g + 1) * per_group], weights, axes=([1], [1]))
            y[:, g * rows : (g + 1) * rows] += np.moveaxis(part, -1, 1)
    if len(args) == 3:
        y = y + wide(args[2]).reshape(-1, *[1] * len(kernel))
    return narrow(y, args[0].dtype)


@op("conv_integer")
def _conv_integer(args, attrs):
    x, w = (x.astype(np.float64) for x in args)
    return _conv([x - attrs.get("x_zero", 0), w], attrs).astype(np.int32)


@op("conv_transpose")
def _conv_transpose(args, attrs):
    x, w = args[0].astype(np.float64), args[1].astype(np.float64)
    groups, strides, dilations, pads = (
        attrs.get("groups", 1),
        attrs["strides"],
        attrs["dilations"],
        attrs["pads"],
    )
    kernel, n = w.shape[2:], w.ndim - 2
    full = [
        (e - 1) * s + (k - 1) * d + 1 + p
        for e, s, k, d, p in zip(x.shape[2:], strides, kernel, dilations, attrs["output_padding"])
    ]
    y = np.zeros((x.shape[0], w.shape[1] * groups, *full), x.dtype)
    per_group = x.shape[1] // groups
    for tap in itertools.product(*(range(k) for k in kernel)):
        index = [slice(t * d, t * d + (e - 1) * s + 1, s) for t, d, e, s in zip(tap, dilations, x.shape[2:], strides)]
        for g in range(groups):
            weights = w[(slice(g * per_group, (g + 1) * per_group), slice(None), *tap)]
            part = np.tensordot(x[:, g * per_group : (g + 1) * per_group], weights, axes=([1], [0]))
            channels = slice(g * w.shape[1], (g + 1) * w.shape[1])
            y[(slice(None), channels, *index)] += np.moveaxis(part, -1, 1)
    crop = [slice(pads[i], full[i] - pads[n + i]) for i in range(n)]
    y = y[(slice(None), slice(None), *crop)]
    if len(args) == 3:
        y = y + wide(args[2]).reshape(-1, *[1] * n)
    return narrow(y, args[0].dtype)


# --- Pooling ---------------------------------------------------------------------------------------------------------


def _pool_windows(x, attrs):
    """Yields (output position, [index of each element inside x], elements of the window that lie in x or its pads)."""
    n = x.ndim - 2
    kernel, strides, dilations, pads = (
        attrs["kernel"],
        attrs["strides"],
        attrs["dilations"],
        attrs["pads"],
    )
    out = []
    for i in range(n):
        room = x.shape[2 + i] + pads[i] + pads[n + i] - ((kernel[i] - 1) * dilations[i] + 1)
        count = (math.ceil if attrs.get("ceil_mode", False) else math.floor)(room / strides[i]) + 1
        if attrs.get("ceil_mode", False) and (count - 1) * strides[i] >= x.shape[2 + i] + pads[i]:
            count -= 1
        out.append(count)
    windows = []
    for position in itertools.product(*(range(o) for o in out)):
        inside, padded = [], 0
        for tap in itertools.product(*(range(k) for k in kernel)):
            at = [p * s + t * d - pads[i] for i, (p, s, t, d) in enumerate(zip(position, strides, tap, dilations))]
            if all(0 <= a < x.shape[2 + i] for i, a in enumerate(at)):
                inside.append(tuple(at))
            if all(a < x.shape[2 + i] + pads[n + i] for i, a in enumerate(at)):
                padded += 1
        windows.append((position, inside, padded))
    return out, windows


@op("max_pool")
def _max_pool(args, attrs):
    x = wide(args[0])
    out, windows = _pool_windows(x, attrs)
    y = np.full((*x.shape[:2], *out), lowest(x.dtype), dtype=x.dtype)
    for position, inside, _ in windows:
        for at in inside:
            here = (slice(None), slice(None), *position)
            y[here] = np.maximum(y[here], x[(slice(None), slice(None), *at)])
    return narrow(y, args[0].dtype)


@op("avg_pool")
def _avg_pool(args, attrs):
    x = wide(args[0])
    out, windows = _pool_windows(x, attrs)
    y = np.zeros((*x.shape[:2], *out), dtype=np.float64)
    for position, inside, padded in windows:
        here = (slice(None), slice(None), *position)
        for at in inside:
            y[here] += x[(slice(None), slice(None), *at)]
        y[here] /= padded if attrs.get("count_include_pad", False) else len(inside)
    return narrow(y, args[0].dtype)


# --- Recurrence ------------------------------------------------------------------------------------------------------


def _directions(attrs):
    """(index, whether time runs backwards) of each direction."""
    return {"forward": [(0, False)], "reverse": [(0, True)], "bidirectional": [(0, False), (1, True)]}[
        attrs["direction"]
    ]  # fmt: skip


def _run(x, attrs, states, step):
    """step(direction, x_t, states of that direction) -> new states; the first is the output."""
    directions = _directions(attrs)
    y = np.zeros((x.shape[0], len(directions), x.shape[1], attrs["hidden_size"]), x.dtype)
    finals = [np.array(s) for s in states]
    for d, backwards in directions:
        now = [s[d] for s in states]
        for t in range(x.shape[0] - 1, -1, -1) if backwards else range(x.shape[0]):
            now = step(d, x[t], now)
            y[t, d] = now[0]
        for final, value in zip(finals, now):
            final[d] = value
    return (y, *finals)


@op("lstm")
def _lstm(args, attrs):
    x, w, r, b, h0, c0 = (wide(a) for a in args[:6])
    p = wide(args[6]) if len(args) > 6 else np.zeros((w.shape[0], 3 * attrs["hidden_size"]), x.dtype)
    hidden = attrs["hidden_size"]

    def step(d, xt, state):
        h, c = state
        z = xt @ w[d].T + h @ r[d].T + b[d, : 4 * hidden] + b[d, 4 * hidden :]
        i, o, f, g = np.split(z, 4, axis=-1)
        pi, po, pf = np.split(p[d], 3)
        i, f = sigmoid(i + pi * c), sigmoid(f + pf * c)
        c = f * c + i * np.tanh(g)
        return [sigmoid(o + po * c) * np.tanh(c), c]

    return tuple(narrow(v, args[0].dtype) for v in _run(x, attrs, [h0, c0], step))


@op("gru")
def _gru(args, attrs):
    x, w, r, b, h0 = (wide(a) for a in args)
    hidden = attrs["hidden_size"]

    def step(d, xt, state):
        (h,) = state
        wz, wr, wh = np.split(w[d], 3)
        rz, rr, rh = np.split(r[d], 3)
        bz, br, bh, cz, cr, ch = np.split(b[d], 6)
        z = sigmoid(xt @ wz.T + h @ rz.T + bz + cz)
        reset = sigmoid(xt @ wr.T + h @ rr.T + br + cr)
        if attrs.get("linear_before_reset", False):
            n = np.tanh(xt @ wh.T + reset * (h @ rh.T + ch) + bh)
        else:
            n = np.tanh(xt @ wh.T + (reset * h) @ rh.T + ch + bh)
        return [(1 - z) * n + z * h]

    assert hidden == r.shape[-1]
    return tuple(narrow(v, args[0].dtype) for v in _run(x, attrs, [h0], step))


@op("rnn")
def _rnn(args, attrs):
    x, w, r, b, h0 = (wide(a) for a in args)
    hidden = attrs["hidden_size"]
    activation = {"tanh": np.tanh, "relu": lambda v: np.maximum(v, 0), "sigmoid": sigmoid}[
        attrs.get("activation", "tanh")
    ]  # fmt: skip

    def step(d, xt, state):
        return [activation(xt @ w[d].T + state[0] @ r[d].T + b[d, :hidden] + b[d, hidden:])]

    return tuple(narrow(v, args[0].dtype) for v in _run(x, attrs, [h0], step))
