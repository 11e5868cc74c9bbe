"""Walks a functional ATen graph and writes the function; the converters do the single nodes."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from inlay.errors import InvalidModelError, UnsupportedNode, UnsupportedOperatorError
from inlay.ir import Var
from inlay.ir.module import LITERAL_LIMIT, IRModule
from inlay.torch_import import (  # noqa: F401  (importing a group registers its converters)
    ops_activation,
    ops_create,
    ops_elementwise,
    ops_fused,
    ops_indexing,
    ops_linalg,
    ops_logic,
    ops_nn,
    ops_pooling,
    ops_reduce,
    ops_shape,
)
from inlay.torch_import.decompose import overload
from inlay.torch_import.registry import CONVERTERS, Builder, Extent, NodeContext, Undecided, Unsupported, fix, ir_dtype
from inlay.torch_import.weights import as_array

# Where and how memory lies: no concern of a graph of values.
_PLACEMENT = frozenset(["layout", "device", "pin_memory", "memory_format", "non_blocking", "copy"])
_MALFORMED = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


class _Poison:
    """The result of a node that was already reported."""


POISON = _Poison()


class GraphImporter:
    """Converts one FX graph of ATen operators, whose mutations were made functional, into one function.

    Args:
        size: what a torch.SymInt is here: an int, an Extent where it is open, None where the IR has no form for it. A
            placeholder that stands for a size is given as such, by `number`.

    Attributes:
        env: what each node is.
        writes: {placeholder: its new value}, of what the graph copies into its placeholders in the end.
    """

    def __init__(self, size: Callable[[Any], Any]) -> None:
        self.size = size
        self.builder = Builder("main")
        self.problems: list[UnsupportedNode] = []
        self.env: dict[fx.Node, Any] = {}
        self.writes: dict[fx.Node, Var] = {}

    # --- What the graph starts from ---

    def param(self, node: fx.Node, name: str, dtype: torch.dtype, shape: Sequence[Any]) -> None:
        try:
            self.env[node] = self.builder.param(name, ir_dtype(dtype), shape)
        except Unsupported as error:
            self.report(node, error)

    def number(self, node: fx.Node, value: Any) -> None:
        """A placeholder that is no tensor: a size, a flag, None."""
        self.env[node] = value

    def constant(self, node: fx.Node, name: str, tensor: torch.Tensor) -> None:
        """A parameter, buffer or constant tensor: a weight if it is floating with more than one element, or larger than
        a literal; else a literal, which the compiler may look at."""
        try:
            array = as_array(tensor)
        except Unsupported as error:
            self.report(node, error)
            return
        weight = (tensor.is_floating_point() and array.size > 1) or array.nbytes > LITERAL_LIMIT
        self.env[node] = self.builder.weight(array, name) if weight else self.builder.literal(array, name=name)

    # --- Nodes ---

    def run(self, module: fx.GraphModule) -> None:
        unread = _only_checked(module.graph)
        for node in module.graph.nodes:
            if node in unread:
                self.env[node] = POISON
            elif node.op == "get_attr":
                value = operator.attrgetter(node.target)(module)
                if isinstance(value, torch.Tensor):
                    self.constant(node, str(node.target), value)
                else:
                    self.env[node] = value  # a graph of a higher-order operator, which is refused where it is used
            elif node.op == "call_function":
                self.env[node] = self.call(node)

    def call(self, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: self.env[n])
        if any(_contains_poison(value) for value in (*args, *kwargs.values())):
            return POISON
        self.builder.location = f"{label(node)} ({target_name(node)})"
        try:
            return self.convert(node, args, kwargs)
        except Unsupported as error:
            self.report(node, error)
        except InvalidModelError as error:  # inference refused what the converter made of this node
            self.report(node, Unsupported(str(error).removeprefix(self.builder.location + ": ")))
        except _MALFORMED as error:
            if extents := [d for a in _leaves((args, kwargs)) for d in _extents(a)]:
                self.report(node, Unsupported(f"it is not imported for open sizes; {fix(extents[0])} [{error}]"))
                return POISON
            self.report(node, Unsupported(f"its arguments are not understood ({type(error).__name__}: {error})"))
        return POISON

    def convert(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        name = overload(node.target)
        if name is None:
            return self.python(node, args, kwargs)
        if name in ("sym_size.int", "sym_numel.default"):
            return args[0].shape[args[1]] if name == "sym_size.int" else math.prod(args[0].shape)
        if name == "copy_.default" and is_write(node):
            return self.write(node.args[0], *args[:2])  # type: ignore[arg-type]
        if name not in CONVERTERS:
            raise Unsupported("there is no converter for this operator")
        schema = node.target._schema  # type: ignore[union-attr]
        positional, named = _bind(schema, args, kwargs)
        meta_args, _ = _bind(schema, *fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val")))
        vals = node.meta.get("val")
        vals = list(vals) if isinstance(vals, (list, tuple)) else [vals]
        several = isinstance(node.meta.get("val"), (list, tuple))
        # Extents that the program's own checks say are equal: as the one that PyTorch goes on with.
        self.builder.preferred = frozenset(self.size(d) for v in vals if isinstance(v, torch.Tensor) for d in v.shape)
        ctx = NodeContext(self.builder, name, vals, meta_args, _read(node) if several else None, self.size)
        made = CONVERTERS[name](ctx, *positional, **named)
        if not several:
            self._check(made, vals[0])
            return made
        results = list(made)
        for i in range(len(results)):
            if results[i] is None:
                if ctx.wants(i):
                    raise Unsupported(f"its result {i} is not supported")
            else:
                self._check(results[i], vals[i])
        return results

    def _check(self, made: Any, said: Any) -> None:
        """Raises Unsupported where the converter and PyTorch disagree on a result's type: a fault of the converter, which
        shall not become a wrong result."""
        if not isinstance(made, Var) or not isinstance(said, torch.Tensor):
            return
        dtype, shape = ir_dtype(said.dtype), [self.size(d) for d in said.shape]
        fits = len(shape) == made.rank and all(d is None or d == e for d, e in zip(shape, made.shape, strict=True))
        if made.dtype != dtype or not fits:
            raise Unsupported(f"inlay makes {made.type} of it, PyTorch {dtype}{list(said.shape)}")

    def write(self, placeholder: fx.Node, old: Any, new: Any) -> Any:
        if not isinstance(old, Var) or not isinstance(new, Var) or old.type != new.type:
            raise Unsupported("an input is written to with a tensor of another type")
        self.writes[placeholder] = self.env[placeholder] = new
        return new

    def python(self, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What is no ATen operator: arithmetic on sizes, items of tuples."""
        if node.target is operator.getitem:
            return args[0][args[1]]
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            raise Unsupported("control flow and other higher-order operators are not supported")
        if isinstance(node.target, torch._ops.OpOverload):
            raise Unsupported(f"operators of {node.target.namespace!r} are not supported")
        if not callable(node.target) or any(isinstance(a, Var) for a in args):
            raise Unsupported("this Python function is not supported")
        if not any(isinstance(a, (Extent, Undecided)) for a in args):
            return node.target(*args, **kwargs)
        # Of open sizes: what PyTorch says that it is; most of these nodes belong to checks, and nobody reads them.
        val: Any = node.meta.get("val")
        known = self.size(val) if isinstance(val, torch.SymInt) else None
        return Undecided(val.node.expr) if known is None else known

    # --- The end ---

    def output(self, node: fx.Node, value: Any) -> Var | None:
        """A result as a Var that is no parameter or constant itself; None where it was reported already."""
        if value is POISON:
            return None
        if isinstance(value, Extent):  # a size, returned
            value = self.builder.op("reshape", self.builder.extent(value), shape=[])
        elif isinstance(value, (bool, int, float)):
            value = self.builder.literal(value, "i64" if isinstance(value, int) else "f64")
        if not isinstance(value, Var):
            self.report(node, Unsupported(f"a {type(value).__name__} is returned"))
            return None
        return value

    def finish(self, results: Sequence[Var], names: Sequence[str]) -> IRModule:
        """Raises UnsupportedOperatorError listing all that was reported."""
        self.raise_problems()
        return self.builder.finish(results, names)

    def raise_problems(self) -> None:
        if self.problems:
            raise UnsupportedOperatorError(self.problems)

    def report(self, node: fx.Node, error: Unsupported) -> None:
        self.env[node] = POISON
        where = source_line(node)
        why = f"{error} [{where}]" if where else str(error)
        self.problems.append(UnsupportedNode(label(node), target_name(node), None, why))


def is_write(node: fx.Node) -> bool:
    """Whether it copies into a placeholder."""
    return (
        node.op == "call_function"
        and overload(node.target) == "copy_.default"
        and isinstance(node.args[0], fx.Node)
        and node.args[0].op == "placeholder"
    )


def _only_checked(graph: fx.Graph) -> set[fx.Node]:
    """What is computed for checks alone, or for nothing. Checks on sizes hold: they were made on the very sizes that are
    imported; a program's assertions on values are not compiled."""
    unread: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        is_operator = node.op == "call_function" and not isinstance(node.target, torch._ops.HigherOrderOperator)
        if is_operator and not is_write(node) and all(user in unread for user in node.users):
            unread.add(node)
    return unread


def _leaves(value: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(value)


def _extents(value: Any) -> list[Extent]:
    """The open ones of a tensor or size."""
    sizes = value.shape if isinstance(value, Var) else [value]
    return [d for d in sizes if isinstance(d, Extent)]


def _contains_poison(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_contains_poison(v) for v in value)
    return value is POISON


def _read(node: fx.Node) -> frozenset[int] | None:
    """Which results of a node are read; None: all (it is used whole)."""
    if any(user.target is not operator.getitem for user in node.users):
        return None
    return frozenset(int(str(user.args[1])) for user in node.users if user.users)


def _bind(schema: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments in the schema's order with defaults, and keyword-only ones that are given and matter."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for i, argument in enumerate(schema.arguments):
        if i < len(args):
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise TypeError(f"argument {argument.name} is missing")
        if argument.name in _PLACEMENT:
            continue
        if argument.kwarg_only:
            if argument.name in kwargs:
                named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


# --- Where a node comes from ---


def target_name(node: fx.Node) -> str:
    """ "aten.add.Tensor"."""
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    return getattr(target, "__name__", None) or str(target)


def label(node: fx.Node) -> str:
    """ "encoder.layers.0/softmax_3": the path of the nn.Module that the node is of, and the node's name."""
    stack = node.meta.get("nn_module_stack") or {}
    path = ""
    for entry in stack.values():
        path = str(entry[0]) if isinstance(entry, tuple) else ""
    path = re.sub(r"^(L\['\w+'\]|L__self__|_export_root)\.?", "", path)
    path = re.sub(r"\._modules\['(\w+)'\]|_modules\['(\w+)'\]", lambda m: "." + (m[1] or m[2]), path).strip(".")
    return f"{path}/{node.name}" if path else node.name


def source_line(node: fx.Node) -> str:
    """ "model.py:12: y = x.nonzero()" of the model's own code; "" where it is not known."""
    trace = node.meta.get("stack_trace") or ""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]+)', trace)
    if not found:
        return ""
    path, line, code = found[-1]
    return f"{path}:{line}: {code.strip()}"


__all__ = ["POISON", "GraphImporter", "is_write", "label", "source_line", "target_name"]
