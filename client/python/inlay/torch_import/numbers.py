"""Numbers that a program computes from open sizes (half of a width, the root of a length), as data."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from inlay.torch_import.extents import Extent

if TYPE_CHECKING:
    from inlay.torch_import.registry import NodeContext, Var

_FUNCTIONS = {f"OpaqueUnaryFn_{name}": name for name in ("sqrt", "exp", "log", "cos", "sin", "tanh")}


def as_data(ctx: NodeContext, expr: Any) -> Var | None:
    """A sympy expression as a f64 scalar; None where there is no form for it."""
    known = ctx.size(expr)
    if isinstance(known, (int, Extent)):
        return ctx.cast(ctx.tensor(known, "i64"), "f64")
    if expr.is_number:
        return ctx.literal(float(expr), "f64")
    parts = [made for part in expr.args if (made := as_data(ctx, part)) is not None]
    if not parts or len(parts) != len(expr.args):
        return None
    kind = type(expr).__name__
    if kind == "ToFloat":
        return parts[0]
    if kind in _FUNCTIONS:
        return ctx.op(_FUNCTIONS[kind], *parts)
    op_name = {"Add": "add", "Mul": "mul", "IntTrueDiv": "div", "FloatTrueDiv": "div"}.get(kind)
    if kind in ("Pow", "FloatPow", "PowByNatural"):
        op_name = "pow"
    return None if op_name is None else functools.reduce(lambda a, b: ctx.op(op_name, a, b), parts)


__all__ = ["as_data"]
