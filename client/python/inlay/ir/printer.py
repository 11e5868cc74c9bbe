"""Text form of a module, for people; nothing parses it."""

from __future__ import annotations

from inlay._proto import ir_pb2
from inlay.ir.attrs import decode_attr
from inlay.ir.types import TensorType


def print_type(type_: ir_pb2.Type) -> str:
    kind = type_.WhichOneof("kind")
    if kind == "tensor":
        return str(TensorType.from_proto(type_.tensor))
    if kind == "tuple":
        return "(" + ", ".join(print_type(f) for f in type_.tuple.fields) + ")"
    return "?"


def print_module(module: ir_pb2.IRModule) -> str:
    """The whole module: constants that are used, then each function."""
    lines: list[str] = []
    for name in sorted(module.attrs):
        lines.append(f"attr {name} = {decode_attr(module.attrs[name])!r}")
    for i, constant in enumerate(module.constants):
        kind = constant.WhichOneof("value")
        value = f"weight {constant.digest.hex()[:12]}" if kind == "digest" else f"literal {len(constant.literal)} bytes"
        lines.append(f"c{i}: {TensorType.from_proto(constant.type)} = {value}  # {constant.name}")
    for name in sorted(module.functions):
        lines += _function(name, module.functions[name])
    return "\n".join(lines) + "\n"


def _function(name: str, function: ir_pb2.Function) -> list[str]:
    params = ", ".join(f"%{i} {function.vars[i].name}: {print_type(function.vars[i].type)}" for i in function.params)
    attrs = ", ".join(f"{k}={decode_attr(function.attrs[k])!r}" for k in sorted(function.attrs))
    lines = [f"def {name}({params}) " + (f"{{{attrs}}} " if attrs else "") + "{"]
    lines += _block(function, function.body, 1)
    return lines + ["}"]


def _block(function: ir_pb2.Function, block: ir_pb2.Block, depth: int) -> list[str]:
    pad = "  " * depth
    lines = []
    for b in block.bindings:
        kind = b.WhichOneof("expr")
        args = ", ".join(_operand(a) for a in b.args)
        attrs = "".join(f", {k}={decode_attr(b.attrs[k])!r}" for k in sorted(b.attrs))
        if kind == "call":
            text = f"{b.call.op}({args}{attrs})"
        elif kind == "call_function":
            text = f"@{b.call_function.function}({args})"
        elif kind == "call_packed":
            text = f"call_packed<{b.call_packed.name}>({args})"
        elif kind == "tuple":
            text = f"({args})"
        elif kind == "tuple_get_item":
            text = f"{args}[{b.tuple_get_item.index}]"
        else:
            text = f"if {args}"
        type_ = function.vars[b.var].type
        shown = f": {print_type(type_)}" if type_.WhichOneof("kind") else ""
        where = f"  # {b.location}" if b.location else ""
        lines.append(f"{pad}%{b.var}{shown} = {text}{where}")
        if kind == "if_":
            lines += [pad + "then:"] + _block(function, b.if_.then_block, depth + 1)
            lines += [pad + "else:"] + _block(function, b.if_.else_block, depth + 1)
    lines.append(pad + "return " + ", ".join(_operand(r) for r in block.results))
    return lines


def _operand(operand: ir_pb2.Operand) -> str:
    return f"%{operand.var}" if operand.WhichOneof("kind") == "var" else f"c{operand.constant}"
