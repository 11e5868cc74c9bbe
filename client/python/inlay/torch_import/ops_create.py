"""Tensors from nothing: full, arange, and what is random (refused)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from inlay.torch_import.registry import TORCH_DTYPES, Extent, NodeContext, Unsupported, Var, converter


@converter("full.default")
def full(ctx: NodeContext, size: Sequence[int], value: Any, *, dtype: Any = None) -> Var:
    if isinstance(value, (Var, Extent)):
        return ctx.expand(ctx.tensor(value, ctx.dtype), ctx.extents(size))
    return ctx.full(size, value, ctx.dtype)


@converter("zeros.default", "ones.default", "empty.memory_format")
def constant(ctx: NodeContext, size: Sequence[int], *, dtype: Any = None) -> Var:
    return ctx.full(size, 1 if ctx.name.startswith("ones") else 0, ctx.dtype)


@converter("full_like.default")
def full_like(ctx: NodeContext, x: Var, value: Any, *, dtype: Any = None) -> Var:
    return full(ctx, x.shape, value)


@converter("zeros_like.default", "ones_like.default", "empty_like.default")
def constant_like(ctx: NodeContext, x: Var, *, dtype: Any = None) -> Var:
    return constant(ctx, x.shape)


@converter("new_zeros.default", "new_ones.default", "new_empty.default")
def new_constant(ctx: NodeContext, x: Var, size: Sequence[int], *, dtype: Any = None) -> Var:
    return ctx.full(size, 1 if ctx.name.startswith("new_ones") else 0, ctx.dtype)


@converter("new_full.default")
def new_full(ctx: NodeContext, x: Var, size: Sequence[int], value: Any, *, dtype: Any = None) -> Var:
    return full(ctx, size, value)


@converter("empty_strided.default", "new_empty_strided.default")
def empty_strided(ctx: NodeContext, *args: Any, dtype: Any = None) -> Var:
    return ctx.full(args[-2], 0, ctx.dtype)


@converter("fill.Scalar", "fill.Tensor")
def fill(ctx: NodeContext, x: Var, value: Any) -> Var:
    return full(ctx, x.shape, value)


@converter("scalar_tensor.default")
def scalar_tensor(ctx: NodeContext, value: Any, *, dtype: Any = None) -> Var:
    return ctx.tensor(value, ctx.dtype)


@converter("arange.start_step", "arange.start", "arange.default")
def arange(ctx: NodeContext, *args: Any, dtype: Any = None) -> Var:
    ctx.extents([0 if isinstance(a, float) else a for a in args], "a bound of arange")
    start, end, step = (
        args[0] if len(args) > 1 else 0,
        args[0] if len(args) == 1 else args[1],
        args[2] if len(args) > 2 else 1,
    )
    if any(isinstance(a, Extent) for a in args):
        return _open_arange(ctx, start, end, step)
    kind = TORCH_DTYPES[ctx.dtype]
    values = torch.arange(start, end, step, dtype=kind)
    if start == 0 and step == 1:
        return ctx.op("iota", shape=list(values.shape), axis=0, dtype=ctx.dtype)
    if kind == torch.bfloat16:
        return ctx.cast(ctx.literal(values.float().numpy(), "f32"), ctx.dtype)
    return ctx.literal(values.numpy(), ctx.dtype)


def _open_arange(ctx: NodeContext, start: Any, end: Any, step: Any) -> Var:
    if isinstance(step, Extent):
        count = (end - start) // step  # where that leaves no rest, else it is refused
    else:
        count = (end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step
    values = ctx.op("iota", shape=[count], axis=0, dtype="i64")
    if step != 1:
        values = ctx.op("mul", values, ctx.tensor(step, "i64"))
    return ctx.cast(values if start == 0 else ctx.op("add", values, ctx.tensor(start, "i64")), ctx.dtype)


@converter("linspace.default")
def linspace(ctx: NodeContext, start: Any, end: Any, steps: int, *, dtype: Any = None) -> Var:
    ctx.ints([0 if isinstance(a, float) else a for a in (start, end, steps)], "a bound of linspace")
    return ctx.literal(
        torch.linspace(start, end, steps, dtype=TORCH_DTYPES[ctx.dtype]).to(torch.float64).numpy(), ctx.dtype
    )


@converter("eye.default", "eye.m")
def eye(ctx: NodeContext, n: int, m: int | None = None, *, dtype: Any = None) -> Var:
    m = n if m is None else m
    if not isinstance(n, Extent) and not isinstance(m, Extent):
        return ctx.literal(np.eye(n, m), ctx.dtype)
    row, column = (
        ctx.op("iota", shape=s, axis=a, dtype="i64") for a, s in enumerate((ctx.extents([n, 1]), ctx.extents([1, m])))
    )
    return ctx.cast(ctx.op("equal", row, column), ctx.dtype)


@converter("tril_indices.default", "triu_indices.default")
def triangle_indices(ctx: NodeContext, rows: int, columns: int, offset: int = 0, *, dtype: Any = None) -> Var:
    lower = ctx.name.startswith("tril")
    made = (torch.tril_indices if lower else torch.triu_indices)(rows, columns, offset)
    return ctx.literal(made.numpy(), ctx.dtype)


@converter(
    "rand.default", "rand.generator", "randn.default", "randn.generator", "randint.default", "randint.low", "randperm.default", "rand_like.default",
    "randn_like.default", "randint_like.default", "randint_like.low_dtype", "bernoulli.default", "bernoulli.p",
    "multinomial.default", "normal_functional.default", "uniform.default", "normal.Tensor_Tensor",
    "normal.Tensor_float", "normal.float_Tensor", "exponential.default", "poisson.default",
)  # fmt: skip
def random(ctx: NodeContext, *args: Any, **named: Any) -> Var:
    raise Unsupported("its result is random; a compiled model is a function of its inputs")
