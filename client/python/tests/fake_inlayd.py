"""A program that takes inlayd's flags and runs the fake server, for test_daemon.py."""

from __future__ import annotations

import fcntl
import os
import pathlib
import signal
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fake_server import FakeServer

from inlay._proto import compile_service_pb2 as pb


class Daemon(FakeServer):
    def __init__(self, address: str):
        self.ended = threading.Event()
        super().__init__(address)

    def GetServerInfo(self, request, context):
        return pb.GetServerInfoResponse(version="fake", pid=os.getpid())

    def Drain(self, request, context):
        self.ended.set()
        return pb.DrainResponse()


def main() -> int:
    flags = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[1:])
    if flags.get("fail"):
        print(f"inlayd: {flags['fail']}", file=sys.stderr)
        return 3
    socket = pathlib.Path(flags["listen"].removeprefix("unix:"))
    lock = os.open(f"{socket}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"inlayd: another inlayd listens on {socket}", file=sys.stderr)
        return 1
    pathlib.Path(flags["log_file"]).write_text("started\n")
    daemon = Daemon(flags["listen"])
    signal.signal(signal.SIGTERM, lambda *_: daemon.ended.set())
    daemon.ended.wait(60)
    daemon.stop()
    time.sleep(float(flags.get("under_way_s", 0)))
    socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
