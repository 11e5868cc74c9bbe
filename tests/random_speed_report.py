#!/usr/bin/env python3
"""Times random models (random_graphs/) beside onnxruntime, one thread each: what nobody thought of, and is slow.

    taskset -c 1 python tests/random_speed_report.py [--seeds 0:300] [--steps 5] [--sizes large] [--below 0.93]

Prints every model's times and their ratio (above 1: inlay is faster), the geometric mean, and of each model below the
threshold the fewest nodes that lose most of what it loses. Both run in one process, in turns, the fastest of 7 turns of
4 ms; with more threads onnxruntime's would wait in a loop on the CPUs that inlay's need. A model may be slower by chance:
run it again before believing it.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "e2e"), str(HERE.parent / "client" / "python")]

import numpy as np
import onnxruntime
from cut_down import cut_down
from random_graphs import RandomGraph, random_graph
from random_graphs_report import SIZES, listing

import inlay

TURNS, TURN_S, MOST_RUNS = 7, 0.004, 200
SHORTEST_S = 20e-6  # of a model worth looking at
KEPT = 0.6  # of the time that is lost, in what is cut down


def times(graph: RandomGraph, server) -> tuple[float, float]:
    """Seconds of onnxruntime and of inlay."""
    model = graph.model
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(num_threads=1), server=server)
    main, arguments = executable.jit()["main"], [graph.inputs[spec[0]] for spec in executable.inputs]
    runs: list[Callable[[], object]] = [lambda: session.run(None, graph.inputs), lambda: main(*arguments)]

    def seconds(run: Callable[[], object], count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count

    counts = []
    for run in runs:
        run()
        counts.append(max(1, min(MOST_RUNS, int(TURN_S / max(seconds(run, 1), 1e-6)))))
    turns = [[seconds(run, count) for run, count in zip(runs, counts, strict=True)] for _ in range(TURNS)]
    onnxruntime_s, inlay_s = (min(one) for one in zip(*turns, strict=True))
    return onnxruntime_s, inlay_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:300", help="FIRST:LAST")
    parser.add_argument("--steps", type=int, default=5, help="of each model")
    parser.add_argument("--sizes", choices=SIZES, default="large")
    parser.add_argument("--below", type=float, default=0.93, help="the ratio from which on a model is cut down")
    parser.add_argument("--server", default=None)
    args = parser.parse_args()
    ratios = []
    for seed in range(*map(int, args.seeds.split(":"))):
        graph = random_graph(seed, args.steps, SIZES[args.sizes])
        if not graph.outputs:
            continue
        peer, own = times(graph, args.server)
        ratios.append(peer / own)
        print(
            f"{seed}: {len(graph.nodes)} nodes, onnxruntime {peer * 1e3:.3f} ms, inlay {own * 1e3:.3f}, {ratios[-1]:.2f}"
        )
        if ratios[-1] >= args.below or own < SHORTEST_S:
            continue
        lost = own - peer

        def loses(less: RandomGraph, lost: float = lost) -> bool:
            peer, own = times(less, args.server)
            return own - peer > KEPT * lost

        graph = cut_down(graph, loses)
        peer, own = times(graph, args.server)
        print(
            f"  the most of it: onnxruntime {peer * 1e3:.3f} ms, inlay {own * 1e3:.3f}, {peer / own:.2f}\n{listing(graph)}"
        )
    print(f"{len(ratios)} models: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, least {min(ratios):.2f}, "
          f"{sum(ratio < 1 for ratio in ratios)} below 1")  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
