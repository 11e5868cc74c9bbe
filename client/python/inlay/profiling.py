"""`inlay profile`: where the time of a model goes, partition by partition, and how far each is from what the machine can do.

The library times its own steps (its function `profile`, core/artifact/FORMAT.md). What a partition has to do at the
least (arithmetic of the operators' definitions, each tensor read or written once) stands in its plan, where extents are
open as a polynomial over them; roofline.py measures what the machine can do at most. A share of the roofline above 100%
is possible: fewer operations than the definition's (Winograd), integers of 8 bits where the roofline is f32's, tensors
that stay in a nearer cache than their size promises.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections import Counter
from typing import Any

import numpy as np

from inlay import executable, library
from inlay.config import CompilationConfig
from inlay.ir import IRModule, dims
from inlay.roofline import Roofline
from inlay.runtime import LibraryModule

LOW_SHARE = 0.3
# A call that takes less is mostly call, clock and cold start; its share says nothing of its kernel.
TINY_US = 2.0


def profile_module(
    module: LibraryModule, plan: dict[str, Any], inputs: dict[str, np.ndarray], runs: int, roofline: Roofline
) -> dict[str, Any]:
    """Runs a loaded module; what `inlay profile --json` prints of it.

    Args:
        plan: the module's (core/runtime/PLAN.md).
        inputs: by name.

    Raises TypeError, RunError.
    """
    module.profile(inputs, 3)  # warms up
    steps_ns = np.median(module.profile(inputs, runs), axis=0)
    partitions = _partitions(plan, steps_ns, _extents(plan, inputs))
    total_us = float(steps_ns.sum()) / 1e3
    total_constants = sum(p["constant_bytes"] * p["calls"] for p in partitions)
    for p in partitions:
        p["share"] = p["total_us"] / total_us if total_us else 0.0
        p["gflops"] = p["flops"] / p["us"] / 1e3 if p["us"] else 0.0
        p["gbs"] = p["bytes"] / p["us"] / 1e3 if p["us"] else 0.0
        floor = roofline.floor_us(p["flops"], p["bytes"], p["constant_bytes"], total_constants)
        p["floor_us"] = floor
        p["roofline_share"] = floor / p["us"] if p["us"] else 0.0
        p["low"] = p["roofline_share"] < LOW_SHARE and p["us"] >= TINY_US
    floor_us = sum(p["floor_us"] * p["calls"] for p in partitions)
    return {
        "total_us": total_us,
        "floor_us": floor_us,
        "roofline_share": floor_us / total_us if total_us else 0.0,
        "runs": runs,
        "partitions": sorted(partitions, key=lambda p: -p["total_us"]),
        "backends": _by_backend(partitions),
        "low": sum(p["total_us"] for p in partitions if p["low"]) / total_us if total_us else 0.0,
        "peak_gflops": roofline.gflops,
        "peak_by": roofline.by,
        "bandwidth_gbs": {str(size): gbs for size, gbs in roofline.bandwidth.items()},
    }


def _extents(plan: dict[str, Any], inputs: dict[str, np.ndarray]) -> dict[str, int]:
    """What the names of open extents stand for in a run with these inputs (core/runtime/vm/BYTECODE.md, Open shapes)."""
    registers: list[int] = []
    names: dict[str, int] = {}
    for name, kind, args, offset in plan.get("shapes", {}).get("registers", []):
        if kind == "input":
            index, axis, factor = args
            extent = inputs[plan["inputs"][index]["name"]].shape[axis]
            known = sum(coefficient * math.prod(registers[r] for r in of) for coefficient, *of in offset)
            names[name] = (extent - known) // factor
        registers.append(names[name] if kind == "input" else _amount(name, names))
    return names


def _amount(value: int | str, extents: dict[str, int]) -> int:
    """Of a number, or of the text of one that depends on the extents."""
    amount = dims.canonical(value, extents) if isinstance(value, str) else value
    return amount if isinstance(amount, int) else 0


def _partitions(plan: dict[str, Any], steps_ns: np.ndarray, extents: dict[str, int]) -> list[dict[str, Any]]:
    """One a function (equal partitions are one function), and one for the plan's copies."""
    found: dict[int, dict[str, Any]] = {}
    for step, ns in zip(plan["run"], steps_ns, strict=True):
        index = step.get("function", -1)
        if index < 0:
            moved = 2 * plan["buffers"][step["args"][0]][2]
            entry = found.setdefault(index, _entry("copy", "executor", ["copy"], [], 0, moved, 0))
            entry["bytes"] = max(entry["bytes"], moved)
        else:
            function = plan["functions"][index]
            info = function.get("info", {})
            entry = found.setdefault(
                index,
                _entry(
                    function["symbol"],
                    info.get("backend", "?"),
                    info.get("ops", []),
                    info.get("types", []),
                    _amount(info.get("flops", 0), extents),
                    _amount(info.get("bytes", 0), extents),
                    _amount(info.get("constant_bytes", 0), extents),
                ),
            )
        entry["calls"] += _amount(step.get("turns", 1), extents)
        entry["total_us"] += float(ns) / 1e3
        if step.get("name") and len(entry["locations"]) < 3:
            entry["locations"].append(step["name"])
    for entry in found.values():
        entry["us"] = entry["total_us"] / max(entry["calls"], 1)
    return list(found.values())


def _entry(symbol, backend, ops, types, flops, moved, constants) -> dict[str, Any]:
    return {
        "partition": symbol,
        "backend": backend,
        "ops": ops,
        "types": types,
        "flops": flops,
        "bytes": moved,
        "constant_bytes": constants,
        "calls": 0,
        "total_us": 0.0,
        "locations": [],
    }


def _by_backend(partitions: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    totals: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for p in partitions:
        totals[p["backend"]] += p["total_us"]
        calls[p["backend"]] += p["calls"]
    return {name: {"us": us, "calls": calls[name]} for name, us in totals.most_common()}


def print_profile(result: dict[str, Any], limit: int) -> None:
    from inlay.printing import ops_in_words, print_table

    shown = result["partitions"][:limit]
    rows = [
        [
            p["partition"].removeprefix("inlay_")[:12],
            p["backend"],
            str(p["calls"]),
            f"{p['us']:.1f}",
            f"{p['share']:.1%}",
            f"{p['flops'] / 1e9:.3g}",
            f"{p['bytes'] / 1e9:.3g}",
            f"{p['gflops']:.1f}",
            f"{p['gbs']:.1f}",
            f"{p['roofline_share']:.0%}" + (" LOW" if p["low"] else ""),
            ops_in_words(p["ops"]),
            p["locations"][0] if p["locations"] else "",
        ]
        for p in shown
    ]
    columns = ["partition", "backend", "calls", "us/call", "share", "GFLOP", "GB", "GFLOP/s", "GB/s"]
    print_table([*columns, "of roofline", "ops", "first at"], rows)
    if len(shown) < len(result["partitions"]):
        rest = result["partitions"][limit:]
        print(f"and {len(rest)} more with {sum(p['share'] for p in rest):.1%} of the time (--limit)")
    backends = ", ".join(f"{n} {b['us']:.0f} us in {b['calls']} calls" for n, b in result["backends"].items())
    sizes = {int(size): gbs for size, gbs in result["bandwidth_gbs"].items()}
    print(f"one run: {result['total_us']:.0f} us (medians of {result['runs']}), {backends}")
    print(
        f"roofline: {result['peak_gflops']:.1f} GFLOP/s ({result['peak_by']}), {sizes[1 << 15]:.0f} GB/s in 32 KiB, "
        f"{sizes[1 << 19]:.0f} in 512 KiB, {sizes[1 << 23]:.0f} in 8 MiB, {sizes[1 << 28]:.0f} in 256 MiB; "
        f"the whole is at {result['roofline_share']:.0%} of it; "
        f"{result['low']:.1%} of the time is in partitions below {LOW_SHARE:.0%} (LOW)"
    )


def load_library(path: str, threads: int) -> tuple[LibraryModule, dict[str, Any], int]:
    """(module, plan, threads); threads 0: what it was compiled for. Raises LoadError."""
    plan = library.read_manifest(path).data["plan"]
    threads = threads or plan["num_threads"] or len(os.sched_getaffinity(0))
    return library.load_library(path, threads), plan, threads


def build(module: IRModule, config: CompilationConfig, server: str | None):
    """Compiles a model and loads it into this process: (module, plan, threads). Raises what `inlay.build` does."""
    built = executable.build(module, config, server=server, want_plan=True)
    assert built.plan is not None
    threads = config.num_threads or len(os.sched_getaffinity(0))
    return built.jit(num_threads=threads), built.plan, threads


def is_library(path: str) -> bool:
    """Whether it is an ELF file, rather than a model."""
    try:
        with pathlib.Path(path).open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False
