"""Client: one server's RPCs as Python calls, with retries, deadlines and message bounds.

Thread-safe. Start with `Client.compile`. Errors are those of server_errors.py.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import grpc
import numpy as np

from inlay import server_errors
from inlay._proto import artifact_pb2, compile_service_pb2, compile_service_pb2_grpc, config_pb2, ir_pb2
from inlay.modules import ObjectModule

CHUNK_BYTES = 1 << 20  # of streamed blobs and tensors
MAX_MESSAGE_BYTES = 64 << 20  # the server's default bound; GetServerInfo says the real one
RETRIES = 8
FIRST_CONTACT_RETRIES = 2  # where no server has answered at the address yet
RETRY_LIMIT_S = 60.0  # of waiting, all in all, for a server that is full or restarting

Progress = Callable[[str, int, int, str], None]  # phase, done, total, detail
T = TypeVar("T")
pb = compile_service_pb2


class Client:
    """A connection to the server at `address`: "unix:/path/to/socket" or "host:port".

    The connection is made when first used. `token`, where the server asks for one, is sent with every call.
    """

    def __init__(self, address: str, *, token: str | None = None):
        self.address = address
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()
        options = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.enable_retries", 0),  # done here, where the server's retry delay is known
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        self._channel = grpc.insecure_channel(address, options=options)
        self._stub = compile_service_pb2_grpc.CompileServiceStub(self._channel)
        self._info: pb.GetServerInfoResponse | None = None
        self._has_answered = False

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine: it listens on a Unix socket."""
        return self.address.startswith("unix:")

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def server_info(self, timeout: float = 10.0, retries: int = RETRIES) -> pb.GetServerInfoResponse:
        """Version, backends, workers and the server's own CPU. Asked once."""
        if self._info is None:
            request = pb.GetServerInfoRequest()
            self._info = self._call(
                "server info", lambda m: self._stub.GetServerInfo(request, timeout=timeout, metadata=m), retries=retries
            )
        return self._info

    def usable_backends(self) -> list[str]:
        """Those that a compile on this server may use for the server's own machine without naming them."""
        return sorted(b.name for b in self.server_info().backends if not b.on_request and not b.unusable)

    def upload(
        self,
        weights: Mapping[bytes, np.ndarray],
        progress: Progress | None = None,
        config: config_pb2.CompilationConfig | None = None,
    ) -> int:
        """Streams the weights that the server lacks; returns how many bytes that were.

        Args:
            weights: {SHA-256 digest: C-contiguous little-endian array}.
            progress: called as bytes are sent.
            config: to be checked first, where anything must be sent: before minutes of uploading, not after.
        """
        if not weights:
            return 0
        request = pb.FindMissingBlobsRequest(digests=list(weights))
        found = self._call(
            "find missing weights", lambda m: self._stub.FindMissingBlobs(request, timeout=60, metadata=m)
        )
        missing = {digest: weights[digest] for digest in found.missing if digest in weights}
        if not missing:
            return 0
        if config is not None:
            self.check_config(config)
        total = sum(array.nbytes for array in missing.values())
        self._call(
            "upload weights", lambda m: self._stub.UploadBlobs(_blob_messages(missing, total, progress), metadata=m)
        )
        return total

    def check_config(self, config: config_pb2.CompilationConfig) -> config_pb2.CompilationConfig:
        """The configuration as the server completes it. Raises CompileError or UnsupportedError where a compile would,
        naming the fields; no work is done."""
        request = pb.CheckConfigRequest(config=config)
        answer = self._call("check config", lambda m: self._stub.CheckConfig(request, timeout=60, metadata=m))
        return answer.config

    def compile(
        self,
        module: ir_pb2.IRModule,
        weights: Mapping[bytes, np.ndarray] | None = None,
        *,
        progress: Progress | None = None,
        timeout: float | None = None,
        request_id: str | None = None,
        want_plan: bool = False,
        on_pass: Callable[[pb.PassTrace], None] | None = None,
    ) -> pb.CompileEvent.Result:
        """Compiles a module that carries its configuration; uploads what the server lacks of `weights` first, once the
        server has found nothing wrong with the configuration. With `want_plan`, the result has the execution plan;
        `on_pass` is called for each pass that ran, with the module's text after it.

        Stopping it (KeyboardInterrupt, or `timeout` seconds over) cancels the work on the server.
        """
        request = pb.CompileRequest(
            module=module,
            request_id=request_id or uuid.uuid4().hex,
            want_plan=want_plan,
            want_passes=on_pass is not None,
        )
        size, limit = request.ByteSize(), self.server_info().max_message_bytes or MAX_MESSAGE_BYTES
        if size > limit:
            raise server_errors.CompileError(
                f"the module is {size:,} bytes without its weights, the server takes {limit:,}: "
                "large tensors in it should be weights (digests), or raise the server's --max_message_bytes"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        for attempt in (1, 2):
            self.upload(weights or {}, progress, module.config)
            try:
                return self._call(
                    "compile", lambda m: self._compile_once(request, progress, on_pass, deadline, m), deadline=deadline
                )
            except server_errors.CompileError as error:
                # A weight was evicted between upload and compile: once more.
                if error.code != grpc.StatusCode.FAILED_PRECONDITION or attempt == 2 or not weights:
                    raise
        raise AssertionError("not reached")

    def export(
        self,
        executable: bytes,
        link_params: bool | None = None,
        timeout: float | None = None,
        addons: Sequence[ObjectModule] = (),
        model_name: str = "",
        *,
        bundle: bool = False,
    ) -> Iterator[pb.ExportLibraryChunk]:
        """The linked library of a compiled executable, in chunks (the first has size and required libraries); or, with
        `bundle`, the files of a bundle. `addons` are linked into it; `model_name` is what C names begin with (runtime
        crt)."""
        request = pb.ExportLibraryRequest(
            executable=executable, link_params=link_params, model_name=model_name, bundle=bundle
        )
        for addon in addons:
            request.addons.add(name=addon.name, data=addon.data)
        return self._stream("export", lambda m: self._stub.ExportLibrary(request, timeout=timeout, metadata=m))

    def export_support(
        self, required: Iterable[artifact_pb2.RequiredLibrary], packages: Iterable[str], timeout: float | None = None
    ) -> Iterator[pb.ExportLibraryChunk]:
        """The files of a bundle, all but the library: shared libraries, their licences, the program that runs it."""
        request = pb.ExportLibraryRequest(bundle=True, support_for=required, support_packages=packages)
        return self._stream("export", lambda m: self._stub.ExportLibrary(request, timeout=timeout, metadata=m))

    def jit(
        self, executable: bytes, num_threads: int = 0, idle_expiry_s: float = 0, timeout: float | None = 300
    ) -> pb.JitResponse:
        """Loads the executable into the server; the answer's handle is what `run` wants."""
        request = pb.JitRequest(executable=executable, num_threads=num_threads, idle_expiry_s=idle_expiry_s)
        return self._call("jit", lambda m: self._stub.Jit(request, timeout=timeout, metadata=m))

    def run(
        self, handle: str, inputs: Iterable[pb.TensorChunk], timeout: float | None = None
    ) -> Iterator[pb.RunResponse]:
        """Runs a loaded module; tensors go in and come out in chunks (remote.py makes and reads them)."""

        def requests():
            first = handle
            for chunk in inputs:
                yield pb.RunRequest(handle=first, input=chunk)
                first = ""
            if first:
                yield pb.RunRequest(handle=first)

        return self._stream(
            "run", lambda m: self._stub.Run(requests(), timeout=timeout, metadata=m), server_errors.RunError
        )

    def unload(self, handle: str) -> None:
        self._call("unload", lambda m: self._stub.Unload(pb.UnloadRequest(handle=handle), timeout=60, metadata=m))

    def handles(self) -> list[pb.ListHandlesResponse.Handle]:
        request = pb.ListHandlesRequest()
        return list(
            self._call("list handles", lambda m: self._stub.ListHandles(request, timeout=10, metadata=m)).handles
        )

    def stats(self) -> dict[str, float]:
        request = pb.GetStatsRequest()
        return dict(self._call("stats", lambda m: self._stub.GetStats(request, timeout=10, metadata=m)).values)

    def drain(self, timeout: float | None = None) -> None:
        """Asks the server to finish what is under way and exit. Only over a Unix socket."""
        self._call("drain", lambda m: self._stub.Drain(pb.DrainRequest(), timeout=timeout, metadata=m), retries=0)

    def _compile_once(self, request, progress, on_pass, deadline, metadata) -> pb.CompileEvent.Result:
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        metadata = (*metadata, ("request-id", request.request_id))
        call = self._stub.Compile(request, timeout=timeout, metadata=metadata)
        result = None
        try:
            for event in call:
                if event.WhichOneof("event") == "result":
                    result = event.result
                elif event.WhichOneof("event") == "pass":
                    on_pass(getattr(event, "pass"))
                elif progress is not None:
                    progress(event.progress.phase, event.progress.done, event.progress.total, event.progress.detail)
        except BaseException:
            call.cancel()
            raise
        if result is None:
            raise server_errors.CompileError("compile: the server ended the stream without a result; see its log")
        return result

    def _stream(
        self, what: str, start: Callable[[Any], Iterable[T]], invalid=server_errors.CompileError
    ) -> Iterator[T]:
        # Not retried once begun: the caller may have used what came.
        call = start(self._metadata)
        try:
            yield from call
        except grpc.RpcError as error:
            raise server_errors.from_rpc_error(error, what, self.address, invalid) from None
        finally:
            call.cancel()  # type: ignore[attr-defined]

    def _call(self, what: str, attempt: Callable[[Any], T], deadline: float | None = None, retries: int = RETRIES) -> T:
        """Runs `attempt`, again after a delay where the server is full or away; raises server_errors'."""
        give_up = time.monotonic() + RETRY_LIMIT_S
        if deadline is not None:
            give_up = min(give_up, deadline)
        for number in range(retries + 1):
            try:
                answer = attempt(self._metadata)
                self._has_answered = True
                return answer
            except grpc.RpcError as error:
                delay = _retry_delay(error, number)
                # A server that has never answered is rather not there than restarting.
                last = retries if self._has_answered or _is_busy(error) else min(retries, FIRST_CONTACT_RETRIES)
                if delay is None or number >= last or time.monotonic() + delay > give_up:
                    raise server_errors.from_rpc_error(error, what, self.address) from None
                time.sleep(delay)
        raise AssertionError("not reached")


def _is_busy(error: grpc.RpcError) -> bool:
    return error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]


def _retry_delay(error: grpc.RpcError, attempt: int) -> float | None:
    """Seconds until a retry makes sense, None where it does not."""
    code = error.code()  # type: ignore[attr-defined]
    if code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
        return None
    trailing: Any = error.trailing_metadata() or ()  # type: ignore[attr-defined]
    for key, value in trailing:
        if key == "retry-delay-ms":
            return float(value) / 1000 * random.uniform(1.0, 1.3)
    if code == grpc.StatusCode.RESOURCE_EXHAUSTED:
        return None  # without a delay it is a bound (message size, memory), which no waiting changes
    return min(0.1 * 2**attempt, 5.0) * random.uniform(0.7, 1.3)


def _blob_messages(
    blobs: Mapping[bytes, np.ndarray], total: int, progress: Progress | None
) -> Iterator[pb.UploadBlobsRequest]:
    sent = 0
    for digest, array in blobs.items():
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        first: dict[str, Any] = {"digest": digest, "size": len(data)}
        for begin in range(0, max(len(data), 1), CHUNK_BYTES):
            piece = data[begin : begin + CHUNK_BYTES]
            yield pb.UploadBlobsRequest(data=bytes(piece), **first)
            first = {}
            sent += len(piece)
            if progress is not None:
                progress("upload", sent, total, "")
