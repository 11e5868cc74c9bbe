"""Elementwise operators, reductions, scans, matmul (see OPS.md)."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np

from reference.evaluator import op

BF16 = np.dtype(ml_dtypes.bfloat16)


def is_float(dtype) -> bool:
    return dtype == BF16 or np.issubdtype(dtype, np.floating)


def wide(x: np.ndarray) -> np.ndarray:
    """f16 and bf16 are computed in f32."""
    return x.astype(np.float32) if x.dtype == BF16 or x.dtype == np.float16 else x


def narrow(y: np.ndarray, dtype) -> np.ndarray:
    return np.asarray(y).astype(dtype)


def computed_wide(function):
    """Runs f on widened arrays and rounds the result to the first argument's dtype."""

    @functools.wraps(function)
    def run(args, attrs):
        return narrow(function([wide(a) for a in args], attrs), args[0].dtype)

    return run


# --- One argument ----------------------------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x, approximate: str):
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


_UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "erf": erf, "sigmoid": sigmoid,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "relu": lambda x: np.maximum(x, x.dtype.type(0)),
    "silu": lambda x: x * sigmoid(x), "softplus": softplus,
    "logical_not": np.logical_not, "bitwise_not": np.invert, "identity": lambda x: x,
}  # fmt: skip
for _name, _function in _UNARY.items():
    op(_name)(computed_wide(lambda a, t, f=_function: f(a[0])))

op("gelu")(computed_wide(lambda a, t: gelu(a[0], t.get("approximate", "none"))))
op("leaky_relu")(computed_wide(lambda a, t: np.where(a[0] < 0, np.float64(t.get("alpha", 0.01)) * a[0], a[0])))
op("elu")(computed_wide(lambda a, t: np.where(a[0] < 0, np.float64(t.get("alpha", 1.0)) * np.expm1(a[0]), a[0])))
op("hard_sigmoid")(
    computed_wide(lambda a, t: np.clip(np.float64(t.get("alpha", 0.2)) * a[0] + t.get("beta", 0.5), 0, 1))
)
op("isnan")(lambda a, t: np.isnan(wide(a[0])))


@op("clip")
def _clip(args, attrs):
    x = wide(args[0])
    if "min" in attrs:
        x = np.maximum(x, np.asarray(attrs["min"]).astype(x.dtype))
    if "max" in attrs:
        x = np.minimum(x, np.asarray(attrs["max"]).astype(x.dtype))
    return narrow(x, args[0].dtype)


@op("isinf")
def _isinf(args, attrs):
    x = wide(args[0])
    positive, negative = attrs.get("positive", True), attrs.get("negative", True)
    return (np.isposinf(x) & positive) | (np.isneginf(x) & negative)


@op("cast")
def _cast(args, attrs):
    return cast(args[0], attrs["dtype"])


def cast(x: np.ndarray, dtype) -> np.ndarray:
    if dtype == np.bool_:
        return wide(x) != 0
    if is_float(x.dtype) and not is_float(dtype):
        info = np.iinfo(dtype)
        flat = [_to_int(float(v), info) for v in wide(x).reshape(-1)]
        return np.array(flat, dtype=dtype).reshape(x.shape)
    return wide(x).astype(dtype) if is_float(x.dtype) else x.astype(dtype)


def _to_int(value: float, info) -> int:
    if math.isnan(value):
        return 0
    if value >= info.max:
        return info.max
    if value <= info.min:
        return info.min
    return int(value)


# --- Several arguments -----------------------------------------------------------------------------------------------


def _divide(a, b):
    if is_float(a.dtype):
        return a / b
    safe = np.where(b == 0, b.dtype.type(1), b)
    exact = np.floor_divide(a, safe)  # min / -1 wraps in NumPy too
    adjust = (a % safe != 0) & ((a < 0) != (safe < 0))
    return np.where(b == 0, b.dtype.type(0), exact + adjust.astype(a.dtype))


@op("div")
def _div(args, attrs):
    return narrow(_divide(wide(args[0]), wide(args[1])), args[0].dtype)


@op("mod")
def _mod(args, attrs):
    a, b = wide(args[0]), wide(args[1])
    if is_float(a.dtype):
        return narrow(np.fmod(a, b), args[0].dtype)
    safe = np.where(b == 0, b.dtype.type(1), b)
    result = np.fmod(a, safe) if attrs.get("fmod", False) else np.mod(a, safe)
    return narrow(np.where(b == 0, b.dtype.type(0), result), args[0].dtype)


@op("pow")
def _pow(args, attrs):
    x, y = wide(args[0]), wide(args[1])
    if is_float(x.dtype):
        return narrow(np.power(x, y.astype(x.dtype)), args[0].dtype)
    if is_float(y.dtype):
        return cast(np.power(x.astype(np.float64), y.astype(np.float64)), args[0].dtype)
    if np.any(y < 0):
        return cast(np.power(x.astype(np.float64), y.astype(np.float64)), args[0].dtype)
    return np.power(x, y.astype(x.dtype))


_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}  # fmt: skip
for _name, _function in _BINARY.items():
    op(_name)(computed_wide(lambda a, t, f=_function: f(a[0], a[1])))

_COMPARE = {
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip
for _name, _function in _COMPARE.items():
    op(_name)(lambda a, t, f=_function: f(wide(a[0]), wide(a[1])))


def _shift(left: bool):
    def run(args, attrs):
        x, n = np.broadcast_arrays(*args)
        bits = x.dtype.itemsize * 8
        out = np.empty(x.shape, x.dtype)
        for i in np.ndindex(x.shape):
            value, by = int(x[i]), int(n[i])
            if by < 0 or by >= bits:
                out[i] = -1 if (not left and value < 0) else 0
            else:
                moved = (value << by) & ((1 << bits) - 1) if left else value >> by
                out[i] = np.array(moved, dtype=np.uint64).astype(x.dtype) if left else moved
        return out

    return run


op("shift_left")(_shift(True))
op("shift_right")(_shift(False))


@op("where")
def _where(args, attrs):
    return np.where(args[0], args[1], args[2]).astype(args[1].dtype)


# --- Reductions and scans --------------------------------------------------------------------------------------------


def _axes(attrs, rank: int) -> tuple[int, ...]:
    axes = attrs.get("axes", [])
    return tuple(sorted({a % rank for a in axes})) if axes else tuple(range(rank))


def _count(shape, axes) -> int:
    return math.prod(shape[a] for a in axes)


def _reduce_sum(args, attrs, mean=False):
    x = wide(args[0])
    axes = _axes(attrs, x.ndim)
    if is_float(x.dtype):
        total = np.sum(x, axis=axes, keepdims=attrs.get("keepdims", False), dtype=np.float64)
        if mean:
            total = total / np.float64(_count(x.shape, axes))
    else:
        total = np.sum(x, axis=axes, keepdims=attrs.get("keepdims", False), dtype=x.dtype)
        if mean:
            total = _divide(total, np.asarray(_count(x.shape, axes), dtype=x.dtype))
    return narrow(total, args[0].dtype)


op("reduce_sum")(_reduce_sum)
op("reduce_mean")(functools.partial(_reduce_sum, mean=True))


@op("reduce_prod")
def _reduce_prod(args, attrs):
    x = wide(args[0])
    kind = np.float64 if is_float(x.dtype) else x.dtype
    axes = _axes(attrs, x.ndim)
    return narrow(
        np.prod(x, axis=axes, keepdims=attrs.get("keepdims", False), dtype=kind),
        args[0].dtype,
    )


def lowest(dtype):
    if dtype == np.bool_:
        return False
    return -np.inf if is_float(dtype) else np.iinfo(dtype).min


def highest(dtype):
    if dtype == np.bool_:
        return True
    return np.inf if is_float(dtype) else np.iinfo(dtype).max


@op("reduce_max")
def _reduce_max(args, attrs):
    x = wide(args[0])
    axes = _axes(attrs, x.ndim)
    return narrow(
        np.max(x, axis=axes, keepdims=attrs.get("keepdims", False), initial=lowest(x.dtype)),
        args[0].dtype,
    )


@op("reduce_min")
def _reduce_min(args, attrs):
    x = wide(args[0])
    axes = _axes(attrs, x.ndim)
    return narrow(
        np.min(
            x,
            axis=axes,
            keepdims=attrs.get("keepdims", False),
            initial=highest(x.dtype),
        ),
        args[0].dtype,
    )


def _arg(best):
    def run(args, attrs):
        x, axis, keep = (
            wide(args[0]),
            attrs.get("axis", 0),
            attrs.get("keepdims", False),
        )
        if attrs.get("select_last", False):
            found = x.shape[axis] - 1 - best(np.flip(x, axis), axis=axis, keepdims=keep)
        else:
            found = best(x, axis=axis, keepdims=keep)
        return np.asarray(found).astype(np.int64)

    return run


op("argmax")(_arg(np.argmax))
op("argmin")(_arg(np.argmin))


def _cumulative(accumulate, nothing):
    """accumulate: as np.cumsum; nothing: what it makes of no elements."""

    def run(args, attrs):
        x, axis = wide(args[0]), attrs["axis"]
        if attrs.get("reverse", False):
            x = np.flip(x, axis)
        made = accumulate(x, axis=axis, dtype=x.dtype)
        if attrs.get("exclusive", False):
            before = np.full_like(np.take(made, [0], axis=axis), nothing) if made.shape[axis] else made
            made = np.concatenate([before, np.take(made, range(made.shape[axis] - 1), axis=axis)], axis=axis)
        if attrs.get("reverse", False):
            made = np.flip(made, axis)
        return narrow(made, args[0].dtype)

    return run


op("cumsum")(_cumulative(np.cumsum, 0))
op("cumprod")(_cumulative(np.cumprod, 1))


def _cumulative_extreme(ufunc, covers):
    """covers: whether a new element takes the place of the best one before it; a NaN always does."""

    def run(args, attrs):
        x, axis = args[0], attrs["axis"]
        lines = np.moveaxis(wide(x), axis, -1)
        best = ufunc.accumulate(lines, axis=-1) if lines.size else lines
        places = np.arange(lines.shape[-1])
        takes = np.isnan(lines) if is_float(lines.dtype) else np.zeros(lines.shape, bool)
        takes |= covers(lines, best)
        at = np.maximum.accumulate(np.where(takes, places, 0), axis=-1) if lines.size else np.zeros(lines.shape)
        return np.moveaxis(best, -1, axis).astype(x.dtype), np.moveaxis(at, -1, axis).astype(np.int64)

    return run


op("cummax")(_cumulative_extreme(np.maximum, np.greater_equal))
op("cummin")(_cumulative_extreme(np.minimum, np.less_equal))


@op("logcumsumexp")
def _logcumsumexp(args, attrs):
    x = wide(args[0]).astype(np.float64)
    return narrow(np.logaddexp.accumulate(x, axis=attrs["axis"]) if x.size else x, args[0].dtype)


@op("softmax")
def _softmax(args, attrs):
    x, axis = wide(args[0]).astype(np.float64), attrs.get("axis", -1)
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return narrow(e / np.sum(e, axis=axis, keepdims=True), args[0].dtype)


@op("log_softmax")
def _log_softmax(args, attrs):
    x, axis = wide(args[0]).astype(np.float64), attrs.get("axis", -1)
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return narrow(
        shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)),
        args[0].dtype,
    )


@op("topk")
def _topk(args, attrs):
    x, k, axis = args[0], attrs["k"], attrs.get("axis", -1)
    keys = np.moveaxis(wide(x), axis, -1)
    order = np.empty((*keys.shape[:-1], k), np.int64)
    for at in np.ndindex(keys.shape[:-1]):
        row = keys[at].tolist()
        largest = attrs.get("largest", True)
        # NaN counts as the largest, as where NumPy sorts.
        ranks = [(math.isnan(v) != largest, 0 if math.isnan(v) else -v if largest else v) for v in row]
        order[at] = sorted(range(len(row)), key=ranks.__getitem__)[:k]  # stable
    order = np.moveaxis(order, -1, axis)
    return np.take_along_axis(x, order, axis=axis), order


# --- Contraction -----------------------------------------------------------------------------------------------------


@op("matmul")
def _matmul(args, attrs):
    a, b = (v.astype(np.float64) if is_float(v.dtype) else v for v in args)
    if attrs.get("transpose_a", False):
        a = np.swapaxes(a, -1, -2)
    if attrs.get("transpose_b", False):
        b = np.swapaxes(b, -1, -2)
    return narrow(np.matmul(a, b), args[0].dtype)


@op("gather_matmul")
def _gather_matmul(args, attrs):
    a, b, which = args
    if attrs.get("transpose_b", False):
        b = np.swapaxes(b, -1, -2)
    matrices = b[np.clip(np.where(which < 0, which + len(b), which), 0, len(b) - 1)].astype(np.float64)
    return narrow((a[:, None].astype(np.float64) @ matrices)[:, 0], a.dtype)


@op("matmul_nbits")
def _matmul_nbits(args, attrs):
    a, b, scales, *zero = args
    bits = attrs["bits"]
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (
        ((b[..., None] >> shifts) & np.uint8(2**bits - 1))
        .reshape(*b.shape[:2], b.shape[2] * 8 // bits)
        .astype(np.float64)
    )
    zero = zero[0].astype(np.float64)[..., None] if zero else 2 ** (bits - 1)
    weights = (numbers - zero) * scales.astype(np.float64)[..., None]
    weights = weights.reshape(len(b), b.shape[1] * numbers.shape[2])[:, : a.shape[-1]]
    return narrow(a.astype(np.float64) @ weights.T, a.dtype)


@op("matmul_integer")
def _matmul_integer(args, attrs):
    return _matmul([x.astype(np.int32) for x in args], attrs)
