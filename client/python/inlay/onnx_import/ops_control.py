"""If, Loop, Scan. A condition known at compile time picks a branch; loops of a known number of turns are unrolled.

What is not known then is left to the run where the executor is vm (`run_time_if`, `run_time_loop`); for the others both
branches of an If are computed and a Loop is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from inlay.ir import Var
from inlay.ir.builder import FunctionBuilder
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Poisoned, PoisonValue, Unsupported, Value, constant_value

_TURNS = 1024


def run_graph(ctx: NodeContext, graph: onnx.GraphProto, bound: dict[str, Any], label: str) -> list[Any]:
    """Converts a sub-graph inside the node's scope; the values of its outputs."""
    importer = ctx.graph
    scope = {**ctx.scope, **bound}
    importer.add_initializers(graph, scope)
    known = len(importer.problems)
    importer.prefix.append(label)
    try:
        importer.run_nodes(graph.node, scope, importer.opsets)
        outputs = [importer.lookup(scope, o.name, None) for o in graph.output]
    finally:
        importer.prefix.pop()
    if len(importer.problems) > known or any(isinstance(v, PoisonValue) for v in outputs):
        raise Poisoned(label)
    return outputs


@converter("If")
def if_(ctx: NodeContext) -> tuple:
    """A condition that is only known at run time: both branches are computed, and every result is chosen."""
    name = ctx.node.name or ctx.node.output[0]
    then, otherwise = ctx.required("then_branch"), ctx.required("else_branch")
    condition = ctx[0]
    if condition.constant:
        taken = bool(condition.array.reshape(-1)[0])
        return tuple(run_graph(ctx, then if taken else otherwise, {}, f"{name}/{'then' if taken else 'else'}"))
    if ctx.graph.control_flow:
        return run_time_if(ctx, condition, then, otherwise, name)
    left, right = run_graph(ctx, then, {}, f"{name}/then"), run_graph(ctx, otherwise, {}, f"{name}/else")
    if len(left) != len(right):
        raise Unsupported("the branches have different numbers of results")
    chooser = ctx.reshape(condition, [])
    results = []
    for a, b in zip(left, right):
        if not isinstance(a, Value) or not isinstance(b, Value) or a.shape != b.shape or a.dtype != b.dtype:
            raise Unsupported("the branches' results differ in type and the condition is not known", condition.roots)
        results.append(ctx.op("where", chooser, a, b))
    return tuple(results)


def _known_bool(value: Value, what: str) -> bool:
    if not value.constant:
        raise Unsupported(f"{what} is not known at compile time", value.roots)
    return bool(value.array.reshape(-1)[0])


def _stacked(ctx: NodeContext, items: list[Value], axis: int, empty: onnx.ValueInfoProto) -> Value:
    if not items:
        return constant_value("", _empty(empty))
    parts = []
    for item in items:
        rank = item.rank + 1
        at = axis + rank if axis < 0 else axis
        parts.append(ctx.reshape(item, [*item.shape[:at], 1, *item.shape[at:]]))
    at = axis + parts[0].rank if axis < 0 else axis
    return parts[0] if len(parts) == 1 else ctx.op("concat", *parts, axis=at)


def _empty(info: onnx.ValueInfoProto) -> np.ndarray:
    """No turns: the scan output has extent 0 and the declared extents of a turn."""
    tensor = info.type.tensor_type
    extents = [d.dim_value for d in tensor.shape.dim]
    if (
        not tensor.elem_type
        or not tensor.HasField("shape")
        or any(d.WhichOneof("value") != "dim_value" for d in tensor.shape.dim)
    ):
        raise Unsupported("a loop without turns whose results have no declared shape")
    return np.zeros([0, *extents], onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))


def _operands(ctx: NodeContext, values: list[Any]) -> list[Var]:
    for value in values:
        if not isinstance(value, Value):
            raise Unsupported("a sequence or an optional leaves a branch or a loop's turn")
    return [ctx.graph.materialise(value) for value in values]


def run_time_if(ctx: NodeContext, condition: Value, then: onnx.GraphProto, otherwise: onnx.GraphProto, name: str):
    types = []

    def branch(graph: onnx.GraphProto, label: str) -> list[Var]:
        results = _operands(ctx, run_graph(ctx, graph, {}, f"{name}/{label}"))
        types.append([r.type for r in results])
        if types[-1] != types[0]:
            raise Unsupported(f"the branches give {types[0]} and {types[1]}; their results' types must not differ")
        return results

    (chooser,) = _operands(ctx, [ctx.reshape(condition, [])])
    made = ctx.graph.builder.if_(chooser, lambda: branch(then, "then"), lambda: branch(otherwise, "else"))
    return tuple(Value("", var=var) for var in made)


def _names_in(graph: onnx.GraphProto) -> set[str]:
    """All that its nodes and those of its sub-graphs read, and what it returns."""
    names = {o.name for o in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                names |= _names_in(inner)
    return names


def _everywhere(value: Value) -> bool:
    """Whether it is a constant, which every function may use (and none that an operator of this one makes)."""
    return value.constant and (value.var is None or value.var.constant)


def _captured(ctx: NodeContext, body: onnx.GraphProto) -> dict[str, Value]:
    """Values of the enclosing graphs that the body reads and that only the run knows."""
    inputs = {i.name for i in body.input}
    found = {}
    for name in sorted(_names_in(body) - inputs):
        value = ctx.scope.get(name)
        if value is None or (isinstance(value, Value) and _everywhere(value)):
            continue
        if isinstance(value, PoisonValue):
            raise Poisoned(name)
        if not isinstance(value, Value):
            raise Unsupported(f"the loop reads {name!r}, a sequence or an optional")
        found[name] = value
    return found


def run_time_loop(ctx: NodeContext, body: onnx.GraphProto, name: str) -> tuple:
    """A while over (going, turn, carried...); the trip count and what the body reads from outside do not change."""
    importer = ctx.graph
    carried = [ctx.any(i) for i in range(2, len(ctx))]
    if len(body.output) != 1 + len(carried):
        raise Unsupported("a loop that stacks results (scan outputs) and whose number of turns is not known")
    most = ctx[0] if ctx.has(0) else None
    zero, one = ctx.literal(0, "i64"), ctx.literal(1, "i64")

    def goes_on(condition: Value, turn: Value, limit: Value | None) -> Value:
        going = ctx.reshape(condition, [])
        if limit is None:
            return going
        return ctx.op("logical_and", going, ctx.op("less", turn, ctx.reshape(limit, [])))

    captured = _captured(ctx, body)
    fixed = list(captured.values()) + ([most] if most is not None and not _everywhere(most) else [])
    start = goes_on(ctx[1] if ctx.has(1) else ctx.literal(True, "bool"), zero, most)
    state = [start, zero, *carried]

    def write(inner: FunctionBuilder, going: Var, turn: Var, *rest: Var) -> list[Var]:
        values = [Value("", var=var) for var in rest]
        known = dict(zip(captured, values[len(carried) :]))
        limit = most if most is None or _everywhere(most) else values[-1]
        names = [i.name for i in body.input]
        bound = dict(zip(names, [Value("", var=turn), ctx.literal(True, "bool"), *values[: len(carried)]]))
        outer, importer.builder = importer.builder, inner
        try:
            condition, *outputs = run_graph(ctx, body, {**known, **bound}, f"{name}[]")
            if not isinstance(condition, Value):
                raise Unsupported("the loop's condition is not a tensor")
            following = ctx.op("add", Value("", var=turn), one)
            return _operands(ctx, [goes_on(condition, following, limit), following, *outputs])
        finally:
            importer.builder = outer

    made = importer.builder.while_(f"{name}.body", write, _operands(ctx, state), _operands(ctx, fixed))
    return tuple(Value("", var=var) for var in made[2:])


@converter("Loop")
def loop(ctx: NodeContext) -> tuple:
    body = ctx.required("body")
    name = ctx.node.name or ctx.node.output[0]
    if not ctx.graph.control_flow:
        try:
            return unrolled_loop(ctx, body, name)
        except Unsupported as error:
            raise Unsupported(f"{error} (executor vm can leave it to the run)", error.needs) from None
    if (ctx.has(0) and not ctx[0].constant) or (ctx.has(1) and not ctx[1].constant):
        return run_time_loop(ctx, body, name)
    try:
        return unrolled_loop(ctx, body, name)
    except Unsupported:  # its turns are not known after all, or too many
        return run_time_loop(ctx, body, name)


def unrolled_loop(ctx: NodeContext, body: onnx.GraphProto, name: str) -> tuple:
    most = int(ctx.const(0, "the trip count").reshape(-1)[0]) if ctx.has(0) else None
    if ctx.graph.control_flow and (most is None or most > _TURNS):
        raise Unsupported("better not unrolled")
    going = _known_bool(ctx[1], "the loop's condition") if ctx.has(1) else True
    carried: list[Any] = [ctx.any(i) for i in range(2, len(ctx))]
    scans: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    turn = 0
    while going and (most is None or turn < most):
        if turn >= _TURNS:
            raise Unsupported(f"a loop of more than {_TURNS} turns")
        names = [i.name for i in body.input]
        bound = dict(zip(names, [constant_value("", np.asarray(turn, np.int64)), constant_value("", np.asarray(True)),
                                 *carried]))  # fmt: skip
        condition, *outputs = run_graph(ctx, body, bound, f"{name}[{turn}]")
        carried = outputs[: len(carried)]
        for items, value in zip(scans, outputs[len(carried) :]):
            items.append(value)
        going = _known_bool(condition, "the loop's condition")
        turn += 1
    infos = body.output[1 + len(carried) :]
    return (*carried, *(_stacked(ctx, items, 0, info) for items, info in zip(scans, infos)))


@converter("Scan")
def scan_8(ctx: NodeContext) -> tuple:
    raise Unsupported("Scan of opset 8")


@converter("Scan", since=9)
def scan(ctx: NodeContext) -> tuple:
    body, count = ctx.required("body"), ctx.required("num_scan_inputs")
    name = ctx.node.name or ctx.node.output[0]
    states: list[Any] = [ctx.any(i) for i in range(len(ctx) - count)]
    inputs = [ctx[i] for i in range(len(ctx) - count, len(ctx))]
    results = len(body.output) - len(states)
    axes = ctx.attr("scan_input_axes") or [0] * count
    directions = ctx.attr("scan_input_directions") or [0] * count
    out_axes = ctx.attr("scan_output_axes") or [0] * results
    out_directions = ctx.attr("scan_output_directions") or [0] * results
    turns = {ctx.static_shape(x, "Scan")[ctx.axis(a, x.rank)] for x, a in zip(inputs, axes)}
    if len(turns) != 1:
        raise Unsupported(f"scan inputs of different lengths {sorted(turns)}")
    (length,) = turns
    if length > _TURNS:
        raise Unsupported(f"a scan of more than {_TURNS} turns")
    scans: list[list[Value]] = [[] for _ in range(results)]
    for turn in range(length):
        parts = [
            _part(ctx, x, ctx.axis(a, x.rank), length - 1 - turn if d else turn)
            for x, a, d in zip(inputs, axes, directions)
        ]
        bound = dict(zip([i.name for i in body.input], [*states, *parts]))
        outputs = run_graph(ctx, body, bound, f"{name}[{turn}]")
        states = outputs[: len(states)]
        for items, value in zip(scans, outputs[len(states) :]):
            items.append(value)
    scans = [items[::-1] if d else items for items, d in zip(scans, out_directions)]
    infos = body.output[len(states) :]
    return (*states, *(_stacked(ctx, i, a, info) for i, a, info in zip(scans, out_axes, infos)))


def _part(ctx: NodeContext, x: Value, axis: int, at: int) -> Value:
    begins, ends = [0] * x.rank, [2**62] * x.rank
    begins[axis], ends[axis] = at, at + 1
    part = ctx.op("slice", x, begins=begins, ends=ends, steps=[1] * x.rank)
    return ctx.reshape(part, [d for i, d in enumerate(x.shape) if i != axis])
