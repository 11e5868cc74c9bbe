"""PassContext: how passes run in the builds inside it, and instruments that watch them.

    with PassContext(opt_level=2, disabled_passes=["fold_pads"], instruments=[PassTimings(), DumpIR("passes")]):
        ex = inlay.build(module)

Passes run on the server, so an instrument sees each of them after it ran, in order, when the build is done.
"""

from __future__ import annotations

import contextvars
import dataclasses
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Self

from inlay.config import CompilationConfig


@dataclasses.dataclass(frozen=True)
class PassInfo:
    """A pass that ran.

    Attributes:
        name: as `disabled_passes` has it.
        index: how many ran before it.
        ms: how long it took on the server, in milliseconds.
        ir: the module after it, as text (core/ir/README.md).
    """

    name: str
    index: int
    ms: float
    ir: str


class Instrument:
    """Base of what watches passes; override what you need. One that raises fails the build."""

    def enter_build(self) -> None:
        """Before a build is sent."""

    def run_after_pass(self, info: PassInfo) -> None:
        """For each pass that ran, in order."""

    def exit_build(self) -> None:
        """After the last pass of a build that went well."""


class PassTimings(Instrument):
    """Adds up what passes take: `timings` is {name: milliseconds} of all builds so far."""

    def __init__(self) -> None:
        self.timings: dict[str, float] = {}

    def run_after_pass(self, info: PassInfo) -> None:
        self.timings[info.name] = self.timings.get(info.name, 0.0) + info.ms


class DumpIR(Instrument):
    """Writes the module after each pass to `folder`/NNN_name.txt; with `only`, after those passes alone.

    The folder is made; files of an earlier dump in it are removed when a build begins.
    """

    def __init__(self, folder: str | pathlib.Path, only: Iterable[str] = ()):
        self.folder = pathlib.Path(folder)
        self.only = frozenset(only)
        self.written: list[pathlib.Path] = []

    def enter_build(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            if re.fullmatch(r"\d{3}_[a-z_]+\.txt", old.name):
                old.unlink()
        self.written.clear()

    def run_after_pass(self, info: PassInfo) -> None:
        if not self.only or info.name in self.only:
            path = self.folder / f"{info.index:03d}_{info.name}.txt"
            path.write_text(info.ir)
            self.written.append(path)


@dataclasses.dataclass(frozen=True)
class PassContext:
    """How passes run in every `inlay.build` inside `with`. Scopes nest: an inner one adds to an outer one.

    Attributes:
        opt_level: 0 (verify and legalise only) to 3; None: the outer scope's, else the configuration's.
        disabled_passes: names of passes to leave out, besides the configuration's (`inlay passes` lists them). The
            server refuses a name that there is not.
        instruments: watch the passes.
    """

    opt_level: int | None = None
    disabled_passes: Sequence[str] = ()
    instruments: Sequence[Instrument] = ()

    _scopes: ClassVar[contextvars.ContextVar[tuple[PassContext, ...]]] = contextvars.ContextVar(
        "inlay_passes", default=()
    )

    @classmethod
    def current(cls) -> PassContext:
        """All scopes around this, as one."""
        merged = PassContext()
        for scope in cls._scopes.get():
            merged = PassContext(
                merged.opt_level if scope.opt_level is None else scope.opt_level,
                (*merged.disabled_passes, *scope.disabled_passes),
                (*merged.instruments, *scope.instruments),
            )
        return merged

    def applied(self, config: CompilationConfig) -> CompilationConfig:
        """The configuration with this context's level and disabled passes."""
        disabled = tuple(dict.fromkeys((*config.disabled_passes, *self.disabled_passes)))
        return config.replace(
            opt_level=config.opt_level if self.opt_level is None else self.opt_level, disabled_passes=disabled
        )

    def __enter__(self) -> Self:
        self._scopes.set((*self._scopes.get(), self))
        return self

    def __exit__(self, *_) -> None:
        self._scopes.set(self._scopes.get()[:-1])
