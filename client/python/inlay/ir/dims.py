"""Extents of shapes: an int, or the text of a symbolic expression ("batch", "batch*4")."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

import numpy as np

Dim = int | str
Shape = tuple[Dim, ...]

_ATOM = re.compile(r"^[A-Za-z_][A-Za-z0-9_.]*$|^\d+$")


def _wrap(dim: Dim) -> str:
    text = str(dim)
    return text if _ATOM.match(text) else f"({text})"


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    if isinstance(b, int) and b < 0:
        return f"{_wrap(a)}-{-b}"
    return f"{_wrap(a)}+{_wrap(b)}"


def sub(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    if a == b:
        return 0
    if b == 0:
        return a
    return f"{_wrap(a)}-{_wrap(b)}"


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if a == 0 or b == 0:
        return 0
    if a == 1:
        return b
    if b == 1:
        return a
    return f"{_wrap(a)}*{_wrap(b)}"


def floordiv(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if a == b:
        return 1
    return f"{_wrap(a)}/{_wrap(b)}"


def product(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = mul(result, dim)
    return result


def static(shape: Sequence[Dim]) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """NumPy's rule; a symbol only equals itself. Raises ValueError."""
    if a == b:
        return a
    if a == 1:
        return b
    if b == 1:
        return a
    raise ValueError(f"extents {a} and {b} do not broadcast")


def broadcast(*shapes: Sequence[Dim]) -> Shape:
    """The common shape by NumPy's rule. Raises ValueError naming the shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, dim in enumerate(shape):
            try:
                result[offset + i] = broadcast_dim(result[offset + i], dim)
            except ValueError as error:
                text = " and ".join(str(list(s)) for s in shapes)
                raise ValueError(f"shapes {text} do not broadcast: {error}") from None
    return tuple(result)


def axis(value: int, rank: int, what: str = "axis") -> int:
    """The non-negative form of an axis. Raises ValueError."""
    if not -rank <= value < max(rank, 1) and not (rank == 0 and value in (0, -1)):
        raise ValueError(f"{what} {value} is outside rank {rank}")
    return value + rank if value < 0 else value


def symbols(shape: Sequence[Dim]) -> list[str]:
    """The symbolic extents of a shape, in order, each once."""
    return list(dict.fromkeys(dim for dim in shape if isinstance(dim, str)))


_OPERATORS = {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Div: floordiv}


def names_in(text: str) -> list[str]:
    """The symbols of an expression ("2*batch + 1"): ["batch"]; the whole text where it is not one."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return [text]
    found = list(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))
    return found or [text]


def canonical(text: str, values: Mapping[str, object] | None = None) -> Dim:
    """What `add`, `sub`, `mul` and `floordiv` give for what an expression says ("past + 1": "past+1"), so that both are
    one extent, with what `values` says of its symbols; a number once it says all. Knows + - * / (rounding down) and
    brackets; any other text is given as it is."""
    values = values or {}

    def walk(node: ast.AST) -> Dim:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            value = values.get(node.id, node.id)
            return int(value) if isinstance(value, np.integer) else value if isinstance(value, int | str) else node.id
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](walk(node.left), walk(node.right))
        raise ValueError

    try:
        return walk(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError):
        return text
