"""What random programs are built with."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

LARGEST = 1e3  # of a value
MOST_ELEMENTS = 1 << 16
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
NAMES = {"torch": torch, "nn": nn, "F": F, "math": math}


@dataclasses.dataclass(frozen=True)
class Line:
    """Statements that make values of others."""

    text: str
    makes: tuple[str, ...]

    @property
    def takes(self) -> set[str]:
        return set(re.findall(r"\b[xv]\d+\b", self.text)) - set(self.makes)

    @property
    def layers(self) -> set[str]:
        return set(re.findall(r"\bself\.(\w+)", self.text))


@dataclasses.dataclass
class Program:
    """The lines of forward in order; constructors of layers, inputs and every line's values by name; names of the
    outputs, and whether these are returned as a dict."""

    lines: list[Line]
    layers: dict[str, str]
    inputs: dict[str, torch.Tensor]
    values: dict[str, torch.Tensor]
    outputs: list[str]
    dtype: torch.dtype
    keyed: bool = False

    def source(self) -> str:
        used = set().union(*(line.layers for line in self.lines)) if self.lines else set()
        setup = [f"self.{name} = {code}" for name, code in self.layers.items() if name in used]
        body = [text for line in self.lines for text in line.text.split("\n")]
        results = ", ".join(f'"{y}": {y}' if self.keyed else y for y in self.outputs)
        results = f"{{{results}}}" if self.keyed else results
        return "\n".join([
            "class Random(nn.Module):",
            "    def __init__(self):",
            *(f"        {text}" for text in ["super().__init__()", *setup]),
            f"    def forward(self, {', '.join(self.inputs)}):",
            *(f"        {text}" for text in [*body, f"return {results}"]),
        ])  # fmt: skip

    def module(self) -> nn.Module:
        made: dict[str, Any] = {**NAMES, "__name__": "random_modules.made"}
        exec(compile(self.source(), "random_module.py", "exec"), made)  # noqa: S102  it is ours
        module = nn.Module.__new__(made["Random"])
        nn.Module.__init__(module)
        for line in self.lines:
            for name in sorted(line.layers):
                if not hasattr(module, name):
                    attach(module, name, self.layers[name], self.dtype)
        return module.eval().requires_grad_(False)

    @property
    def size(self) -> int:
        return len(self.lines)

    def cut(self, index: int) -> Program:
        """See cut_down."""
        lines, cut = self.lines[:index] + self.lines[index + 1 :], self.lines[index]
        outputs = [y for y in self.outputs if y not in cut.makes]
        if not outputs:
            made = {y for line in lines for y in line.makes}
            outputs = sorted(y for y in cut.takes if y in made)[:1]
        used = set().union(*(line.takes for line in lines)) if lines else set()
        fed = {y: self.values[y] for y in cut.makes if y in used}
        inputs = {name: x for name, x in {**self.inputs, **fed}.items() if name in used}
        return dataclasses.replace(self, lines=lines, inputs=inputs, outputs=outputs)


def attach(module: nn.Module, name: str, code: str, dtype: torch.dtype) -> None:
    """The layer, parameter or buffer that the constructor makes, with values that its name decides."""
    generator = torch.Generator().manual_seed(int(name[1:]))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(name[1:]))
        made = eval(code, NAMES)
    if isinstance(made, torch.Tensor) and not isinstance(made, nn.Parameter):
        module.register_buffer(name, made.to(dtype) if made.is_floating_point() else made)
        return
    setattr(module, name, made)
    if isinstance(made, nn.Parameter):
        made.data = made.data.to(dtype)
        return
    for part in made.modules():  # norms as if trained
        for key, value in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            if "Norm" in type(part).__name__ and value.is_floating_point():
                spread = torch.rand(value.shape, generator=generator)
                value.data = spread + 0.5 if key in ("weight", "running_var") else (spread - 0.5) * 0.4
    made.eval().to(dtype).requires_grad_(False)


class DroppedError(Exception):
    """A line that is not to be: it does not run, or its values are too large or too many."""


class Builder:
    """Adds lines to `program`; `live` are the values that the next ones may take."""

    def __init__(self, seed: int, dtype: torch.dtype):
        self.random = np.random.default_rng(seed)
        self.data = torch.Generator().manual_seed(seed)
        self.program = Program([], {}, {}, {}, [], dtype, self.chance(0.1))
        self.live: list[str] = []
        self._module = nn.Module()
        self._count = 0

    # What is drawn.

    def pick(self, values: Sequence[Any]) -> Any:
        return values[int(self.random.integers(len(values)))]

    def chance(self, probability: float) -> bool:
        return bool(self.random.random() < probability)

    def number(self) -> float:
        return round(float(self.random.uniform(-2, 2)), 2)

    def axis(self, x: str) -> int:
        """Sometimes counted from the end."""
        rank = len(self.shape(x))
        return int(self.random.integers(-rank, rank))

    def divisor(self, n: int) -> int:
        return self.pick([d for d in range(1, n + 1) if n % d == 0])

    def shape(self, x: str) -> tuple[int, ...]:
        return tuple(self.program.values[x].shape)

    def like(self, x: str, condition: Callable[[torch.Tensor], bool]) -> str:
        """Another value (or x itself) for which that holds."""
        return self.pick([y for y in self.live if condition(self.program.values[y])] or [x])

    def broadcastable(self, x: str) -> str:
        """Something of x's dtype that broadcasts with it."""
        value = self.program.values[x]
        if self.chance(0.5):
            return self.like(x, lambda y: y.shape == value.shape and y.dtype == value.dtype)
        part = [n if self.chance(0.6) else 1 for n in value.shape]
        return self.layer(f"torch.randn({tuple(part[self.pick((0, 0, 1)) :])})")

    # What is added.

    def input(self, shape: Sequence[int], dtype: torch.dtype | None = None, high: int = 9) -> str:
        dtype = dtype or self.program.dtype
        name = f"x{len(self.program.inputs)}"
        if dtype.is_floating_point:
            made = torch.randn(tuple(shape), generator=self.data).to(dtype)
        else:
            made = torch.randint(0 if dtype == torch.uint8 else -high, high, tuple(shape), generator=self.data).to(
                dtype
            )
        if made.dim() > 1 and self.chance(0.2):  # other memory than its shape says
            made = made.transpose(0, -1).contiguous().transpose(0, -1)
        self.program.inputs[name] = self.program.values[name] = made
        self.live.append(name)
        return name

    def layer(self, code: str) -> str:
        """ "self.m3": a layer, parameter (nn.Parameter(...)) or buffer (a tensor)."""
        if code.startswith("torch.randn(") and self.chance(0.5):
            code = f"nn.Parameter({code})"
        name = f"m{len(self.program.layers)}"
        try:
            attach(self._module, name, code, self.program.dtype)
        except (ValueError, RuntimeError, AssertionError) as error:
            raise DroppedError(f"{code}: {error}") from None
        self.program.layers[name] = code
        return f"self.{name}"

    def ints(self, shape: Sequence[int], low: int, high: int) -> str:
        """A buffer or an input of indices."""
        if self.chance(0.3):
            name = self.input(shape, torch.int64, 2)
            self.program.inputs[name].random_(low, high, generator=self.data)
            return name
        return self.layer(f"torch.randint({low}, {high}, {tuple(shape)})")

    def mask(self, shape: Sequence[int], share: float = 0.6) -> str:
        return self.layer(f"torch.rand({tuple(shape)}) < {share}")

    def do(self, code: str, results: int = 1) -> Any:
        """The name of the expression's value, or a list of several's."""
        names = [self._name() for _ in range(results)]
        self.block(f"{', '.join(names)} = {code}", names)
        return names[0] if results == 1 else names

    def block(self, text: str, names: Sequence[str]) -> None:
        line = Line(text, tuple(names))
        scope = {**NAMES, "self": self._module}
        scope.update({name: self.program.values[name].clone() for name in line.takes})
        try:
            with torch.no_grad():
                exec(text, scope)  # noqa: S102
        except (RuntimeError, ValueError, IndexError, TypeError, AssertionError, NotImplementedError) as error:
            raise DroppedError(f"{text}: {error}") from None
        for name in names:
            value = scope[name]
            if not isinstance(value, torch.Tensor) or not 0 < value.numel() <= MOST_ELEMENTS or value.is_complex():
                raise DroppedError(text)
            if value.is_floating_point() and not bool((value.abs() < LARGEST).all()):
                raise DroppedError(f"{text}: large values")
        self.program.lines.append(line)
        self.program.values.update({name: scope[name].clone() for name in names})

    def written(self, x: str, *statements: str) -> str:
        """A copy of x that statements, about `y`, write to."""
        name = self._name()
        self.block("\n".join([f"{name} = {x}.clone()", *(re.sub(r"\by\b", name, s) for s in statements)]), [name])
        return name

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def attempt(self, one: Step, x: str) -> list[str]:
        """What a step of x makes, now live; nothing if it can't be."""
        before, inputs, live = len(self.program.lines), dict(self.program.inputs), list(self.live)
        try:
            made = one.add(self, x)
        except DroppedError:
            del self.program.lines[before:]
            self.program.inputs, self.live = inputs, live
            return []
        made = pytree.tree_leaves(made)
        self.live += made
        return made

    def finished(self) -> Program:
        """Returns what nobody took, and some of the rest."""
        program = self.program
        used = set().union(*(line.takes for line in program.lines)) if program.lines else set()
        made = [y for line in program.lines for y in line.makes]
        program.outputs = [y for y in made if y not in used or self.chance(0.1)]
        program.inputs = {name: x for name, x in program.inputs.items() if name in used}
        return program


@dataclasses.dataclass(frozen=True)
class Step:
    """kind: "f" floats, "i" integers, "b" booleans, as many as it takes of; jumps: a last bit may change its result."""

    ranks: tuple[int, ...]
    kind: str
    weight: float
    jumps: bool
    add: Callable[[Builder, str], Any]

    def takes(self, x: torch.Tensor, dtype: torch.dtype) -> bool:
        kind = "f" if x.is_floating_point() else "b" if x.dtype == torch.bool else "i"
        exact = dtype in (torch.float32, torch.float64) or kind != "f" or not self.jumps
        return kind in self.kind and x.dim() in self.ranks and exact


STEPS: dict[str, Step] = {}
ANY = (0, 1, 2, 3, 4, 5)


def step(*ranks: int, kind: str = "f", weight: float = 1.0, jumps: bool = False):
    def register(function):
        STEPS[function.__name__] = Step(ranks or ANY, kind, weight, jumps, function)
        return function

    return register
