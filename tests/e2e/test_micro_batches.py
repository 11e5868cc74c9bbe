"""A batch whose tensors are larger than the caches goes through a model a few images at a time, and computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import check_close, inputs_of, reference, run_everywhere
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay import profiling, roofline
from inlay._proto import config_pb2

BATCH = 6


def network() -> onnx.ModelProto:
    """Convolutions of images of 60x60 with what stands between them in real networks: a shortcut, a concatenation, a
    split, squeeze and excitation (whose 20 floats an image are no whole cache line), weights that images share, and a
    result of the middle beside the classes."""
    random = np.random.default_rng(11)
    nodes, weights = [], []

    def weight(*shape: int) -> str:
        data = random.standard_normal(shape) / np.sqrt(max(np.prod(shape[1:]), 1))
        weights.append(numpy_helper.from_array(data.astype(np.float32), f"w{len(weights)}"))
        return weights[-1].name

    def node(op: str, inputs: list[str], outputs: int = 1, **attributes) -> str:
        names = [f"v{len(nodes)}_{i}" for i in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, **attributes))
        return names[0]

    def conv(x: str, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
        w = weight(out, channels // groups, kernel, kernel)
        y = node("Conv", [x, w, weight(out)], strides=[stride] * 2, pads=[kernel // 2] * 4, group=groups)
        return node("Relu", [y])

    x = conv("x", 3, 40, 3)
    y = node("Add", [conv(conv(x, 40, 40, 3, groups=40), 40, 40, 1), x])
    middle = y = node("Mul", [y, weight(1, 40, 1, 1)])
    left = node("Split", [y], 2, axis=1)
    y = node("Concat", [conv(left, 20, 20, 3), left.removesuffix("0") + "1", x], axis=1)
    y = conv(y, 80, 20, 1)
    squeezed = node("GlobalAveragePool", [y])
    y = node("Mul", [y, node("Sigmoid", [node("Conv", [squeezed, weight(20, 20, 1, 1)])])])
    y = node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2])
    y = node("Flatten", [node("GlobalAveragePool", [conv(y, 20, 24, 3, stride=2)])])
    y = node("Gemm", [y, weight(24, 10)])
    results = [(y, (BATCH, 10)), (middle, (BATCH, 40, 60, 60))]
    graph = helper.make_graph(
        nodes,
        "micro_batches",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (BATCH, 3, 60, 60))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in results],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def parts(executable: inlay.Executable) -> set[int | str]:
    """In how many parts of the batch its steps go."""
    assert executable.plan is not None
    return {step.get("turns", step.get("part", [0, 1])[1]) for step in executable.plan["run"]}


def with_batch(batch: int | str) -> onnx.ModelProto:
    model = network()
    for value in (*model.graph.input, *model.graph.output):
        dim = value.type.tensor_type.shape.dim[0]
        if isinstance(batch, int):
            dim.dim_value = batch
        else:
            dim.dim_param = batch
    return model


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("executor", ["graph", "aot", "vm"])
def test_a_few_images_at_a_time_compute_the_same(client, tmp_path, executor, threads):
    model = network()
    config = inlay.config.cpu("x86-64-v3", executor=executor, num_threads=threads)
    executable = inlay.build(inlay.from_onnx(model), config, server=client, want_plan=True)
    assert max(parts(executable)) > 1
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for way, got in run_everywhere(executable, inputs, tmp_path).items():
        check_close([np.from_dlpack(array) for array in got], want)
        assert len(got) == 2, way


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mcpu", ["x86-64-v3", "native"])
def test_images_of_an_open_batch_go_one_by_one(client, tmp_path, mcpu, threads):
    """Each is what the model computes for it alone, to the bit, by what was compiled for one image."""
    model = with_batch("batch")
    config = inlay.config.cpu(mcpu, executor="vm", num_threads=threads, dim_hints={"batch": 8})
    executable = inlay.build(inlay.from_onnx(model, executor="vm"), config, server=client, want_plan=True)
    assert parts(executable) == {1, "batch"}
    turns = {p.name for p in executable.report.partitions if "1 of batch rows at a time" in p.why}
    of_one = inlay.config.cpu(mcpu, num_threads=threads)
    one = inlay.build(inlay.from_onnx(with_batch(1)), of_one, server=client)
    assert turns <= {p.name for p in one.report.partitions}
    alone, open_batch = one.jit()["main"], executable.jit()["main"]
    exported = inlay.load_library(executable.export_library(tmp_path / "model.so"))["main"]
    with executable.jit(remote=True) as remote:
        for batch in (1, 4, 0, 7):
            x = np.random.default_rng(batch).standard_normal((batch, 3, 60, 60)).astype(np.float32)
            want = reference(model, {"x": x}) if batch > 0 else []
            for run in (open_batch, exported, remote["main"]):
                classes, middle = (np.from_dlpack(result) for result in run(x))
                assert classes.shape == (batch, 10)
                assert middle.shape == (batch, 40, 60, 60)
                for i in range(batch):
                    np.testing.assert_array_equal(middle[i], np.from_dlpack(alone(x[i : i + 1])[1])[0])
                if batch > 0:
                    check_close([classes, middle], want)


def test_rows_that_a_run_gives_their_size_go_at_once(client):
    model = with_batch("batch")
    for value, axis in ((model.graph.input[0], 2), (model.graph.output[1], 2)):
        value.type.tensor_type.shape.dim[axis].dim_param = "height"
    config = inlay.config.cpu("x86-64-v3", executor="vm", num_threads=1)
    executable = inlay.build(inlay.from_onnx(model, executor="vm"), config, server=client, want_plan=True)
    assert parts(executable) == {1}


def test_a_profile_counts_every_turn(client):
    config = inlay.config.cpu("x86-64-v3", executor="vm", num_threads=1)
    limits = roofline.Roofline(100.0, "a test", {1 << n: 20.0 for n in range(15, 29)})
    x = np.ones((5, 3, 60, 60), np.float32)
    work = []
    for shape in ({}, {"batch": 5}):
        module = inlay.from_onnx(with_batch("batch"), shape=shape, executor="vm")
        executable = inlay.build(module, config, server=client, want_plan=True)
        result = profiling.profile_module(executable.jit(), executable.plan, {"x": x}, 3, limits)
        work.append(sum(p["flops"] * p["calls"] for p in result["partitions"]))
    assert work[0] == work[1] > 5 * 2 * 60 * 60 * 40 * 27


def test_a_pinned_plan_says_whether_all_go_at_once(client):
    model = network()
    config = inlay.config.cpu("x86-64-v3", num_threads=1)
    few = inlay.build(inlay.from_onnx(model), config, server=client, want_plan=True)
    assert few.cover is not None and not few.cover.whole_batch
    cover = config_pb2.Cover()
    cover.CopyFrom(few.cover)
    cover.whole_batch = True
    whole = inlay.build(inlay.from_onnx(model), config.replace(pinned=cover), server=client, want_plan=True)
    assert parts(whole) == {1}
    assert max(parts(few)) > 1
    inputs = inputs_of(few)
    check_close([np.from_dlpack(a) for a in whole.jit()["main"](*inputs.values())], reference(model, inputs))


def test_a_measured_search_tries_all_at_once_too(client):
    model = network()
    config = inlay.config.cpu("x86-64-v3", num_threads=1, backends=["native"], search="measured")
    executable = inlay.build(inlay.from_onnx(model), config, server=client, want_plan=True)
    few, whole = executable.report.plans
    assert whole.name == f"{few.name}, all rows of the batch at once"
    assert few.measured_us > 0
    assert whole.measured_us > 0
    assert (few.chosen, whole.chosen) == ((False, True) if executable.cover.whole_batch else (True, False))
    assert (parts(executable) == {1}) == executable.cover.whole_batch


def test_other_batches_share_what_was_compiled(client):
    """Partitions for one image are the same ones whatever the batch."""

    def compiled(batch: int) -> set[str]:
        config = inlay.config.cpu("x86-64-v3", num_threads=1)
        report = inlay.build(inlay.from_onnx(with_batch(batch)), config, server=client).report
        return {p.name for p in report.partitions if "rows at a time" in p.why}

    of_six, of_nine = compiled(6), compiled(9)
    assert of_six and len(of_six & of_nine) >= len(of_six) // 2
