"""onnxruntime's own products (domain com.microsoft): what its optimisers fuse into a MatMul or Gemm, and CDist."""

from __future__ import annotations

from inlay.onnx_import.contrib_common import activated
from inlay.onnx_import.ops_linalg import gemm
from inlay.onnx_import.registry import NodeContext, contrib
from inlay.onnx_import.value import Unsupported, Value


def _batch_first(ctx: NodeContext, x: Value) -> Value:
    """[M, batch..., K] as [batch..., M, K]: what transBatchA and transBatchB say of an operand."""
    if x.rank < 3:
        raise Unsupported(f"transBatch of an operand of rank {x.rank}")
    return ctx.transpose(x, [*range(1, x.rank - 1), 0, x.rank - 1])


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(ctx: NodeContext) -> Value:
    """alpha * A' B'."""
    a, b, alpha = ctx[0], ctx[1], ctx.attr("alpha", 1.0)
    if ctx.attr("transBatchA", 0):
        a = _batch_first(ctx, a)
    if ctx.attr("transBatchB", 0):
        b = _batch_first(ctx, b)
    # NumPy's matmul has nothing to transpose of a vector, and neither has onnxruntime.
    trans_a, trans_b = (bool(ctx.attr(name, 0)) and x.rank > 1 for name, x in (("transA", a), ("transB", b)))
    y = ctx.op("matmul", a, b, transpose_a=trans_a, transpose_b=trans_b)
    return y if alpha == 1.0 else ctx.op("mul", y, ctx.like(alpha, y))


@contrib("FusedMatMulActivation")
def fused_matmul_activation(ctx: NodeContext) -> Value:
    name, axis = ctx.required("activation"), ctx.attr("activation_axis")
    if axis is not None:
        raise Unsupported("attribute activation_axis is not supported: only elementwise activations are")
    return activated(ctx, fused_matmul(ctx), name, _parameters(ctx))


@contrib("FusedGemm")
def fused_gemm(ctx: NodeContext) -> Value:
    return activated(ctx, gemm(ctx), ctx.attr("activation"), _parameters(ctx))


def _parameters(ctx: NodeContext) -> list[float | None]:
    ctx.ignore("activation_gamma")  # only Selu has one, which is refused
    return [ctx.attr("activation_alpha"), ctx.attr("activation_beta")]


@contrib("GemmFastGelu")
def gemm_fast_gelu(ctx: NodeContext) -> Value:
    y = ctx.op("matmul", ctx[0], ctx[1])
    return ctx.op("gelu", ctx.op("add", y, ctx[2]) if ctx.has(2) else y, approximate="tanh")


@contrib("CDist")
def cdist(ctx: NodeContext) -> Value:
    """The distances between the rows of A and those of B: |a|^2 + |b|^2 - 2 ab."""
    a, b, metric = ctx[0], ctx[1], ctx.attr("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise Unsupported(f"metric {metric!r}: sqeuclidean and euclidean are supported")
    norm_a, norm_b = (ctx.op("reduce_sum", ctx.op("mul", x, x), axes=[1], keepdims=keep)
                      for x, keep in ((a, True), (b, False)))  # fmt: skip
    product = ctx.op("matmul", a, b, transpose_b=True)
    squares = ctx.op("sub", ctx.op("add", norm_a, norm_b), ctx.op("mul", product, ctx.like(2, product)))
    squares = ctx.op("maximum", squares, ctx.like(0, squares))  # rounding may leave less
    return ctx.op("sqrt", squares) if metric == "euclidean" else squares
