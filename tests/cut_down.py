"""The smallest part of a random model, or program, that still shows what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self, TypeVar


class Cuttable(Protocol):
    """`size` steps in order, and the names of what the last of them make."""

    size: int
    outputs: list[str]

    def cut(self, index: int) -> Self:
        """Without that step: what others take of it becomes an input; without its last step, what that one read is the
        result. No outputs: nothing is left."""


T = TypeVar("T", bound=Cuttable)


def cut_down(whole: T, still: Callable[[T], bool]) -> T:
    """The fewest steps found for which that is still true: each is left out in turn, until none can be."""
    shrunk = True
    while shrunk:
        shrunk = False
        for i in reversed(range(whole.size)):
            less = whole.cut(i)
            if less.outputs and still(less):
                whole, shrunk = less, True
                break
    return whole
