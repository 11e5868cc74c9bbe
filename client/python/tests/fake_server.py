"""A stand-in for the daemon, in this process: keeps blobs, answers compiles without compiling, and fails when told to.

It is no reference for what the daemon does; it makes the client's own behaviour (retries, uploads, streams, error
texts) testable without one.
"""

from __future__ import annotations

import collections
import hashlib
import threading
from concurrent import futures

import grpc

from inlay._proto import artifact_pb2, compile_service_pb2_grpc
from inlay._proto import compile_service_pb2 as pb


class FakeServer(compile_service_pb2_grpc.CompileServiceServicer):
    """Failures: `fail[method]` is a list of (code, details, trailing metadata), one used up a call."""

    def __init__(self, address: str):
        self.blobs: dict[bytes, bytes] = {}
        self.fail: dict[str, list] = collections.defaultdict(list)
        self.calls: collections.Counter = collections.Counter()
        self.requests: list = []
        self.host_cpu = "x86-64-v3"
        self.hold = threading.Event()  # while clear, and `slow`, Compile waits
        self.slow = False
        self.cancelled = threading.Event()
        self.chunk = 5
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        compile_service_pb2_grpc.add_CompileServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(address)
        self._server.start()

    def stop(self):
        self._server.stop(0).wait()

    def _begin(self, method, context):
        self.calls[method] += 1
        if self.fail[method]:
            code, details, metadata = self.fail[method].pop(0)
            context.set_trailing_metadata(metadata)
            context.abort(code, details)

    def GetServerInfo(self, request, context):
        self._begin("GetServerInfo", context)
        info = pb.GetServerInfoResponse(version="fake", pid=1, max_message_bytes=64 << 20, num_workers=2)
        info.host.kind = "llvm"
        info.host.attrs["mcpu"] = self.host_cpu
        info.host.attrs["num-cores"] = "64"
        return info

    def CheckConfig(self, request, context):
        self._begin("CheckConfig", context)
        return pb.CheckConfigResponse(config=request.config)

    def FindMissingBlobs(self, request, context):
        self._begin("FindMissingBlobs", context)
        return pb.FindMissingBlobsResponse(missing=[d for d in request.digests if d not in self.blobs])

    def UploadBlobs(self, requests, context):
        self._begin("UploadBlobs", context)
        digest, size, count, total = None, 0, 0, 0
        parts: dict[bytes, bytearray] = {}
        sizes: dict[bytes, int] = {}
        for request in requests:
            if request.digest:
                digest, size = request.digest, request.size
                parts[digest], sizes[digest] = bytearray(), size
                count += 1
            parts[digest] += request.data
            total += len(request.data)
        for digest, data in parts.items():
            if len(data) != sizes[digest] or hashlib.sha256(data).digest() != digest:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a blob does not match its digest")
            self.blobs[digest] = bytes(data)
        return pb.UploadBlobsResponse(blobs=count, bytes=total)

    def Compile(self, request, context):
        self._begin("Compile", context)
        self.requests.append(request)
        needed = [c.digest for c in request.module.constants if c.digest]
        if any(digest not in self.blobs for digest in needed):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "1 weight is missing")
        if self.slow and not context.add_callback(self.cancelled.set):
            self.cancelled.set()  # it was over before the callback was there
        yield pb.CompileEvent(progress=pb.CompileEvent.Progress(phase="compile", done=0, total=1))
        if self.slow:
            self.hold.wait(20)
        digest = hashlib.sha256(request.module.SerializeToString(deterministic=True)).digest()
        report = artifact_pb2.CompileReport(server_ms=1.5, actions_run=1)
        report.partitions.add(name="p0", backend="native", ops=["matmul", "relu"], cache_hit=False, call_sites=2)
        result = pb.CompileEvent.Result(executable=digest, report=report)
        main = request.module.functions["main"]
        for index in main.params:
            result.inputs.add(name=main.vars[index].name, type=main.vars[index].type.tensor)
            result.outputs.add(name=f"out{index}", type=main.vars[index].type.tensor)
        self.result = result
        yield pb.CompileEvent(result=result)

    def Jit(self, request, context):
        self._begin("Jit", context)
        return pb.JitResponse(handle="h1", inputs=self.result.inputs, outputs=self.result.outputs, load_ms=2)

    def Run(self, requests, context):
        """Answers each input as it came, in small pieces."""
        self._begin("Run", context)
        tensors: dict[int, tuple] = {}
        for number, request in enumerate(requests):
            if number == 0 and request.handle != "h1":
                context.abort(grpc.StatusCode.NOT_FOUND, f"no handle {request.handle!r}; it was unloaded or expired")
            chunk = request.input
            if chunk.HasField("type"):
                tensors[chunk.index] = (chunk.type, bytearray())
            tensors[chunk.index][1].extend(chunk.data)
        for index, (kind, data) in tensors.items():
            for begin in range(0, max(len(data), 1), self.chunk):
                out = pb.TensorChunk(index=index, data=bytes(data[begin : begin + self.chunk]))
                if begin == 0:
                    out.type.CopyFrom(kind)
                yield pb.RunResponse(output=out)
        yield pb.RunResponse(run_ms=0.25)

    def Unload(self, request, context):
        self._begin("Unload", context)
        return pb.UnloadResponse()

    def GetStats(self, request, context):
        self._begin("GetStats", context)
        return pb.GetStatsResponse(values={"inlay_requests_total": 3})

    def ListHandles(self, request, context):
        self._begin("ListHandles", context)
        answer = pb.ListHandlesResponse()
        answer.handles.add(handle="h1", executable="ab" * 32, memory_bytes=1 << 20, runs=2, idle_s=1)
        return answer
