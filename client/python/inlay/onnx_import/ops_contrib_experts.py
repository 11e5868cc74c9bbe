"""onnxruntime's mixture of experts (domain com.microsoft)."""

from __future__ import annotations

from inlay.ir import dims
from inlay.ir.dims import Dim
from inlay.onnx_import.contrib_common import only, without
from inlay.onnx_import.ops_shape import expand_to, slice_by
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


@contrib("MoE")
def mixture_of_experts(ctx: NodeContext) -> Value:
    """Of each token: what its k experts make of it, weighted by the softmax of router_probs (logits, despite the name)."""
    x, activation = ctx[0], ctx.attr("activation_type", "relu")
    if activation not in ("relu", "gelu", "silu", "identity", "swiglu"):
        raise Unsupported(f"activation {activation!r}: relu, gelu, silu, identity and swiglu are supported")
    without(ctx, fc3_experts_weights=6, fc3_experts_bias=7)
    only(ctx, "use_sparse_mixer", 0)  # its own routing, where onnxruntime's kernel for CPUs would route as without
    if x.dtype != "f32":  # the kernel's results in f16 are not those that it has in f32
        raise Unsupported(f"experts in {x.dtype}: only f32 is supported")
    tokens, hidden = _check_shapes(ctx, activation)
    k = ctx.attr("k", 1)
    share, which = _routed(ctx, ctx[1], k)
    rows = dims.mul(tokens, k)  # row r is of token r // k
    which = ctx.reshape(which, [rows])

    y = ctx.reshape(x, [tokens, 1, hidden])
    y = ctx.reshape(expand_to(ctx, y, [1, k, 1]), [rows, hidden])
    y = _activated(ctx, _layer(ctx, y, 2, which), activation)
    y = ctx.op("mul", _layer(ctx, y, 4, which), ctx.reshape(share, [rows, 1]))
    if k > 1:
        y = ctx.op("reduce_sum", ctx.reshape(y, [tokens, k, hidden]), axes=[1], keepdims=False)
    return ctx.reshape(y, x.shape)


def _check_shapes(ctx: NodeContext, activation: str) -> tuple[Dim, int]:
    """How many tokens there are, and of how many numbers."""
    x, router = ctx[0], ctx[1]
    if x.rank not in (2, 3) or router.rank != 2:
        raise Unsupported(
            f"an input of rank {x.rank} with router_probs of rank {router.rank}: only [tokens, hidden] and [batch, "
            "length, hidden] are supported, with [tokens, experts]"
        )
    tokens = dims.product(x.shape[:-1])
    if router.shape[0] != tokens:
        rows = router.shape[0]
        known = "" if dims.static([rows]) else f"; shape={{{str(rows)!r}: {str(tokens)!r}}} says that they are as many"
        raise Unsupported(f"{rows} rows of router_probs for {tokens} tokens{known}")
    experts, hidden = router.shape[1], x.shape[-1]
    first, second = (ctx.static_shape(ctx[i], "a layer of experts") for i in (2, 4))
    inner, wide = second[-1], 2 if activation == "swiglu" else 1
    # onnxruntime takes transposed ones too, and reads them as if they were not.
    if first != [experts, wide * inner, hidden] or second != [experts, hidden, inner]:
        raise Unsupported(
            f"weights of {first} and {second} for an input {list(x.shape)} and router_probs {list(router.shape)}: only "
            f"[experts, {'2 * inner' if wide == 2 else 'inner'}, hidden] and [experts, hidden, inner] are supported"
        )
    for i, shape in ((3, first[:2]), (5, second[:2])):
        if ctx.has(i) and list(ctx[i].shape) != shape:
            raise Unsupported(f"a bias of {list(ctx[i].shape)}: only {shape} is supported")
    return tokens, second[1]


def _routed(ctx: NodeContext, router: Value, k: int) -> tuple[Value, Value]:
    """The weights of each token's k experts, and which they are."""
    experts = int(router.shape[1])
    if not 1 <= k <= experts:
        raise Unsupported(f"attribute k {k}: only 1 to {experts}, the number of experts, are supported")
    only(ctx, "normalize_routing_weights", 0, 1)
    # Of equals onnxruntime takes the last ones first, and topk the first ones: it is given them backwards.
    share = ctx.op("softmax", slice_by(ctx, router, [-1], [-experts - 1], [1], [-1]), axis=1)
    share, behind = ctx.op("topk", share, k=k, axis=1)
    if ctx.attr("normalize_routing_weights", 0):
        share = ctx.op("div", share, ctx.op("reduce_sum", share, axes=[1], keepdims=True))
    return share, ctx.op("sub", ctx.like(experts - 1, behind), behind)


def _layer(ctx: NodeContext, x: Value, i: int, which: Value) -> Value:
    """The experts' layer whose weights are input i, and whose bias the next one is."""
    y = ctx.op("gather_matmul", x, ctx[i], which, transpose_b=True)
    return ctx.op("add", y, ctx.op("gather", ctx[i + 1], which, axis=0)) if ctx.has(i + 1) else y


def _activated(ctx: NodeContext, x: Value, name: str) -> Value:
    if name == "swiglu":
        return _gated(ctx, x)
    ctx.ignore("activation_alpha", "activation_beta", "swiglu_fusion", "swiglu_limit")  # swiglu's
    if name == "identity":
        return x
    return ctx.op("gelu", x, approximate="tanh") if name == "gelu" else ctx.op(name, x)


def _gated(ctx: NodeContext, x: Value) -> Value:
    """gate * sigmoid(alpha * gate) * (linear + beta), of gates and linear parts that take turns."""
    alpha, beta, limit = ctx.attr("activation_alpha", 1.0), ctx.attr("activation_beta", 0.0), ctx.attr("swiglu_limit")
    if ctx.attr("swiglu_fusion", 0) != 1:
        raise Unsupported(f"attribute swiglu_fusion {ctx.attr('swiglu_fusion', 0)}: only 1 is supported")
    gate, linear = (slice_by(ctx, x, [i], [x.shape[1]], [1], [2]) for i in (0, 1))
    if limit is not None:
        if not limit >= 0:
            raise Unsupported(f"attribute swiglu_limit {limit}: only 0 and more are supported")
        gate, linear = ctx.op("clip", gate, max=limit), ctx.op("clip", linear, min=-limit, max=limit)
    if alpha == 1.0:
        gate = ctx.op("silu", gate)
    else:
        gate = ctx.op("mul", gate, ctx.op("sigmoid", ctx.op("mul", gate, ctx.like(alpha, gate))))
    return ctx.op("mul", gate, linear if beta == 0.0 else ctx.op("add", linear, ctx.like(beta, linear)))
