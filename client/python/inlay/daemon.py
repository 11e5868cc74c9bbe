"""This user's own daemon: found if one runs, started if not. One a user and machine, on a Unix socket.

Start with `ensure`. Two clients that start it at once are kept apart by a lock; a daemon whose program file has been
replaced since (an upgrade, a rebuild) is drained and started anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from inlay.client import Client
from inlay.errors import InlayError
from inlay.server_errors import DaemonError

IDLE_EXIT_S = 1800  # a daemon that a client started leaves after half an hour without a request
START_TIMEOUT_S = 30.0
LEAVE_TIMEOUT_S = 60.0
SERVER_VARIABLE = "INLAY_SERVER"  # an address to use instead of a local daemon
BINARY_VARIABLE = "INLAY_DAEMON"  # the program to start, for those who have it elsewhere
_MAX_SOCKET_PATH = 107  # bytes; sockaddr_un


@dataclasses.dataclass(frozen=True)
class Paths:
    """Where a daemon's socket, lock, state and log lie."""

    directory: pathlib.Path
    log: pathlib.Path

    @property
    def socket(self) -> pathlib.Path:
        return self.directory / "inlayd.sock"

    @property
    def lock(self) -> pathlib.Path:
        return self.directory / "inlayd.lock"

    @property
    def socket_lock(self) -> pathlib.Path:
        """The daemon's own: it holds it as long as it lives."""
        return self.directory / "inlayd.sock.lock"

    @property
    def state(self) -> pathlib.Path:
        return self.directory / "inlayd.json"

    @property
    def address(self) -> str:
        return f"unix:{self.socket}"


def default_paths() -> Paths:
    """$XDG_RUNTIME_DIR/inlay, else $XDG_CACHE_HOME/inlay/run; made with access for this user alone.

    Raises DaemonError where the folder belongs to somebody else or the socket's path would be too long.
    """
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "inlay"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    directory = pathlib.Path(runtime) / "inlay" if runtime and os.access(runtime, os.W_OK) else cache / "run"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if directory.stat().st_uid != os.getuid():
            raise DaemonError(f"{directory} belongs to another user; set XDG_RUNTIME_DIR to a folder of yours")
        directory.chmod(0o700)
    except OSError as error:
        raise DaemonError(
            f"can't make {directory}: {error.strerror}; set XDG_RUNTIME_DIR to a folder of yours"
        ) from None
    paths = Paths(directory, cache / "inlayd.log")
    if len(os.fsencode(paths.socket)) > _MAX_SOCKET_PATH:
        raise DaemonError(f"the path {paths.socket} is too long for a socket; set XDG_RUNTIME_DIR to a shorter folder")
    return paths


def find_binary() -> pathlib.Path:
    """The daemon's program: $INLAY_DAEMON, the installation's libexec/inlay, or PATH. Raises DaemonError."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise DaemonError(f"{BINARY_VARIABLE} is {named}, which is not a program")
        return pathlib.Path(named).resolve()
    installed = pathlib.Path(sys.prefix) / "libexec" / "inlay" / "inlayd"
    if os.access(installed, os.X_OK):
        return installed
    on_path = shutil.which("inlayd")
    if on_path:
        return pathlib.Path(on_path).resolve()
    raise DaemonError(f"no inlayd in {installed.parent} or PATH: run deploy/setup.sh, or name a server with --server")


def connect(server: str | Client | None = None) -> Client:
    """A client of `server` (an address), else of $INLAY_SERVER, else of this user's daemon, started if need be."""
    if isinstance(server, Client):
        return server
    address = server or os.environ.get(SERVER_VARIABLE)
    return Client(address) if address else ensure()


def ensure(paths: Paths | None = None, options: Sequence[str] = ()) -> Client:
    """A client of the daemon at `paths` (this user's), which is started if none answers there.

    Args:
        options: flags for inlayd (proto/server_config.proto) where one has to be started.
    """
    paths = paths or default_paths()
    client = _answering(paths)
    if client is not None and _is_current(paths):
        return client
    with _locked(paths.lock):
        client = _answering(paths)  # somebody else may have started it meanwhile
        if client is not None:
            if _is_current(paths):
                return client
            stop(client, paths)
        _wait_for_the_last(paths)
        return _start(paths, options)


def running(paths: Paths | None = None) -> Client | None:
    """A client of the daemon at `paths` if one answers; starts none."""
    return _answering(paths or default_paths())


def _answering(paths: Paths) -> Client | None:
    if not paths.socket.exists():
        return None
    client = Client(paths.address)
    try:
        client.server_info(timeout=5, retries=0)
    except InlayError:
        client.close()
        return None
    return client


def _fingerprint(binary: pathlib.Path) -> dict[str, int | str]:
    stat = binary.stat()
    return {"binary": str(binary), "mtime_ns": stat.st_mtime_ns, "size": stat.st_size}


def _is_current(paths: Paths) -> bool:
    """False where the daemon was started from a program that has been replaced. One started otherwise is left alone."""
    try:
        state = json.loads(paths.state.read_text())
        return state["fingerprint"] == _fingerprint(pathlib.Path(state["fingerprint"]["binary"]))
    except (OSError, ValueError, KeyError):
        return True


def _start(paths: Paths, options: Sequence[str]) -> Client:
    binary = find_binary()
    command = [
        str(binary),
        f"--listen={paths.address}",
        f"--log_file={paths.log}",
        f"--idle_exit_s={IDLE_EXIT_S}",
        *options,
    ]
    # What it prints before its own log is open; a file, since a pipe would end with this process.
    output = paths.log.with_suffix(".out")
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/"
        )
    deadline = time.monotonic() + START_TIMEOUT_S
    delay = 0.02
    while time.monotonic() < deadline:
        client = _answering(paths)
        if client is not None:
            state = {"pid": process.pid, "fingerprint": _fingerprint(binary)}
            paths.state.write_text(json.dumps(state))
            _let_go(process)
            return client
        if process.poll() is not None:
            raise DaemonError(
                f"inlayd ended with {_ending(process.returncode)} as it started{_last_words(output, paths.log)}"
            )
        time.sleep(delay)
        delay = min(delay * 1.5, 0.25)
    process.terminate()
    raise DaemonError(f"inlayd did not answer within {START_TIMEOUT_S:.0f} s{_last_words(output, paths.log)}")


def stop(client: Client, paths: Paths) -> None:
    """Drains a daemon and waits until it is gone."""
    pid = client.server_info().pid
    with contextlib.suppress(InlayError):
        client.drain(timeout=60)
    client.close()
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    while time.monotonic() < deadline:
        if _is_gone(pid):
            return
        time.sleep(0.05)
    raise DaemonError(f"the daemon (pid {pid}) at {paths.socket} does not leave; end it and try again")


def _wait_for_the_last(paths: Paths) -> None:
    """One that was told to drain answers no more, and keeps its socket until what is under way is done."""
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    try:
        file = paths.socket_lock.open("r+")
    except OSError:
        return
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise DaemonError(
                        f"a daemon has {paths.socket} and does not answer: it finishes what is under way, or hangs; "
                        f"end it (`fuser {paths.socket_lock}` names it) and try again"
                    ) from None
            time.sleep(0.05)


def _is_gone(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"  # ended, though whoever started it has not asked for its status


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _let_go(process: subprocess.Popen) -> None:
    # The daemon outlives this process on purpose: no warning that it still runs, and no wait for it.
    process.returncode = 0


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"status {code}"


def _last_words(*files: pathlib.Path) -> str:
    """ ": <the last line of the first file that has one> (see <file>)"; logs are JSON lines."""
    for file in files:
        with contextlib.suppress(OSError):
            lines = [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
            if lines:
                text = lines[-1].strip()
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    text = json.loads(text)["message"]
                return f": {text} (see {file})"
    return f"; see {files[-1]}"
