"""Finding and starting the user's daemon, with a fake one."""

from __future__ import annotations

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import pytest

import inlay
from inlay import daemon

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture
def home(monkeypatch):
    """A runtime and a cache folder of the test's own, and a program to start; short, for the socket's path."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="inlay-t"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "c"))
    monkeypatch.delenv("INLAY_SERVER", raising=False)
    program = folder / "inlayd"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE}/fake_inlayd.py "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("INLAY_DAEMON", str(program))
    yield folder
    client = daemon.running()
    if client is not None:
        daemon.stop(client, daemon.default_paths())
    shutil.rmtree(folder)


def test_starts_one_and_finds_it_again(home):
    assert daemon.running() is None
    pid = daemon.ensure().server_info().pid
    assert daemon.ensure().server_info().pid == pid
    assert daemon.connect().server_info().pid == pid
    assert daemon.default_paths().directory.stat().st_mode & 0o777 == 0o700
    assert daemon.default_paths().log.read_text() == "started\n"


def test_many_clients_at_once_start_one(home):
    code = "from inlay import daemon; print(daemon.ensure().server_info().pid)"
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}

    def one(_):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(one, range(6)))) == 1


def test_a_rebuilt_program_replaces_the_daemon(home):
    first = daemon.ensure().server_info().pid
    program = home / "inlayd"
    program.write_text(program.read_text() + "# another build\n")
    second = daemon.ensure().server_info().pid
    assert second != first
    assert daemon._is_gone(first)


def test_a_daemon_that_was_killed_is_started_anew(home):
    pid = daemon.ensure().server_info().pid
    os.kill(pid, 9)
    while not daemon._is_gone(pid):
        pass
    assert daemon.default_paths().socket.exists()  # what a kill leaves behind
    assert daemon.ensure().server_info().pid != pid


def test_one_that_still_finishes_its_work_is_waited_for(home):
    client = daemon.ensure(options=["--under_way_s=1.5"])
    pid = client.server_info().pid
    client.drain()
    assert daemon.ensure().server_info().pid != pid
    assert daemon._is_gone(pid)


def test_one_that_never_answers_is_named(home, monkeypatch):
    monkeypatch.setattr(daemon, "LEAVE_TIMEOUT_S", 0.2)
    lock = daemon.default_paths().socket_lock
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(inlay.DaemonError, match=r"does not answer.*fuser .*sock\.lock"):
            daemon.ensure()


def test_a_failing_start_says_why(home):
    with pytest.raises(inlay.DaemonError, match=r"status 3 as it started: inlayd: no room \(see .*\)"):
        daemon.ensure(options=["--fail=no room"])


def test_no_program(home, monkeypatch):
    monkeypatch.setenv("INLAY_DAEMON", str(home / "none"))
    with pytest.raises(inlay.DaemonError, match="INLAY_DAEMON"):
        daemon.ensure()
    monkeypatch.delenv("INLAY_DAEMON")
    monkeypatch.setattr(sys, "prefix", str(home))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(inlay.DaemonError, match=r"deploy/setup.sh"):
        daemon.find_binary()


def test_a_long_path_is_said(home, monkeypatch):
    deep = home / ("d" * 90)
    deep.mkdir()
    with monkeypatch.context() as changed, pytest.raises(inlay.DaemonError, match="too long for a socket"):
        changed.setenv("XDG_RUNTIME_DIR", str(deep))
        daemon.default_paths()


def test_a_named_server_is_used_as_it_is(home, monkeypatch):
    assert daemon.connect("127.0.0.1:1").address == "127.0.0.1:1"
    monkeypatch.setenv("INLAY_SERVER", "127.0.0.1:2")
    assert daemon.connect().address == "127.0.0.1:2"
    assert daemon.running() is None
