"""Attention. Its meaning is that of the schema's function body; 16-bit floats are computed in f32 throughout it."""

from __future__ import annotations

import onnx

from inlay.onnx_import import functions
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


@converter("Attention")
def attention(ctx: NodeContext) -> tuple:
    """Rounding every intermediate to 16 bits loses a unit in the last place against a fused kernel, so the body is
    instantiated for f32 and only the results are rounded."""
    node, inputs = ctx.node, [ctx[i] if ctx.has(i) else None for i in range(len(ctx))]
    ctx.ignore(*(a.name for a in node.attribute))  # the body reads them
    narrow = [v is not None and v.dtype in ("f16", "bf16") for v in inputs]
    wide = [ctx.cast(v, "f32") if v is not None and n else v for v, n in zip(inputs, narrow)]
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    precision = next((a.i for a in node.attribute if a.name == "softmax_precision"), onnx.TensorProto.FLOAT)
    if any(narrow) and precision in (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16):
        wide = inputs  # the model asks for 16 bits inside
    body = functions.body_of(ctx.graph, bare, "", ctx.opset, wide)
    if body is None:
        raise Unsupported("this form of the operator is not supported")
    ctx.inputs = wide
    outputs = functions.inline(ctx.graph, ctx, body)
    if wide is inputs:
        return tuple(outputs)
    dtypes = [inputs[0], inputs[1], inputs[2], inputs[0]]  # Y, present_key, present_value, qk_matmul_output
    return tuple(
        ctx.cast(v, d.dtype) if isinstance(v, Value) and d is not None and v.is_float else v
        for v, d in zip(outputs, dtypes)
    )  # fmt: skip
