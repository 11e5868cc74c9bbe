"""What crosses from one library's partition to another's is not transposed, and computes the same."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from mixes import pinned
from onnx import TensorProto, helper, numpy_helper

import inlay

# Of each convolution: kernel, output channels, stride, groups (0: depthwise). The last one's channels are odd.
LAYERS = ((3, 24, 2, 1), (1, 40, 1, 1), (3, 40, 1, 0), (3, 32, 1, 1), (1, 7, 1, 1))


def network() -> onnx.ModelProto:
    """Convolutions with relu behind each."""
    random = np.random.default_rng(3)
    nodes, weights, channels, x = [], [], 12, "x"
    for i, (kernel, out, stride, groups) in enumerate(LAYERS):
        shape = (out, 1 if groups == 0 else channels, kernel, kernel)
        w = random.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(w.astype(np.float32), f"w{i}"))
        window = {"strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": groups or channels}
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], **window))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"]))
        channels, x = out, f"r{i}"
    graph = helper.make_graph(
        nodes,
        "layouts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 12, 15, 13))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (2, 7, 8, 7))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["oxoxo", "xoxox", "ooooo", "xxxxx", "oxnxo", "nonxn"])
def test_libraries_hand_over_images_as_both_prefer_them(client, order, threads):
    backends = [{"o": "onednn", "x": "xnnpack", "n": "native"}[letter] for letter in order]
    model = network()
    executable = pinned(client, inlay.from_onnx(model), backends, num_threads=threads)
    x = np.random.default_rng(4).standard_normal((2, 12, 15, 13)).astype(np.float32)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    got = np.from_dlpack(executable.jit()["main"](x))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
    # The model's input and output are row-major, and what native code makes or reads.
    libraries = [letter != "n" for letter in order]
    entering = [False] + [a and b for a, b in itertools.pairwise(libraries)]
    leaving = entering[1:] + [False]
    called = [p for p in executable.report.partitions if p.call_sites]
    assert [(bool(p.channels_last_inputs), bool(p.channels_last_outputs)) for p in called] == list(
        zip(entering, leaving, strict=True)
    )


def norm_of_channels() -> onnx.ModelProto:
    """A convolution, a normalisation over the channels of its image between two transposes, a convolution."""
    random = np.random.default_rng(5)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4),
        helper.make_node("Transpose", ["c0"], ["t0"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t0", "scale", "bias"], ["n"], axis=-1),
        helper.make_node("Transpose", ["n"], ["t1"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t1", "w1"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "norm_of_channels",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 12, 9, 7))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 5, 9, 7))],
        [weight("w0", 20, 12, 3, 3), weight("scale", 20), weight("bias", 20), weight("w1", 5, 20, 1, 1)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("library", ["onednn", "xnnpack"])
def test_native_code_drops_the_transposes_of_a_model(client, library):
    model = norm_of_channels()
    executable = pinned(client, inlay.from_onnx(model), [library, "native", "native", library])
    x = np.random.default_rng(6).standard_normal((2, 12, 9, 7)).astype(np.float32)
    want = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    np.testing.assert_allclose(
        np.from_dlpack(executable.jit()["main"](x)), want, rtol=0, atol=1e-5 * np.abs(want).max()
    )
    crossing = [
        (p.ops, p.channels_last_inputs, p.channels_last_outputs) for p in executable.report.partitions if p.call_sites
    ]
    assert crossing == [
        (["conv"], [], [0]),
        (["transpose", "layer_norm"], [0], []),
        (["transpose"], [], [0]),
        (["conv"], [0], []),
    ]
