"""Daemons of one machine measure in turns; what one of them does for the others when it dies, or does not let go."""

from __future__ import annotations

import contextlib
import fcntl
import pathlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay.models import bert, recurrent

CONFIG = inlay.CompilationConfig(backends=["native", "onednn"], search="measured", num_threads=1)


@pytest.fixture
def lock(tmp_path):
    return tmp_path / "lock"


@contextlib.contextmanager
def held(lock: pathlib.Path):
    """By another process of the machine, as far as daemons can tell."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_held(lock: pathlib.Path) -> bool:
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def has_open(pid: int, path: pathlib.Path) -> bool:
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if fd.readlink() == path:
                return True
    return False


def wait_until(condition) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def build(daemon, model):
    return inlay.build(inlay.from_onnx(model), CONFIG, server=daemon.client)


def test_two_daemons_take_turns(start_daemon, lock):
    flags = (f"--measure_lock={lock}", "--measure_lock_wait_s=300")
    daemons = [start_daemon(flags=flags) for _ in range(2)]
    model = bert.build(bert.TINY, batch=1, length=8)
    with ThreadPoolExecutor(2) as pool:
        with held(lock):
            compiles = [pool.submit(build, daemon, model) for daemon in daemons]
            wait_until(lambda: all(has_open(daemon.process.pid, lock) for daemon in daemons))
            assert [daemon.stat("inlay_measurer_starts_total") for daemon in daemons] == [0, 0]
            assert not any(compile.done() for compile in compiles)
        executables = [compile.result(300) for compile in compiles]
    inputs = inputs_of(executables[0])
    want = reference(model, inputs)
    for daemon, executable in zip(daemons, executables, strict=True):
        assert daemon.stat("inlay_measurer_starts_total") == 1
        assert executable.report.notes == []
        assert any(c.measured for c in executable.report.candidates)
        with executable.jit(remote=True) as remote:
            check_close(remote["main"](**inputs), want)


def test_a_daemon_that_dies_lets_go(start_daemon, lock):
    flags = (f"--measure_lock={lock}", "--measure_lock_wait_s=300")
    first, second = (start_daemon(flags=flags) for _ in range(2))
    lock.touch()
    with ThreadPoolExecutor(1) as pool:
        doomed = pool.submit(build, first, bert.build(bert.TINY, batch=1, length=8))
        wait_until(lambda: is_held(lock) or doomed.done())
        first.process.kill()
        first.process.wait(30)
        executable = build(second, recurrent.build_mlp(recurrent.TINY_MLP))
        assert executable.report.notes == []
        with contextlib.suppress(inlay.InlayError):
            doomed.result(60)


def test_who_waited_in_vain_goes_on_and_says_so(start_daemon, lock):
    daemon = start_daemon(flags=(f"--measure_lock={lock}", "--measure_lock_wait_s=0.2"))
    with held(lock):
        executable = build(daemon, recurrent.build_mlp(recurrent.TINY_MLP))
    [note] = executable.report.notes
    assert f"measured beside another daemon of this machine, which held {lock}" in note
    assert any(c.measured for c in executable.report.candidates)
