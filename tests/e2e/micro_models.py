"""Models of a size for microcontrollers, with seeded weights: a depthwise-separable CNN for keyword spotting (DS-CNN, "Hello
Edge", Zhang et al. 2017), in float, as QuantizeLinear/DequantizeLinear pairs, and of integer operators."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Collects nodes and weights of a model with one input and one output."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, name: str, *shape: int) -> str:
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.constant(name, (self.rng.standard_normal(shape) * scale).astype(np.float32))

    def op(self, kind: str, inputs: list[str], **attributes) -> str:
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def finish(self, x: tuple, y: str, y_type: tuple) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [y], ["scores"]))
        graph = helper.make_graph(
            self.nodes,
            "kws",
            [helper.make_tensor_value_info("spectrogram", *x)],
            [helper.make_tensor_value_info("scores", *y_type)],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        onnx.checker.check_model(model)
        return model


F32 = TensorProto.FLOAT
SHAPE = [1, 1, 49, 10]  # 49 frames of 10 cepstral coefficients
CLASSES = 12


def kws_float(channels: int = 32, blocks: int = 3, seed: int = 3) -> onnx.ModelProto:
    net = Net(seed)

    def conv(x: str, cin: int, cout: int, kernel: tuple[int, int], strides=(1, 1), group: int = 1) -> str:
        n = len(net.nodes)
        pads = [kernel[0] // 2, kernel[1] // 2] * 2
        weight = net.normal(f"w{n}", cout, cin // group, *kernel)
        x = net.op("Conv", [x, weight], kernel_shape=list(kernel), strides=list(strides), pads=pads, group=group)
        ones = np.abs(net.rng.standard_normal(cout)).astype(np.float32) + 0.5
        norm = [net.normal(f"{k}{n}", cout) for k in ("scale", "bias", "mean")] + [net.constant(f"var{n}", ones)]
        return net.op("Relu", [net.op("BatchNormalization", [x, *norm])])

    x = conv("spectrogram", 1, channels, (9, 5), (2, 2))
    for _ in range(blocks):
        x = conv(x, channels, channels, (3, 3), group=channels)
        x = conv(x, channels, channels, (1, 1))
    x = net.op("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.op("Flatten", [net.op("GlobalAveragePool", [x])])
    x = net.op("Gemm", [x, net.normal("fc", CLASSES, channels), net.normal("fc_bias", CLASSES)], transB=1)
    return net.finish((F32, SHAPE), net.op("Softmax", [x], axis=1), (F32, [1, CLASSES]))


def kws_qdq(channels: int = 16, seed: int = 4) -> onnx.ModelProto:
    """Convolutions and a matrix product between DequantizeLinear and QuantizeLinear, int8 weights, a residual addition."""
    net = Net(seed)
    count = 0

    def scale(value: float) -> str:
        nonlocal count
        count += 1
        return net.constant(f"s{count}", np.float32(value))

    def requantised(x: str, step: float) -> str:
        zero = net.constant(f"z{len(net.nodes)}", np.int8(net.rng.integers(-8, 8)))
        s = scale(step)
        return net.op("DequantizeLinear", [net.op("QuantizeLinear", [x, s, zero]), s, zero])

    def weights(*shape: int) -> str:
        n = len(net.nodes)
        q = net.constant(f"q{n}", net.rng.integers(-127, 128, shape).astype(np.int8))
        steps = (net.rng.uniform(0.5, 1.5, shape[0]) / 127 * 1.7 / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        zeros = net.constant(f"wz{n}", np.zeros(shape[0], np.int8))
        return net.op("DequantizeLinear", [q, net.constant(f"ws{n}", steps), zeros], axis=0)

    def conv(x: str, cin: int, cout: int, k: int, stride: int = 1, group: int = 1) -> str:
        y = net.op("Conv", [x, weights(cout, cin // group, k, k)], strides=[stride] * 2, pads=[k // 2] * 4, group=group)
        return requantised(net.op("Relu", [y]), 0.02)

    x = conv(requantised("spectrogram", 0.03), 1, channels, 3, 2)
    y = conv(conv(x, channels, channels, 3, group=channels), channels, channels, 1)
    x = requantised(net.op("Add", [x, y]), 0.03)
    x = net.op("AveragePool", [x], kernel_shape=[5, 5], strides=[5, 5])
    x = requantised(net.op("Flatten", [x]), 0.02)
    product = net.op("Gemm", [x, weights(CLASSES, 5 * channels), net.normal("fc_bias", CLASSES)], transB=1)
    return net.finish((F32, SHAPE), net.op("Softmax", [requantised(product, 0.05)], axis=1), (F32, [1, CLASSES]))


def kws_integer(seed: int = 5) -> onnx.ModelProto:
    """QLinearConv, ConvInteger and QLinearMatMul: integers from the input to the output."""
    net = Net(seed)
    steps = iter(range(100))

    def scale(value: float) -> str:
        return net.constant(f"s{next(steps)}", np.float32(value))

    def zero(value: int) -> str:
        return net.constant(f"z{next(steps)}", np.int8(value))

    def weights(*shape: int) -> str:
        return net.constant(f"q{next(steps)}", net.rng.integers(-127, 128, shape).astype(np.int8))

    bias = net.constant("bias", net.rng.integers(-500, 500, 8).astype(np.int32))
    x = net.op(
        "QLinearConv",
        ["spectrogram", scale(0.02), zero(3), weights(8, 1, 3, 3), scale(0.01), zero(0), scale(0.03), zero(-4), bias],
        pads=[1, 1, 1, 1],
        strides=[2, 2],
    )
    x = net.op("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2])
    x = net.op("ConvInteger", [x, weights(8, 1, 3, 3), zero(-4)], group=8, pads=[1, 1, 1, 1])
    x = net.op("Cast", [net.op("Clip", [x, *clip(net)])], to=TensorProto.FLOAT)
    x = net.op("QuantizeLinear", [x, scale(60), zero(1)])
    x = net.op("Reshape", [x, net.constant("shape", np.int64([1, 192]))])
    y = net.op(
        "QLinearMatMul",
        [x, scale(60), zero(1), weights(192, CLASSES), scale(0.01), zero(0), scale(900), zero(0)],
    )
    return net.finish((TensorProto.INT8, SHAPE), y, (TensorProto.INT8, [1, CLASSES]))


def clip(net: Net) -> list[str]:
    return [net.constant("low", np.int32(-7000)), net.constant("high", np.int32(7000))]
