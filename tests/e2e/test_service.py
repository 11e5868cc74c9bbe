"""The service as users of several kinds meet it: over TCP, with large tensors, from many threads, watched by metrics."""

from __future__ import annotations

import shutil
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from conftest import check_close, inputs_of, reference
from elftools.elf.elffile import ELFFile

import inlay
from inlay.client import Client
from inlay.daemon import find_binary
from inlay.models import bert, recurrent, resnet


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_over_tcp_the_default_target_is_for_any_machine(start_daemon):
    port = free_port()
    daemon = start_daemon(address=f"127.0.0.1:{port}")
    model = resnet.build(resnet.TINY)
    with Client(daemon.address) as client:
        executable = inlay.build(inlay.from_onnx(model), inlay.CompilationConfig(backends=["native"]), server=client)
        assert executable.config.targets == ()
        inputs = inputs_of(executable)
        check_close(executable.jit()["main"](**inputs), reference(model, inputs))
        from inlay import library

        path = executable.export_library(daemon.folder / "a.so")
        assert library.read_manifest(path).target_cpu == "x86-64-v3"
        # Ending the server is for those who own its socket.
        with pytest.raises(inlay.ServerError):
            client.drain(timeout=10)
    assert daemon.alive()


def test_large_tensors_are_streamed(client):
    """64 MiB in and out: far over what a message may have."""
    from onnx import TensorProto, helper

    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16, 1 << 20]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = inlay.build(inlay.from_onnx(model), server=client)
    x = np.random.default_rng(0).standard_normal((16, 1 << 20)).astype(np.float32)
    with executable.jit(remote=True) as remote:
        np.testing.assert_array_equal(remote["main"](x), np.maximum(x, 0))
        assert remote.last_run_ms > 0


def test_one_module_from_many_threads(client):
    model = bert.build(bert.TINY, 1, 16)
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(num_threads=1), server=client)
    cases = [inputs_of(executable, seed) for seed in range(24)]
    wants = [reference(model, inputs) for inputs in cases]
    local = executable.jit()
    with executable.jit(remote=True) as remote, ThreadPoolExecutor(8) as pool:
        for module in (local, remote):
            for got, want in zip(pool.map(lambda inputs, m=module: m["main"](**inputs), cases), wants, strict=True):
                check_close(got, want)


def test_progress_names_the_phases(start_daemon):
    daemon = start_daemon()
    seen = []
    inlay.build(
        inlay.from_onnx(resnet.build(resnet.TINY)), server=daemon.client, progress=lambda *event: seen.append(event)
    )
    phases = [event[0] for event in seen]
    assert "upload" in phases
    assert "compile" in phases
    done = [event[1:3] for event in seen if event[0] == "compile"]
    assert done == sorted(done), "progress goes forward"
    assert done[-1][0] == done[-1][1] > 1


def test_metrics_page(start_daemon):
    port = free_port()
    daemon = start_daemon(flags=(f"--metrics_listen=127.0.0.1:{port}",))
    inlay.build(inlay.from_onnx(recurrent.build_mlp(recurrent.TINY_MLP)), server=daemon.client)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert "# TYPE inlay_actions_run_total" in text
    (line,) = [line for line in text.splitlines() if line.startswith("inlay_actions_run_total ")]
    assert float(line.split()[1]) == daemon.stat("inlay_actions_run_total") > 0


def test_another_build_of_the_compiler_misses(start_daemon):
    """Whatever changes in a worker's code changes its build id, and that is in every key. Here the id alone is changed,
    in a copy of the worker."""
    one = start_daemon()
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    module = inlay.from_onnx(model)
    config = inlay.config.cpu(backends=["native"])
    inlay.build(module, config, server=one.client)
    worker = find_binary().with_name("inlay_worker")
    if not worker.exists():
        pytest.skip("the worker does not lie beside the daemon")
    # Beside the original's libraries: it finds them through $ORIGIN.
    folder = one.folder / "other"
    folder.mkdir()
    (folder / "lib").symlink_to(worker.resolve().parent / "lib")
    copy = folder / "inlay_worker"
    shutil.copy(worker, copy)
    with copy.open("rb") as file:
        note = ELFFile(file).get_section_by_name(".note.gnu.build-id")
        offset = note["sh_offset"] + note["sh_size"] - 1
    data = bytearray(copy.read_bytes())
    data[offset] ^= 1
    copy.chmod(0o755)
    copy.write_bytes(data)
    other = start_daemon(cache=one.cache, flags=(f"--worker_binary={copy}",))
    report = inlay.build(module, config, server=other.client).report
    assert report.actions_run == len(report.partitions) > 0
    assert all("version" in p["miss_reason"] for p in report.partitions)


def test_a_deadline_that_is_over_before_it_begins(client):
    with pytest.raises(inlay.DeadlineExceededError):
        inlay.build(inlay.from_onnx(recurrent.build_mlp(recurrent.TINY_MLP)), server=client, timeout=1e-6)


def test_concurrent_different_models(start_daemon):
    daemon = start_daemon()
    builders = [lambda w=w: recurrent.build_mlp(recurrent.MlpConfig(widths=(8, w, 4), batch=2)) for w in range(4, 28)]
    models = [build() for build in builders]

    def check(model):
        with Client(daemon.address) as client:
            executable = inlay.build(inlay.from_onnx(model), server=client)
            inputs = inputs_of(executable)
            with executable.jit(remote=True) as remote:
                check_close(remote["main"](**inputs), reference(model, inputs))

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(check, models))
    assert daemon.client.handles() == []


def test_unloading_twice(client):
    executable = inlay.build(inlay.from_onnx(recurrent.build_mlp(recurrent.TINY_MLP)), server=client)
    remote = executable.jit(remote=True)
    remote.unload()
    with pytest.raises(inlay.NotFoundError) as caught:
        remote.unload()
    assert caught.value.code == grpc.StatusCode.NOT_FOUND
