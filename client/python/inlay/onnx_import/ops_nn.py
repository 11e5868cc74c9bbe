"""Convolutions: Conv, ConvTranspose, Col2Im; and the padding rules that they share with pooling."""

from __future__ import annotations

from inlay.ir import dims
from inlay.onnx_import.integer_products import dequantised_conv
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value


def window_pads(
    ctx: NodeContext, extents: list, kernel: list[int], strides: list[int], dilations: list[int]
) -> list[int]:
    """Explicit pads (begins then ends) from `pads` or `auto_pad`. extents: the spatial ones, symbolic allowed where
    the pads that auto_pad wants do not depend on them."""
    auto, n = ctx.attr("auto_pad", "NOTSET") or "NOTSET", len(kernel)
    given = ctx.attr("pads")
    if auto in ("NOTSET", "VALID"):
        if auto == "VALID" and given is not None and any(given):
            raise Unsupported("auto_pad VALID together with pads")
        pads = list(given) if given is not None else [0] * 2 * n
        if len(pads) != 2 * n:
            raise Unsupported(f"{len(pads)} pads for {n} spatial axes")
        return pads
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad {auto!r}")
    begins, ends = [], []
    for extent, k, s, d in zip(extents, kernel, strides, dilations):
        count = dims.floordiv(dims.add(extent, s - 1), s)
        total = dims.sub(dims.add(dims.mul(dims.sub(count, 1), s), (k - 1) * d + 1), extent)
        if isinstance(total, str):
            raise Unsupported(
                f"auto_pad {auto} over the symbolic dimension {extent!r}; fix it with shape=, or make it '{s}*n'"
            )
        total = max(0, total)
        small, large = total // 2, total - total // 2
        begins.append(small if auto == "SAME_UPPER" else large)
        ends.append(large if auto == "SAME_UPPER" else small)
    return begins + ends


def _kernel(ctx: NodeContext, w: Value) -> list[int]:
    kernel = ctx.static_shape(w, "the kernel")[2:]
    declared = ctx.attr("kernel_shape")
    if declared is not None and list(declared) != kernel:
        raise Unsupported(f"kernel_shape {declared} for weights {list(w.shape)}")
    return kernel


def conv_attrs(ctx: NodeContext, x: Value, w: Value) -> dict:
    """The attributes of the IR's conv for a Conv, ConvInteger or QLinearConv node."""
    kernel = _kernel(ctx, w)
    strides = ctx.attr("strides") or [1] * len(kernel)
    dilations = ctx.attr("dilations") or [1] * len(kernel)
    pads = window_pads(ctx, list(x.shape[2:]), kernel, strides, dilations)
    return {"strides": strides, "dilations": dilations, "pads": pads, "groups": ctx.attr("group", 1)}


@converter("Conv")
def conv(ctx: NodeContext) -> Value:
    attrs = conv_attrs(ctx, ctx[0], ctx[1])
    y = dequantised_conv(ctx, ctx[0], ctx[1], ctx.get(2), attrs)
    return ctx.op("conv", *ctx.all(), **attrs) if y is None else y


@converter("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> Value:
    x, w = ctx[0], ctx[1]
    kernel = _kernel(ctx, w)
    n = len(kernel)
    strides = ctx.attr("strides") or [1] * n
    dilations = ctx.attr("dilations") or [1] * n
    extra = ctx.attr("output_padding") or [0] * n
    auto, wanted = ctx.attr("auto_pad", "NOTSET") or "NOTSET", ctx.attr("output_shape")
    given = ctx.attr("pads")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [e * s for e, s in zip(ctx.static_shape(x, "auto_pad")[2:], strides)]
    if wanted is None:
        pads = list(given) if given is not None and auto == "NOTSET" else [0] * 2 * n
    else:
        begins, ends = [], []
        for i, extent in enumerate(ctx.static_shape(x, "output_shape")[2:]):
            total = strides[i] * (extent - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - wanted[i]
            if total < 0:  # further than the kernel reaches: the last rows have no contribution but the bias
                extra = [e + (-total if j == i else 0) for j, e in enumerate(extra)]
                total = 0
            small, large = total // 2, total - total // 2
            begins.append(small if auto == "SAME_UPPER" else large)
            ends.append(large if auto == "SAME_UPPER" else small)
        pads = begins + ends
    return ctx.op(
        "conv_transpose", *ctx.all(), strides=strides, dilations=dilations, pads=pads, output_padding=extra,
        groups=ctx.attr("group", 1),
    )  # fmt: skip


@converter("Col2Im")
def col2im(ctx: NodeContext) -> Value:
    """Adds up overlapping blocks: x [N, C*prod(block), L] -> [N, C, image...], as a transposed convolution whose kernel
    puts each of a block's columns where it belongs."""
    x = ctx[0]
    image, block = ctx.ints(1, "the image shape"), ctx.ints(2, "the block shape")
    n = len(image)
    strides, dilations = ctx.attr("strides") or [1] * n, ctx.attr("dilations") or [1] * n
    pads = ctx.attr("pads") or [0] * 2 * n
    size = 1
    for b in block:
        size *= b
    batch, rows, length = ctx.static_shape(x, "Col2Im")
    channels = rows // size
    grid = [
        (image[i] + pads[i] + pads[n + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(n)
    ]  # fmt: skip
    count = 1
    for g in grid:
        count *= g
    if count != length or channels * size != rows:
        raise Unsupported(f"{list(x.shape)} does not hold blocks {block} of an image {image}")
    extra = [
        image[i] - ((grid[i] - 1) * strides[i] + (block[i] - 1) * dilations[i] + 1 - pads[i] - pads[n + i])
        for i in range(n)
    ]
    columns = ctx.reshape(x, [batch * channels, size, *grid])
    which = ctx.op("iota", shape=[size, 1], axis=0, dtype="i64")
    where = ctx.op("iota", shape=[1, size], axis=1, dtype="i64")
    kernel = ctx.reshape(ctx.cast(ctx.op("equal", which, where), x.dtype), [size, 1, *block])
    y = ctx.op(
        "conv_transpose", columns, kernel, strides=strides, dilations=dilations, pads=pads, output_padding=extra,
        groups=1,
    )  # fmt: skip
    return ctx.reshape(y, [batch, channels, *image])
