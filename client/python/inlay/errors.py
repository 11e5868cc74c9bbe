"""The errors that the package raises. Each message names the place (node, input, file) and, where there is one, the way out."""

from __future__ import annotations

import dataclasses


class InlayError(Exception):
    """Base of every error that the package raises by itself."""


class InvalidModelError(InlayError):
    """The model or the module is malformed: what is wrong with it does not depend on what inlay supports."""


@dataclasses.dataclass(frozen=True)
class UnsupportedNode:
    """One node that could not be imported: its name (PyTorch: "module.path/node"), "domain.OpType" or "aten.op.overload",
    opset version (None: not ONNX's), and why."""

    name: str
    op: str
    opset: int | None
    why: str

    def __str__(self) -> str:
        opset = "" if self.opset is None else f", opset {self.opset}"
        return f"{self.name} ({self.op}{opset}): {self.why}"


class UnsupportedOperatorError(InlayError):
    """Lists every unsupported node of a model at once.

    Attributes:
        nodes: the `UnsupportedNode`s, in the model's order.
        needed_constants: names of graph inputs whose *values* decide a shape or an operator's meaning; the import can
            succeed when they are given through `from_onnx(..., constants={name: array})`.
    """

    def __init__(self, nodes: list[UnsupportedNode], needed_constants: tuple[str, ...] = ()):
        self.nodes = list(nodes)
        self.needed_constants = tuple(needed_constants)
        lines = [f"{len(self.nodes)} unsupported node{'s' if len(self.nodes) != 1 else ''}:"]
        lines += [f"  {node}" for node in self.nodes]
        if self.needed_constants:
            lines.append(f"  (values needed at compile time: constants={{{', '.join(self.needed_constants)}}})")
        super().__init__("\n".join(lines))
