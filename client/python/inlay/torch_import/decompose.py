"""Which ATen operators are decomposed before import: those that no converter takes.

torch.export's default table (core ATen) would take a linear layer, a softmax, an LSTM apart although the IR has them whole,
and leaves some operators that PyTorch could take apart further. So: what has a converter is kept, also composite
operators; for the rest core ATen's decomposition, else any that PyTorch knows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from inlay.torch_import.registry import CONVERTERS

# Decompositions that would turn what could be said exactly into something random, or that need no autograd.
_NEVER = frozenset(["aten.rand_like.default", "aten.randn_like.default"])


def kept(target: Any) -> bool:
    """Whether the operator has a converter."""
    return isinstance(target, torch._ops.OpOverload) and overload(target) in CONVERTERS


def overload(target: Any) -> str | None:
    """ "add.Tensor" of an ATen operator; of another library's, where it has a converter: "library::name.default"."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    name = f"{target._schema.name.removeprefix('aten::')}.{target._overloadname}"
    return name if target.namespace == "aten" or name in CONVERTERS else None


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
    taken_apart = {op: f for op, f in chosen.items() if not kept(op) and str(op) not in _NEVER}
    # Its converter takes all but cubic ones; tracing keeps what is NotImplemented.
    cubic = torch.ops.aten.grid_sampler_2d.default
    taken_apart[cubic] = lambda x, grid, mode, *rest: (
        chosen[cubic](x, grid, mode, *rest) if mode == 2 else NotImplemented
    )
    return taken_apart


@functools.cache
def _split() -> tuple[dict[Any, Callable], dict[Any, Callable]]:
    """({composite operator: what tracing makes of it}, {other operator: decomposition}), by a means of torch.export that is
    not public: without it composites are taken apart, which the converters understand too, if less is then recognised."""
    try:
        from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp as split

        composites, others = split(dict(table()))
        return composites, others
    except (ImportError, AttributeError):
        return {}, dict(table())


def below_autograd() -> dict[Any, Callable]:
    """{operator: decomposition} for AOTAutograd, beside `composites_kept`."""
    return _split()[1]


@contextlib.contextmanager
def composites_kept() -> Iterator[None]:
    """While it lasts, tracing keeps the composite operators that have converters (linear, attention, LSTM) whole."""
    composites = _split()[0]
    if not composites:
        yield
        return
    from torch.export.exported_program import _override_composite_implicit_decomp

    with _override_composite_implicit_decomp(composites):
        yield
