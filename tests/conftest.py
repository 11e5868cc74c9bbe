"""Real daemons for the tests, each with a cache, a socket and a log of its own.

The program is what deploy/setup.sh installed, or $INLAY_DAEMON (such as bazel-bin/server/inlayd).
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import numpy as np
import onnx
import pytest
from random_graphs import run_nodes

import inlay
from inlay import daemon
from inlay.bench import make_inputs
from inlay.client import Client

# For child processes, where the package is not installed but lies in this checkout.
os.environ["PYTHONPATH"] = str(pathlib.Path(__file__).resolve().parents[1] / "client" / "python")

RTOL, ATOL = 1e-3, 1e-4
# Where a worker may be told to use less than the machine has, the tests use two.
WORKERS = 2


class RunningDaemon:
    """A daemon process of the tests.

    Attributes:
        folder: its files; `cache` is its cache.
        client: connected.
    """

    def __init__(self, folder: pathlib.Path, cache: pathlib.Path, flags: tuple[str, ...] = (), address: str = ""):
        self.folder, self.cache = folder, cache
        self.address = address or f"unix:{folder}/d.sock"
        self.log = folder / "inlayd.log"
        command = [
            str(daemon.find_binary()),
            f"--listen={self.address}",
            f"--cache_dir={cache}",
            f"--workers={WORKERS}",
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.client = Client(self.address)
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"inlayd ended with {self.process.returncode}:\n{self.log.read_text()[-2000:]}")
            with contextlib.suppress(inlay.InlayError):
                self.client.server_info(timeout=2, retries=0)
                return
            time.sleep(0.05)
        raise AssertionError(f"inlayd does not answer:\n{self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """kill -9 of the daemon alone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.client.close()

    def stop(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(30)

    def alive(self) -> bool:
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """Process ids of its children that are inlay_worker."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
                if name.startswith("inlay_worker") and int(rest.split()[1]) == self.process.pid:
                    found.append(int(stat.parent.name))
        return found

    def stat(self, name: str) -> float:
        """The sum of a counter over its labels."""
        return sum(v for k, v in self.client.stats().items() if k.partition("{")[0] == name)


@pytest.fixture
def start_daemon():
    """Starts daemons: start_daemon(cache=None, flags=(), address=a socket of its own). Folders are short: a socket's path may have 107 bytes."""
    running, folders = [], []

    def start(cache: pathlib.Path | None = None, flags: tuple[str, ...] = (), address: str = "") -> RunningDaemon:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="inlay-t"))
        folders.append(folder)
        running.append(RunningDaemon(folder, cache or folder / "cache", flags, address))
        return running[-1]

    yield start
    for one in running:
        one.stop()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def shared_daemon():
    """One daemon for all tests that do not mind what others did to its cache."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="inlay-t"))
    one = RunningDaemon(folder, folder / "cache")
    yield one
    alive = one.alive()
    one.stop()
    log = one.log.read_text()
    shutil.rmtree(folder, ignore_errors=True)
    assert alive, f"the shared daemon died:\n{log[-3000:]}"


@pytest.fixture
def client(shared_daemon):
    return shared_daemon.client


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """onnxruntime's answer, without its graph rewriting."""
    return run_nodes(model, inputs, threads=0)


def check_close(got, want) -> None:
    """Both are lists of arrays; within the tolerance that the project promises."""
    got = [got] if not isinstance(got, list | tuple) else list(got)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        a = np.from_dlpack(a) if not isinstance(a, np.ndarray) else a
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=RTOL, atol=ATOL)


def inputs_of(executable: inlay.Executable, seed: int = 0) -> dict[str, np.ndarray]:
    return make_inputs(executable.inputs, seed)


def run_everywhere(
    executable: inlay.Executable, inputs: dict[str, np.ndarray], folder: pathlib.Path
) -> dict[str, list]:
    """The outputs by each way to run an executable: exported library, in the daemon, loaded here from memory."""
    arguments = [inputs[spec[0]] for spec in executable.inputs]

    def as_list(result):
        return list(result) if isinstance(result, tuple) else [result]

    path = executable.export_library(folder / f"{executable.digest[:16]}.so")
    results = {"exported": as_list(inlay.load_library(path)["main"](*arguments))}
    with executable.jit(remote=True) as remote:
        results["remote"] = as_list(remote["main"](*arguments))
    results["memory"] = as_list(executable.jit()["main"](*arguments))
    return results


def environment(folder: pathlib.Path) -> dict[str, str]:
    """For child processes that shall have their own daemon and cache."""
    return {
        **os.environ,
        "XDG_RUNTIME_DIR": str(folder),
        "XDG_CACHE_HOME": str(folder / "c"),
        "INLAY_SERVER": "",
    }
