"""from_onnx: reads the model, decides the parameters' shapes, runs the importer."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from inlay.errors import InvalidModelError, UnsupportedNode, UnsupportedOperatorError
from inlay.ir import dims
from inlay.ir.module import IRModule
from inlay.onnx_import import (  # noqa: F401  (importing a group registers its converters)
    ops_attention,
    ops_contrib_attention,
    ops_contrib_blocks,
    ops_contrib_conv,
    ops_contrib_decoding,
    ops_contrib_elementwise,
    ops_contrib_experts,
    ops_contrib_linalg,
    ops_contrib_normalization,
    ops_control,
    ops_elementwise,
    ops_indexing,
    ops_linalg,
    ops_nn,
    ops_normalization,
    ops_pad,
    ops_pooling,
    ops_qlinear,
    ops_quantised_bert,
    ops_quantised_products,
    ops_quantize,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_sampling,
    ops_sequence,
    ops_shape,
    ops_signal,
    ops_text,
    ops_training,
)
from inlay.onnx_import.importer import GraphImporter
from inlay.onnx_import.registry import onnx_dtype
from inlay.onnx_import.value import Unsupported

MIN_OPSET = 1  # below 7, operators whose old form differs are refused one by one


def from_onnx(
    model: onnx.ModelProto | str | os.PathLike,
    shape: Mapping[str, int | str | Sequence[int | str]] | None = None,
    constants: Mapping[str, np.ndarray] | None = None,
    executor: str = "graph",
) -> IRModule:
    """Imports an ONNX model of opset 7 to the newest of the installed onnx package (older ones as far as they go).

    Args:
        model: a ModelProto, or the path of a .onnx file (external data is found next to it, and memory-mapped).
        shape: fixes extents. {"batch": 1} gives a symbolic dimension its value wherever it occurs;
            {"input": [1, 3, 224, 224]} gives an input its shape. An extent may be an expression over names as well:
            {"height": "8*h"}, or {"input": [1, 3, "8*h", "8*w"]}, for a U-Net, whose sizes must halve three times
            without a rest. Symbolic dimensions that are left open stay symbolic in the module; where it joins tensors
            whose extents are equal only at some sizes ("2*((height)/2)" and "height"), a run at others is refused
            (`IRModule.required_extents`).
        constants: {input: array} binds graph inputs to values known at compile time; they are then no parameters. For
            inputs whose values decide shapes (`UnsupportedOperatorError.needed_constants` lists them).
        executor: "vm": an If and a Loop whose conditions are only known at run time stay so, and the module needs
            executor vm. For the others both branches of an If are computed, and such a Loop is refused.

    Returns:
        The module. Its "main" takes the graph's inputs that are not initializers, in the graph's order.

    Raises:
        UnsupportedOperatorError: lists every node that inlay cannot express, at once.
        InvalidModelError: the model is malformed, or `shape` or `constants` do not fit it.
    """
    base = None
    if not isinstance(model, onnx.ModelProto):
        path = pathlib.Path(model)
        base = path.parent
        try:
            model = onnx.load(str(path), load_external_data=False)
        except FileNotFoundError:
            raise InvalidModelError(f"{path}: no such file") from None
        except Exception as error:  # noqa: BLE001 - protobuf's DecodeError and whatever else onnx.load raises on a bad file
            raise InvalidModelError(f"{path}: not an ONNX model ({error})") from None
    _check_opsets(model)
    shape, constants = dict(shape or {}), dict(constants or {})
    importer = GraphImporter(model, base, executor)
    return importer.run(_parameters(model, shape, constants), constants)


def _check_opsets(model: onnx.ModelProto) -> None:
    if not model.opset_import:
        raise InvalidModelError("the model imports no opset")
    newest = onnx.defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not MIN_OPSET <= opset.version <= newest:
            node = UnsupportedNode("model", "opset_import", opset.version, f"wants an opset of {MIN_OPSET} to {newest}")
            raise UnsupportedOperatorError([node])


def _parameters(model: onnx.ModelProto, shape: dict, constants: dict) -> list[tuple[str, str, list[int | str]]]:
    """(name, dtype, shape) of the graph's inputs that are neither initializers nor bound to a constant."""
    initialized = {t.name for t in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in initialized]
    names = {i.name for i in inputs}
    unknown = sorted(set(constants) - names)
    if unknown:
        raise InvalidModelError(f"constants names {unknown}, but the inputs are {sorted(names)}")
    symbols: set[str] = set()
    params, problems = [], []
    for i in inputs:
        if i.name in constants:
            continue
        try:
            params.append(_parameter(i, shape, symbols))
        except Unsupported as error:
            problems.append(UnsupportedNode(i.name, "graph input", 0, str(error)))
    if problems:
        raise UnsupportedOperatorError(problems)
    unused = sorted(set(shape) - names - symbols)
    if unused:
        raise InvalidModelError(
            f"shape names {unused}, which is neither an input ({sorted(names)}) nor a symbolic dimension "
            f"({sorted(symbols)})"
        )
    return params


def _parameter(info: onnx.ValueInfoProto, shape: dict, symbols: set[str]) -> tuple[str, str, list[int | str]]:
    if info.type.WhichOneof("value") != "tensor_type":
        raise Unsupported(f"inputs of kind {info.type.WhichOneof('value')} are not supported")
    tensor = info.type.tensor_type
    dtype = onnx_dtype(tensor.elem_type)
    given = shape.get(info.name)
    declared: list[int | str] | None = None
    if tensor.HasField("shape"):
        declared = []
        for at, dim in enumerate(tensor.shape.dim):
            if dim.WhichOneof("value") == "dim_value":
                declared.append(dim.dim_value)
            else:
                # An extent without a name is its own symbol: nothing says that it equals another.
                declared.append(dim.dim_param or f"{info.name}_dim_{at}")
        for d in declared:
            if isinstance(d, str):
                symbols.update([d, *dims.names_in(d)])
    if isinstance(given, int | str | np.integer) and info.name not in symbols and len(declared or ()) == 1:
        given = [given]
    if isinstance(given, Sequence) and not isinstance(given, str):
        actual = [dims.canonical(d) if isinstance(d, str) else int(d) for d in given]
        if declared is not None:
            if len(actual) != len(declared):
                raise InvalidModelError(f"shape of {info.name!r}: {actual} has not the rank of {declared}")
            for a, d in zip(actual, declared):
                if isinstance(d, int) and a != d:
                    raise InvalidModelError(f"shape of {info.name!r}: {actual} contradicts the model's {declared}")
        return info.name, dtype, actual
    if given is not None and info.name not in symbols:
        raise InvalidModelError(f"shape of {info.name!r}: {given!r} is not a list")
    if declared is None:
        raise Unsupported("the input has no shape in the model; give one: shape={" + repr(info.name) + ": [...]}")
    resolved: list[int | str] = []
    for extent in declared:
        value = extent
        if isinstance(extent, str):
            # "2*batch" follows from batch, "past + 1" is what past and one are.
            value = shape.get(extent, dims.canonical(extent, shape))
        if isinstance(value, str):
            value = dims.canonical(value)
        if not isinstance(value, (int, str, np.integer)):
            raise InvalidModelError(f"shape of dimension {extent!r}: {value!r} is not a number")
        if not isinstance(value, str) and value < 0:
            raise InvalidModelError(f"shape of dimension {extent!r}: {value} is negative")
        resolved.append(value if isinstance(value, str) else int(value))
    return info.name, dtype, resolved
