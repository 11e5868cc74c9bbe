"""What `inlay bench` found, as one JSON-able object, as tables for people, and as the README's Markdown."""

from __future__ import annotations

import datetime
import math
import pathlib
import platform
from collections.abc import Callable, Sequence
from typing import Any

from inlay.printing import ops_in_words

Row = dict[str, Any]


def summary(rows: list[Row], peers: Sequence[str], settings: Any) -> dict[str, Any]:
    """The whole run: where, when, with what; rows; geometric means over the models that each peer ran."""
    versions: dict[str, str] = {}
    for row in rows:
        versions |= row.get("versions", {})
    good = [row for row in rows if "error" not in row]
    means = {peer: _mean(row["runners"].get(peer, {}).get("ratio") for row in good) for peer in peers}
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpu": cpu_model(),
        "cores": len(settings.cores),
        "threads": settings.config.num_threads,
        "precision": "f32, products in bf16" if settings.config.mixed_precision else "f32",
        "rounds": settings.rounds,
        "target": ", ".join(str(t) for t in settings.config.targets),
        "peers": list(peers),
        "versions": versions,
        "geometric_means": {peer: mean for peer, mean in means.items() if mean is not None},
        "best_geometric_mean": _mean(row.get("best_ratio") for row in good),
        "models": rows,
    }


def cpu_model() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _mean(ratios) -> float | None:
    known = [r for r in ratios if r]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def heading(result: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    return (
        f"{result['date']}, {result['cpu']}, {result['threads']} thread(s), {result['precision']}, {result['target']}; {versions}; "
        f"{result['rounds']} interleaved rounds, a process each, median ± half of p10..p90 in ms; "
        "ratio above 1: inlay is faster; errors against onnxruntime"
    )


def _time(cell: Row | None) -> str:
    if cell is None:
        return "-"
    if "median_ms" not in cell:
        return _short(cell.get("error", "-"))
    spread = (cell["p90_ms"] - cell["p10_ms"]) / 2
    # Three figures of the time, and of the spread no more places than that.
    places = max(0, 2 - math.floor(math.log10(max(cell["median_ms"], 1e-3))))
    return f"{cell['median_ms']:.{places}f} ±{spread:.{places}f}"


def _short(error: str) -> str:
    return "not installed" if error.startswith("not installed") else "fails"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x"


def latency(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of the main table; the last row has the geometric means."""
    columns = [
        "model",
        "inlay ms",
        *(f"{peer} ms" for peer in result["peers"]),
        "best peer / inlay",
        "backends (calls)",
    ]
    table = []
    for row in _good(result):
        cells = [row["model"], _time(row["runners"]["inlay"])]
        for peer in result["peers"]:
            cell = row["runners"].get(peer)
            text = _time(cell)
            cells.append(f"{text} ({_ratio(cell['ratio'])})" if cell and "ratio" in cell else text)
        backends = ", ".join(f"{n} {c}" for n, c in row["backends"].items())
        table.append([*cells, _ratio(row.get("best_ratio")), backends])
    means = [_ratio(result["geometric_means"].get(peer)) for peer in result["peers"]]
    if len(table) > 1:
        table.append(["geometric mean", "", *means, _ratio(result["best_geometric_mean"]), ""])
    return columns, table


def progress(row: Row, done: int, of: int) -> str:
    """A line for a model that is done, long before the tables."""
    if "error" in row:
        return f"{done} of {of}: {row['model']}: {row['error']}"
    ratio = f", {row['best_peer']} {_ratio(row['best_ratio'])}" if "best_ratio" in row else ""
    return f"{done} of {of}: {row['model']} {_time(row['runners']['inlay'])} ms{ratio}"


def compiling(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Seconds to compile, cold and cached, and the largest errors."""
    peers = result["peers"]
    columns = ["model", "inlay cold s", "cached s", *(f"{peer} cold / again s" for peer in peers)]
    columns += ["inlay max error (relative)", *(f"{peer} max error" for peer in peers)]
    table = []
    for row in _good(result):
        cells = [row["model"], _seconds(row.get("compile_cold_s")), _seconds(row["compile_cached_s"])]
        runners = [row["runners"].get(peer, {}) for peer in peers]
        for cell in runners:
            both = (_seconds(cell.get("prepare_cold_s")), _seconds(cell.get("prepare_cached_s")))
            cells.append(" / ".join(both) if both != ("-", "-") else "-")
        ours = row["runners"]["inlay"]
        known = "max_abs_error" in ours  # of a saved module there is no reference
        cells.append(f"{ours['max_abs_error']:.1e} ({ours['max_rel_error']:.1e})" if known else "-")
        cells += [f"{c['max_abs_error']:.1e}" if "max_abs_error" in c else "-" for c in runners]
        table.append(cells)
    return columns, table


def plans(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The mix beside every single-backend plan; empty where none were run. ratio above 1: the mix is faster. A plan with
    the mix's own library ("is_mix") was not timed."""
    names: list[str] = []
    for row in _good(result):
        names += [n for n in row["runners"] if n != "inlay" and n not in result["peers"] and n not in names]
    table = []
    for row in _good(result):
        cells = [row["model"], _time(row["runners"]["inlay"])]
        known = []
        for name in names:
            cell = row["runners"].get(name)
            text = _time(cell)
            if cell and "ratio" in cell:
                text += f" ({_ratio(cell['ratio'])})"
                known.append(cell["ratio"])
            elif cell and "is_mix" in cell:
                text = "is the mix"
                known.append(1.0)
            cells.append(text)
        table.append([*cells, _ratio(min(known, default=None))])
    return ["model", "mix ms", *(f"{n} ms" for n in names), "best of them / mix"], table if names else []


def profiles(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Every partition of the mix: its time, and how far it is from what the machine can do. LOW: a shortfall."""
    columns = ["model", "partition's ops", "backend", "calls", "us/call", "share", "of roofline"]
    table = []
    for row in _good(result):
        profile = row.get("profile")
        if profile is None:
            continue
        for p in profile["partitions"]:
            low = " LOW" if p["low"] else ""
            times = [str(p["calls"]), f"{p['us']:.1f}", f"{p['share']:.1%}", f"{p['roofline_share']:.0%}{low}"]
            table.append([row["model"], ops_in_words(p["ops"]), p["backend"], *times])
        whole = f"{profile['roofline_share']:.0%}; {profile['low']:.1%} of the time LOW"
        table.append([row["model"], "all", "", "", f"{profile['total_us']:.1f}", "", whole])
    return columns, table


def _good(result: dict[str, Any]) -> list[Row]:
    return [row for row in result["models"] if "error" not in row]


def failures(result: dict[str, Any]) -> list[str]:
    """One line for each thing that did not work, once each."""
    lines = []
    for row in result["models"]:
        if "error" in row:
            lines.append(f"{row['model']}: {row['error']}")
        for name, cell in row.get("runners", {}).items():
            if "error" in cell:
                where = "" if cell["error"].startswith("not installed") else f" on {row['model']}"
                lines.append(f"{name}{where}: {cell['error']}")
    return list(dict.fromkeys(lines))


def render(result: dict[str, Any], table: Callable[[list[str], list[list[str]]], None]) -> None:
    """Prints everything, by a function that prints one table."""
    parts = [latency(result), compiling(result), plans(result), profiles(result)]
    for columns, rows in parts:
        if rows:
            table(columns, rows)
            print()
    details = [f"{row['model']}: {row['detail']}" for row in result["models"] if "detail" in row]
    for line in [*([heading(result)] if _good(result) else []), *details, *failures(result)]:
        print(line)


def print_markdown_table(columns: list[str], rows: list[list[str]]) -> None:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    print(line(columns))
    print("|" + " --- |" * len(columns))
    for row in rows:
        print(line(row))
