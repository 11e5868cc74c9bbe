"""float16 and bfloat16 graphs: values between operators stay in f32, as onnxruntime's CPU provider keeps them.

A CPU computes such an operator in f32 anyway; rounding its result only to widen it again for the next operator costs
accuracy (attention's softmax between two products loses a step of float16) and conversions. So a result is rounded where
the graph itself says so (a Cast, an output), where an operator is not listed here, and where a weight is the other
argument (a wide copy of it would double its memory). What was rounded for one operator is so for those behind it too: a
residual that lay in memory as both would cost three times the traffic.
"""

from __future__ import annotations

from typing import Any

from inlay.ir.builder import FunctionBuilder, Var
from inlay.ir.types import dtype_name

HALF = ("f16", "bf16")

# Continuous functions of their arguments: a value that was not rounded gives a result that is nearer to the exact one.
# Comparisons, floor, round and the like are not here: they would see other values than the graph describes.
WIDE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "minimum",
        "maximum",
        "where",
        "neg",
        "abs",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "relu",
        "gelu",
        "silu",
        "softplus",
        "leaky_relu",
        "elu",
        "hard_sigmoid",
        "clip",
        "matmul",
        "softmax",
        "log_softmax",
        "reduce_sum",
        "reduce_mean",
        "reduce_prod",
        "reduce_max",
        "reduce_min",
    ]
)
# Moves of data go along where their argument is wide already.
MOVES = frozenset(["reshape", "transpose", "expand", "slice", "tile"])


class HalfBuilder(FunctionBuilder):
    """A FunctionBuilder whose float16 and bfloat16 results remember the f32 value that they were rounded from."""

    def __init__(self, name: str = "main"):
        super().__init__(name)
        self._wide: dict[int, Var] = {}  # by the index of the rounded Var

    def op(self, op_name: str, *args: Var, **attrs: Any) -> Any:
        if op_name == "cast" and args and dtype_name(attrs["dtype"]) == args[0].type.dtype:
            return args[0]
        half = next((a.type.dtype for a in args if a.type.dtype in HALF), None)
        if half is None or not self._widens(op_name, args):
            for arg in args:
                if not arg.constant:
                    self._wide.pop(arg.index, None)  # lies in memory rounded from here on
            return super().op(op_name, *args, **attrs)
        result = super().op(op_name, *(self.widened(a) if a.type.dtype == half else a for a in args), **attrs)
        return self.rounded(result, half)

    def rounded(self, wide: Var, dtype: str) -> Var:
        """The f32 value as one of 16 bits, which remembers it."""
        narrow = super().op("cast", wide, dtype=dtype)
        self._wide[narrow.index] = wide
        return narrow

    def widened(self, var: Var) -> Var:
        """The f32 value that a 16-bit one was rounded from, else a cast of it."""
        if var.constant:
            return super().op("cast", var, dtype="f32")
        if var.index not in self._wide:
            self._wide[var.index] = super().op("cast", var, dtype="f32")
        return self._wide[var.index]

    def _write_block(self, block, write):
        outside = dict(self._wide)  # a cast that a branch makes is not to be had outside of it
        try:
            return super()._write_block(block, write)
        finally:
            self._wide = outside

    def _widens(self, op_name: str, args: tuple[Var, ...]) -> bool:
        if op_name in MOVES:
            return not args[0].constant and args[0].index in self._wide
        return op_name in WIDE and not any(self._is_weight(a) for a in args)

    def _is_weight(self, var: Var) -> bool:
        return var.constant and self._constants[var.index].WhichOneof("value") == "digest"
