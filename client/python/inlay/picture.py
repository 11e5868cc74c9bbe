"""A compiled model as a picture: its calls, coloured by backend, and the tensors between them. Drawn by Graphviz."""

from __future__ import annotations

import pathlib
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from inlay.errors import InlayError
from inlay.printing import ops_in_words

# Told apart by people who see few colours too (Okabe and Ito, lightened); a backend has its colour in every picture.
_COLOURS = {
    "native": "#bfe3d4",
    "onednn": "#ffd9a3",
    "xnnpack": "#bcd9ee",
    "libxsmm": "#f4c6de",
    "openblas": "#f9f2a7",
    "csource": "#e4b9a6",
}
_MORE_COLOURS = ("#d5c8ea", "#c9cfb0", "#b5dfe6", "#e8c9b8")
_NO_BACKEND = "#eeeeee"
_LEGEND_WIDTH = 60  # characters
_MANY_CALLS = 150  # from here on, tensors' shapes are shown on hovering alone


def write_svg(plan: dict[str, Any], path: pathlib.Path, title: str, unusable: Sequence[str] = ()) -> None:
    """Writes the SVG. `unusable`: lines for the legend, of the backends that could not serve. Raises InlayError where
    Graphviz is not there."""
    try:
        import graphviz
    except ImportError:
        raise InlayError("pictures need Graphviz: pip install graphviz, apt-get install graphviz") from None
    graph = make_graph(plan, title, unusable)
    try:
        svg = graph.pipe(format="svg")
    except graphviz.ExecutableNotFound:
        raise InlayError("pictures need Graphviz's program dot: apt-get install graphviz") from None
    except graphviz.CalledProcessError as error:
        raise InlayError(f"Graphviz: {error.stderr.decode(errors='replace').strip()[:300]}") from None
    path.write_bytes(svg)


def make_graph(plan: dict[str, Any], title: str, unusable: Sequence[str] = ()) -> Any:
    """A graphviz.Digraph: a box a call (one for all parts of a batch that goes through it in parts), an oval an input or
    output, an edge for each use of a tensor."""
    import graphviz

    run, buffers = plan["run"], plan["buffers"]
    many = sum(_part(step)[0] == 0 for step in run) > _MANY_CALLS
    graph = graphviz.Digraph(
        graph_attr={"label": title, "labelloc": "t", "fontname": "Helvetica", "fontsize": "20", "ranksep": "0.35"},
        node_attr={"shape": "box", "style": "filled,rounded", "fontname": "Helvetica", "fontsize": "11"},
        edge_attr={"fontname": "Helvetica", "fontsize": "9", "color": "#555555", "arrowsize": "0.6"},
    )
    # By where a tensor lies (the first part of a batch where its whole does): who made what is there.
    maker: dict[tuple[str, int], str] = {}
    types: dict[tuple[str, int], str] = {}
    for buffer in buffers:
        place = _place(buffer)
        if buffer[0] == "input" and place not in maker:
            tensor = plan["inputs"][buffer[1]]
            maker[place] = f"input{buffer[1]}"
            types[place] = _shape(tensor)
            label = graphviz.escape(f"{tensor['name']}\n{_shape(tensor)}")
            graph.node(maker[place], label, shape="ellipse", fillcolor="white")
    seen: Counter[str] = Counter()
    for number, step in enumerate(run):
        part, parts = _part(step)
        if part > 0:
            continue  # drawn with the first
        node = f"call{number}"
        info = plan["functions"][step["function"]].get("info", {}) if "function" in step else {}
        backend = info.get("backend", "") or "executor"
        seen[backend] += 1
        inputs, outputs = _arguments(plan, step)
        step_types = dict(zip(step["args"], [_plain(t) for t in info.get("types", [])], strict=False))
        weights = [buffers[a][2] for a in inputs if a >= 0 and buffers[a][0] in ("param", "literal", "constant")]
        weights += [0] * sum(a < 0 for a in inputs)  # packed when the model was loaded
        lines = [
            ops_in_words(info.get("ops", [])) or "copy",
            f"{backend}" + (f" · {len(weights)} constant" if weights else ""),
        ]
        if parts > 1:
            lines.append(f"{parts} times, a part of the batch each")
        tooltip = f"{step.get('name', '')}\n{', '.join(info.get('ops', []))}"
        graph.node(node, graphviz.escape("\n".join(lines)), fillcolor=colour(backend), tooltip=graphviz.escape(tooltip))
        for argument in dict.fromkeys(inputs):
            if argument < 0:
                continue
            place = _place(buffers[argument])
            if place in maker:
                _edge(graph, maker[place], node, step_types.get(argument) or types[place], many)
        for argument in outputs:
            maker[_place(buffers[argument])] = node
            types[_place(buffers[argument])] = step_types.get(argument, "")
            if buffers[argument][0] == "output":
                tensor = plan["outputs"][buffers[argument][1]]
                end = f"output{buffers[argument][1]}"
                graph.node(end, graphviz.escape(tensor["name"]), shape="ellipse", fillcolor="white")
                _edge(graph, node, end, _shape(tensor), many)
    legend = [f"{name}: {count} calls" for name, count in seen.most_common()]
    legend += [part for line in unusable for part in textwrap.wrap(line, _LEGEND_WIDTH)]
    graph.node("legend", graphviz.escape("\n".join(legend)), shape="note", fillcolor="white", style="filled")
    return graph


def colour(backend: str) -> str:
    if backend == "executor":
        return _NO_BACKEND
    return _COLOURS.get(backend) or _MORE_COLOURS[sum(backend.encode()) % len(_MORE_COLOURS)]


def _arguments(plan: dict[str, Any], step: dict[str, Any]) -> tuple[list[int], list[int]]:
    count = plan["functions"][step["function"]]["inputs"] if "function" in step else 1
    return step["args"][:count], step["args"][count:]


def _part(step: dict[str, Any]) -> tuple[int, int]:
    """Which of how many parts of a batch it is for."""
    part, parts = step.get("part", (0, 1))
    return part, parts


def _place(buffer: list[Any]) -> tuple[str, int]:
    return buffer[0], buffer[1]


def _edge(graph: Any, start: str, end: str, shape: str, many: bool) -> None:
    if many:
        graph.edge(start, end, edgetooltip=shape)
    else:
        graph.edge(start, end, label=f" {shape}")


def _shape(tensor: dict[str, Any]) -> str:
    return _plain(f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]")


def _plain(text: str) -> str:
    """ "f32[1, 3, 224]" as "1x3x224", other dtypes with their name."""
    dtype, _, dims = text.partition("[")
    dims = dims.rstrip("]").replace(", ", "x") or "scalar"
    return dims if dtype == "f32" else f"{dtype} {dims}"
