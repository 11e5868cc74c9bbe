"""What a second compile costs, and what misses when a little of a model has changed."""

from __future__ import annotations

import dataclasses

import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay.models import bert, resnet

SMALL = dataclasses.replace(resnet.TINY, blocks=(2, 2, 2))


def misses(report) -> list[dict]:
    return [p for p in report.partitions if p["cache"] == "miss"]


@pytest.fixture(params=["native", "mix"])
def config(request):
    return inlay.config.cpu(backends=["native"] if request.param == "native" else [], num_threads=1)


def test_second_compile_runs_no_worker(start_daemon, config):
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(SMALL))
    first = inlay.build(module, config, server=daemon.client)
    assert first.report.actions_run > 0
    assert misses(first.report)
    before = daemon.stat("inlay_actions_run_total")
    second = inlay.build(module, config, server=daemon.client)
    assert second.report.actions_run == 0
    assert not misses(second.report)
    assert second.digest == first.digest
    assert daemon.stat("inlay_actions_run_total") == before
    assert second.report.upload_bytes == 0


def test_cache_outlives_the_daemon(start_daemon, config):
    one = start_daemon()
    module = inlay.from_onnx(resnet.build(SMALL))
    first = inlay.build(module, config, server=one.client)
    one.stop()
    other = start_daemon(cache=one.cache)
    second = inlay.build(module, config, server=other.client)
    assert second.report.actions_run == 0
    assert second.digest == first.digest


def test_new_weights_hit_every_partition(start_daemon, config):
    daemon = start_daemon()
    for build in (
        lambda seed: resnet.build(SMALL, seed),
        lambda seed: bert.build(bert.TINY, 1, 16, seed=seed),
    ):
        inlay.build(inlay.from_onnx(build(0)), config, server=daemon.client)
        tuned = build(1)
        executable = inlay.build(inlay.from_onnx(tuned), config, server=daemon.client)
        assert executable.report.upload_bytes > 0
        assert executable.report.actions_run == 0
        assert not misses(executable.report)
        inputs = inputs_of(executable)
        check_close(executable.jit()["main"](**inputs), reference(tuned, inputs))


def test_changed_channels_miss_only_around_the_change(start_daemon, config):
    """The last stage's inner width changes: what lies before it hits, and each miss says why."""
    daemon = start_daemon()
    inlay.build(inlay.from_onnx(resnet.build(SMALL)), config, server=daemon.client)
    changed = inlay.build(
        inlay.from_onnx(resnet.build(dataclasses.replace(SMALL, classes=12))),
        config,
        server=daemon.client,
    )
    missed = misses(changed.report)
    assert 0 < len(missed) <= 2, [p["ops"] for p in missed]
    assert len(changed.report.partitions) > 3 * len(missed)
    for partition in missed:
        assert partition["miss_reason"], partition
        assert any("fc" in location for location in partition["locations"]), partition["locations"]


def test_other_features_miss(start_daemon):
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(resnet.TINY))
    inlay.build(module, "llvm -mcpu=x86-64-v2", server=daemon.client)
    other = inlay.build(module, "llvm -mcpu=x86-64-v3", server=daemon.client)
    assert other.report.actions_run > 0


def test_threads_and_names_do_not_change_code(start_daemon):
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(resnet.TINY))
    inlay.build(module, inlay.config.cpu(num_threads=1), server=daemon.client)
    renamed = resnet.build(resnet.TINY)
    for node in renamed.graph.node:
        node.name = "other_" + node.name
    assert (
        inlay.build(
            inlay.from_onnx(renamed),
            inlay.config.cpu(num_threads=1),
            server=daemon.client,
        ).report.actions_run
        == 0
    )


def test_a_flipped_bit_in_the_cache_is_found(start_daemon):
    """Every file of the cache that is large enough to be a blob gets one bit flipped while no daemon runs."""
    one = start_daemon()
    model = resnet.build(resnet.TINY)
    module = inlay.from_onnx(model)
    inlay.build(module, server=one.client)
    one.stop()
    flipped = 0
    for path in one.cache.rglob("*"):
        if (
            path.is_file()
            and path.suffix not in (".db", ".db-wal", ".db-shm", ".sqlite", ".lock")
            and path.stat().st_size > 16
        ):
            data = bytearray(path.read_bytes())
            if data[:15] == b"SQLite format 3":
                continue
            data[len(data) // 2] ^= 1
            path.chmod(0o644)
            path.write_bytes(data)
            flipped += 1
    assert flipped > 2
    other = start_daemon(cache=one.cache)
    executable = inlay.build(module, server=other.client)
    assert executable.report.actions_run > 0
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


def test_resnet50_second_compile_runs_nothing(start_daemon):
    """What it costs in milliseconds is a figure of `inlay bench` (cached s), not of a test: machines differ."""
    daemon = start_daemon()
    module = inlay.from_onnx(resnet.build(resnet.RESNET50))
    inlay.build(module, server=daemon.client)
    second = inlay.build(module, server=daemon.client).report
    assert second.actions_run == 0
    assert all(partition.cache == "hit" for partition in second.partitions)
    assert second.server_ms > 0
