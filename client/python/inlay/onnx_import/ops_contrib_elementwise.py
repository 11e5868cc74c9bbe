"""onnxruntime's own elementwise operators and activations (domain com.microsoft), and those of its operators that are
ONNX's under another name."""

from __future__ import annotations

from inlay.onnx_import.ops_elementwise import gelu
from inlay.onnx_import.ops_indexing import gather_nd
from inlay.onnx_import.ops_pad import pad
from inlay.onnx_import.ops_shape import range_, trilu
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value

contrib("Gelu")(gelu)
contrib("GatherND")(gather_nd)
contrib("Pad")(pad)
contrib("Range")(range_)
contrib("Trilu")(trilu)


@contrib("BiasGelu")
def bias_gelu(ctx: NodeContext) -> Value:
    return ctx.op("gelu", ctx.op("add", ctx[0], ctx[1]), approximate="none")


@contrib("FastGelu")
def fast_gelu(ctx: NodeContext) -> Value:
    x = ctx.op("add", ctx[0], ctx[1]) if ctx.has(1) else ctx[0]
    return ctx.op("gelu", x, approximate="tanh")


@contrib("QuickGelu")
def quick_gelu(ctx: NodeContext) -> Value:
    """x * sigmoid(alpha * x)."""
    x, alpha = ctx[0], ctx.attr("alpha", 1.702)
    if alpha == 1.0:
        return ctx.op("silu", x)
    return ctx.op("mul", x, ctx.op("sigmoid", ctx.op("mul", x, ctx.like(alpha, x))))


@contrib("BiasSplitGelu")
def bias_split_gelu(ctx: NodeContext) -> Value:
    """The left half of x + bias, times the GELU of the right one."""
    x = ctx.op("add", ctx[0], ctx[1])
    width = x.shape[-1]
    if isinstance(width, str) or width % 2:
        raise Unsupported(f"the last dimension {width} has no halves")
    left, right = ctx.op("split", x, axis=x.rank - 1, sizes=[width // 2] * 2)
    return ctx.op("mul", left, ctx.op("gelu", right, approximate="none"))


@contrib("BiasAdd")
def bias_add(ctx: NodeContext) -> Value:
    return ctx.op("add", ctx.op("add", ctx[0], ctx[1]), ctx[2])


@contrib("ExpandDims")
def expand_dims(ctx: NodeContext) -> Value:
    x = ctx[0]
    at = ctx.axis(ctx.ints(1, "the axis")[0], x.rank + 1)
    return ctx.reshape(x, [*x.shape[:at], 1, *x.shape[at:]])
