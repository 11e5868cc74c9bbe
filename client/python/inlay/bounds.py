"""Bounds of open sizes as people write and read them: `--bounds seq=8:512`, and what `inlay inspect` shows.

What they mean, and how a module holds them: `IRModule.with_bounds`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from inlay.ir import IRModule, dims

Bounds = dict[str, tuple[int | None, int | None]]


def parse(values: Iterable[str]) -> Bounds:
    """{symbol: (least, most)} of "seq=8:512,h=:100", both included; an end that is left out is no bound.

    Raises ValueError where a text is none such, or has a symbol twice.
    """
    found: Bounds = {}
    for entry in (entry for value in values for entry in value.split(",")):
        name, _, range_ = entry.rpartition("=")
        name, range_ = name.strip(), range_.strip()
        ends = re.fullmatch(r"(\d{0,19}):(\d{0,19})", range_, re.ASCII)
        if not name or not ends:
            hint = f"; --shape {name}={range_} makes it that size alone" if name and range_.isdecimal() else ""
            raise ValueError(f"{entry!r} is not NAME=LEAST:MOST, such as seq=8:512, seq=8: or seq=:512{hint}")
        if name in found:
            raise ValueError(f"{name!r} has bounds twice")
        least, most = (int(end) if end else None for end in ends.groups())
        found[name] = least, most
    return found


def added(module: IRModule, values: Sequence[str]) -> IRModule:
    """The module with these bounds in place of those that it has of the same symbols; "seq=:" takes them away.

    Raises ValueError, naming the symbols that there are where one is unknown.
    """
    return module.with_bounds(module.bounds() | parse(values)) if values else module


def range_in_words(least: int | None, most: int | None) -> str:
    """ "8 to 512", "8 or more", "512 or less", "8", "any number"."""
    if least is None:
        return "any number" if most is None else f"{most} or less"
    if most is None:
        return f"{least} or more"
    return str(least) if least == most else f"{least} to {most}"


def in_words(required: Sequence[str]) -> list[str]:
    """Of expressions that must be 0 or more: a line for each symbol that has bounds, "seq: 8 to 512", for each two others
    that say one thing together, "h = w" (h-w and w-h), and for each that is left, "h-w: 0 or more"."""
    lines = []
    for symbol, (least, most) in dims.ranges(required).items():
        lines.append(f"{symbol}{' =' if least == most else ':'} {range_in_words(least, most)}")
    others: dict[tuple[str, str], set[str]] = {}
    for expression in required:
        if dims.linear_in_one(expression) is None:
            others.setdefault(dims.sides(expression), set()).add(expression)
    for (left, right), said in others.items():
        lines.append(f"{left} = {right}" if len(said) > 1 else f"{said.pop()}: 0 or more")
    return lines
