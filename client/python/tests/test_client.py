"""Client, build and RemoteModule against the fake server."""

from __future__ import annotations

import threading

import grpc
import numpy as np
import pytest

import inlay
from inlay import client as client_module
from inlay._proto import config_pb2

BUSY = (grpc.StatusCode.RESOURCE_EXHAUSTED, "128 requests wait", (("retry-delay-ms", "20"),))
AWAY = (grpc.StatusCode.UNAVAILABLE, "draining", ())


def test_build_uploads_only_what_is_missing(server, client, module):
    first = inlay.build(module, server=client)
    assert first.report.upload_bytes == 64 * 10 * 4
    assert server.blobs.keys() == module.weights.keys()
    assert inlay.build(module, server=client).report.upload_bytes == 0
    assert server.calls["UploadBlobs"] == 1


def test_large_weights_go_in_pieces(server, client):
    weights = {}
    for size in (0, 1, client_module.CHUNK_BYTES, client_module.CHUNK_BYTES * 2 + 3):
        array = np.arange(size, dtype=np.uint8)
        weights[inlay.ir.module.digest_of(array)] = array
    seen = []
    assert client.upload(weights, lambda *event: seen.append(event)) == client_module.CHUNK_BYTES * 3 + 4
    assert {digest: array.tobytes() for digest, array in weights.items()} == server.blobs
    assert seen[-1][:3] == ("upload", client_module.CHUNK_BYTES * 3 + 4, client_module.CHUNK_BYTES * 3 + 4)


def test_report_has_the_contracts_keys(client, module):
    report = inlay.build(module, server=client).report
    assert report.server_ms == report["server_ms"] == 1.5
    assert report.actions_run == 1
    partition = report.partitions[0]
    assert partition == partition | {"name": "p0", "backend": "native", "ops": ["matmul", "relu"], "cache": "miss"}
    assert {"why", "compile_ms", "cost_us"} <= set(partition)
    with pytest.raises(AttributeError, match="server_ms"):
        _ = report.no_such_key


@pytest.mark.parametrize("failure", [BUSY, AWAY])
def test_retries_a_server_that_is_full_or_away(server, client, module, failure):
    server.fail["Compile"] = [failure, failure]
    assert inlay.build(module, server=client).digest
    assert server.calls["Compile"] == 3


def test_full_without_a_delay_is_not_retried(server, client, module):
    server.fail["Compile"] = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "module too large", ())]
    with pytest.raises(inlay.ServerBusyError, match="module too large"):
        inlay.build(module, server=client)
    assert server.calls["Compile"] == 1


def test_evicted_weights_are_uploaded_again(server, client, module):
    client.upload(module.weights)
    forget = client.upload

    def upload_and_lose(weights, progress=None, config=None):
        sent = forget(weights, progress, config)
        if server.calls["Compile"] == 0:
            server.blobs.clear()
        return sent

    client.upload = upload_and_lose
    assert inlay.build(module, server=client).digest
    assert server.calls["Compile"] == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, inlay.CompileError),
        (grpc.StatusCode.UNIMPLEMENTED, inlay.UnsupportedError),
        (grpc.StatusCode.INTERNAL, inlay.CompileError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, inlay.DeadlineExceededError),
        (grpc.StatusCode.UNAUTHENTICATED, inlay.ServerError),
    ],
)
def test_status_codes_become_errors_of_one_line(server, client, module, code, kind):
    server.fail["Compile"] = [(code, "main: binding 3\n(conv1): rank 2", ())]
    with pytest.raises(kind) as caught:
        inlay.build(module, server=client)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    if code != grpc.StatusCode.DEADLINE_EXCEEDED:
        assert "main: binding 3 (conv1): rank 2" in str(caught.value)


def test_a_server_that_lacks_the_method_is_called_older(server, client, module):
    server.fail["Compile"] = [(grpc.StatusCode.UNIMPLEMENTED, "", ())]  # as gRPC's C++ servers answer
    with pytest.raises(inlay.UnsupportedError, match="older than this client.*inlay drain"):
        inlay.build(module, server=client)


def test_no_server_says_so_and_what_to_do(tmp_path, module):
    client = client_module.Client(f"unix:{tmp_path}/none.sock")
    with pytest.raises(inlay.ServerUnavailableError, match="inlay serve"):
        client.server_info(timeout=1, retries=0)


def test_timeout_stops_the_work(server, client, module):
    server.slow = True
    with pytest.raises(inlay.DeadlineExceededError):
        inlay.build(module, server=client, timeout=0.5)
    assert server.cancelled.wait(5), "the server was not told"


def test_interrupt_cancels(server, client, module):
    server.slow = True

    def interrupt(phase, *_):
        if phase == "compile":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inlay.build(module, server=client, progress=interrupt)
    assert server.cancelled.wait(5), "the server was not told"


def test_progress_is_reported(client, module):
    seen = []
    inlay.build(module, server=client, progress=lambda phase, *_: seen.append(phase))
    assert seen[0] == "upload"
    assert seen[-1] == "compile"


def test_native_is_resolved_by_the_client(server, client, module):
    server.host_cpu = "znver4"
    for given in (None, "llvm -mcpu=native", inlay.config.cpu()):
        ex = inlay.build(module, given, server=client)
        sent = server.requests[-1].module.config.targets[0]
        assert sent.attrs["mcpu"] == "znver4"
        assert "num-cores" not in sent.attrs
        assert ex.config.targets[0].attrs["mcpu"] == "znver4"
    inlay.build(module, "llvm -mcpu=x86-64-v2", server=client)
    assert server.requests[-1].module.config.targets[0].attrs["mcpu"] == "x86-64-v2"


def test_a_modules_own_configuration_is_used(server, client, module):
    config = inlay.CompilationConfig(
        targets=["llvm -mcpu=x86-64-v2"], backends=["onednn"], num_threads=3, link_params=False
    )
    inlay.build(module.with_configuration(config.to_proto()), server=client)
    sent = server.requests[-1].module.config
    assert (sent.num_threads, list(sent.search.backends), sent.link_params) == (3, ["onednn"], False)
    assert sent.executor.kind == config_pb2.Executor.GRAPH


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16", "bfloat16"])
def test_remote_run_moves_tensors(server, client, module, dtype):
    import ml_dtypes

    ex = inlay.build(module, server=client)
    with ex.jit(remote=True) as remote:
        remote.inputs = [("x", dtype, (3, 7))]
        array = np.arange(21).reshape(3, 7).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        result = remote(array)
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array)
        assert remote.last_run_ms == 0.25
    assert server.calls["Unload"] == 1


def test_remote_run_of_several_large_and_empty_tensors(client, module, server):
    from inlay.remote import _Outputs, tensor_chunks

    server.chunk = 1 << 19
    arrays = [np.zeros((0, 4), np.float32), np.random.rand(1000, 700), np.array(7)]
    ex = inlay.build(module, server=client)
    ex.jit(remote=True)
    outputs = _Outputs(3)
    for response in client.run("h1", tensor_chunks(arrays)):
        if response.HasField("output"):
            outputs.add(response.output)
    for got, want in zip(outputs.finish(), arrays, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_cut_answer_is_an_error(client, module, server):
    ex = inlay.build(module, server=client)
    remote = ex.jit(remote=True)
    remote.outputs = remote.outputs * 2
    with pytest.raises(inlay.RunError, match="output 1"):
        remote(np.zeros((4, 64), np.float32))


def test_unknown_handle(client, module):
    remote = inlay.build(module, server=client).jit(remote=True)
    remote.handle = "gone"
    with pytest.raises(inlay.NotFoundError, match="unloaded or expired"):
        remote(np.zeros((4, 64), np.float32))


def test_wrong_inputs_are_named(client, module):
    remote = inlay.build(module, server=client).jit(remote=True)
    with pytest.raises(TypeError, match=r"takes 1 input\(s\) \(x\), not 2"):
        remote(1, 2)
    with pytest.raises(TypeError, match="missing or unknown: x, z"):
        remote(z=1)


def test_a_client_is_thread_safe(client, module):
    digests = []
    threads = [
        threading.Thread(target=lambda: digests.append(inlay.build(module, server=client).digest)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(digests) == 8
    assert len(set(digests)) == 1


def test_a_blob_lost_since_is_restored(server, client, module):
    """The server finds a weight damaged as it loads the module: the client uploads it again."""
    executable = inlay.build(module, server=client)
    server.blobs.clear()
    server.fail["Jit"] = [(grpc.StatusCode.FAILED_PRECONDITION, "parameter w is gone: upload it", ())]
    assert executable.remote_jit().handle == "h1"
    assert server.blobs.keys() == module.weights.keys()
    server.fail["Jit"] = [(grpc.StatusCode.FAILED_PRECONDITION, "parameter w is gone: upload it", ())] * 2
    with pytest.raises(inlay.CompileError, match="is gone"):
        executable.remote_jit()
