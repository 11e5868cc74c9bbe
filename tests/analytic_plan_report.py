#!/usr/bin/env python3
"""What the analytic model chooses, beside what it could have chosen.

Each ONNX model is compiled by analytic search, for native code alone and for each other backend wherever it may (the
fallback elsewhere), and all are run in turn in this process. A daemon with an empty cache shows what the hand-set
constants are worth, one that has measured, what their fit is.

    python tests/analytic_plan_report.py --server unix:/tmp/empty.sock --target "llvm -mcpu=native" *.onnx

First table: a row a model; minima of the rounds, CPU time in ms. Second: estimates beside measurements by backend and kind of
partition (of the chosen plans, and of those for one backend as the model estimates them), as quartiles of
measured / estimated; what counts is how rows of one kind compare, since all estimates are on a scale of their own.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import time
from typing import Any

import numpy as np
import onnx

import inlay
from inlay.bench import make_inputs
from inlay.client import Client
from inlay.executable import build

CONTRACTIONS = ("conv", "conv_transpose", "matmul", "lstm", "gru")


def kind(ops: list[str]) -> str:
    """Of a partition: its contractions, or what else it does."""
    found = [op for op in ops if op in CONTRACTIONS]
    if "softmax" in ops and len(found) > 1:
        return "attention"
    if len(found) > 1:
        return "several contractions"
    return found[0] if found else ops[0] if len(set(ops)) == 1 else "others"


class Plan:
    """One compiled plan of a model, loaded into this process."""

    def __init__(self, module: inlay.IRModule, options: argparse.Namespace, **search: Any) -> None:
        config = inlay.CompilationConfig(targets=[options.target], num_threads=1, **search)
        executable = build(module, config, server=options.server, want_plan=True)
        assert executable.plan is not None
        self.plan: dict[str, Any] = executable.plan
        self.report = executable.report
        self.module = executable.jit(num_threads=1)
        self.inputs = make_inputs(self.module.inputs)
        self.seconds: list[float] = []

    def run(self) -> None:
        start = time.thread_time()
        self.module.run(self.inputs)
        self.seconds.append(time.thread_time() - start)

    @property
    def ms(self) -> float:
        return min(self.seconds[1:]) * 1e3

    def ratios(self) -> list[tuple[tuple[str, str], float]]:
        """((kind, backend), measured / estimated) of each partition."""
        micros: dict[str, list[float]] = collections.defaultdict(list)
        steps_ns = np.median(self.module.profile(self.inputs, 5), axis=0)
        for step, ns in zip(self.plan["run"], steps_ns, strict=True):
            if step.get("function", -1) >= 0:
                micros[self.plan["functions"][step["function"]]["symbol"]].append(ns / 1e3)
        return [
            ((kind(list(p.ops)), p.backend), float(np.median(micros[p.name])) / p.cost_us)
            for p in self.report.partitions
            if p.cost_us > 0 and p.name in micros
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--server", required=True)
    parser.add_argument("--target", default="llvm -mcpu=native")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--kinds", action="store_true", help="also what each backend's estimates are worth")
    options = parser.parse_args()
    with Client(options.server) as client:
        backends = [name for name in client.usable_backends() if name != "native"]
    print(f"| model | analytic | native | {' | '.join(backends)} | best / analytic | calls |")
    print("| --- |" + " --- |" * (4 + len(backends)))
    samples: dict[tuple[str, str], list[float]] = collections.defaultdict(list)
    best_ratios = []
    for path in options.models:
        module = inlay.from_onnx(onnx.load(path))
        analytic = Plan(module, options, search="analytic", replan=True)
        alone = {"native": Plan(module, options, search="analytic", backends=["native"])}
        alone |= {name: Plan(module, options, search="none", backends=["native", name]) for name in backends}
        for _ in range(options.rounds):
            for plan in (analytic, *alone.values()):
                plan.run()
        best_ratios.append(min(plan.ms for plan in alone.values()) / analytic.ms)
        cells = [f"{plan.ms:.3g}" for plan in (analytic, *alone.values())]
        calls = ", ".join(f"{name} {count}" for name, count in analytic.report.backends().items())
        print(f"| {path.stem} | {' | '.join(cells)} | {best_ratios[-1]:.2f}x | {calls} |", flush=True)
        asked = [Plan(module, options, search="analytic", backends=[name]) for name in backends if options.kinds]
        for plan in (analytic, alone["native"], *asked):
            for key, ratio in plan.ratios():
                samples[key].append(ratio)
    print(
        f"\nGeometric mean of best / analytic: {np.exp(np.mean(np.log(best_ratios))):.3f}, least {min(best_ratios):.2f}"
    )
    print("\n| kind | backend | partitions | measured / estimated: quartiles |\n| --- | --- | --- | --- |")
    for (name, backend), values in sorted(samples.items()):
        quartiles = ", ".join(f"{q:.2f}" for q in np.quantile(values, [0.25, 0.5, 0.75]))
        print(f"| {name} | {backend} | {len(values)} | {quartiles} |")


if __name__ == "__main__":
    main()
