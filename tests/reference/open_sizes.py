"""A module of open sizes at those of a run: its extents' texts as numbers, for the evaluator, which knows numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inlay.ir import dims


def at_sizes(module, inputs: Sequence[np.ndarray], function: str = "main"):
    """A copy of the inlay.proto.IRModule. Raises ValueError where a run of these inputs is refused."""
    copy = type(module)()
    copy.CopyFrom(module)
    body = copy.functions[function]
    values = _values(body, inputs)
    if "required_extents" in body.attrs:
        for text in body.attrs["required_extents"].strings.v:
            if dims.canonical(text, values) < 0:
                raise ValueError(f"a run of {values} is refused: {text} is below 0")
    for binding in body.body.bindings:
        if "dims" in binding.attrs:
            _set(binding, [dims.canonical(text, values) if text else None for text in binding.attrs["dims"].strings.v])
    return copy


def _values(body, inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """Of the symbols, by the parameters' extents that are a symbol, a multiple of one, or that and a number; the parameters
    get the inputs' extents."""
    values: dict[str, int] = {}
    for index, array in zip(body.params, inputs):
        for dim, extent in zip(body.vars[index].type.tensor.dims, array.shape):
            if dim.WhichOneof("kind") != "symbol":
                continue
            if line := dims.linear_in_one(dim.symbol):
                symbol, times, more = line
                value, rest = divmod(extent - more, times)
                if rest or value < 0 or values.setdefault(symbol, value) != value:
                    raise ValueError(f"a run is refused: {dim.symbol} of {values} is {extent}")
            dim.value = extent
    return values


def _set(binding, extents: list) -> None:
    attrs = binding.attrs
    assert not any(isinstance(e, str) for e in extents), f"{extents} of {binding.location}"
    if binding.call.op == "slice":
        for i, extent in enumerate(extents):
            if extent is not None:
                attrs["ends"].ints.v[i] = attrs["begins"].ints.v[i] + extent
    elif binding.call.op == "topk":
        attrs["k"].i = extents[0]
    else:
        where = attrs["sizes" if binding.call.op == "resize" else "shape"].ints.v
        for i, extent in enumerate(extents):
            if extent is not None:
                where[i] = extent
    del attrs["dims"]
