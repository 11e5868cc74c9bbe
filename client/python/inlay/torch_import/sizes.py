"""The sizes of an exported program's inputs, with its symbols given values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from inlay.errors import InvalidModelError, UnsupportedNode, UnsupportedOperatorError


class Sizes:
    """Args:
        shape: {symbol: value} and {input: sizes}.

    Raises UnsupportedOperatorError naming every dimension that stays open, InvalidModelError where `shape` does not fit.
    """

    def __init__(self, program: ExportedProgram, shape: dict[str, Any]):
        users = set(program.graph_signature.user_inputs)
        self._inputs = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in users]
        self._values: dict[Any, int] = {}  # sympy symbol -> number
        symbols: dict[str, Any] = {}
        for node in self._inputs:
            for d in self._dims(node):
                if isinstance(d, torch.SymInt):
                    symbols.update({str(s): s for s in sympy.sympify(d.node.expr).free_symbols})
        names = [n.name for n in self._inputs]
        unused = sorted(set(shape) - set(names) - set(symbols))
        if unused:
            raise InvalidModelError(
                f"shape names {unused}, which is neither an input ({names}) nor a symbol ({sorted(symbols)})"
            )
        for name, value in shape.items():
            if name in symbols and isinstance(value, int):
                self._values[symbols[name]] = value
        for node in self._inputs:
            if node.name in shape:
                self._given(node, shape[node.name])
        self._check(program)

    @staticmethod
    def _dims(node: torch.fx.Node) -> Sequence[Any]:
        val = node.meta.get("val")
        if isinstance(val, torch.Tensor):
            return val.shape
        return [val] if isinstance(val, torch.SymInt) else []

    def _given(self, node: torch.fx.Node, sizes: Any) -> None:
        dims = self._dims(node)
        if isinstance(sizes, int) or len(sizes) != len(dims):
            raise InvalidModelError(f"shape of {node.name!r}: {sizes} has not the rank of {[str(d) for d in dims]}")
        for have, want in zip(dims, sizes, strict=True):
            if isinstance(have, torch.SymInt) and sympy.sympify(have.node.expr).is_symbol:
                self._values.setdefault(have.node.expr, want)
        resolved = [self.value(d) for d in dims]
        if resolved != list(sizes):
            raise InvalidModelError(f"shape of {node.name!r}: {list(sizes)} contradicts the program's {resolved}")

    def _check(self, program: ExportedProgram) -> None:
        for symbol, value in self._values.items():
            allowed = program.range_constraints.get(symbol)
            if allowed is not None and not allowed.lower <= value <= allowed.upper:
                raise InvalidModelError(
                    f"{symbol}={value} is outside what was exported: {allowed.lower} to {allowed.upper}"
                )
        problems = []
        for node in self._inputs:
            for axis, d in enumerate(self._dims(node)):
                if not isinstance(self.value(d), int):
                    why = f"dimension {axis} is dynamic; fix it: shape={{{str(d)!r}: 8}}, or shape={{{node.name!r}: [...]}}"
                    problems.append(UnsupportedNode(node.name, "input", None, why))
        if problems:
            raise UnsupportedOperatorError(problems)

    def value(self, dim: Any) -> Any:
        """The number that a dimension has, or itself where a symbol is left open."""
        if not isinstance(dim, torch.SymInt):
            return dim
        result = sympy.sympify(sympy.sympify(dim.node.expr).xreplace(self._values))
        return int(result) if result.is_number else dim

    def of(self, node: torch.fx.Node) -> list[int]:
        return [self.value(d) for d in self._dims(node)]
