"""DFT and STFT, as matmuls with the constant matrices of cosines and sines; MelWeightMatrix.

The products are summed in f64: a transform cancels large terms, and the many elements that ought to be 0 would otherwise
hold the rounding errors of the largest.
"""

from __future__ import annotations

import numpy as np

from inlay.onnx_import import fold
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value, constant_value

_LONGEST = 4096  # the matrix has its square


def fourier(n_in: int, n_out: int, n_fft: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin) of [n_in, n_out]: X[k] = sum_n x[n] (cos - i sin)(2 pi n k / n_fft)."""
    # n * k modulo n_fft first: the angles stay small and exact.
    angle = 2 * np.pi / n_fft * (np.outer(np.arange(n_in), np.arange(n_out)) % n_fft)
    return np.cos(angle), np.sin(angle)


def _transform(ctx: NodeContext, real: Value, imag: Value | None, length: int, onesided: bool):
    """DFT along the last axis, zero-padded or cropped to `length`; (real, imag)."""
    if length > _LONGEST:
        raise Unsupported(f"a transform of length {length}")
    n_in = ctx.static_shape(real, "DFT")[-1]
    used = min(n_in, length)
    n_out = length // 2 + 1 if onesided else length
    cos, sin = fourier(used, n_out, length)

    def cropped(x: Value) -> Value:
        if used == n_in:
            return x
        ends = [*[2**62] * (x.rank - 1), used]
        return ctx.op("slice", x, begins=[0] * x.rank, ends=ends, steps=[1] * x.rank)

    def times(x: Value, matrix: np.ndarray) -> Value:
        return ctx.op("matmul", cropped(x), ctx.literal(matrix, x.dtype))

    out_real, out_imag = times(real, cos), times(real, -sin)
    if imag is not None:
        out_real = ctx.op("add", out_real, times(imag, sin))
        out_imag = ctx.op("add", out_imag, times(imag, cos))
    return out_real, out_imag


def _component(ctx: NodeContext, x: Value, i: int) -> Value:
    """Element i of the last axis, which goes away."""
    begins, ends = [0] * x.rank, [2**62] * x.rank
    begins[-1], ends[-1] = i, i + 1
    return ctx.reshape(ctx.op("slice", x, begins=begins, ends=ends, steps=[1] * x.rank), x.shape[:-1])


def _pair(ctx: NodeContext, real: Value, imag: Value) -> Value:
    parts = [ctx.reshape(v, [*v.shape, 1]) for v in (real, imag)]
    return ctx.op("concat", *parts, axis=real.rank)


@converter("DFT")
def dft_attributes(ctx: NodeContext) -> Value:
    return _dft(ctx, ctx.attr("axis", 1))


@converter("DFT", since=20)
def dft(ctx: NodeContext) -> Value:
    return _dft(ctx, int(ctx.const(2, "the axis").reshape(-1)[0]) if ctx.has(2) else -2)


def _dft(ctx: NodeContext, axis: int) -> Value:
    x = ctx[0]
    axis = ctx.axis(axis, x.rank)
    inverse, onesided = bool(ctx.attr("inverse", 0)), bool(ctx.attr("onesided", 0))
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise Unsupported(f"a transform along axis {axis} of {list(x.shape)}")
    extent = ctx.static_shape(x, "DFT")[axis]
    if ctx.has(1):
        length = int(ctx.const(1, "the length").reshape(-1)[0])
    else:
        length = 2 * (extent - 1) if inverse and onesided else extent
    wide = ctx.cast(x, "f64")
    real = _component(ctx, wide, 0)
    imag = _component(ctx, wide, 1) if x.shape[-1] == 2 else None
    order = [i for i in range(real.rank) if i != axis] + [axis]
    back = [order.index(i) for i in range(real.rank)]
    real, imag = ctx.transpose(real, order), None if imag is None else ctx.transpose(imag, order)
    if inverse and onesided:
        return ctx.cast(_real_inverse(ctx, real, imag, length, back), x.dtype)
    if inverse:
        # ONNX's own cases for it expect rounding noise of a particular FFT, above their tolerance around zero; until
        # there is a case to test it against, it is refused.
        raise Unsupported("the inverse transform to a complex signal")
    out_real, out_imag = _transform(ctx, real, imag, length, onesided)
    return ctx.cast(_pair(ctx, ctx.transpose(out_real, back), ctx.transpose(out_imag, back)), x.dtype)


def _real_inverse(ctx: NodeContext, real: Value, imag: Value | None, length: int, back: list[int]) -> Value:
    """From half a spectrum to the real signal: the other half is its conjugate."""
    if imag is None:
        raise Unsupported("a one-sided inverse of a real spectrum")
    n_in = ctx.static_shape(real, "DFT")[-1]
    half = length // 2 + 1
    if n_in != half:
        raise Unsupported(f"a one-sided inverse of length {length} from {n_in} elements")
    weight = np.full(half, 2.0)
    weight[0] = 1.0
    if length % 2 == 0:
        weight[-1] = 1.0
    cos, sin = fourier(half, length, length)
    signal = ctx.op(
        "sub",
        ctx.op("matmul", real, ctx.literal(cos * weight[:, None] / length, real.dtype)),
        ctx.op("matmul", imag, ctx.literal(sin * weight[:, None] / length, real.dtype)),
    )
    signal = ctx.transpose(signal, back)
    return ctx.reshape(signal, [*signal.shape, 1])


@converter("STFT")
def stft(ctx: NodeContext) -> Value:
    """signal [batch, length, 1 or 2] -> [batch, frames, bins, 2]."""
    x, step = ctx[0], int(ctx.const(1, "frame_step").reshape(-1)[0])
    onesided = bool(ctx.attr("onesided", 1))
    batch, total = ctx.static_shape(x, "STFT")[:2]
    window = ctx.get(2)
    if ctx.has(3):
        frame = int(ctx.const(3, "frame_length").reshape(-1)[0])
    elif window is not None:
        frame = ctx.static_shape(window, "STFT")[0]
    else:
        raise Unsupported("neither a window nor a frame_length")
    if window is not None and window.shape != (frame,):
        raise Unsupported(f"a window of shape {list(window.shape)} for frames of {frame}")
    if onesided and x.rank == 3 and x.shape[-1] == 2:
        raise Unsupported("one-sided transform of a complex signal")
    count = (total - frame) // step + 1
    index = constant_value("", np.arange(count)[:, None] * step + np.arange(frame)[None, :])
    parts = [x] if x.rank == 2 else [_component(ctx, x, i) for i in range(int(x.shape[-1]))]
    frames = [ctx.op("gather", p, index, axis=1) for p in parts]
    if window is not None:
        frames = [ctx.op("mul", f, window) for f in frames]
    frames = [ctx.cast(f, "f64") for f in frames]
    imag = frames[1] if len(frames) > 1 else None
    assert frames[0].shape == (batch, count, frame)
    return ctx.cast(_pair(ctx, *_transform(ctx, frames[0], imag, frame, onesided)), x.dtype)


@converter("MelWeightMatrix")
def mel_weight_matrix(ctx: NodeContext) -> Value:
    """All its inputs decide the shape or the bins: it is a constant."""
    ctx.ignore("output_datatype")
    arrays = [ctx.const(i, "the filter bank") for i in range(5)]
    try:
        return constant_value("", fold.evaluate(ctx.node, list(arrays), ctx.opset)[0])
    except ValueError as error:
        raise Unsupported(str(error)) from None
