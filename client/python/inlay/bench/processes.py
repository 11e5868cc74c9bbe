"""The parent's side of a peer's process: starts it, has it run bursts, keeps it stopped in between.

A peer that waits is stopped with SIGSTOP, all its threads: pools that spin while they wait (onnxruntime's, libgomp's) would
take the core of the one whose turn it is. It is the same for all of them, ours too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
from typing import Any, Self

import numpy as np

from inlay.bench.peers import AVX2_ENVIRONMENT, Job
from inlay.errors import InlayError

ANSWER_LIMIT_S = 300.0


class PeerError(InlayError):
    """A peer can't compile or run the model; the text is its cell."""


class PeerProcess:
    """A context manager; the process is gone afterwards. Not thread-safe.

    Attributes:
        prepare_s: seconds until the first result, without importing packages.
        version: of the peer.
    """

    def __init__(self, peer: str, job: Job, prepare_limit_s: float):
        self.peer = peer
        scratch = pathlib.Path(job.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        path = scratch / "job.json"
        path.write_text(json.dumps(dataclasses.asdict(job)))
        root = str(pathlib.Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._log = (scratch / "log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "inlay.bench.peer_process", peer, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                # It is killed in the end; AOTInductor, say, unpacks hundreds of megabytes to where temporary files go.
                "TMPDIR": str(scratch),
                **(AVX2_ENVIRONMENT if job.avx2 else {}),
            },
        )
        self._buffer = b""
        try:
            ready = self._answer(prepare_limit_s)
        except BaseException:
            self.close()
            raise
        self.prepare_s: float = ready["prepare_s"]
        self.version: str = ready["version"]
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def burst(self) -> float:
        """The median of a burst's calls, in milliseconds."""
        return float(np.median(self._ask({"do": "burst"})["ms"]))

    def outputs(self) -> list[np.ndarray]:
        path = pathlib.Path(self._log.name).with_name("outputs.npz")
        self._ask({"do": "outputs", "path": str(path)})
        with np.load(path) as loaded:
            return [loaded[f"arr_{i}"] for i in range(len(loaded.files))]

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        os.killpg(self._process.pid, signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except OSError:
            raise PeerError(self._death()) from None
        answer = self._answer(ANSWER_LIMIT_S)
        self._stop()
        return answer

    def _stop(self) -> None:
        """Returns when every thread of it stands still, or the process has ended."""
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.killpg(self._process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _answer(self, limit_s: float) -> dict[str, Any]:
        descriptor = self._process.stdout.fileno()  # type: ignore[union-attr]
        deadline = time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise PeerError(f"no answer in {limit_s:.0f} s")
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                raise PeerError(self._death())
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def _death(self) -> str:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        lines = pathlib.Path(self._log.name).read_text(errors="replace").strip().splitlines()
        return f"its process ended ({how})" + (f": {lines[-1][:200]}" if lines else "")
