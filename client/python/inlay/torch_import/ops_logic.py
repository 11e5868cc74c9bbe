"""Comparisons, logic, bits, where, casts; and what makes no difference to values."""

from __future__ import annotations

from typing import Any

import torch

from inlay.torch_import.ops_elementwise import Number, scalars_wide
from inlay.torch_import.registry import Extent, NodeContext, Unsupported, Var, converter, ir_dtype, is_float

_COMPARE = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


@converter(*(f"{name}.{form}" for name in _COMPARE for form in ("Tensor", "Scalar")))
def compare(ctx: NodeContext, a: Var, b: Any) -> Var:
    op_name = _COMPARE[ctx.name.partition(".")[0]]
    dtype = ir_dtype(torch.result_type(*ctx.meta_args[:2]))
    if dtype == "bool" and op_name not in ("equal", "not_equal"):
        dtype = "i32"
    if not isinstance(b, Var) and a.dtype not in ("f16", "bf16") and dtype == a.dtype and not _holds(b, dtype):
        raise Unsupported(f"a comparison of {a.dtype} with {b}, which it can't hold")
    values, _ = scalars_wide(ctx, (a, b), dtype)
    return ctx.op(op_name, *values)


def _holds(value: Number, dtype: str) -> bool:
    """Whether an integer dtype has the value (a comparison would see a wrapped one)."""
    if dtype not in ("i8", "u8", "i16", "i32", "i64") or (isinstance(value, Extent) and dtype == "i64"):
        return True
    bits, signed = int(dtype[1:]), dtype[0] == "i"
    return -(2 ** (bits - 1)) * signed <= value < 2 ** (bits - signed)


@converter("logical_and.default", "logical_or.default", "logical_xor.default")
def logical(ctx: NodeContext, a: Var, b: Var) -> Var:
    return ctx.op(ctx.name.partition(".")[0], truth(ctx, a), truth(ctx, b))


@converter("logical_not.default")
def logical_not(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("logical_not", truth(ctx, x))


def truth(ctx: NodeContext, x: Var) -> Var:
    """x != 0."""
    return x if x.dtype == "bool" else ctx.op("not_equal", x, ctx.like(0, x))


_BITWISE = ("and", "or", "xor")
_FORMS = ("Tensor", "Scalar", "Scalar_Tensor")


@converter(
    *(f"bitwise_{n}.{f}" for n in _BITWISE for f in _FORMS), *(f"__{n}__.{f}" for n in _BITWISE for f in _FORMS[:2])
)
def bitwise(ctx: NodeContext, a: Any, b: Any) -> Var:
    op_name = "bitwise_" + ctx.name.partition(".")[0].strip("_").removeprefix("bitwise_")
    if ctx.dtype == "bool":
        op_name = op_name.replace("bitwise", "logical")
    return ctx.op(op_name, ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))


@converter("bitwise_not.default")
def bitwise_not(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("logical_not" if x.dtype == "bool" else "bitwise_not", x)


@converter(
    *(f"bitwise_{side}_shift.{f}" for side in ("left", "right") for f in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    *(f"__{side}shift__.{f}" for side in "lr" for f in ("Tensor", "Scalar")),
)
def shift(ctx: NodeContext, a: Any, b: Any) -> Var:
    op_name = "shift_left" if ctx.name.startswith(("bitwise_left", "__l")) else "shift_right"
    return ctx.op(op_name, ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))


@converter("isnan.default")
def isnan(ctx: NodeContext, x: Var) -> Var:
    return ctx.op("isnan", x) if is_float(x) else ctx.full(x.shape, False, "bool")


@converter("isinf.default", "isposinf.default", "isneginf.default")
def isinf(ctx: NodeContext, x: Var) -> Var:
    if not is_float(x):
        return ctx.full(x.shape, False, "bool")
    return ctx.op("isinf", x, positive="neg" not in ctx.name, negative="pos" not in ctx.name)


@converter("isfinite.default")
def isfinite(ctx: NodeContext, x: Var) -> Var:
    if not is_float(x):
        return ctx.full(x.shape, True, "bool")
    return ctx.op("logical_not", ctx.op("logical_or", ctx.op("isnan", x), ctx.op("isinf", x)))


@converter("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(ctx: NodeContext, condition: Var, a: Any, b: Any) -> Var:
    return ctx.op("where", truth(ctx, condition), ctx.tensor(a, ctx.dtype), ctx.tensor(b, ctx.dtype))


@converter("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(ctx: NodeContext, x: Var, mask: Var, value: Any) -> Var:
    return ctx.op("where", mask, ctx.tensor(value, ctx.dtype), ctx.cast(x, ctx.dtype))


# --- Casts, and what makes no difference here ------------------------------------------------------------------------


@converter("_to_copy.default")
def to_copy(ctx: NodeContext, x: Var, *, dtype: Any = None) -> Var:
    return ctx.cast(x, ctx.dtype)


@converter(
    "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as.default", "prims::convert_element_type.default"
)
def to(ctx: NodeContext, x: Var, *args: Any, **named: Any) -> Var:
    return ctx.cast(x, ctx.dtype)


@converter(
    "clone.default", "contiguous.default", "alias.default", "detach.default", "detach_.default", "lift_fresh.default",
    "lift_fresh_copy.default", "lift.default", "positive.default", "conj.default", "resolve_conj.default",
    "resolve_neg.default",
)  # fmt: skip
def same(ctx: NodeContext, x: Var) -> Var:
    return x


@converter("dropout.default", "feature_dropout.default", "alpha_dropout.default", "feature_alpha_dropout.default")
def dropout(ctx: NodeContext, x: Var, p: float, train: bool) -> Var:
    if train and p > 0:
        raise Unsupported("it drops at random: the model is in training mode; export model.eval()")
    return x


@converter("native_dropout.default")
def native_dropout(ctx: NodeContext, x: Var, p: float, train: bool | None) -> tuple:
    return dropout(ctx, x, p, train is None or train), None


@converter("copy.default")
def copy(ctx: NodeContext, target: Var, source: Var, non_blocking: bool = False) -> Var:
    return ctx.expand(ctx.cast(source, ctx.dtype), target.shape)
