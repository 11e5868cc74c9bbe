"""If, Loop, Scan. A condition known at compile time picks a branch; loops of a known number of turns are unrolled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

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


@converter("Loop")
def loop(ctx: NodeContext) -> tuple:
    body = ctx.required("body")
    name = ctx.node.name or ctx.node.output[0]
    most = int(ctx.const(0, "the trip count").reshape(-1)[0]) if ctx.has(0) else None
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
