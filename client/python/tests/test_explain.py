"""`inlay explain` and `inlay profile` on reports, plans and times that are made here; with a daemon: tests/e2e/test_cli.py."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from inlay import explain, picture, profiling, roofline
from inlay._proto import artifact_pb2
from inlay.report import Report


@pytest.fixture
def report():
    proto = artifact_pb2.CompileReport(plan_source="search", measure_ms=1500)
    matmul = {"ops": ["matmul", "add"], "locations": ["/fc/MatMul", "/fc/Add"]}
    proto.partitions.add(
        name="p0", backend="onednn", cost_us=10, call_sites=3, why="cheapest", channels_last_outputs=[0, 2], **matmul
    )
    proto.partitions.add(
        name="p1", backend="native", ops=["softmax"], locations=["/softmax"], call_sites=1, why="alone"
    )
    proto.candidates.add(backend="native", rule="native.fused", cost_us=12, spread_us=0.5, measured=True, **matmul)
    proto.candidates.add(
        backend="onednn", rule="onednn.matmul", cost_us=10, spread_us=0.5, measured=True, chosen=True, **matmul
    )
    proto.candidates.add(backend="broken", rule="broken.any", cost_us=1, excluded="output 0: wrong by 3.5", **matmul)
    proto.candidates.add(backend="native", rule="native.pack", ops=["transpose"], locations=["/w"])
    proto.plans.add(
        name="cheapest cover", measured_us=100, estimated_us=90, spread_us=2, chosen=True, calls={"onednn": 3}
    )
    proto.plans.add(name="native alone", measured_us=120, estimated_us=110, calls={"native": 4})
    proto.plans.add(name="broken where it may", excluded="a crash in p0")
    proto.unusable.add(backend="xnnpack", reason="libXNNPACK.so.0 is not on this machine", named=True)
    proto.unusable.add(backend="csource", reason="no C compiler")
    proto.notes.append("another daemon measured at the same time")
    proto.transitions.dispatch.add(backend="native", us=0.05)
    proto.transitions.dispatch.add(backend="broken", failed="it crashed")
    proto.transitions.copies.add(bytes=64 << 20, us=9876)
    proto.transitions.layouts.add(backend="onednn", bytes=50 << 10, us=4, estimated_us=9.4)
    return Report.from_proto(proto)


def test_explanation(report):
    found = explain.explanation(report)
    first = found["partitions"][0]
    assert first["name"] == "p0"
    assert [c.backend for c in first["candidates"]] == ["onednn", "native", "broken"]
    assert first["verdict"] == "1.20x faster than native"
    assert found["partitions"][1]["verdict"] == "alone"
    assert [c.rule for c in found["other_candidates"]] == ["native.pack"]


def test_explanation_for_people(report, capsys):
    explain.print_explanation(explain.explanation(report), limit=1)
    text = capsys.readouterr().out
    assert "120 us" in text
    assert "excluded: a crash in p0" in text
    assert "1. matmul, add: onednn, ~10.0 us, 3 calls at '/fc/MatMul'" in text
    assert "   channels last: output 0, output 2\n" in text
    assert "12.0 ±0.5 us" in text
    assert "excluded: output 0: wrong by 3.5" in text
    assert "and 1 more partitions" in text
    assert "1.5 s spent measuring" in text
    assert "xnnpack, which the configuration names, cannot serve: libXNNPACK.so.0 is not on this machine\n" in text
    assert "csource cannot serve: no C compiler\n" in text
    assert "another daemon measured at the same time\n" in text
    assert "measured here: a call: native 0.05 us, broken it crashed\n" in text
    assert "measured here: a copy: 64 MiB 9876.0 us\n" in text
    assert "measured here: a change of layout: onednn 50 KiB 4.0 us (~9.4)\n" in text


def test_what_cannot_serve_and_how_ties_were_decided_is_in_the_json(report, capsys):
    report.plans[0]["note"] = "a tie with 'native alone': fewer partitions"
    report.candidates[0]["note"] = "crashed in a run; not when measured again"
    found = explain.explanation(report)
    assert found["unusable"] == [
        {"backend": "xnnpack", "reason": "libXNNPACK.so.0 is not on this machine", "named": True},
        {"backend": "csource", "reason": "no C compiler", "named": False},
    ]
    assert found["notes"] == report.notes
    explain.print_explanation(found, limit=1)
    text = " ".join(capsys.readouterr().out.split())
    assert "chosen; a tie with 'native alone': fewer partitions" in text
    assert "crashed in a run; not when measured again" in text


def test_a_winner_within_the_spread_and_one_that_nobody_else_may_take(report):
    report.candidates[0].spread_us = 3.0
    assert "within the spread" in explain.explanation(report)["partitions"][0]["verdict"]
    report.candidates[0].excluded = "crashed"
    verdict = explain.explanation(report)["partitions"][0]["verdict"]
    assert verdict == "no other backend may take it: broken: output 0: wrong by 3.5; native: crashed"


def info(backend: str, ops: list[str], types: list[str], flops: int, moved: int, constant: int = 0) -> dict:
    return {
        "backend": backend, "ops": ops, "types": types, "flops": flops, "bytes": moved, "constant_bytes": constant,
    }  # fmt: skip


@pytest.fixture
def plan():
    """x -> a (twice, with a weight) -> b -> y, and x itself."""
    t = "f32[64, 64]"
    x = {"name": "x <&>", "dtype": "f32", "shape": [64, 64]}
    return {
        "inputs": [x],
        "outputs": [{**x, "name": "y"}, {**x, "name": "again"}],
        "functions": [
            {"symbol": "inlay_a", "inputs": 2, "info": info("native", ["matmul"], [t, t, t], 2 * 64**3, 49152, 16384)},
            {"symbol": "inlay_b", "inputs": 1, "info": info("onednn", ["relu"], [t, t], 4096, 32768)},
        ],
        "buffers": [["input", 0, 16384], ["param", 0, 16384], ["arena", 0, 16384], ["arena", 16384, 16384]]
        + [["output", 0, 16384], ["output", 1, 16384]],
        "run": [
            {"do": "run", "function": 0, "args": [0, 1, 2], "name": "/fc1"},
            {"do": "run", "function": 0, "args": [2, 1, 3], "name": "/fc2"},
            {"do": "run", "function": 1, "args": [3, 4], "name": "/relu"},
            {"do": "copy", "args": [0, 5], "name": "again"},
        ],
    }


class FakeModule:
    """Steps of 10, 20, 5 and 1 microseconds."""

    def profile(self, inputs, runs):
        return np.tile(np.array([10_000, 20_000, 5_000, 1_000]), (runs, 1))


def test_profile(plan, capsys):
    limits = roofline.Roofline(100.0, "a test", {1 << n: 20.0 for n in range(15, 29)})
    result = profiling.profile_module(FakeModule(), plan, {}, 5, limits)  # type: ignore[arg-type]
    a, b, copy = result["partitions"]
    assert (a["calls"], a["us"], a["locations"]) == (2, 15, ["/fc1", "/fc2"])
    assert a["gflops"] == pytest.approx(2 * 64**3 / 15e3)
    # Arithmetic, 5.24 us, is more than 48 KiB at 20 GB/s.
    assert a["floor_us"] == pytest.approx(5.24288)
    assert not a["low"]
    assert b["floor_us"] == pytest.approx(32768 / 20e3)
    assert (copy["backend"], copy["bytes"]) == ("executor", 32768)
    assert result["total_us"] == pytest.approx(36)
    assert result["backends"]["native"] == {"us": 30, "calls": 2}
    slow = roofline.Roofline(1000.0, "a test", {1 << n: 200.0 for n in range(15, 29)})
    result = profiling.profile_module(FakeModule(), plan, {}, 5, slow)  # type: ignore[arg-type]
    assert [p["low"] for p in result["partitions"]] == [True, True, False]  # the copy is too short to judge
    profiling.print_profile(result, limit=2)
    text = capsys.readouterr().out
    assert "LOW" in text
    assert "and 1 more" in text


def test_profile_of_open_extents(plan):
    """Work that depends on the extents is what the inputs make of it: x is [2*n+1, 64], and n halved."""
    f = plan["functions"]
    f[0]["info"] = info("native", ["matmul"], ["f32[2*n+1, 64]"], "8192*n*n+8192", "512*n", 256)  # type: ignore[arg-type]
    f[1]["info"] = info("native", ["relu"], ["f32[((n)/2), 64]"], "64*((n)/2)", "512*((n)/2)")  # type: ignore[arg-type]
    plan["shapes"] = {
        "registers": [["n", "input", [0, 0, 2], [[1]]], ["((n)/2)", "floor_div", [2], [[1, 0]]]],
        "extents": [["2*n+1", [[1], [2, 0]]]],
    }
    plan["inputs"][0]["shape"] = [-1, 64]
    limits = roofline.Roofline(100.0, "a test", {1 << n: 20.0 for n in range(15, 29)})
    for n in (1, 5, 8):
        inputs = {"x <&>": np.zeros((2 * n + 1, 64), np.float32)}
        a, b, _ = profiling.profile_module(FakeModule(), plan, inputs, 3, limits)["partitions"]  # type: ignore[arg-type]
        assert (a["flops"], a["bytes"], a["constant_bytes"]) == (8192 * n * n + 8192, 512 * n, 256)
        assert (b["flops"], b["bytes"]) == (64 * (n // 2), 512 * (n // 2))


def test_bandwidth_between_measured_sizes():
    limits = roofline.Roofline(1, "", {1 << 10: 100.0, 1 << 12: 25.0})
    assert limits.gbs(1) == 100
    assert limits.gbs(1 << 11) == pytest.approx(50)
    assert limits.gbs(1 << 40) == 25


def test_roofline_of_this_machine():
    limits = roofline.measure(1)
    assert limits.gflops > 0.5
    assert all(gbs > 0.1 for gbs in limits.bandwidth.values())
    assert limits.by == "NumPy's BLAS"


def test_the_peak_is_of_as_many_cores_as_threads(monkeypatch):
    # As many seconds as the process that runs the product has cores.
    monkeypatch.setattr(roofline, "_MATMUL", "import os; print(len(os.sched_getaffinity(0)))")
    assert roofline.measure(1).gflops == pytest.approx(2e-9 * roofline.N**3)


def test_picture(plan, tmp_path):
    pytest.importorskip("graphviz")
    path = tmp_path / "g.svg"
    picture.write_svg(
        plan, path, "a <model>", ["xnnpack cannot serve: its library is not on this machine, and so on and on"]
    )
    root = ET.fromstring(path.read_text())
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a <model>" in texts
    assert "x <&>" in texts
    legend = " ".join(" ".join(t or "" for t in texts).split())
    assert "executor: 1 calls xnnpack cannot serve: its library is not on this machine, and so" in legend
    assert texts.count("matmul") == 2
    assert "64x64" in "".join(t or "" for t in texts).replace("\xa0", " ")
    fills = {e.get("fill") for e in root.iter("{http://www.w3.org/2000/svg}path")}
    assert {picture.colour("native"), picture.colour("onednn")} <= fills
    nodes = [e for e in root.iter() if e.get("class") == "edge"]
    assert len(nodes) == 6  # x-a, a-a, a-b, b-y, x-copy, copy-again


def test_picture_shows_parts_of_a_batch_once(plan, tmp_path):
    """a and b go twice, for half of x each, and the copy reads what both made."""
    pytest.importorskip("graphviz")
    half = 8192
    plan["buffers"] = [["input", 0, half], ["input", 0, half, half], ["param", 0, 16384], ["arena", 0, half]]
    plan["buffers"] += [
        ["arena", half, half],
        ["arena", 2 * half, half],
        ["arena", half, 2 * half],
        ["output", 0, 16384],
    ]
    calls = [(0, [0, 2, 3]), (1, [3, 4]), (0, [1, 2, 3]), (1, [3, 5])]
    plan["run"] = [
        {"do": "run", "function": function, "args": args, "name": "f", "part": [number // 2, 2]}
        for number, (function, args) in enumerate(calls)
    ] + [{"do": "copy", "args": [6, 7], "name": "y"}]
    path = tmp_path / "g.svg"
    picture.write_svg(plan, path, "parts")
    root = ET.fromstring(path.read_text())
    texts = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("matmul") == texts.count("relu") == 1
    assert texts.count("2 times, a part of the batch each") == 2
    assert len([e for e in root.iter() if e.get("class") == "edge"]) == 4  # x-a, a-b, b-copy, copy-y
