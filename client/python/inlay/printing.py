"""What the CLI shows to people: the progress bar (on a terminal only), reports and tables. Goes to stdout, progress to
stderr."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from inlay import bounds
from inlay.library import Manifest
from inlay.runtime import TensorSpec

_PHASES = {
    "upload": "uploading weights",
    "queued": "waiting",
    "normalise": "simplifying",
    "partition": "partitioning",
    "compile": "compiling",
    "plan": "planning",
    "link": "linking",
}


class CompileProgress:
    """A progress callback for `build`: a bar on stderr where that is a terminal, silent elsewhere."""

    def __init__(self, enabled: bool = True):
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if enabled and console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, phase: str, done: int, total: int, detail: str) -> None:
        if self._bar is None:
            return
        if phase == "upload":
            done, total, detail = done >> 20, total >> 20, "MiB"
        text = f"{_PHASES.get(phase, phase)} {escape(detail[:40])}".strip()
        self._bar.update(self._task, description=text, completed=done, total=total or None)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, overflow="fold", justify="left" if index == 0 else "default")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console = Console()
    # Into a file or a pipe, a line is a row, however wide.
    if not console.is_terminal:
        console = Console(width=1000)
    console.print(table)


def print_report(result: dict[str, Any]) -> None:
    """What `inlay compile` says: a line for the whole, a line for each partition."""
    partitions = result["partitions"]
    hits = sum(p["cache"] == "hit" for p in partitions)
    backends = Counter(p["backend"] for p in partitions)
    print_table(
        ["partition", "backend", "calls", "cache", "ms", "ops", "why"],
        [
            [
                p["name"],
                p["backend"],
                str(p["call_sites"]),
                p["cache"],
                f"{p['compile_ms']:.0f}",
                ops_in_words(p["ops"]),
                p["miss_reason"] or p["why"],
            ]
            for p in partitions
        ],
    )
    console = Console()
    mix = ", ".join(f"{count} {name}" for name, count in backends.most_common())
    console.print(
        f"{len(partitions)} partitions ({mix}), {hits} from the cache, {result['actions_run']} compiled; "
        f"server {result['server_ms']:.1f} ms, all {result['build_ms'] + result['import_ms'] + result['export_ms']:.0f} ms",
        highlight=False,
        soft_wrap=True,
    )
    if result["output"]:
        console.print(f"wrote {escape(result['output'])}", highlight=False, soft_wrap=True)


def print_manifest(path: str, manifest: Manifest, problems: Sequence[str]) -> None:
    def text(spec: TensorSpec) -> str:
        return f"{spec[0]}: {spec[1]}[{', '.join(map(str, spec[2]))}]"

    rows = [["input", text(s)] for s in manifest.inputs]
    for spec, updated in zip(manifest.outputs, manifest.updates, strict=True):
        rows.append(
            ["output", text(spec) + (f", written to input {manifest.inputs[updated][0]}" if updated >= 0 else "")]
        )
    rows += [["bounds", line] for line in bounds.in_words(manifest.required_extents)]
    rows.append(["target", f"{manifest.target_triple} {manifest.target_cpu}"])
    for needed in manifest.required_libraries:
        functions = f", {len(needed.functions)} functions" if needed.functions else ""
        rows.append(["needs", f"{needed.who}: {needed.package}{functions}"])
    rows.append(["compatibility", manifest.compatibility])
    rows += [["does not run here", problem] for problem in problems] or [["runs here", "yes"]]
    print_table([path, ""], rows)


def ops_in_words(ops: Sequence[str]) -> str:
    counts = Counter(ops)
    words = [name if count == 1 else f"{count} {name}" for name, count in counts.items()]
    return ", ".join(words[:6]) + (f", {len(words) - 6} more" if len(words) > 6 else "")
