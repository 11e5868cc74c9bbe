"""The operators of core/ir/OPS.md as the client sees them: attributes, and the type of the result.

The server checks and infers again (op_registry); this side exists so that importers know every shape while they build.
An inference function takes the argument types and the completed attributes, and returns one TensorType or a tuple of
them. It raises ValueError with a message that the builder prefixes with the op's name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from inlay.ir import dims
from inlay.ir.types import ALL, FLOATS, INTS, TensorType

N = FLOATS + INTS
Infer = Callable[[Sequence[TensorType], dict[str, Any]], "TensorType | tuple[TensorType, ...]"]


@dataclasses.dataclass(frozen=True)
class OpSchema:
    """name; attributes as {name: (type, default)} where a default of `...` means required and None absent; infer."""

    name: str
    attrs: dict[str, tuple[str, Any]]
    infer: Infer


REGISTRY: dict[str, OpSchema] = {}


def op(*names: str, **attrs: str | tuple[str, Any]):
    """Registers an inference function for several ops. attrs: name="int" (required) or name=("int", default)."""

    def register(infer: Infer) -> Infer:
        table = {key: value if isinstance(value, tuple) else (value, ...) for key, value in attrs.items()}
        for name in names:
            REGISTRY[name] = OpSchema(name, table, infer)
        return infer

    return register


def _dtype(arg: TensorType, allowed: Sequence[str], what: str = "x") -> None:
    if arg.dtype not in allowed:
        raise ValueError(f"{what} is {arg.dtype}, wants one of {' '.join(allowed)}")


def _count(args: Sequence[TensorType], least: int, most: int | None = None) -> None:
    most = least if most is None else most
    if not least <= len(args) <= most:
        raise ValueError(f"{len(args)} arguments, wants {least}{'' if least == most else f' to {most}'}")


def _same_dtype(args: Sequence[TensorType]) -> str:
    kinds = {arg.dtype for arg in args}
    if len(kinds) != 1:
        raise ValueError(f"arguments of different dtypes: {', '.join(arg.dtype for arg in args)}")
    return args[0].dtype


# --- Elementwise -----------------------------------------------------------------------------------------------------


def _unary(allowed: Sequence[str], result: str | None = None) -> Infer:
    def infer(args, attrs):
        _count(args, 1)
        _dtype(args[0], allowed)
        return TensorType(result or args[0].dtype, args[0].shape)

    return infer


op("neg", "abs", "sign", "relu")(_unary(N))
op("exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
   "asinh", "acosh", "atanh", "erf", "sigmoid", "floor", "ceil", "round", "silu", "softplus")(_unary(FLOATS))  # fmt: skip
op("gelu", approximate=("string", "none"))(_unary(FLOATS))
op("leaky_relu", alpha=("float", 0.01))(_unary(FLOATS))
op("elu", alpha=("float", 1.0))(_unary(FLOATS))
op("hard_sigmoid", alpha=("float", 0.2), beta=("float", 0.5))(_unary(FLOATS))
op("clip", min=("float", None), max=("float", None))(_unary(N))
op("logical_not")(_unary(("bool",)))
op("bitwise_not")(_unary(INTS))
op("isnan")(_unary(FLOATS, "bool"))
op("isinf", positive=("bool", True), negative=("bool", True))(_unary(FLOATS, "bool"))
op("identity")(_unary(ALL))


@op("cast", dtype="dtype")
def _cast(args, attrs):
    _count(args, 1)
    return TensorType(attrs["dtype"], args[0].shape)


def _binary(allowed: Sequence[str], result: str | None = None) -> Infer:
    def infer(args, attrs):
        _count(args, 2)
        _same_dtype(args)
        _dtype(args[0], allowed)
        return TensorType(result or args[0].dtype, dims.broadcast(args[0].shape, args[1].shape))

    return infer


op("add", "sub", "mul", "minimum", "maximum", "div")(_binary(N))
op("equal", "not_equal")(_binary(ALL, "bool"))
op("less", "less_equal", "greater", "greater_equal")(_binary(N, "bool"))
op("logical_and", "logical_or", "logical_xor")(_binary(("bool",)))
op("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")(_binary(INTS))


@op("mod", fmod=("bool", False))
def _mod(args, attrs):
    return _binary(N if attrs["fmod"] else INTS)(args, attrs)


@op("pow")
def _pow(args, attrs):
    _count(args, 2)
    for arg in args:
        _dtype(arg, N)
    return TensorType(args[0].dtype, dims.broadcast(args[0].shape, args[1].shape))


@op("where")
def _where(args, attrs):
    _count(args, 3)
    _dtype(args[0], ("bool",), "condition")
    _same_dtype(args[1:])
    return TensorType(args[1].dtype, dims.broadcast(*(arg.shape for arg in args)))


# --- Reductions, scans -----------------------------------------------------------------------------------------------


def reduced(shape: dims.Shape, axes: Sequence[int], keepdims: bool) -> dims.Shape:
    """The shape after reducing `axes` (empty: all)."""
    chosen = {dims.axis(a, len(shape)) for a in axes} if axes else set(range(len(shape)))
    if keepdims:
        return tuple(1 if i in chosen else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in chosen)


def _reduce(allowed: Sequence[str]) -> Infer:
    def infer(args, attrs):
        _count(args, 1)
        _dtype(args[0], allowed)
        return TensorType(args[0].dtype, reduced(args[0].shape, attrs["axes"], attrs["keepdims"]))

    return infer


op("reduce_sum", "reduce_mean", "reduce_prod", axes=("ints", []), keepdims=("bool", False))(_reduce(N))
op("reduce_max", "reduce_min", axes=("ints", []), keepdims=("bool", False))(_reduce(N + ("bool",)))


@op("argmax", "argmin", axis=("int", 0), keepdims=("bool", False), select_last=("bool", False))
def _arg(args, attrs):
    _count(args, 1)
    _dtype(args[0], N)
    return TensorType("i64", reduced(args[0].shape, [attrs["axis"]], attrs["keepdims"]))


@op("cumsum", "cumprod", axis="int", exclusive=("bool", False), reverse=("bool", False))
def _cumulative(args, attrs):
    dims.axis(attrs["axis"], args[0].rank)
    return _unary(N)(args, attrs)


@op("cummax", "cummin", axis="int")
def _cumulative_extreme(args, attrs):
    dims.axis(attrs["axis"], args[0].rank)
    return _unary(N)(args, attrs), _unary(N, "i64")(args, attrs)


@op("logcumsumexp", axis="int")
def _logcumsumexp(args, attrs):
    dims.axis(attrs["axis"], args[0].rank)
    return _unary(FLOATS)(args, attrs)


@op("softmax", "log_softmax", axis=("int", -1))
def _softmax(args, attrs):
    dims.axis(attrs["axis"], args[0].rank)
    return _unary(FLOATS)(args, attrs)


@op("topk", k="extent", axis=("int", -1), largest=("bool", True), sorted=("bool", True))
def _topk(args, attrs):
    _count(args, 1)
    shape = list(args[0].shape)
    axis = dims.axis(attrs["axis"], len(shape))
    k, extent = attrs["k"], shape[axis]
    left = dims.sub(extent, k)  # of an open one a run is asked
    if (isinstance(k, int) and k < 0) or (isinstance(left, int) and left < 0):
        raise ValueError(f"k {k} is outside extent {extent}")
    shape[axis] = k
    return TensorType(args[0].dtype, tuple(shape)), TensorType("i64", tuple(shape))


# --- Normalisation ---------------------------------------------------------------------------------------------------


@op("layer_norm", axis=("int", -1), epsilon=("float", 1e-5))
def _layer_norm(args, attrs):
    _count(args, 3)
    _same_dtype(args)
    _dtype(args[0], FLOATS)
    axis = dims.axis(attrs["axis"], args[0].rank)
    for arg in args[1:]:
        if dims.broadcast(args[0].shape[axis:], arg.shape) != args[0].shape[axis:]:
            raise ValueError(f"scale or bias {arg} does not fit {args[0]} from axis {axis}")
    return args[0]


@op("batch_norm", epsilon=("float", 1e-5))
def _batch_norm(args, attrs):
    _count(args, 5)
    _same_dtype(args)
    _dtype(args[0], FLOATS)
    if args[0].rank < 2 or any(arg.shape != args[0].shape[1:2] for arg in args[1:]):
        raise ValueError(f"statistics do not have the channels of {args[0]}")
    return args[0]


@op("lrn", size="int", alpha=("float", 1e-4), beta=("float", 0.75), bias=("float", 1.0))
def _lrn(args, attrs):
    return _unary(FLOATS)(args, attrs)


# --- Contractions ----------------------------------------------------------------------------------------------------


@op("matmul", transpose_a=("bool", False), transpose_b=("bool", False))
def _matmul(args, attrs):
    _count(args, 2)
    _same_dtype(args)
    _dtype(args[0], N)
    return TensorType(args[0].dtype, _matmul_shape(args, attrs))


@op("matmul_integer", transpose_a=("bool", False), transpose_b=("bool", False))
def _matmul_integer(args, attrs):
    _count(args, 2)
    return TensorType(_eight_bits(args), _matmul_shape(args, attrs))


@op("gather_matmul", transpose_b=("bool", False))
def _gather_matmul(args, attrs):
    _count(args, 3)
    a, b, which = args
    _same_dtype(args[:2])
    _dtype(a, FLOATS)
    _dtype(which, ("i32", "i64"))
    if a.rank != 2 or b.rank != 3 or b.shape[0] == 0 or not all(isinstance(d, int) for d in b.shape):
        raise ValueError(f"{b} holds no matrices of a known shape for {a}")
    k, n = b.shape[:0:-1] if attrs["transpose_b"] else b.shape[1:]
    if a.shape[1] != k:
        raise ValueError(f"inner extents {a.shape[1]} and {k} differ ({a} by {b})")
    if which.shape != a.shape[:1]:
        raise ValueError(f"{which} does not say which matrix each row of {a} meets")
    return TensorType(a.dtype, (a.shape[0], n))


@op("matmul_nbits", bits="int")
def _matmul_nbits(args, attrs):
    _count(args, 3, 4)
    a, b, scales, *zero_points = args
    bits = attrs["bits"]
    _dtype(a, ("f16", "bf16", "f32"))
    _dtype(b, ("u8",))
    _dtype(scales, (a.dtype,))
    if bits not in (2, 4, 8) or a.rank == 0 or b.rank != 3 or b.shape[2] % 4 or not b.shape[2]:
        raise ValueError(f"{b} holds no blocks of 2, 4 or 8 bits, each a multiple of 4 bytes, for {a}")
    blocks = -(-a.shape[-1] // (b.shape[2] * 8 // bits))
    if b.shape[1] != blocks or any(v.shape != b.shape[:2] for v in (scales, *zero_points)):
        raise ValueError(f"{a} has {blocks} blocks; b is {b}, the scales {scales}")
    for zero in zero_points:
        _dtype(zero, ("u8", a.dtype))
    return TensorType(a.dtype, (*a.shape[:-1], b.shape[0]))


def _eight_bits(args):
    """The dtype of sums of products of such."""
    for arg in args:
        _dtype(arg, ("i8", "u8"))
    return "i32"


def _matmul_shape(args, attrs):
    a, b = list(args[0].shape), list(args[1].shape)
    if not a or not b:
        raise ValueError("a scalar argument")
    if (attrs["transpose_a"] and len(a) < 2) or (attrs["transpose_b"] and len(b) < 2):
        raise ValueError("transposed argument of rank 1")
    if attrs["transpose_a"]:
        a[-1], a[-2] = a[-2], a[-1]
    if attrs["transpose_b"]:
        b[-1], b[-2] = b[-2], b[-1]
    vector_a, vector_b = len(a) == 1, len(b) == 1
    if vector_a:
        a = [1] + a
    if vector_b:
        b = b + [1]
    if a[-1] != b[-2]:
        raise ValueError(f"inner extents {a[-1]} and {b[-2]} differ ({args[0]} by {args[1]})")
    tail = ([] if vector_a else [a[-2]]) + ([] if vector_b else [b[-1]])
    return dims.broadcast(a[:-2], b[:-2]) + tuple(tail)


def _window(extent, kernel, stride, dilation, before, after, ceil_mode=False):
    return dims.window_extent(extent, (kernel - 1) * dilation + 1, stride, before, after, ceil_mode)


def windows_within(extents, kernel, strides, dilations, pads) -> list[int]:
    """The kernel of a pooling in ceil mode, where a window may be larger than the image with its pads: the only one is
    then all of it (EfficientNet's global pooling)."""
    clipped = list(kernel)
    for i, (extent, k, stride) in enumerate(zip(extents, kernel, strides, strict=True)):
        if isinstance(extent, int) and dilations[i] == 1:
            room = extent + pads[i] + pads[len(clipped) + i]
            if room < k < room + stride:
                clipped[i] = room
    return clipped


def _spatial_lists(attrs, spatial: int, names=("strides", "dilations")) -> None:
    for name in names:
        if len(attrs[name]) != spatial:
            raise ValueError(f"{name} {attrs[name]} for {spatial} spatial axes")
        if any(v < 1 for v in attrs[name]):
            raise ValueError(f"{name} {attrs[name]} must be positive")
    if len(attrs["pads"]) != 2 * spatial:
        raise ValueError(f"pads {attrs['pads']} for {spatial} spatial axes")


def _conv_args(args) -> int:
    _count(args, 2, 3)
    spatial = args[0].rank - 2
    if not 1 <= spatial <= 3 or args[1].rank != args[0].rank:
        raise ValueError(f"x {args[0]} and w {args[1]}: wants 1 to 3 spatial axes in both")
    return spatial


@op("conv", strides="ints", dilations="ints", pads="ints", groups=("int", 1))
def _conv(args, attrs):
    _same_dtype(args)
    _dtype(args[0], FLOATS)
    return TensorType(args[0].dtype, _conv_shape(args, attrs))


@op("conv_integer", strides="ints", dilations="ints", pads="ints", groups=("int", 1), x_zero=("int", 0))
def _conv_integer(args, attrs):
    _count(args, 2)
    least = -128 if args[0].dtype == "i8" else 0
    if not least <= attrs["x_zero"] < least + 256:
        raise ValueError(f"x_zero {attrs['x_zero']} is no element of x {args[0]}")
    return TensorType(_eight_bits(args), _conv_shape(args, attrs))


def _conv_shape(args, attrs):
    spatial = _conv_args(args)
    _spatial_lists(attrs, spatial)
    x, w, groups = args[0].shape, args[1].shape, attrs["groups"]
    if dims.mul(w[1], groups) != x[1] or (isinstance(w[0], int) and w[0] % groups):
        raise ValueError(f"channels of x {args[0]}, w {args[1]} and groups {groups} disagree")
    if len(args) == 3 and args[2].shape != (w[0],):
        raise ValueError(f"bias {args[2]} does not have the {w[0]} channels of w")
    p = attrs["pads"]
    out = [
        _window(x[2 + i], w[2 + i], attrs["strides"][i], attrs["dilations"][i], p[i], p[spatial + i])
        for i in range(spatial)
    ]
    return (x[0], w[0], *out)


@op("conv_transpose", strides="ints", dilations="ints", pads="ints", output_padding="ints", groups=("int", 1))
def _conv_transpose(args, attrs):
    _same_dtype(args)
    _dtype(args[0], FLOATS)
    spatial = _conv_args(args)
    _spatial_lists(attrs, spatial)
    x, w, groups = args[0].shape, args[1].shape, attrs["groups"]
    if w[0] != x[1] or (isinstance(w[0], int) and w[0] % groups):
        raise ValueError(f"channels of x {args[0]}, w {args[1]} and groups {groups} disagree")
    channels = dims.mul(w[1], groups)
    if len(args) == 3 and args[2].shape != (channels,):
        raise ValueError(f"bias {args[2]} does not have {channels} channels")
    p, out = attrs["pads"], []
    for i in range(spatial):
        full = dims.mul(dims.sub(x[2 + i], 1), attrs["strides"][i])
        more = (w[2 + i] - 1) * attrs["dilations"][i] + 1 + attrs["output_padding"][i] - p[i] - p[spatial + i]
        extent = dims.add(full, more)
        if isinstance(extent, int) and extent < 0:
            raise ValueError(f"negative extent {extent} of spatial axis {i}")
        out.append(extent)
    return TensorType(args[0].dtype, (x[0], channels, *out))


def _pool(args, attrs):
    x = args[0].shape
    spatial = len(x) - 2
    if not 1 <= spatial <= 3:
        raise ValueError(f"x {args[0]}: wants 1 to 3 spatial axes")
    _spatial_lists(attrs, spatial, ("kernel", "strides", "dilations"))
    p = attrs["pads"]
    out = [
        _window(
            x[2 + i], attrs["kernel"][i], attrs["strides"][i], attrs["dilations"][i], p[i], p[spatial + i],
            attrs["ceil_mode"],
        )
        for i in range(spatial)
    ]  # fmt: skip
    return TensorType(args[0].dtype, (*x[:2], *out))


@op("max_pool", kernel="ints", strides="ints", dilations="ints", pads="ints", ceil_mode=("bool", False))
def _max_pool(args, attrs):
    _count(args, 1)
    _dtype(args[0], N)
    return _pool(args, attrs)


@op("avg_pool", kernel="ints", strides="ints", dilations="ints", pads="ints", ceil_mode=("bool", False),
    count_include_pad=("bool", False))  # fmt: skip
def _avg_pool(args, attrs):
    _count(args, 1)
    _dtype(args[0], FLOATS)
    return _pool(args, attrs)
