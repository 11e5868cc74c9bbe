"""The sizes of an exported program: its symbols as extents of the IR, and what it asks of them."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram

from inlay.errors import InvalidModelError
from inlay.ir import dims
from inlay.torch_import.extents import Extent, Unsupported

# Symbols are 2 or more while PyTorch traces, so that no size takes the way of 0 or 1; that is no bound of the program's
# (torch.export's own check of inputs leaves it out too).
_LEAST_TRACED = 2


class Sizes:
    """Args:
        shape: {symbol: extent} and {input: extents}, each a number or an expression over names of the caller's choice.

    Raises InvalidModelError where `shape` does not fit.
    """

    def __init__(self, program: ExportedProgram, shape: dict[str, Any]):
        users = set(program.graph_signature.user_inputs)
        self._program = program
        self._inputs = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in users]
        self._values: dict[Any, Any] = {}  # sympy symbol -> int or Extent
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
            if name in symbols and isinstance(value, (int, str)):
                self._values[symbols[name]] = _extent(value)
        for node in self._inputs:
            if node.name in shape:
                self._given(node, shape[node.name])
        self._check_bounds()
        for name, symbol in symbols.items():
            if symbol not in self._values:
                self._values[symbol] = self._multiple(symbol, name)
        self._check_numbers()

    @staticmethod
    def _dims(node: torch.fx.Node) -> Sequence[Any]:
        val = node.meta.get("val")
        return [val] if isinstance(val, torch.SymInt) else _shape(node)

    def _given(self, node: torch.fx.Node, sizes: Any) -> None:
        have = self._dims(node)
        if isinstance(sizes, (int, str)) or len(sizes) != len(have):
            raise InvalidModelError(f"shape of {node.name!r}: {sizes} has not the rank of {[str(d) for d in have]}")
        want = [_extent(size) for size in sizes]
        for d, size in zip(have, want, strict=True):
            if isinstance(d, torch.SymInt) and sympy.sympify(d.node.expr).is_symbol:
                self._values.setdefault(d.node.expr, size)
        resolved = [self.value(d) for d in have]
        if resolved != want:
            said = [str(d) if r is None else r for d, r in zip(have, resolved, strict=True)]
            raise InvalidModelError(f"shape of {node.name!r}: {list(sizes)} contradicts the program's {said}")

    def _check_bounds(self) -> None:
        for symbol, value in self._values.items():
            low, high = self._bounds(symbol)
            if isinstance(value, int) and not (low <= value and (high is None or value <= high)):
                allowed = f"{low} to {high}" if high is not None else f"{low} or more"
                raise InvalidModelError(f"{symbol}={value} is outside what was exported: {allowed}")

    def _check_numbers(self) -> None:
        """A run's open sizes are told by its tensors alone."""
        told = {n for node in self._inputs for d in _shape(node) for n in _names(self.value(d))}
        for node in self._inputs:
            number = node.meta.get("val")
            if isinstance(number, torch.SymInt) and not _names(self.value(number)) <= told:
                raise InvalidModelError(
                    f"the input {node.name!r} is a number that no tensor's size tells; fix it: "
                    f"shape={{{str(number)!r}: ...}}"
                )

    def _bounds(self, symbol: Any) -> tuple[int, int | None]:
        allowed = self._program.range_constraints.get(symbol)
        if allowed is None:
            return 0, None
        low = int(allowed.lower) if allowed.lower > _LEAST_TRACED else 0
        return low, int(allowed.upper) if allowed.upper.is_Integer else None

    def _multiple(self, symbol: Any, name: str) -> Any:
        """A symbol that stays open; as so many times another one, where the program wants a multiple."""
        times = 1
        for condition in self._conditions():
            if isinstance(condition, sympy.Eq) and condition.rhs == 0 and _is_mod(condition.lhs):
                of, by = condition.lhs.args
                if of == symbol and by.is_Integer:
                    times = int(sympy.ilcm(times, by))
        return Extent(name) if times == 1 else times * Extent(f"{name}_{times}")

    def value(self, dim: Any) -> Any:
        """What a dimension, or another number that the program makes of sizes, is here: an int, an Extent, or None where
        the IR has no form for it."""
        return evaluate(dim, self._values)

    def of(self, node: torch.fx.Node) -> list[Any]:
        """Of an input. Raises InvalidModelError where an extent has no form here."""
        sizes = [self.value(d) for d in self._dims(node)]
        if None in sizes:
            raise InvalidModelError(
                f"the sizes {[str(d) for d in self._dims(node)]} of {node.name!r} are no expressions that code for open "
                f"dimensions is made of; fix them: shape={{{node.name!r}: [...]}}"
            )
        return sizes

    # --- What a run has to keep to ---

    def required(self) -> list[str]:
        """Expressions that are 0 or more in all runs that the program is for: its bounds of sizes, and the conditions under
        which it was traced (another branch of the model may be for other sizes). Conditions that are no polynomials of
        sizes are not among them: a warning says so, but of divisions by a size, which are PyTorch's own about how memory
        lies. Raises InvalidModelError where sizes that are known break one."""
        made: set[str] = set()
        for condition, differences in self._demands():
            for d in differences:
                least = dims.bound(d)
                if isinstance(d, int) and d < 0:
                    raise InvalidModelError(
                        f"the sizes given are not those that the program was traced for: {condition}"
                    )
                if least is None or least < 0:
                    made.add(str(d))
        return sorted(made)

    def _demands(self) -> Iterator[tuple[Any, list[Any]]]:
        for symbol, value in self._values.items():
            low, high = self._bounds(symbol)
            if isinstance(value, Extent):
                yield f"{symbol} >= {low}", [value - low]
                yield f"{symbol} <= {high}", [] if high is None else [high - value]
        for condition in self._conditions():
            differences = self._differences(condition)
            yield condition, differences
            if not differences and not self._is_of_memory(condition):
                warnings.warn(f"a run is not refused where its sizes are not those of {condition}", stacklevel=4)

    def _conditions(self) -> Iterator[Any]:
        """What the trace decided of sizes, and the checks in the graph; what must hold together each for itself."""
        for node in self._program.graph.nodes:
            if node.op == "call_function" and str(node.target) == "aten._assert_scalar.default":
                val = getattr(node.args[0], "meta", {}).get("val")
                if isinstance(val, torch.SymBool):
                    yield from sympy.And.make_args(sympy.sympify(val.node.expr))
        for node in self._inputs:
            for d in self._dims(node):
                if isinstance(d, torch.SymInt):
                    for guard in getattr(d.node.shape_env, "guards", ()):
                        yield from sympy.And.make_args(guard.expr)
                    return

    def _is_of_memory(self, condition: Any) -> bool:
        """Whether it is PyTorch's own, of how memory lies (a division by a size), or of what are no sizes of inputs."""
        divisions = [part for part in sympy.preorder_traversal(condition) if _is_division(part) or _is_mod(part)]
        of_sizes = condition.free_symbols <= set(self._values)
        return not of_sizes or any(not division.args[1].is_Integer for division in divisions)

    def _differences(self, condition: Any) -> list[Any]:
        """What is 0 or more where it holds; [] where there is no form for it."""
        numbers = {s: self._values.get(s) for s in condition.free_symbols}
        if all(isinstance(n, int) for n in numbers.values()):
            return [-1] if condition.xreplace(numbers) == sympy.false else [0]
        try:
            a, b = (_evaluate(side, self._values) for side in condition.args)
            if a is None or b is None:
                return []
            match type(condition).__name__:
                case "GreaterThan":
                    return [a - b]
                case "StrictGreaterThan":
                    return [a - b - 1]
                case "LessThan":
                    return [b - a]
                case "StrictLessThan":
                    return [b - a - 1]
                case "Equality":
                    return [a - b, b - a]
                case "Unequality":
                    return [(a - b) * (a - b) - 1]
        except (Unsupported, ArithmeticError, TypeError, ValueError):
            pass
        return []


def _shape(node: torch.fx.Node) -> Sequence[Any]:
    val = node.meta.get("val")
    return val.shape if isinstance(val, torch.Tensor) else ()


def _names(dim: Any) -> set[str]:
    return set(dims.names_in(dim)) if isinstance(dim, str) else set()


def _extent(value: Any) -> Any:
    return Extent.of(dims.canonical(value) if isinstance(value, str) else value)


def evaluate(dim: Any, values: Mapping[Any, Any]) -> Any:
    """A number, or a torch.SymInt or its expression by what its symbols are: an int, an Extent; None where there is no form
    for it."""
    if not isinstance(dim, (torch.SymInt, sympy.Basic)):
        return dim
    try:
        return _evaluate(sympy.sympify(dim.node.expr if isinstance(dim, torch.SymInt) else dim), values)
    except (Unsupported, ArithmeticError, TypeError):
        return None


def _evaluate(expr: Any, values: Mapping[Any, Any]) -> Any:
    if expr.is_Integer:
        return int(expr)
    if expr.is_symbol:
        return values.get(expr)
    parts = [_evaluate(part, values) for part in expr.args]
    if not parts or None in parts:
        return None
    if expr.is_Add:
        return sum(parts)
    if expr.is_Mul:
        return functools.reduce(operator.mul, parts)
    if expr.is_Pow:
        times = parts[1] if isinstance(parts[1], int) and parts[1] > 0 else 0
        return functools.reduce(operator.mul, [parts[0]] * times) if times else None
    if _is_division(expr):
        return parts[0] // parts[1]
    return parts[0] % parts[1] if _is_mod(expr) else None


def _is_division(expr: Any) -> bool:
    return type(expr).__name__ in ("FloorDiv", "CleanDiv")


def _is_mod(expr: Any) -> bool:
    return type(expr).__name__ in ("Mod", "PythonMod")


__all__ = ["Sizes", "evaluate"]
