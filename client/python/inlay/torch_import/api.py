"""from_torch: an exported program, its decomposition, its parameters and results."""

from __future__ import annotations

import contextlib
import copy
import importlib
import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from inlay.errors import InvalidModelError, UnsupportedNode, UnsupportedOperatorError
from inlay.ir import Var
from inlay.ir.module import IRModule
from inlay.torch_import import decompose
from inlay.torch_import.importer import GraphImporter
from inlay.torch_import.sizes import Sizes

Shapes = Mapping[str, int | str | Sequence[int | str]]


def from_torch(
    program: ExportedProgram | torch.nn.Module | str | os.PathLike,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    shape: Shapes | None = None,
    dynamic_shapes: Any = None,
) -> IRModule:
    """Imports a program of `torch.export.export`, by its ATen graph (no ONNX in between).

    Args:
        program: an ExportedProgram; the path of a .pt2 file (`torch.export.save`; read only files that you trust); or an
            nn.Module in eval mode, which is exported for `args` and `kwargs`.
        args, kwargs: example inputs, for an nn.Module only.
        dynamic_shapes: which of their dimensions are dynamic, as `torch.export.export` takes it; for an nn.Module only.
        shape: what dynamic dimensions are, by the symbol that `print(program)` shows ({"s77": 8}) or by an input's name
            ({"x": [8, 3]}): numbers, names of the caller's choice ({"x": ["batch", 3, "h"]}), multiples ("8*h"). What is
            not given stays open by its symbol's name (executor vm; one that the program wants as a multiple of 8 as
            "8*s77_8").

    Returns:
        The module. "main" takes the program's tensor inputs in order, with their names (those of nested structures as
        export names them, such as "cache_key_0"; numbers and None are fixed to what was exported), and returns its tensor
        outputs, named by their keys ("logits") or output_0, output_1, ... Parameters and buffers are its weights, by
        their names; they are shared, not copied, and must not change before the module is built. Integers and floats of
        16 bits are computed as core/ir/OPS.md says (16-bit results between operators are kept in f32).
        Buffers that the program writes to (a static cache's keys and values, a counter) are inputs behind the others,
        by their names: a compiled module keeps no state, its caller does, and begins with
        `program.state_dict[name].clone()` or `program.constants[name].clone()`. Such buffers, and inputs that the
        program writes to, are updated in place and returned behind the program's own outputs
        (`IRModule.with_updates`).
        Where dimensions stay open, a run outside of the program's bounds, and of the conditions under which it was traced
        (`if x.shape[0] > 4`), is refused (`IRModule.required_extents`); conditions that are no polynomials of sizes are not
        checked, as a warning says. What the program asserts of values (`torch._check(ids.max() < n)`) is not checked either.

    Raises:
        UnsupportedOperatorError: lists every node that inlay cannot express, with its module's path and source line, at
            once; of open dimensions, by name, what can't be left open there.
        InvalidModelError: the module is in training mode, the file is no program or calls operators that no imported
            package defines, or `shape` does not fit the program.
    """
    if isinstance(program, torch.nn.Module):
        program = _exported(program, args, kwargs, dynamic_shapes)
    elif args is not None or kwargs is not None or dynamic_shapes is not None:
        raise TypeError("example inputs and their dynamic shapes are for an nn.Module; an ExportedProgram has its own")
    if isinstance(program, (str, os.PathLike)):
        program = _loaded(program)
    if not isinstance(program, ExportedProgram):
        raise TypeError(
            f"from_torch takes a torch.export.ExportedProgram or an nn.Module, not a {type(program).__name__}"
        )
    program = _decomposed(program)
    sizes = Sizes(program, dict(shape or {}))
    importer = GraphImporter(sizes.value)
    _start(program, importer, sizes)
    importer.run(program.graph_module)
    module = _finish(program, importer)
    required = [*sizes.required(), *importer.builder.required]
    return module.with_required_extents(required) if required else module


# Which module defines the operators of a namespace that torch does not: a program that calls them loads where it was
# imported.
_DEFINED_BY = {"transformers": "transformers.integrations.moe", "torchvision": "torchvision"}


def _loaded(path: str | os.PathLike, tries: int = 2) -> ExportedProgram:
    said = _Said()
    try:
        with said:
            return torch.export.load(os.fspath(path))
    except FileNotFoundError:
        raise InvalidModelError(f"{os.fspath(path)}: no such file") from None
    except Exception as error:  # noqa: BLE001  whatever torch.export.load raises on a bad file
        operator = said.unresolved()
        if operator is None:
            why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise InvalidModelError(f"{os.fspath(path)}: not a program of torch.export ({why})") from None
    definer = _DEFINED_BY.get(operator.split(".")[2])
    if definer is not None and tries > 1:
        with contextlib.suppress(Exception):  # whatever keeps a package from being imported
            importlib.import_module(definer)
            return _loaded(path, tries - 1)
    raise InvalidModelError(
        f"{os.fspath(path)}: the program calls {operator}, which nothing here defines; import the package that does "
        "before it is loaded"
    )


class _Said(logging.Handler):
    """What torch.export logs while a program is loaded, whose errors say less; nothing of it is printed."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []
        self.logger = logging.getLogger("torch.export")

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(str(record.exc_info[1]) if record.exc_info else record.getMessage())

    def __enter__(self) -> Self:
        self.propagated, self.logger.propagate = self.logger.propagate, False
        self.logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)
        self.logger.propagate = self.propagated

    def unresolved(self) -> str | None:
        """The operator that is not there."""
        found = re.search(r"failed to resolve (torch\.ops\.[\w.]+)", "\n".join(self.errors))
        return found and found[1]


def _exported(
    module: torch.nn.Module, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any
) -> ExportedProgram:
    if module.training:
        raise InvalidModelError("the module is in training mode; call module.eval() first")
    if isinstance(args, torch.Tensor):
        args = (args,)
    with torch.no_grad():
        return torch.export.export(module, tuple(args or ()), dict(kwargs or {}), dynamic_shapes=dynamic_shapes)


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    _forget_ranges_of_sums(program)
    program = _with_example_inputs(program)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own
            return program.run_decompositions(decompose.table())
    except Exception as error:
        why = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        node = UnsupportedNode("program", "run_decompositions", None, f"PyTorch can't take its operators apart: {why}")
        raise UnsupportedOperatorError([node]) from error


def _with_example_inputs(program: ExportedProgram) -> ExportedProgram:
    """Decompositions trace a program anew, and check once more what it asks of sizes (a loaded one has these conditions as
    code alone); but not where it has no example inputs, of which they look at the structure."""
    if program.example_inputs is None:
        program = copy.copy(program)
        structure = program.call_spec.in_spec
        program.example_inputs = pytree.tree_unflatten([0] * structure.num_leaves, structure)
    return program


def _forget_ranges_of_sums(program: ExportedProgram) -> None:
    """torch.export.load takes "s1+1", an input's size with a range, for a symbol, which decompositions then trip over."""
    sizes = [d for node in program.graph.nodes for d in getattr(node.meta.get("val"), "shape", ())]
    known: dict[Any, Any] = next((d.node.shape_env.var_to_range for d in sizes if isinstance(d, torch.SymInt)), {})
    for expression in [e for e in known if not e.is_symbol]:
        del known[expression]


_WRITES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def _start(program: ExportedProgram, importer: GraphImporter, sizes: Sizes) -> None:
    """Binds the placeholders; buffers that are written to are inputs behind the others."""
    signature = program.graph_signature
    written = {str(spec.target) for spec in signature.output_specs if spec.kind in _WRITES}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    states = []
    for node, spec in zip(nodes, signature.input_specs, strict=True):
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER) and str(spec.target) in written:
            states.append((node, str(spec.target)))
        elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            target = str(spec.target)
            tensor = program.state_dict.get(target)
            importer.constant(node, target, program.constants[target] if tensor is None else tensor)
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            importer.constant(node, str(spec.target), program.constants[str(spec.target)])
        elif spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument):
            importer.param(node, node.name, node.meta["val"].dtype, sizes.of(node))
        elif isinstance(spec.arg, ConstantArgument):
            importer.number(node, spec.arg.value)
        elif isinstance(node.meta.get("val"), (int, float, bool, torch.SymInt)):
            importer.number(node, sizes.value(node.meta["val"]))
        else:
            importer.problems.append(UnsupportedNode(node.name, "input", None, f"inputs of kind {spec.kind.name}"))
    for node, target in states:
        importer.param(node, target, node.meta["val"].dtype, sizes.of(node))


def _finish(program: ExportedProgram, importer: GraphImporter) -> IRModule:
    """The program's own results, then the new values of what it writes to, by the names of these where they are free."""
    output = next(node for node in program.graph.nodes if node.op == "output")
    names = _names(program)
    results: list[tuple[str, Var]] = []
    updates: list[tuple[str, Var]] = []
    for spec, value in zip(program.graph_signature.output_specs, output.args[0], strict=True):
        if spec.kind in _WRITES:
            kept, name = updates, str(spec.target)
        elif spec.kind is OutputKind.USER_OUTPUT:
            kept, name = results, names.pop(0)
        else:
            continue
        if not isinstance(value, torch.fx.Node):  # None, or a number that was fixed at export
            continue
        made = importer.output(value, importer.env[value])
        if made is not None:
            kept.append((name, made))
    importer.raise_problems()
    if not results and not updates:
        raise InvalidModelError("the program returns no tensor")
    taken = {name for name, _ in results}
    update_names = {f"{name}.new" if name in taken else name: name for name, _ in updates}
    values = [value for _, value in results + updates]
    module = importer.finish(values, [*(name for name, _ in results), *update_names])
    return module.with_updates(update_names) if updates else module


def _names(program: ExportedProgram) -> list[str]:
    """A name an output: its key where outputs have keys, else output_0, output_1, ..."""
    count = len(program.graph_signature.output_specs)
    names = [f"output_{i}" for i in range(count)]
    try:
        spec = program.call_spec.out_spec
        paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(spec.num_leaves)), spec))
    except (ValueError, TypeError, KeyError, AttributeError):
        return names
    for path, i in paths:
        keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path]
        if keys and not keys[0].isdigit() and i < count:
            names[i] = ".".join(keys)
    return names
