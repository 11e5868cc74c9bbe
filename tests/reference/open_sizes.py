"""A module of open sizes at those of a run: its extents' texts as numbers, for the evaluator, which knows numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.ir import dims

_MANY = 2**63 - 1


def at_sizes(module, inputs: Sequence[np.ndarray], function: str = "main"):
    """A copy of the inlay.proto.IRModule. Each parameter's extents are a symbol, so many times one, or a number."""
    copy = type(module)()
    copy.CopyFrom(module)
    body = copy.functions[function]
    values: dict[str, int] = {}
    for index, array in zip(body.params, inputs):
        for dim, extent in zip(body.vars[index].type.tensor.dims, array.shape):
            if dim.WhichOneof("kind") == "symbol":
                times, _, name = dim.symbol.rpartition("*")
                assert extent % int(times or 1) == 0, f"{dim.symbol} is {extent}"
                values[name] = extent // int(times or 1)
                dim.value = extent
    for binding in body.body.bindings:
        if "dims" in binding.attrs:
            _set(binding, [dims.canonical(text, values) if text else None for text in binding.attrs["dims"].strings.v])
    return copy


def _set(binding, extents: list) -> None:
    attrs = binding.attrs
    assert not any(isinstance(e, str) for e in extents), f"{extents} of {binding.location}"
    if binding.call.op == "slice":
        for i, extent in enumerate(extents):
            if extent is not None:
                attrs["ends"].ints.v[i] = attrs["begins"].ints.v[i] + extent
    else:
        where = attrs["sizes" if binding.call.op == "resize" else "shape"].ints.v
        for i, extent in enumerate(extents):
            if extent is not None:
                where[i] = extent
    del attrs["dims"]
