"""onnxruntime's own convolutions (domain com.microsoft): with a residual and an activation, and channels last."""

from __future__ import annotations

from inlay.onnx_import.contrib_common import activated, channels_first, channels_last
from inlay.onnx_import.ops_nn import conv_attrs
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Value


def _fused(ctx: NodeContext, x: Value, residual: Value | None) -> Value:
    args = [x, ctx[1], ctx[2]] if ctx.has(2) else [x, ctx[1]]
    y = ctx.op("conv", *args, **conv_attrs(ctx, x, ctx[1]))
    if residual is not None:
        y = ctx.op("add", y, residual)
    return activated(ctx, y, ctx.attr("activation"), ctx.attr("activation_params", []))


@contrib("FusedConv")
def fused_conv(ctx: NodeContext) -> Value:
    """activation(conv(X, W, B) + Z)."""
    return _fused(ctx, ctx[0], ctx.get(3))


@contrib("NhwcConv", "NhwcFusedConv")
def nhwc_conv(ctx: NodeContext) -> Value:
    """The same of X, Z and Y with the channels last; W lies as Conv's."""
    x, residual = channels_first(ctx, ctx[0]), ctx.get(3)
    y = _fused(ctx, x, None if residual is None else channels_first(ctx, residual))
    return channels_last(ctx, y)
