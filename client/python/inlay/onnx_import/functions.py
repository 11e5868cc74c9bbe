"""Function bodies: those of ONNX's own schemas, and those that a model brings (torch's exporter does)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import onnx
import onnx.defs

from inlay.onnx_import.value import AbsentValue, Poisoned, PoisonValue, SequenceValue, Unsupported, Value

if TYPE_CHECKING:
    from inlay.onnx_import.importer import GraphImporter
    from inlay.onnx_import.registry import NodeContext

_DEPTH = 64


class UseBody(Exception):
    """Raised by a converter for a form that the schema's function body covers."""


def body_of(graph: GraphImporter, node, domain: str, opset: int, inputs: list[Any]) -> onnx.FunctionProto | None:
    """The body of a model-local function, or of the operator's schema; None where there is none."""
    local = graph.local_functions.get((node.domain, node.op_type))
    if local is not None:
        return local
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset or 1, domain)  # onnx's stubs lack half of it
    except onnx.defs.SchemaError:
        return None
    if any(isinstance(v, PoisonValue) for v in inputs):
        has_body = schema.has_function or schema.has_context_dependent_function
        return onnx.FunctionProto() if has_body else None  # only asked whether there is one
    if schema.has_function:
        for version in sorted(schema.function_opset_versions, reverse=True):
            if version <= opset:
                return _proto(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        types = [_type_proto(v).SerializeToString() for v in inputs]
        for version in sorted(schema.context_dependent_function_opset_versions, reverse=True):
            if version <= opset:
                made = schema.get_context_dependent_function_with_opset_version(
                    version, node.SerializeToString(), types
                )
                proto = _proto(made)
                return proto if len(proto.node) else None
    return None


def _proto(made) -> onnx.FunctionProto:
    if isinstance(made, bytes):
        proto = onnx.FunctionProto()
        proto.ParseFromString(made)
        return proto
    return made


def _type_proto(value: Any) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if isinstance(value, SequenceValue):
        item = _type_proto(value.items[0]) if value.items else onnx.helper.make_tensor_type_proto(1, None)
        return onnx.helper.make_sequence_type_proto(item)
    if not isinstance(value, Value):
        return proto
    dtype = value.array.dtype if value.type is None else value.type.numpy
    elem = onnx.helper.np_dtype_to_tensor_dtype(dtype)
    return onnx.helper.make_tensor_type_proto(elem, list(value.shape))


def inline(graph: GraphImporter, ctx: NodeContext, body: onnx.FunctionProto) -> list[Any]:
    """Converts the body in a scope of its own; the outputs in the node's order."""
    node = ctx.node
    if len(graph.prefix) > _DEPTH:
        raise Unsupported("functions are nested too deeply")
    if len(node.input) > len(body.input):
        raise Unsupported(f"{len(node.input)} inputs for a function of {len(body.input)}")
    scope: dict[str, Any] = {name: AbsentValue(name) for name in body.input}
    for name, value in zip(body.input, ctx.inputs):
        if value is not None:
            scope[name] = value
    given = {a.name: a for a in node.attribute}
    defaults = {a.name: a for a in body.attribute_proto}
    for name, default in _schema_defaults(node, ctx.opset).items():
        defaults.setdefault(name, default)
    opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in body.opset_import}
    known = len(graph.problems)
    graph.prefix.append(node.name or node.op_type)
    try:
        nodes = [_resolved(inner, given, defaults, scope) for inner in body.node]
        graph.run_nodes(nodes, scope, {**graph.opsets, **opsets})
    finally:
        graph.prefix.pop()
    outputs = [scope.get(name) for name in body.output]
    if any(isinstance(v, PoisonValue) for v in outputs[: len(node.output)]) and len(graph.problems) > known:
        raise Poisoned(node.op_type)
    # A value may be known under the body's name; the node's own reads better in messages.
    return outputs


def _schema_defaults(node, opset: int) -> dict[str, onnx.AttributeProto]:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset or 1, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return {}
    return {
        name: attribute.default_value
        for name, attribute in schema.attributes.items()
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED
    }


def _resolved(node: onnx.NodeProto, given: dict, defaults: dict, scope: dict[str, Any]) -> onnx.NodeProto:
    """The node with references to the function's attributes filled in, and absent optional inputs left out."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    absent = {name for name, value in scope.items() if isinstance(value, AbsentValue)}
    if node.op_type != "OptionalHasElement":
        for i, name in enumerate(made.input):
            if name in absent:
                made.input[i] = ""
    while made.input and not made.input[-1]:
        made.input.pop()
    kept = []
    for attr in made.attribute:
        if attr.ref_attr_name:
            source = given.get(attr.ref_attr_name) or defaults.get(attr.ref_attr_name)
            if source is None:
                continue
            actual = onnx.AttributeProto()
            actual.CopyFrom(source)
            actual.name = attr.name
            kept.append(actual)
        else:
            for graph in [attr.g] if attr.type == onnx.AttributeProto.GRAPH else list(attr.graphs):
                for i, inner in enumerate(graph.node):
                    graph.node[i].CopyFrom(_resolved(inner, given, defaults, {}))
            kept.append(attr)
    del made.attribute[:]
    made.attribute.extend(kept)
    return made
