"""Parts of `inlay bench` that need no daemon: peers' processes, PyTorch forms, random architectures, tables."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from inlay.bench import measure, peers, random_operators, report, subjects
from inlay.bench.processes import PeerError, PeerProcess
from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, vit

SHAPES = {"tensor(float)": "f32", "tensor(int64)": "i64"}


def reference(model: onnx.ModelProto) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = subjects.make_inputs([(i.name, SHAPES[i.type], tuple(i.shape)) for i in session.get_inputs()])
    return inputs, session.run(None, inputs)


def check(module, model: onnx.ModelProto) -> None:
    import torch

    inputs, want = reference(model)
    with torch.no_grad():
        got = module(*[torch.from_numpy(array) for array in inputs.values()])
    for y, expected in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-4, atol=1e-4)
        assert np.std(expected) > 1e-3


@pytest.mark.parametrize(
    ("config", "build"),
    [
        (resnet.TINY, resnet.build),
        (mobilenet.TINY, mobilenet.build),
        (bert.TINY, lambda c: bert.build(c, batch=2, length=8)),
        (gpt2.TINY, lambda c: gpt2.build(c, batch=1, length=8)),
        (vit.TINY, vit.build),
        (recurrent.TINY_LSTM, recurrent.build_lstm),
        (recurrent.TINY_MLP, recurrent.build_mlp),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "__dataclass_fields__") else "",
)
def test_the_pytorch_form_computes_the_same(config, build):
    pytest.importorskip("torch")
    from inlay.models import torch_forms

    model = build(config)
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    check(torch_forms.from_weights(config, weights), model)


# gemma2, timm's eca_resnet33ts, clip, a token's steps of opt and gpt_neox, qwen3_moe
@pytest.mark.parametrize("number", [9, 10, 25, 53, 74, 54])
def test_a_random_architecture_is_the_same_every_time(number):
    pytest.importorskip("transformers")
    if importlib.util.find_spec("timm") is None:
        pytest.skip("needs timm: deploy/setup.sh --bench")
    (subject,) = [s for s in subjects.random(number + 1, seed=0) if s.torch["number"] == number]
    assert subject.detail
    assert subjects.named([subject.name]) == [subject]
    check(subjects.torch_module(subject.torch), subject.onnx_model())


@pytest.mark.parametrize("number", range(40))
def test_a_random_operator_is_the_same_every_time(number):
    pytest.importorskip("torch")
    subject = subjects.random(number + 1, seed=0, operators=True)[number]
    assert subject.detail
    assert subjects.named([subject.name]) == [subject]
    check(subjects.torch_module(subject.torch), subject.onnx_model())


def test_random_operators_are_of_every_kind():
    drawn = {subject.name.partition("-")[0] for subject in subjects.random(400, seed=0, operators=True)}
    assert drawn == set(random_operators.KINDS)


@pytest.fixture
def job(tmp_path):
    def make(model: onnx.ModelProto, threads: int = 1) -> peers.Job:
        inputs, _ = reference(model)
        onnx.save(model, tmp_path / "model.onnx")
        np.savez(tmp_path / "inputs.npz", **inputs)
        return peers.Job(
            str(tmp_path / "model.onnx"), str(tmp_path / "inputs.npz"), threads, [0], str(tmp_path / "peer"), {}
        )

    return make


def test_a_peers_process_stands_still_between_bursts(job):
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    with PeerProcess("onnxruntime", job(model), 60) as process:
        pid = process._process.pid

        def state() -> str:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

        assert process.prepare_s > 0
        assert process.version == onnxruntime.__version__
        for _ in range(3):
            assert process.burst() > 0
            assert state() in "Tt"
        (want,) = reference(model)[1]
        np.testing.assert_allclose(process.outputs()[0], want, rtol=1e-5)
    assert not pathlib.Path(f"/proc/{pid}").exists()


def test_a_peers_temporary_files_go_where_the_bench_clears_up(job):
    model = job(recurrent.build_mlp(recurrent.TINY_MLP))
    with PeerProcess("onnxruntime", model, 60) as process:
        environment = pathlib.Path(f"/proc/{process._process.pid}/environ").read_bytes().split(b"\0")
    assert f"TMPDIR={model.scratch}".encode() in environment


def test_what_a_peer_cant_do_is_an_error_with_its_words(job):
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    broken = job(model)
    pathlib.Path(broken.model).write_bytes(b"no model")
    with pytest.raises(PeerError, match=r"\w"):
        PeerProcess("onnxruntime", broken, 60)
    with pytest.raises(PeerError, match="no answer in 0 s"):
        PeerProcess("onnxruntime", job(model), 0)


def test_peers_that_can_be_are_held_to_avx2(job):
    held = dataclasses.replace(job(recurrent.build_mlp(recurrent.TINY_MLP)), avx2=True)
    with PeerProcess("onnxruntime", held, 60) as process:
        environment = pathlib.Path(f"/proc/{process._process.pid}/environ").read_text().split("\0")
    assert "ONEDNN_MAX_CPU_ISA=AVX2" in environment
    assert "TORCHINDUCTOR_CPP_MARCH=x86-64-v3" in environment
    assert [peer for peer in peers.OTHERS if not peers.not_held_to_avx2(peer)] == list(peers.AVX2_PEERS)
    assert peers.not_held_to_avx2("openvino") == "can't be held to AVX2"


def test_errors_keep_nan_and_refuse_other_shapes():
    ones = np.ones(3, np.float32)
    assert measure.errors([ones * 2], [ones]) == (1, 1)
    assert np.isnan(measure.errors([ones * np.nan, ones], [ones, ones])[0])
    with pytest.raises(PeerError, match=r"\[2\], not \[3\]"):
        measure.errors([ones[:2]], [ones])


def test_tables():
    def cell(ms: float, **more) -> dict:
        return {"median_ms": ms, "p10_ms": 0.9 * ms, "p90_ms": 1.1 * ms, "max_abs_error": 1e-6, **more}

    def row(model: str, ours: float, theirs: dict) -> dict:
        runners = {"inlay": cell(ours, max_rel_error=1e-7), **theirs}
        return {"model": model, "runners": runners, "compile_cached_s": 0.01, "backends": {"native": 2}}

    result = {
        "peers": ["a", "iree"],
        "geometric_means": {"a": 2**0.5},
        "best_geometric_mean": 2**0.5,
        "models": [
            row("m", 10, {"a": cell(20, ratio=2.0), "iree": {"error": "not installed (pip install iree)"}}),
            row("n", 10, {"a": cell(10, ratio=1.0), "iree": {"error": "its process ended (SIGSEGV)"}}),
            {"model": "o", "error": "unsupported operator"},
        ],
    }
    columns, rows = report.latency(result)
    assert columns[2] == "a ms"
    assert rows[0][1:4] == ["10.0 ±1.0", "20.0 ±2.0 (2.00x)", "not installed"]
    assert rows[1][3] == "fails"
    assert rows[2][:4] == ["geometric mean", "", "1.41x", "-"]
    assert report.failures(result) == [
        "iree: not installed (pip install iree)",
        "iree on n: its process ended (SIGSEGV)",
        "o: unsupported operator",
    ]
    assert report.plans(result)[1] == []
    result["models"][0]["runners"] |= {"native alone": {"is_mix": True}, "xnnpack where it may": cell(11, ratio=1.1)}
    (first, second) = report.plans(result)[1]
    assert first == ["m", "10.0 ±1.0", "is the mix", "11.0 ±1.1 (1.10x)", "1.00x"]
    assert second[2:] == ["-", "-", "-"]
