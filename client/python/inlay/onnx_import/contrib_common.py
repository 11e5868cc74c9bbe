"""What the converters of onnxruntime's own operators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inlay.ir.dims import Dim
from inlay.onnx_import.ops_shape import slice_by
from inlay.onnx_import.registry import NodeContext
from inlay.onnx_import.value import Unsupported, Value


def only(ctx: NodeContext, name: str, *accepted: Any) -> None:
    """Refuses an attribute that is none of these; the first one is the default."""
    value = ctx.attr(name, accepted[0])
    if value not in accepted:
        raise Unsupported(f"attribute {name} {value!r}: only {' or '.join(map(repr, accepted))} is supported")


def without(ctx: NodeContext, **inputs: int) -> None:
    """Refuses optional inputs, given by name."""
    for name, i in inputs.items():
        if ctx.has(i):
            raise Unsupported(f"input {i} ({name}) is not supported")


def activated(ctx: NodeContext, x: Value, name: str | None, parameters: Sequence[float | None]) -> Value:
    """The activation that onnxruntime fused into an operator: one of ONNX's by name, with its attributes in order (None:
    the default)."""
    if not name:
        return x
    if name in ("Relu", "Sigmoid", "Tanh", "Softplus"):
        return ctx.op(name.lower(), x)
    defaults = {"LeakyRelu": (0.01,), "Elu": (1.0,), "HardSigmoid": (0.2, 0.5), "Clip": (None, None)}.get(name)
    if defaults is None:
        raise Unsupported(
            f"activation {name!r}: Relu, Sigmoid, Tanh, Softplus, LeakyRelu, Elu, HardSigmoid and Clip are supported"
        )
    given = [*parameters, *[None] * len(defaults)]
    first, *second = (default if value is None else value for value, default in zip(given, defaults))
    if name == "Clip":
        return ctx.op("clip", x, min=first, max=second[0])
    if name == "HardSigmoid":
        return ctx.op("hard_sigmoid", x, alpha=first, beta=second[0])
    return ctx.op("leaky_relu" if name == "LeakyRelu" else "elu", x, alpha=first)


def part(ctx: NodeContext, x: Value, axis: int, begin: int, count: Dim) -> Value:
    """As many of x's elements along an axis, from `begin`."""
    if count == x.shape[axis]:
        return x
    if isinstance(count, int):
        return slice_by(ctx, x, [begin], [begin + count], [axis], None)
    taken = [count if i == axis else "" for i in range(x.rank)]
    return slice_by(ctx, x, [begin], [2**63 - 1], [axis], None, taken)


def channels_first(ctx: NodeContext, x: Value) -> Value:
    """Of an image with the channels last; and back."""
    return ctx.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])


def channels_last(ctx: NodeContext, x: Value) -> Value:
    return ctx.transpose(x, [0, *range(2, x.rank), 1])
