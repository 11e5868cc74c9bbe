"""Sizes to run a model at whose dimensions are open: `--size seq=128`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from inlay import bounds
from inlay.ir import dims

if TYPE_CHECKING:
    from inlay.runtime import TensorSpec

Sizes = Mapping[str, int]


def check(sizes: Sizes, inputs: Sequence[TensorSpec], required: Sequence[str]) -> None:
    """Raises ValueError as `check_symbols` does, and where a run at these sizes would be refused, saying what it needs.

    Args:
        required: expressions that must be 0 or more in a run (`IRModule.required_extents`).
    """
    check_symbols(sizes, inputs, required)
    for expression in required:
        value = dims.canonical(expression, sizes)
        if isinstance(value, int) and value < 0:
            given = ", ".join(f"{name}={sizes[name]}" for name in dims.names_in(expression) if name in sizes)
            [needed] = bounds.in_words(_told_with(expression, required))
            raise ValueError(f"--size {given}: the model refuses that, it needs {needed}")


def check_symbols(sizes: Sizes, inputs: Sequence[TensorSpec], required: Sequence[str]) -> None:
    """Raises ValueError naming a symbol that no input has, or one that `sizes` lacks and what it may be."""
    known = list(dict.fromkeys(name for spec in inputs for name in _names(spec)))
    for name, size in sizes.items():
        if name not in known:
            has = ", ".join(map(repr, known)) or "none"
            raise ValueError(f"--size {name}={size}: no input has the symbol {name!r}; the model has {has}")
    for spec in inputs:
        extents(spec, sizes, required)


def check_executor(executor: str, inputs: Sequence[TensorSpec]) -> None:
    """Raises ValueError naming a dimension that is open where the executor can't leave it so, and what helps."""
    for spec in inputs if executor != "vm" else ():
        for name in _names(spec)[:1]:
            raise ValueError(
                f"{_told(spec)}: executor {executor} leaves nothing open; take --executor vm and --size {name}=N, or import "
                f"the model with a number (--shape {name}=N)"
            )


def extents(spec: TensorSpec, sizes: Sizes, required: Sequence[str] = ()) -> list[int]:
    """The input's shape at these sizes. Raises ValueError naming a symbol that has none and what it may be, or extents
    that come out below zero."""
    shape = [dims.canonical(d, sizes) if isinstance(d, str) else d for d in spec[2]]
    if symbols := dims.symbols(shape):
        name = dims.names_in(symbols[0])[0]
        range_ = bounds.range_in_words(*dims.ranges(required).get(name, (None, None)))
        raise ValueError(f"{_told(spec)}: {name!r} may be {range_}, so say which (--size {name}=N)")
    numbers = [int(d) for d in shape]
    if any(number < 0 for number in numbers):
        raise ValueError(f"{_told(spec)}: with these sizes that is {numbers}")
    return numbers


def _told_with(expression: str, required: Sequence[str]) -> list[str]:
    """Those that `bounds.in_words` tells in one line with this one."""

    def about(e: str) -> object:
        line = dims.linear_in_one(e)
        return dims.sides(e) if line is None else line[0]

    return [e for e in required if about(e) == about(expression)]


def _names(spec: TensorSpec) -> list[str]:
    return [name for symbol in dims.symbols(spec[2]) for name in dims.names_in(symbol)]


def _told(spec: TensorSpec) -> str:
    return f"input {spec[0]} is {spec[1]}[{', '.join(map(str, spec[2]))}]"
