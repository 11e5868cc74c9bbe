#!/usr/bin/env python3
"""How well the analytic model ranks backends, before and after it is fitted to measurements.

Compiles models one after the other with measured search, by a daemon whose cache is empty. Of each place where several
backends were measured, every pair whose times differ by more than both spreads and 5% is a question: which one is
faster? Asked are the backends' own estimates, and the fitted ones, which know the models before this one only.

    python tests/rank_agreement_report.py --server unix:/tmp/empty.sock --threads 1 resnet50 minilm ...
"""

from __future__ import annotations

import argparse
import collections
import itertools
import math
import statistics
from typing import Any

import inlay
from inlay.bench import load_model

MODELS = ("mobilenet_v2", "minilm", "resnet50", "gpt2", "vit_small", "bert_base", "lstm", "mlp")


def questions(candidates: list[Any]) -> list[tuple[Any, Any]]:
    """Pairs of candidates for the same calls, the faster one first."""
    places = collections.defaultdict(list)
    for candidate in candidates:
        if candidate.measured and candidate.unfitted_us > 0:
            places[tuple(candidate.ops), tuple(candidate.locations)].append(candidate)
    pairs = []
    for rivals in places.values():
        for a, b in itertools.combinations(sorted(rivals, key=lambda c: c.cost_us), 2):
            if b.cost_us - a.cost_us > max(a.spread_us + b.spread_us, 0.05 * a.cost_us):
                pairs.append((a, b))
    return pairs


def right(pairs: list[tuple[Any, Any]], field: str) -> int:
    return sum(a[field] < b[field] for a, b in pairs)


def error(candidates: list[Any], field: str) -> float:
    """The median factor that an estimate is off by."""
    return math.exp(statistics.median(abs(math.log(c[field] / c.cost_us)) for c in candidates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--server", required=True)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print("| model | pairs | right by hand-set estimates | by fitted ones | off by (hand-set) | off by (fitted) |")
    print("| --- | --- | --- | --- | --- | --- |")
    total = collections.Counter[str]()
    for name in options.models:
        config = inlay.CompilationConfig(
            targets=["llvm -mcpu=native"], search="measured", num_threads=options.threads, replan=True
        )
        report = inlay.build(inlay.from_onnx(load_model(name)), config, server=options.server).report
        pairs = questions(report.candidates)
        known = [c for c in report.candidates if c.measured and c.unfitted_us > 0]
        hits = {field: right(pairs, field) for field in ("unfitted_us", "estimate_us")}
        total.update(hits, pairs=len(pairs))
        cells = [f"{hits[field]} ({hits[field] / max(1, len(pairs)):.0%})" for field in hits]
        cells += [f"{error(known, field):.2f}x" for field in hits]
        print(f"| {name} | {len(pairs)} | {' | '.join(cells)} |", flush=True)
    shares = [
        f"{total[field]} ({total[field] / max(1, total['pairs']):.0%})" for field in ("unfitted_us", "estimate_us")
    ]
    print(f"| all | {total['pairs']} | {' | '.join(shares)} | | |")


if __name__ == "__main__":
    main()
