"""A program that takes inlayd's flags and runs the fake server, for test_daemon.py."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
import threading

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
    pathlib.Path(flags["log_file"]).write_text("started\n")
    daemon = Daemon(flags["listen"])
    signal.signal(signal.SIGTERM, lambda *_: daemon.ended.set())
    daemon.ended.wait(60)
    daemon.stop()
    pathlib.Path(flags["listen"].removeprefix("unix:")).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
