"""Which ATen operators are decomposed before import: those that no converter takes.

torch.export's default table (core ATen) would take a linear layer, a softmax, an LSTM apart although the IR has them whole,
and leaves some operators that PyTorch could take apart further. So: what has a converter is kept, also composite
operators; for the rest core ATen's decomposition, else any that PyTorch knows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from inlay.torch_import.registry import CONVERTERS

# Decompositions that would turn what could be said exactly into something random, or that need no autograd.
_NEVER = frozenset(["aten.rand_like.default", "aten.randn_like.default"])


def kept(target: Any) -> bool:
    """Whether the operator has a converter."""
    return isinstance(target, torch._ops.OpOverload) and overload(target) in CONVERTERS


def overload(target: Any) -> str | None:
    """ "add.Tensor" of an ATen operator, else None."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return None
    return f"{target._schema.name.removeprefix('aten::')}.{target._overloadname}"


@functools.cache
def table() -> dict[Any, Callable]:
    """{operator: decomposition} for `ExportedProgram.run_decompositions`."""
    # Not those of torch._refs: they end in prims, a level below ATen.
    chosen = {
        op: f
        for op, f in torch._decomp.decomposition_table.items()
        if isinstance(op, torch._ops.OpOverload) and f.__module__.startswith("torch._decomp")
    }
    chosen.update(dict(torch.export.default_decompositions().items()))
    return {op: f for op, f in chosen.items() if not kept(op) and str(op) not in _NEVER}
