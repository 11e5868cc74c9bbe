"""Errors that a server's answers turn into. Each message is one line: what happened, where, and what to do.

Start with `from_rpc_error`, which maps gRPC status codes to these classes (proto/compile_service.proto says what each
code means).
"""

from __future__ import annotations

import grpc

from inlay.errors import InlayError


class ServerError(InlayError):
    """The server refused or failed a request.

    Attributes:
        code: the `grpc.StatusCode`, or None where the error arose on this side.
        details: the server's own message.
    """

    def __init__(self, message: str, code: grpc.StatusCode | None = None, details: str = ""):
        super().__init__(message)
        self.code = code
        self.details = details


class CompileError(ServerError):
    """The module could not be compiled: it, or its configuration, is at fault, or a backend failed on it."""


class UnsupportedError(CompileError):
    """Asked for something that this version does not do (UNIMPLEMENTED)."""


class ServerUnavailableError(ServerError):
    """No server answers at the address, or it is shutting down."""


class ServerBusyError(ServerError):
    """The server's queue or memory stayed full for as long as the client was willing to retry."""


class DeadlineExceededError(ServerError):
    """The request did not finish within its timeout; the server stopped working on it."""


class RequestCancelledError(ServerError):
    """The request was cancelled."""


class NotFoundError(ServerError):
    """A handle or an executable is not (or no longer) on the server."""


class RunError(ServerError):
    """A module failed while it ran, or was given wrong inputs."""


class DaemonError(InlayError):
    """The local daemon could not be found, started or reached."""


class LoadError(InlayError):
    """An exported library can't be loaded on this machine."""


_CODES = grpc.StatusCode


def from_rpc_error(
    error: grpc.RpcError, what: str, address: str, invalid: type[ServerError] = CompileError
) -> ServerError:
    """The exception for a failed RPC.

    Args:
        error: what grpc raised (it has code() and details()).
        what: what was being done, for the message ("compile", "run").
        address: the server's.
        invalid: the class for INVALID_ARGUMENT and for failures inside the server.
    """
    code = error.code()  # type: ignore[attr-defined]
    details = " ".join((error.details() or "").split())  # type: ignore[attr-defined]
    kind: type[ServerError] = invalid
    if code == _CODES.UNAVAILABLE:
        kind, text = (
            ServerUnavailableError,
            f"no server at {address} ({details}); start one with `inlay serve`, or name another with --server",
        )
    elif code == _CODES.RESOURCE_EXHAUSTED:
        kind, text = ServerBusyError, f"{what}: the server is full ({details}); try again later, or use another server"
    elif code == _CODES.DEADLINE_EXCEEDED:
        kind, text = DeadlineExceededError, f"{what}: not finished within the timeout; give it more time (--timeout)"
    elif code == _CODES.CANCELLED:
        kind, text = RequestCancelledError, f"{what}: cancelled"
    elif code == _CODES.UNIMPLEMENTED and not details:  # gRPC's own answer for a method that the server has not
        kind = UnsupportedError
        text = (
            f"{what}: the server at {address} does not know this request: it is older than this client. `inlay info` "
            "says its version, `inlay drain` ends it; your own is started anew when it is needed"
        )
    elif code == _CODES.UNIMPLEMENTED:
        kind, text = UnsupportedError, f"{what}: not supported: {details}"
    elif code == _CODES.NOT_FOUND and what not in (
        "compile",
        "check config",
    ):  # there it is a name in the configuration
        kind, text = NotFoundError, f"{what}: {details}"
    elif code in (_CODES.PERMISSION_DENIED, _CODES.UNAUTHENTICATED):
        kind, text = ServerError, f"{what}: the server at {address} refuses: {details}"
    elif code in (_CODES.INVALID_ARGUMENT, _CODES.FAILED_PRECONDITION, _CODES.OUT_OF_RANGE, _CODES.NOT_FOUND):
        text = f"{what}: {details}"
    else:
        text = f"{what}: the server failed ({code.name}): {details}"
    return kind(text, code, details)
