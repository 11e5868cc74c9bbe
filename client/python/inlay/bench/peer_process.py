"""One peer in a process of its own: `python -m inlay.bench.peer_process PEER JOB.json`, driven over a pipe.

Commands come as lines of JSON on stdin, answers go as lines of JSON to what stdout was; whatever a library prints goes
to stderr. First answer: {"prepare_s", "version"}, or {"error"}. Then
    {"do": "burst"}                 one call that is not timed, then as many as fill BURST_MS: {"ms": [...]}
    {"do": "outputs", "path": p}    the outputs of one call as p (.npz): {}
and the end of stdin ends the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

BURST_MS = 30.0
MAX_CALLS = 50


def main() -> None:
    # Whatever becomes of the parent, no stopped process is left behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")

    peer, job_path = sys.argv[1:]
    job = json.loads(pathlib.Path(job_path).read_text())
    started = time.perf_counter()
    try:
        from inlay.bench import peers

        prepared = peers.PEERS[peer](peers.Job(**job))
        started_import = prepared.import_s
        prepared.run()  # what is compiled or packed by the first call belongs to preparing
    except Exception as error:  # noqa: BLE001  a peer may raise anything; it is a cell of the table
        answer({"error": _one_line(error)})
        return
    answer({"prepare_s": time.perf_counter() - started - started_import, "version": prepared.version})
    _pin(job["cores"])
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer({"ms": _burst(prepared.run)} if command["do"] == "burst" else _save(prepared, command["path"]))
        except Exception as error:  # noqa: BLE001
            answer({"error": _one_line(error)})


def _burst(run) -> list[float]:
    run()
    times: list[float] = []
    while not times or (sum(times) < BURST_MS and len(times) < MAX_CALLS):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1e3)
    return times


def _save(prepared, path: str) -> dict[str, Any]:
    import numpy as np

    outputs = prepared.arrays(prepared.run())
    np.savez(path, *(np.asarray(value) for value in outputs))
    return {}


def _pin(cores: list[int]) -> None:
    """Every thread that there is, and those that they will make, to as many cores as threads were asked for."""
    for task in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(task), cores)
        except ProcessLookupError:
            continue


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # A compiler's first "error:" says more than the command that failed.
    text = next((line for line in lines if "error:" in line), lines[0] if lines else "")
    return f"{type(error).__name__}: {text}"[:300]


if __name__ == "__main__":
    main()
