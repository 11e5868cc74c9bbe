"""Crashes, overload, cancellation and malformed input: the daemon lives, and nothing that it acknowledged is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay._proto import compile_service_pb2 as pb
from inlay.client import Client
from inlay.daemon import find_binary
from inlay.models import bert, recurrent, resnet

MEDIUM = dataclasses.replace(resnet.TINY, blocks=(2, 2, 2, 2), size=64)


def mlp(width: int):
    return recurrent.build_mlp(recurrent.MlpConfig(widths=(16, width, 8), batch=2))


def test_killed_workers_cost_nothing_but_time(start_daemon):
    daemon = start_daemon()
    model = resnet.build(MEDIUM)
    module = inlay.from_onnx(model)
    killed = []

    def kill_when_compiling(phase, done, total, detail):
        if phase == "compile" and not killed:
            for pid in daemon.workers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    executable = inlay.build(module, server=daemon.client, progress=kill_when_compiling)
    assert killed, "no worker was there to be killed"
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))
    assert daemon.alive()


def test_kill_9_during_many_compiles(start_daemon):
    """Requests that had been answered are all in the cache afterwards; none of the others is harmed."""
    daemon = start_daemon()
    widths = list(range(8, 58))
    done: list[int] = []

    def compile_one(width):
        with contextlib.suppress(inlay.InlayError), Client(daemon.address) as client:
            inlay.build(inlay.from_onnx(mlp(width)), server=client, timeout=60)
            done.append(width)

    pool = ThreadPoolExecutor(16)
    futures = [pool.submit(compile_one, width) for width in widths]
    deadline = time.monotonic() + 60
    while len(done) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    acknowledged = list(done)
    daemon.kill()
    assert acknowledged
    # Clients retry while the daemon is away; the one that comes back is another, so let them end.
    for future in futures:
        future.cancel()
    pool.shutdown(wait=False, cancel_futures=True)

    again = start_daemon(cache=daemon.cache)
    for width in acknowledged:
        report = inlay.build(inlay.from_onnx(mlp(width)), server=again.client).report
        assert report.actions_run == 0, f"width {width} had been acknowledged"
    for width in widths[::7]:
        model = mlp(width)
        executable = inlay.build(inlay.from_onnx(model), server=again.client)
        inputs = inputs_of(executable)
        check_close(executable.jit()["main"](**inputs), reference(model, inputs))
    assert sum(v for k, v in again.client.stats().items() if "quarantine" in k or "corrupt" in k) == 0


def test_100_identical_requests_compile_each_action_once(start_daemon):
    alone = start_daemon()
    module = inlay.from_onnx(resnet.build(resnet.TINY))
    expected = inlay.build(module, server=alone.client).report.actions_run
    daemon = start_daemon()
    clients = [Client(daemon.address) for _ in range(10)]
    with ThreadPoolExecutor(100) as pool:
        executables = list(pool.map(lambda i: inlay.build(module, server=clients[i % 10]), range(100)))
    assert len({e.digest for e in executables}) == 1
    assert daemon.stat("inlay_actions_run_total") == expected
    for client in clients:
        client.close()


class GivenUpError(Exception):
    pass


class Stopped:
    """Stops a daemon's workers once one of them compiles: what is given as `progress` is not done before `resume`."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.workers: list[int] = []
        self.begun = threading.Event()

    def __call__(self, phase, *_):
        if phase == "compile" and not self.begun.is_set():
            self.workers = self.daemon.workers()
            self._signal(signal.SIGSTOP)
            self.begun.set()

    def resume(self):
        self._signal(signal.SIGCONT)

    def _signal(self, number):
        for pid in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.mark.parametrize("how", ["deadline", "cancel"])
def test_giving_up_stops_the_work_and_leaves_the_daemon_well(start_daemon, how):
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(MEDIUM))
    stopped = Stopped(daemon)

    def give_up(*progress):
        stopped(*progress)
        if stopped.workers:
            assert daemon.stat("inlay_requests_in_flight") == 1
            if how == "cancel":
                raise GivenUpError

    with pytest.raises(GivenUpError if how == "cancel" else inlay.DeadlineExceededError):
        inlay.build(module, server=daemon.client, timeout=5, progress=give_up)
    assert stopped.workers, "the deadline was over before the work began"
    deadline = time.monotonic() + 60
    while daemon.stat("inlay_requests_in_flight") > 0:
        assert time.monotonic() < deadline, "the daemon works on"
        time.sleep(0.01)
    executable = inlay.build(module, server=daemon.client)
    assert executable.report.actions_run > 0, "the work was done for nobody"


def test_a_full_queue_refuses_with_a_delay(start_daemon):
    daemon = start_daemon(flags=("--queue_limit=1",))
    module = inlay.from_onnx(resnet.build(MEDIUM))
    stopped = Stopped(daemon)
    busy = threading.Thread(target=lambda: inlay.build(module, server=Client(daemon.address), progress=stopped))
    busy.start()
    assert stopped.begun.wait(60)
    request = pb.CompileRequest(
        module=inlay.from_onnx(mlp(9)).with_configuration(inlay.CompilationConfig().to_proto()).proto
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(daemon.client._stub.Compile(request))
    stopped.resume()
    busy.join()
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert float(dict(caught.value.trailing_metadata())["retry-delay-ms"]) > 0
    # The client waits it out.
    assert inlay.build(inlay.from_onnx(mlp(10)), server=daemon.client).digest


def test_drain_finishes_what_is_under_way(start_daemon):
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(MEDIUM))
    started = threading.Event()
    results = []

    def compile_it():
        with Client(daemon.address) as client:
            results.append(
                inlay.build(
                    module, server=client, progress=lambda phase, *_: phase != "upload" and started.set()
                ).digest
            )

    thread = threading.Thread(target=compile_it)
    thread.start()
    assert started.wait(30)
    daemon.client.drain()
    thread.join(60)
    assert len(results) == 1
    assert daemon.process.wait(30) == 0


def test_sigterm_drains_too(start_daemon):
    daemon = start_daemon()
    daemon.process.terminate()
    assert daemon.process.wait(30) == 0


def test_a_second_daemon_on_one_socket_is_refused(start_daemon):
    daemon = start_daemon()
    command = [find_binary(), f"--listen={daemon.address}", f"--cache_dir={daemon.cache}"]
    second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert second.returncode != 0
    assert str(daemon.folder) in second.stderr
    assert daemon.client.server_info().pid == daemon.process.pid


def test_two_daemons_share_one_cache(start_daemon):
    one = start_daemon()
    other = start_daemon(cache=one.cache)
    module = inlay.from_onnx(bert.build(bert.TINY, 1, 8))
    inlay.build(module, server=one.client)
    assert inlay.build(module, server=other.client).report.actions_run == 0


METHODS = [m.name for m in pb.DESCRIPTOR.services_by_name["CompileService"].methods]
STREAMING_IN = {"UploadBlobs", "Run"}
# An empty request is a right one for these.
NO_FIELDS = {"GetServerInfo", "ListHandles", "GetStats", "Drain"}


@pytest.mark.parametrize("method", METHODS)
def test_random_bytes_for_every_rpc(shared_daemon, method):
    """No answer but an error (or a right answer to bytes that happen to be a message); the daemon lives."""
    if method == "Drain":
        pytest.skip("random bytes can be a valid empty request, which would end the shared daemon")
    generator = np.random.default_rng(sum(method.encode()))
    with grpc.insecure_channel(shared_daemon.address) as channel:
        path = f"/inlay.proto.CompileService/{method}"
        for size in (1, 2, 7, 64, 1000, 100_000):
            data = generator.bytes(size)
            if method in STREAMING_IN:
                call = channel.stream_stream(path, None, None)(iter([data]), timeout=20)
            else:
                call = channel.unary_stream(path, None, None)(data, timeout=20)
            try:
                list(call)
            except grpc.RpcError as error:
                assert error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.DEADLINE_EXCEEDED,
                ), (size, error.details())
    assert shared_daemon.client.stats()


def compile_error(client: Client, module) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        list(client._stub.Compile(pb.CompileRequest(module=module), timeout=60))
    return caught.value


@pytest.fixture
def proto():
    return inlay.from_onnx(mlp(8)).proto


def mutate_missing_main(proto):
    del proto.functions["main"]


def mutate_operand_out_of_range(proto):
    proto.functions["main"].body.bindings[0].args[0].var = 1000


def mutate_negative_operand(proto):
    proto.functions["main"].body.bindings[0].args[0].var = -1


def mutate_cycle(proto):
    body = proto.functions["main"].body
    body.bindings[0].args[0].var = body.bindings[-1].var


def mutate_unknown_op(proto):
    next(b for b in proto.functions["main"].body.bindings if b.HasField("call")).call.op = "no_such_op"


def mutate_defined_twice(proto):
    bindings = proto.functions["main"].body.bindings
    bindings[1].var = bindings[0].var


def mutate_no_type(proto):
    function = proto.functions["main"]
    function.vars[function.params[0]].ClearField("type")


def mutate_bad_dtype(proto):
    function = proto.functions["main"]
    function.vars[function.params[0]].type.tensor.dtype = 77


def mutate_negative_dim(proto):
    function = proto.functions["main"]
    function.vars[function.params[0]].type.tensor.dims[0].value = -5


def mutate_huge_dims(proto):
    function = proto.functions["main"]
    for dim in function.vars[function.params[0]].type.tensor.dims:
        dim.value = 1 << 62


def mutate_type_mismatch(proto):
    function = proto.functions["main"]
    function.vars[function.params[0]].type.tensor.dims[1].value = 17


def mutate_wrong_literal(proto):
    proto.constants[0].literal = b"123"


def mutate_short_digest(proto):
    constant = next(c for c in proto.constants if c.digest)
    constant.digest = b"short"


def mutate_no_constant(proto):
    del proto.constants[:]


def mutate_recursion(proto):
    binding = proto.functions["main"].body.bindings[0]
    binding.call_function.function = "main"


def mutate_no_results(proto):
    del proto.functions["main"].body.results[:]


def mutate_attribute_of_the_compiler(proto):
    proto.functions["main"].attrs["num_lifted_params"].s = "x"


def mutate_updates_of_no_numbers(proto):
    proto.functions["main"].attrs["updates"].s = "x"


def mutate_updates_of_no_input(proto):
    proto.functions["main"].attrs["updates"].ints.v.append(1 << 40)


def mutate_required_extents_of_no_texts(proto):
    proto.functions["main"].attrs["required_extents"].i = 1


def mutate_required_extents_of_no_symbol(proto):
    proto.functions["main"].attrs["required_extents"].strings.v.append("((((" * 200)


def mutate_bad_target(proto):
    proto.config.targets.add(kind="llvm").attrs["mcpu"] = "no-such-cpu"


def mutate_native_target(proto):
    proto.config.targets.add(kind="llvm").attrs["mcpu"] = "native"


MUTATIONS = {name.removeprefix("mutate_"): f for name, f in list(globals().items()) if name.startswith("mutate_")}


@pytest.mark.parametrize("name", MUTATIONS)
def test_malformed_modules_are_refused(shared_daemon, proto, name):
    shared_daemon.client.upload(inlay.from_onnx(mlp(8)).weights)
    MUTATIONS[name](proto)
    error = compile_error(shared_daemon.client, proto)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, (
        error.code(),
        error.details(),
    )
    assert len(error.details()) > 10
    assert shared_daemon.alive()


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of the wire format."""
    size, length = len(content), b""
    while size >= 128:
        length += bytes([size % 128 | 128])
        size //= 128
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


@pytest.mark.parametrize("depth", [20, 1000])
def test_deeply_nested_modules_are_refused(shared_daemon, depth):
    """Block.bindings(1) . Binding.if_(9) . If.then_block(1), and so on; built here, since protobuf refuses to."""
    block = b""
    for _ in range(depth):
        block = field(1, field(9, field(1, block)))
    entry = field(1, b"main") + field(2, field(3, block))
    request = field(1, field(1, entry))
    with grpc.insecure_channel(shared_daemon.address) as channel, pytest.raises(grpc.RpcError) as caught:
        list(channel.unary_stream("/inlay.proto.CompileService/Compile", None, None)(request, timeout=20))
    # Beyond protobuf's own limit gRPC answers INTERNAL.
    assert caught.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL), caught.value.details()
    assert shared_daemon.client.stats()


def test_truncated_requests(shared_daemon, proto):
    data = pb.CompileRequest(module=proto).SerializeToString()
    with grpc.insecure_channel(shared_daemon.address) as channel:
        call = channel.unary_stream("/inlay.proto.CompileService/Compile", None, None)
        for cut in range(1, len(data), max(1, len(data) // 60)):
            with pytest.raises(grpc.RpcError):
                list(call(data[:cut], timeout=20))
    assert shared_daemon.client.stats()


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([pb.UploadBlobsRequest(data=b"no digest before")], "digest"),
        ([pb.UploadBlobsRequest(digest=b"short", size=3, data=b"abc")], "digest"),
        ([pb.UploadBlobsRequest(digest=bytes(32), size=3, data=b"abc")], "SHA-256"),
        (
            [
                pb.UploadBlobsRequest(digest=bytes(32), size=3, data=b"abc"),
                *(pb.UploadBlobsRequest(digest=hashlib.sha256(b).digest(), size=1, data=b) for b in (b"d", b"e")),
            ],
            "SHA-256",
        ),
        ([pb.UploadBlobsRequest(digest=bytes(32), size=3, data=b"abcdef")], ""),
        ([pb.UploadBlobsRequest(digest=bytes(32), size=30, data=b"abc")], ""),
        ([pb.UploadBlobsRequest(digest=bytes(32), size=-1)], ""),
        ([pb.UploadBlobsRequest(digest=bytes(32), size=1 << 60)], ""),
    ],
)
def test_bad_uploads(client, messages, text):
    with pytest.raises(grpc.RpcError) as caught:
        client._stub.UploadBlobs(iter(messages), timeout=20)
    assert caught.value.code() in (
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    assert text in caught.value.details()
    assert bytes(32) in client._stub.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=[bytes(32)])).missing


def test_bad_references(client):
    stub = client._stub
    for call in (
        lambda: list(stub.ExportLibrary(pb.ExportLibraryRequest(executable=b"x"), timeout=20)),
        lambda: stub.Jit(pb.JitRequest(executable=b"x" * 33), timeout=20),
        lambda: stub.FindMissingBlobs(pb.FindMissingBlobsRequest(digests=[b"x"]), timeout=20),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    for call in (
        lambda: list(stub.ExportLibrary(pb.ExportLibraryRequest(executable=bytes(32)), timeout=20)),
        lambda: stub.Jit(pb.JitRequest(executable=bytes(32)), timeout=20),
        lambda: stub.Unload(pb.UnloadRequest(handle="none"), timeout=20),
        lambda: list(stub.Run(iter([pb.RunRequest(handle="none")]), timeout=20)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_code_that_a_client_sent_is_never_loaded(start_daemon):
    """Everything that an executable is made of, brought to a server that did not compile it: refused, by JIT and export.

    Where it was compiled the very same digest loads, so what stands in the way is whose it is.
    """
    origin, other = start_daemon(), start_daemon()
    module = inlay.from_onnx(mlp(8))
    digest = bytes.fromhex(inlay.build(module, server=origin.client).digest)
    origin.client.jit(digest, timeout=20)
    blobs = {
        bytes.fromhex(path.name): np.frombuffer(path.read_bytes(), np.uint8)
        for path in (origin.cache / "blobs").glob("??/*")
    }
    assert digest in blobs
    other.client.upload(blobs)
    for load in (
        lambda: other.client.jit(digest, timeout=20),
        lambda: list(other.client.export(digest, link_params=True)),
    ):
        with pytest.raises(inlay.NotFoundError, match="compile the module again"):
            load()
    assert inlay.build(module, server=other.client).report.actions_run > 0
    other.client.jit(digest, timeout=20)


def test_bad_run_inputs(client):
    executable = inlay.build(inlay.from_onnx(mlp(8)), server=client)
    good = inputs_of(executable)["input"]
    from inlay.remote import tensor_chunks

    with executable.jit(remote=True) as remote:
        chunk = next(iter(tensor_chunks([good])))
        wrong = []
        for change in (
            {"index": 7},
            {"index": -1},
            {"data": b"123"},
            {"data": chunk.data + b"1"},
        ):
            other = pb.TensorChunk()
            other.CopyFrom(chunk)
            for field, value in change.items():
                setattr(other, field, value)
            wrong.append([other])
        other_type = pb.TensorChunk()
        other_type.CopyFrom(chunk)
        other_type.type.dims[0].value = 9
        wrong += [[other_type], [], [chunk, chunk]]
        for chunks in wrong:
            with pytest.raises(inlay.RunError) as caught:
                list(client.run(remote.handle, chunks, timeout=20))
            assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT
        remote["main"](good)  # still well


def test_not_unimplemented_but_said(client):
    module = inlay.from_onnx(mlp(8))
    for config in (inlay.config.cuda(),):
        with pytest.raises(inlay.UnsupportedError):
            inlay.build(module, config, server=client)
    with pytest.raises(inlay.CompileError, match="no_such_backend"):
        inlay.build(module, inlay.config.cpu(backends=["no_such_backend"]), server=client)


def test_an_open_dimension_is_named(client):
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(inlay.CompileError, match="batch"):
        inlay.build(inlay.from_onnx(model), server=client)
    executable = inlay.build(inlay.from_onnx(model, shape={"batch": 3}), server=client)
    assert executable.inputs == [("x", "f32", (3, 4))]


def test_health_and_reflection(shared_daemon):
    with grpc.insecure_channel(shared_daemon.address) as channel:
        # grpc.health.v1: the empty request asks for the whole server; the answer's field 1 is 1 (SERVING).
        assert channel.unary_unary("/grpc.health.v1.Health/Check", None, None)(b"", timeout=10) == b"\x08\x01"
        # grpc.reflection.v1alpha: field 7 (list_services) of the request.
        call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", None, None)
        assert b"inlay.proto.CompileService" in next(iter(call(iter([b"\x3a\x01*"]), timeout=10)))


def test_handles_are_listed_and_expire(start_daemon):
    daemon = start_daemon()
    executable = inlay.build(inlay.from_onnx(mlp(8)), server=daemon.client)
    remote = executable.remote_jit(idle_expiry_s=0.2)
    listed = daemon.client.handles()
    assert [h.handle for h in listed] == [remote.handle]
    assert listed[0].executable == executable.digest
    assert listed[0].memory_bytes > 0
    deadline = time.monotonic() + 15
    while daemon.client.handles() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not daemon.client.handles()
    with pytest.raises(inlay.NotFoundError):
        remote["main"](inputs_of(executable)["input"])


def test_loaded_modules_are_bounded(start_daemon):
    daemon = start_daemon(flags=("--jit_memory_bytes=1000",))
    executable = inlay.build(inlay.from_onnx(mlp(8)), server=daemon.client)
    with pytest.raises(inlay.ServerBusyError):
        daemon.client.jit(bytes.fromhex(executable.digest), timeout=20)
    assert daemon.alive()


def test_will_not_listen_to_the_world(start_daemon):
    with pytest.raises(AssertionError, match="without mTLS or a token"):
        start_daemon(flags=("--listen=0.0.0.0:0",))
