"""Whole models against onnxruntime: with the native backend alone and with the mix, run in every way."""

from __future__ import annotations

import pathlib

import onnx
import pytest
from conftest import check_close, inputs_of, reference, run_everywhere

import inlay
from inlay import models
from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, vit
from inlay.models.graph import Graph

SMALL = {
    "resnet": lambda: resnet.build(resnet.TINY),
    "mobilenet": lambda: mobilenet.build(mobilenet.TINY),
    "bert": lambda: bert.build(bert.TINY, 2, 16),
    "sentence": lambda: bert.build(bert.TINY, 2, 16, pooled=True),
    "gpt2": lambda: gpt2.build(gpt2.TINY, 1, 16),
    "vit": lambda: vit.build(vit.TINY),
    "lstm": lambda: recurrent.build_lstm(recurrent.TINY_LSTM),
    "mlp": lambda: recurrent.build_mlp(recurrent.TINY_MLP),
}
LIGHT = sorted((pathlib.Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx"))
BACKENDS = {"native": ["native"], "mix": [], "xnnpack": ["xnnpack", "native"]}


@pytest.fixture(params=BACKENDS)
def config(request):
    # By preference, so that XNNPACK takes all that it can, whatever a cost model thinks of it.
    search = "none" if request.param == "xnnpack" else None
    return inlay.config.cpu(backends=BACKENDS[request.param], num_threads=1, search=search)


@pytest.mark.parametrize("name", SMALL)
def test_small(name, config, client, tmp_path):
    model = SMALL[name]()
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    if config.backends:
        assert set(executable.report.backends()) <= set(config.backends)
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


@pytest.mark.parametrize("backend", ["libxsmm", "openblas"])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "native"])
@pytest.mark.parametrize("name", ["resnet", "bert", "mlp"])
def test_library(name, backend, mcpu, client, tmp_path):
    """Every operator that the library takes, whatever it costs; the rest is native."""
    model = SMALL[name]()
    options = {"backends": [backend, "native"], "search": "none", "num_threads": 2}
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(mcpu, **options), server=client)
    assert backend in executable.report.backends()
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("name", models.NAMES)
def test_real(name, config, client, tmp_path):
    model = models.build(name)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light(path, config, client, tmp_path):
    """The graphs that the onnx package ships; their weights are all equal, so outputs may be degenerate."""
    model = onnx.load(path)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


def test_there_are_nine_light_graphs():
    assert len(LIGHT) == 9


def test_two_threads_agree_with_one(client):
    model = SMALL["resnet"]()
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(num_threads=2), server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


def test_other_inputs_give_other_outputs(client):
    """Guards the tests above against a module that answers a constant."""
    model = SMALL["mlp"]()
    module = inlay.build(inlay.from_onnx(model), server=client)
    jit = module.jit()
    one, other = inputs_of(module, 1), inputs_of(module, 2)
    check_close(jit["main"](**one), reference(model, one))
    check_close(jit["main"](**other), reference(model, other))
    assert abs(reference(model, one)[0] - reference(model, other)[0]).max() > 0.01


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("AveragePool", {"kernel_shape": [640, 640], "strides": [640, 640]}),  # EfficientNet's pooler
        ("AveragePool", {"kernel_shape": [9, 2], "strides": [9, 2]}),
        ("AveragePool", {"kernel_shape": [20, 20], "strides": [19, 19], "pads": [1, 2, 1, 2]}),
        ("AveragePool", {"kernel_shape": [20, 20], "strides": [19, 19], "pads": [1, 2, 1, 2], "count_include_pad": 1}),
        ("MaxPool", {"kernel_shape": [20, 20], "strides": [19, 19], "pads": [1, 2, 1, 2]}),
    ],
)
def test_a_pooling_window_larger_than_the_image(op, attributes, client):
    g = Graph("pool")
    pooled = g.op(op, g.input("x", onnx.TensorProto.FLOAT, (2, 3, 8, 7)), ceil_mode=1, **attributes)
    model = g.finish([(pooled, "y", (2, 3, 1, 4 if attributes["strides"][1] == 2 else 1))])
    executable = inlay.build(inlay.from_onnx(model), server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))
