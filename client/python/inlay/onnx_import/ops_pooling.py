"""Pooling: MaxPool, AveragePool, LpPool, their global forms, MaxUnpool."""

from __future__ import annotations

import numpy as np

from inlay.ir.ops import windows_within
from inlay.onnx_import.ops_nn import window_pads
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


def pool_window(ctx: NodeContext, x: Value) -> dict:
    kernel = list(ctx.required("kernel_shape"))
    if len(kernel) != x.rank - 2:
        raise Unsupported(f"kernel_shape {kernel} for {list(x.shape)}")
    strides = ctx.attr("strides") or [1] * len(kernel)
    dilations = ctx.attr("dilations") or [1] * len(kernel)
    ceil_mode = bool(ctx.attr("ceil_mode", 0))
    same = (ctx.attr("auto_pad") or "NOTSET").startswith("SAME")
    pads = window_pads(ctx, list(x.shape[2:]), kernel, strides, dilations)
    if ceil_mode and not same:
        kernel = windows_within(list(x.shape[2:]), kernel, strides, dilations, pads)
    return {
        "kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil_mode and not same
    }  # fmt: skip


@converter("MaxPool")
def max_pool(ctx: NodeContext) -> tuple:
    x, window = ctx[0], pool_window(ctx, ctx[0])
    column_major = bool(ctx.attr("storage_order", 0))
    if not ctx.wants(1):
        return (ctx.op("max_pool", x, **window),)
    return _max_pool_indices(ctx, x, window, column_major)


def _max_pool_indices(ctx: NodeContext, x: Value, window: dict, column_major: bool) -> tuple:
    """The flat index of each maximum (the first in its window): every tap of the window is a strided slice; the taps
    are stacked, and argmax picks one."""
    if any(window["pads"]) or window["ceil_mode"]:
        x_pad, index_pad = _padded_with_indices(ctx, x, window, column_major)
    else:
        x_pad, index_pad = x, _flat_indices(ctx, x, column_major)
    out = ctx.op("max_pool", x, **window)
    spatial = ctx.static_shape(out, "MaxPool's indices")[2:]
    taps = np.stack(np.meshgrid(*(range(k) for k in window["kernel"]), indexing="ij"), -1).reshape(-1, len(spatial))
    if len(taps) > 256:
        raise Unsupported(f"the indices of windows of {len(taps)} elements")
    values: list[Value] = []
    indices: list[Value] = []
    for tap in taps:
        begins = [0, 0] + [int(t) * d for t, d in zip(tap, window["dilations"])]
        ends = [2**62, 2**62] + [b + (o - 1) * s + 1 for b, o, s in zip(begins[2:], spatial, window["strides"])]
        steps = [1, 1, *window["strides"]]
        for source, target in ((x_pad, values), (index_pad, indices)):
            part = ctx.op("slice", source, begins=begins, ends=ends, steps=steps)
            target.append(ctx.reshape(part, [1, *part.shape]))
    best = ctx.op("argmax", ctx.op("concat", *values, axis=0), axis=0, keepdims=True)
    chosen = ctx.op("gather_elements", ctx.op("concat", *indices, axis=0), best, axis=0)
    return out, ctx.reshape(chosen, out.shape)


def _flat_indices(ctx: NodeContext, x: Value, column_major: bool) -> Value:
    n, c, *spatial = ctx.static_shape(x, "MaxPool's indices")
    size = int(np.prod(spatial))
    index = ctx.op("iota", shape=[n * c * size], axis=0, dtype="i64")
    if not column_major:
        return ctx.reshape(index, [n, c, *spatial])
    turned = ctx.reshape(index, [n, c, *reversed(spatial)])
    return ctx.transpose(turned, [0, 1, *range(x.rank - 1, 1, -1)])


def _padded_with_indices(ctx: NodeContext, x: Value, window: dict, column_major: bool) -> tuple[Value, Value]:
    n = x.rank - 2
    ends = list(window["pads"][n:])
    if window["ceil_mode"]:
        ends = [e + s for e, s in zip(ends, window["strides"])]
    pads = [0, 0, *window["pads"][:n], 0, 0, *ends]
    lowest = -np.inf if x.is_float else float(np.iinfo(x.type.numpy).min)  # type: ignore[union-attr]
    wide = ctx.op("pad", x, pads=pads, mode="constant", value=float(lowest))
    return wide, ctx.op("pad", _flat_indices(ctx, x, column_major), pads=pads, mode="constant", value=0.0)


@converter("AveragePool")
def average_pool(ctx: NodeContext) -> Value:
    include = bool(ctx.attr("count_include_pad", 0))
    return ctx.op("avg_pool", ctx[0], count_include_pad=include, **pool_window(ctx, ctx[0]))


@converter("LpPool")
def lp_pool(ctx: NodeContext) -> Value:
    """(sum over the window of |x|^p)^(1/p); the sum is a convolution of every channel with ones."""
    x, p = ctx[0], ctx.attr("p", 2)
    window = pool_window(ctx, x)
    shape = ctx.static_shape(x, "LpPool")
    n = len(shape) - 2
    kernel, strides, dilations, pads = (window[k] for k in ("kernel", "strides", "dilations", "pads"))
    if window["ceil_mode"]:
        probe = ctx.op("max_pool", x, **window)  # unused; its inferred type has the extents
        for i, extent in enumerate(probe.shape[2:]):
            reach = (extent - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1  # type: ignore[operator]
            pads[n + i] = max(pads[n + i], reach - shape[2 + i] - pads[i])
    powered = _power(ctx, ctx.op("abs", x), p)
    flat = ctx.reshape(powered, [shape[0] * shape[1], 1, *shape[2:]])
    ones = ctx.op("full", shape=[1, 1, *kernel], value=1.0, dtype=x.dtype)
    total = ctx.op("conv", flat, ones, strides=strides, dilations=dilations, pads=pads, groups=1)
    return ctx.reshape(_root(ctx, total, p), [*shape[:2], *total.shape[2:]])


def _power(ctx: NodeContext, x: Value, p: int) -> Value:
    if p == 1:
        return x
    return ctx.op("mul", x, x) if p == 2 else ctx.op("pow", x, ctx.like(p, x))


def _root(ctx: NodeContext, x: Value, p: int) -> Value:
    if p == 1:
        return x
    return ctx.op("sqrt", x) if p == 2 else ctx.op("pow", x, ctx.like(1.0 / p, x))


def _spatial(x: Value) -> list[int]:
    return list(range(2, x.rank))


@converter("GlobalAveragePool", "GlobalMaxPool")
def global_pool(ctx: NodeContext) -> Value:
    name = "reduce_mean" if ctx.node.op_type == "GlobalAveragePool" else "reduce_max"
    return ctx.op(name, ctx[0], axes=_spatial(ctx[0]), keepdims=True)


@converter("GlobalLpPool")
def global_lp_pool(ctx: NodeContext) -> Value:
    x, p = ctx[0], ctx.attr("p", 2)
    total = ctx.op("reduce_sum", _power(ctx, ctx.op("abs", x), p), axes=_spatial(x), keepdims=True)
    return _root(ctx, total, p)


@converter("MaxUnpool")
def max_unpool(ctx: NodeContext) -> Value:
    """Scatters x to the flat indices of the larger tensor."""
    x, indices = ctx[0], ctx[1]
    kernel = ctx.required("kernel_shape")
    strides = ctx.attr("strides") or [1] * len(kernel)
    pads = ctx.attr("pads") or [0] * 2 * len(kernel)
    shape = ctx.static_shape(x, "MaxUnpool")
    n = len(kernel)
    inferred = [(e - 1) * s - pads[i] - pads[n + i] + k for i, (e, s, k) in enumerate(zip(shape[2:], strides, kernel))]
    target = [*shape[:2], *inferred]
    # Indices count in the inferred tensor; a larger output_shape is that tensor with zeros after it.
    total = int(np.prod(target))
    zeros = ctx.op("full", shape=[total], value=0.0, dtype=x.dtype)
    flat = [int(np.prod(shape))]
    placed = ctx.op(
        "scatter_elements", zeros, ctx.reshape(indices, flat), ctx.reshape(x, flat), axis=0, reduction="none"
    )
    y = ctx.reshape(placed, target)
    if not ctx.has(2):
        return y
    wanted = ctx.ints(2, "the output shape")
    more = [w - t for w, t in zip(wanted, target)]
    if len(wanted) != len(target) or any(m < 0 for m in more):
        raise Unsupported(f"output_shape {wanted} where the indices imply {target}")
    return ctx.op("pad", y, pads=[0] * len(more) + more, mode="constant", value=0.0) if any(more) else y
