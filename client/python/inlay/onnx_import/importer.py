"""Walks an ONNX graph and writes the function; the converters do the single nodes."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.defs

from inlay.errors import InvalidModelError, UnsupportedNode, UnsupportedOperatorError
from inlay.ir import FunctionBuilder, Var
from inlay.ir.joins import JoiningBuilder
from inlay.ir.module import LITERAL_LIMIT, IRModule
from inlay.onnx_import import fold, functions, partial
from inlay.onnx_import.initializers import is_packed, load_packed, load_tensor
from inlay.onnx_import.integer_products import remember_quantised, remember_transposed
from inlay.onnx_import.registry import MICROSOFT, Converter, NodeContext, find_converter
from inlay.onnx_import.value import (
    AbsentValue,
    Poisoned,
    PoisonValue,
    SequenceValue,
    Unsupported,
    Value,
    constant_value,
)

Scope = dict[str, Any]

_MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, MemoryError, RecursionError,
)  # fmt: skip


# Operators of onnxruntime, and the opset since which ONNX has ones that take and mean all that these do.
_LIKE_ONNX = {"QuantizeLinear": 21, "DequantizeLinear": 21}

# What products want to know of an operand, however it was made.
_REMEMBERED = {"DequantizeLinear": remember_quantised, "Transpose": remember_transposed}


def _as_onnx(node: onnx.NodeProto) -> onnx.NodeProto:
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.domain = ""
    return made


def node_label(node: onnx.NodeProto) -> str:
    """A name for messages: the node's own, or that of its first output."""
    return node.name or next((o for o in node.output if o), "?")


class GraphImporter:
    """Converts the main graph of one model into one function."""

    def __init__(self, model: onnx.ModelProto, base: pathlib.Path | None, executor: str = "graph"):
        self.model = model
        self.control_flow = executor == "vm"  # whether If and Loop may be left to the run
        self.base = base
        self.main = JoiningBuilder("main")
        self.builder: FunctionBuilder = self.main  # or that of the loop's body that is being converted
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.local_functions = {(f.domain, f.name): f for f in model.functions}
        self.problems: list[UnsupportedNode] = []
        self.needs: set[str] = set()
        self.prefix: list[str] = []  # the enclosing functions and control-flow nodes
        self.budget = 200_000  # nodes, unrolled and inlined ones included

    # --- Whole graph ---

    def run(self, params: Sequence[tuple[str, str, Sequence]], constants: Mapping[str, np.ndarray]) -> IRModule:
        """params: (name, dtype, shape) of each parameter; constants: graph inputs that are bound to a value."""
        graph = self.model.graph
        scope: Scope = {}
        for name, dtype, shape in params:
            scope[name] = Value(name, var=self.builder.param(name, dtype, shape), roots=frozenset([name]))
        for name, array in constants.items():
            scope[name] = constant_value(name, array)
        self.add_initializers(graph, scope)
        self.run_nodes(graph.node, scope, self.opsets)
        results: list[Var] = []
        for output in graph.output:
            try:
                value = self.lookup(scope, output.name, None)
                if isinstance(value, PoisonValue):
                    continue
                if not isinstance(value, Value):
                    raise Unsupported("the output is a sequence or an optional")
                results.append(self.materialise(value))
            except Unsupported as error:
                self.report(onnx.NodeProto(name=output.name, op_type="graph output"), 0, error)
        if self.problems:
            raise UnsupportedOperatorError(self.problems, tuple(sorted(self.needs)))
        module = self.main.finish(results, [o.name for o in graph.output])
        return module.with_required_extents(self.main.required) if self.main.required else module

    def add_initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        for tensor in graph.initializer:
            if tensor.name not in scope:
                scope[tensor.name] = self.initializer(tensor)
        for sparse in graph.sparse_initializer:
            node = onnx.NodeProto(name=sparse.values.name, op_type="sparse_initializer")
            self.report(node, 0, Unsupported("sparse initializers are not supported"))
            scope[sparse.values.name] = PoisonValue(sparse.values.name)

    def initializer(self, tensor: onnx.TensorProto) -> Value:
        shape = tuple(tensor.dims)
        if is_packed(tensor) and math.prod(shape) > LITERAL_LIMIT:
            return Value(tensor.name, thunk=load_packed(tensor, self.base), shape=shape, weight=True)
        return self.initial_value(tensor.name, load_tensor(tensor, self.base))

    @staticmethod
    def initial_value(name: str, array: np.ndarray) -> Value:
        """A constant of the model: a weight if it is floating with more than one element, or larger than a literal."""
        floating = array.dtype.kind == "f" or "float" in array.dtype.name
        return constant_value(name, array, weight=(floating and array.size > 1) or array.nbytes > LITERAL_LIMIT)

    def lookup(self, scope: Scope, name: str, node: onnx.NodeProto | None) -> Any:
        if name in scope:
            return scope[name]
        who = f"node {node_label(node)!r} ({node.op_type}) reads" if node is not None else "the graph returns"
        raise InvalidModelError(f"{who} {name!r}, which no earlier node, input or initializer defines")

    # --- Nodes ---

    def run_nodes(self, nodes: Iterable[onnx.NodeProto], scope: Scope, opsets: Mapping[str, int]) -> None:
        """Converts nodes in order, writing what they define into the scope; unsupported ones are collected."""
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            opset = opsets.get(domain, 0)
            if domain == MICROSOFT and node.op_type in _LIKE_ONNX:
                node, domain, opset = _as_onnx(node), "", _LIKE_ONNX[node.op_type]
            self.budget -= 1
            outputs: Sequence[Any]
            try:
                if self.budget < 0:
                    raise Unsupported("the model has too many nodes once its loops and functions are unrolled")
                outputs = self.convert(node, domain, opset, scope, opsets)
            except Poisoned:
                outputs = [PoisonValue(name) for name in node.output]
            except Unsupported as error:
                self.report(node, opset, error)
                outputs = [PoisonValue(name) for name in node.output]
            for name, value in zip(node.output, outputs):
                if name:
                    if value is not None and not value.name:
                        value.name = name
                    scope[name] = value if value is not None else PoisonValue(name)

    def report(self, node: onnx.NodeProto, opset: int, error: Unsupported) -> None:
        domain = f"{node.domain}." if node.domain not in ("", "ai.onnx") else ""
        label = "/".join([*self.prefix, node_label(node)])
        self.problems.append(UnsupportedNode(label, domain + node.op_type, opset, str(error)))
        self.needs |= error.needs

    def convert(self, node, domain: str, opset: int, scope: Scope, opsets: Mapping[str, int]) -> Sequence[Any]:
        """The node's outputs: folded, propagated, converted, or by its function body."""
        ctx = NodeContext(self, node, opset, scope)
        function = find_converter(domain, node.op_type, opset)
        body = None
        if function is None:
            body = functions.body_of(self, node, domain, opset, ctx.inputs)
            if body is None:
                raise self.no_converter(node, domain, opset)
        if any(isinstance(v, PoisonValue) for v in ctx.inputs):
            raise Poisoned(node_label(node))
        inputs = [v if isinstance(v, Value) else None for v in ctx.inputs]
        plain = all(v is None or isinstance(v, Value) for v in ctx.inputs)
        if plain and domain == "":
            known = partial.propagate(node, inputs)
            if known is not None:
                return [known]
        constant = plain and domain == "" and all(v is None or v.constant for v in inputs)
        if constant and node.op_type not in ("Constant", "Shape", "Size"):
            outputs = self.convert_constant(ctx, function, body, inputs)
        else:
            outputs = self.convert_plain(ctx, function, body)
        if domain == "" and node.op_type in _REMEMBERED:
            _REMEMBERED[node.op_type](ctx, outputs[0])
        return outputs

    def convert_plain(self, ctx: NodeContext, function: Converter | None, body) -> list[Any]:
        node = ctx.node
        outer = self.builder.location
        self.builder.location = "/".join([*self.prefix, f"{node_label(node)} ({node.op_type})"])
        try:
            if function is None:
                return functions.inline(self, ctx, body)
            made = function(ctx)
            outputs = list(made) if isinstance(made, tuple) else [made]
            left = ctx.unhandled()
        except InvalidModelError as error:  # inference refused what the converter made of this node
            raise Unsupported(str(error).removeprefix(self.builder.location + ": ")) from None
        except functions.UseBody:
            body = functions.body_of(self, node, "", ctx.opset, ctx.inputs)
            if body is None:
                raise Unsupported("this form of the operator is not supported") from None
            return functions.inline(self, ctx, body)
        except _MALFORMED as error:  # converters take a node at its word; what breaks one is in the model
            what = f"{type(error).__name__}: {error}"
            raise Unsupported(f"its inputs or attributes do not make sense ({what})") from error
        finally:
            self.builder.location = outer
        if left:
            raise Unsupported(left)
        for i, name in enumerate(node.output):
            if name and (i >= len(outputs) or outputs[i] is None):
                raise Unsupported(f"output {i} is not supported")
        roots = frozenset().union(*(getattr(v, "roots", frozenset()) for v in ctx.inputs if v is not None))
        for value in outputs:
            if isinstance(value, Value) and not value.constant and value.extents is None and not value.roots:
                value.roots = roots
        return outputs

    def convert_constant(self, ctx: NodeContext, function, body, inputs: list[Value | None]) -> list[Any]:
        """A node of constants: evaluated now; where weights are among them, compiled, and evaluated if ever asked for."""
        node = ctx.node
        tainted = any(v is not None and v.weight for v in inputs)
        can_fold = fold.foldable(node)
        if tainted:  # the weights' arrays are not touched unless somebody asks
            can_fold = can_fold and sum(v.elements for v in inputs if v is not None) <= fold.LIMIT
            arrays = []
        else:
            arrays = [None if v is None else v.array for v in inputs]
            can_fold = can_fold and not fold.too_big(node, arrays)
        if can_fold and not tainted:
            try:
                results = fold.evaluate(node, arrays, ctx.opset)
                if all(isinstance(r, np.ndarray) for r in results):
                    small = sum(r.nbytes for r in results) <= LITERAL_LIMIT
                    values = [constant_value(name, r) for name, r in zip(node.output, results)]
                    if small or any(v.type is None for v in values):
                        return values
            except ValueError:
                can_fold = False
        try:
            outputs = self.convert_plain(ctx, function, body)
        except Unsupported:
            if not can_fold:
                raise
            return [
                constant_value(name, r, weight=tainted or r.nbytes > LITERAL_LIMIT)
                for name, r in zip(node.output, fold.evaluate_values(node, inputs, ctx.opset))
            ]
        if can_fold:
            attach_thunks(outputs, node, inputs, ctx.opset)
        return outputs

    def no_converter(self, node, domain: str, opset: int) -> Unsupported:
        if domain == MICROSOFT:
            return Unsupported("there is no converter for this operator of onnxruntime's")
        if domain == "com.microsoft.nchwc":  # layouts for the machine that it was optimised on
            return Unsupported(
                "a blocked layout of onnxruntime's (ORT_ENABLE_ALL); save the model at ORT_ENABLE_EXTENDED instead"
            )
        if domain not in ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"):
            return Unsupported(f"no operators of domain {domain!r} are supported")
        try:
            onnx.defs.get_schema(node.op_type, opset or 1, domain)
        except onnx.defs.SchemaError:
            return Unsupported(f"ONNX has no such operator in opset {opset}")
        return Unsupported("there is no converter for this operator")

    # --- Emission ---

    def emit(self, op_name: str, args: Sequence[Value], attrs: dict[str, Any]) -> Any:
        made = self.builder.op(op_name, *(self.materialise(a) for a in args), **attrs)
        return tuple(Value("", var=v) for v in made) if isinstance(made, tuple) else Value("", var=made)

    def materialise(self, value: Value) -> Var:
        """The value as an operand: its Var, or a constant made now."""
        if value.var is not None:
            return value.var
        if value.extents is not None and not value.constant:
            data = self.extents_as_data(value.extents)
            value.var = data if value.dtype == "i64" else self.builder.op("cast", data, dtype=value.dtype)
            return value.var
        if value.type is None:
            raise Unsupported(f"{value.name!r} is {value.array.dtype}, a dtype that the IR lacks")
        array = value.array
        if value.weight or array.nbytes > LITERAL_LIMIT:
            value.var = self.builder.weight(array, value.name)
        else:
            value.var = self.builder.literal(array, name=value.name)
        return value.var

    def extents_as_data(self, extents: np.ndarray) -> Var:
        """A tensor of numbers that a run alone knows."""
        parts = [self.builder.extent(d) for d in extents.reshape(-1)]
        flat = parts[0] if len(parts) == 1 else self.builder.op("concat", *parts, axis=0)
        return flat if extents.ndim == 1 else self.builder.op("reshape", flat, shape=list(extents.shape))


def attach_thunks(outputs: list[Any], node, inputs: list[Value | None], opset: int) -> None:
    """Lets outputs that were compiled also be read as compile-time values, at the cost of evaluating the node."""
    cache: list[list[np.ndarray]] = []

    def result(i: int) -> np.ndarray:
        if not cache:
            cache.append(fold.evaluate_values(node, inputs, opset))
        return cache[0][i]

    for i, value in enumerate(outputs):
        if isinstance(value, Value) and not value.constant and value.extents is None:
            value._thunk = lambda i=i: result(i)
            value.weight = any(v is not None and v.weight for v in inputs)


__all__ = ["AbsentValue", "GraphImporter", "SequenceValue", "node_label"]
