"""Single nodes of onnxruntime's own operators, by what is special about them: the cases of test_contrib_operators.py.

Shapes are odd on purpose: ones, primes, extents that no vector divides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

F, H, I32, I64, U8 = np.float32, np.float16, np.int32, np.int64, np.uint8


@dataclasses.dataclass
class Node:
    """inputs: in order, None for one that is absent. outputs: their types, None for one that nobody wants. weights: which
    inputs are initialisers."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: tuple[type | None, ...] = (F,)
    weights: Sequence[int] = ()
    domain: str = "com.microsoft"

    def graph_inputs(self) -> dict[str, np.ndarray]:
        return {f"i{i}": v for i, v in enumerate(self.inputs) if v is not None and i not in self.weights}

    def model(self) -> onnx.ModelProto:
        names = [f"i{i}" if v is not None else "" for i, v in enumerate(self.inputs)]
        made = [f"o{i}" if kind else "" for i, kind in enumerate(self.outputs)]
        elem = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            [helper.make_node(self.op, names, made, name="it", domain=self.domain, **self.attributes)],
            self.op,
            [helper.make_tensor_value_info(n, elem(v.dtype), v.shape) for n, v in self.graph_inputs().items()],
            [helper.make_tensor_value_info(n, elem(np.dtype(k)), None) for n, k in zip(made, self.outputs) if k],
            [numpy_helper.from_array(self.inputs[i], f"i{i}") for i in self.weights if self.inputs[i] is not None],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F)


def ints(high: int, *shape: int, dtype: type = I32) -> np.ndarray:
    return np.random.default_rng(shape).integers(0, high, shape).astype(dtype)


def in_half(node: Node) -> Node:
    """The same in float16."""
    inputs = [v.astype(H) if v is not None and v.dtype == F else v for v in node.inputs]
    return dataclasses.replace(node, inputs=inputs, outputs=tuple(H if k is F else k for k in node.outputs))


# --- Elementwise, products, convolutions -----------------------------------------------------------------------------


def elementwise() -> dict[str, Node]:
    x = rand(2, 3, 7)
    return {
        "BiasGelu": Node("BiasGelu", [x, rand(7)], weights=[1]),
        "Gelu": Node("Gelu", [x]),
        "FastGelu": Node("FastGelu", [x]),
        "FastGelu bias": Node("FastGelu", [x, rand(7)]),
        "QuickGelu": Node("QuickGelu", [x]),
        "QuickGelu alpha": Node("QuickGelu", [x], {"alpha": 1.5}),
        "QuickGelu silu": Node("QuickGelu", [x], {"alpha": 1.0}),
        "ExpandDims": Node("ExpandDims", [x, np.array(-2, I32)], weights=[1]),
        "GatherND": Node("GatherND", [x, np.array([[0, 1], [1, 2]], I64)]),
        "Pad": Node("Pad", [rand(2, 3), np.array([[0, 1, 2, 0]], I64), np.array([1.5], F)], weights=[1, 2]),
        "Range": Node("Range", [np.array(1, F), np.array(7, F)], weights=[0, 1]),
        "Range delta": Node("Range", [np.array(v, F) for v in (1, 7, 2)], weights=[0, 1, 2]),
        "Trilu": Node("Trilu", [rand(2, 3, 5), np.array(1, I64)], {"upper": 0}, weights=[1]),
        "half": in_half(Node("QuickGelu", [x])),
    }


def products() -> dict[str, Node]:
    def fused(a: tuple, b: tuple, **attributes) -> Node:
        return Node("FusedMatMul", [rand(*a), rand(*b, seed=1)], attributes)

    def gemm(activation: str, **attributes) -> Node:
        attributes |= {"transB": 1, "alpha": 0.5, "beta": 2.0, "activation": activation}
        return Node("FusedGemm", [rand(5, 3), rand(7, 3), rand(7)], attributes)

    return {
        "plain": fused((2, 5, 3), (3, 7)),
        "A'": fused((2, 3, 5), (3, 7), transA=1, alpha=0.5),
        "B'": fused((2, 5, 3), (7, 3), transB=1, alpha=0.5),
        "A' B'": fused((2, 3, 5), (1, 7, 3), transA=1, transB=1),
        "A batch": fused((5, 2, 3), (2, 3, 7), transBatchA=1),
        "A' batch": fused((3, 2, 5), (2, 3, 7), transBatchA=1, transA=1),
        "B batch": fused((2, 5, 3), (3, 2, 7), transBatchB=1),
        "B' batch": fused((2, 5, 3), (7, 2, 3), transBatchB=1, transB=1),
        "vector A'": fused((3,), (3, 7), transA=1),
        "vector B'": fused((5, 3), (3,), transB=1),
        "TransposeMatMul": Node("TransposeMatMul", [rand(3, 5), rand(3, 7)], {"transA": 1}),
        "Gemm Relu": gemm("Relu"),
        "Gemm Tanh": gemm("Tanh"),
        "Gemm Sigmoid": gemm("Sigmoid"),
        "Gemm Softplus": gemm("Softplus"),
        "Gemm LeakyRelu": gemm("LeakyRelu", activation_alpha=0.3),
        "Gemm Elu": gemm("Elu", activation_alpha=0.7),
        "Gemm HardSigmoid": gemm("HardSigmoid", activation_alpha=0.3, activation_beta=0.4),
        "CDist": Node("CDist", [rand(5, 3), rand(4, 3)]),
        "CDist euclidean": Node("CDist", [rand(5, 3), rand(4, 3)], {"metric": "euclidean"}),
    }


def convolutions() -> dict[str, Node]:
    def conv(activation: str, params: list[float] | None = None, residual: bool = False) -> Node:
        inputs = [rand(1, 3, 7, 5), rand(4, 3, 3, 3), rand(4), rand(1, 4, 7, 5) if residual else None]
        attributes: dict[str, Any] = {"pads": [1, 1, 1, 1], "activation": activation}
        if params is not None:
            attributes["activation_params"] = params
        return Node("FusedConv", inputs, attributes, weights=[1, 2])

    strided = {"group": 2, "strides": [2, 1], "activation": "Relu"}
    return {
        "Relu": conv("Relu"),
        "Relu residual": conv("Relu", residual=True),
        "Sigmoid": conv("Sigmoid"),
        "Tanh": conv("Tanh"),
        "LeakyRelu": conv("LeakyRelu", [0.2]),
        "Clip": conv("Clip", [-0.2, 0.5], residual=True),
        "HardSigmoid": conv("HardSigmoid", [0.3, 0.4]),
        "groups": Node("FusedConv", [rand(1, 4, 7, 5), rand(4, 2, 3, 3)], strided, weights=[1]),
    }


# --- Normalisations, embeddings, weights in blocks -------------------------------------------------------------------


def normalisations() -> dict[str, Node]:
    x, skip, scale, shift, bias = rand(2, 3, 7), rand(2, 3, 7, seed=1), rand(7, seed=2), rand(7, seed=3), rand(7)
    all_of_it = Node(
        "SkipLayerNormalization", [x, skip, scale, shift, bias], {"epsilon": 1e-5}, (F, None, None, F), [2, 3, 4]
    )
    rms = Node(
        "SkipSimplifiedLayerNormalization", [x, skip, scale, bias], {"epsilon": 1e-5}, (F, None, None, F), [2, 3]
    )
    words, places, kinds = rand(11, 7), rand(9, 7), rand(2, 7)
    ids, mask = ints(11, 2, 5), np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], I32)
    order = np.array([[3, 2, 1, 0, 4]], I32)
    embeddings = {
        "embed": [ids, ids % 2, words, places, kinds, scale, shift, mask],
        "embed words": [ids, None, words, places, None, scale, shift],
        "embed places": [ids, None, words, places, None, scale, shift, None, order],
    }
    return {
        "Skip": all_of_it,
        "Skip half": in_half(all_of_it),
        "Skip [S, D]": Node("SkipLayerNormalization", [x, rand(3, 7), scale], weights=[2]),
        "Skip [1, S, D]": Node("SkipLayerNormalization", [x, rand(1, 3, 7), scale], weights=[2]),
        "SkipSimplified": rms,
        "Simplified": Node("SimplifiedLayerNormalization", [x, scale], weights=[1], domain=""),
        "Simplified axis": Node("SimplifiedLayerNormalization", [x, rand(3, 7)], {"axis": 1}, domain=""),
        **{
            name: Node("EmbedLayerNormalization", inputs, {"epsilon": 1e-5}, (F, I32, F), [2, 3, 4, 5, 6])
            for name, inputs in embeddings.items()
        },
    }


def blocks() -> dict[str, Node]:
    def product(bits: int, zero: str = "", bias: bool = False, k: int = 50, half: bool = False) -> Node:
        count = -(-k // 16)
        zeros = {"packed": ints(256, 7, -(-count * bits // 8), dtype=U8), "float": 8 * np.abs(rand(7, count))}.get(zero)
        inputs = [
            rand(2, 3, k), ints(256, 7, count, 2 * bits, dtype=U8), np.abs(rand(7, count)) / 8, zeros, None,
            rand(7) if bias else None,
        ]  # fmt: skip
        attributes = {"N": 7, "K": k, "block_size": 16, "bits": bits}
        node = Node("MatMulNBits", inputs, attributes, weights=[1, 2, 3, 5])
        return in_half(node) if half else node

    def table(bits: int, zero: bool = False, width: int = 64, index: np.ndarray | None = None) -> Node:
        count = width // 16
        index = np.array([[0, 3, 8], [2, -1, 5]], I64) if index is None else index
        zeros = ints(256, 9, -(-count * bits // 8), dtype=U8) if zero else None
        inputs = [ints(256, 9, width * bits // 8, dtype=U8), index, np.abs(rand(9, count)), zeros]
        return Node("GatherBlockQuantized", inputs, {"block_size": 16, "bits": bits}, weights=[0, 2, 3])

    return {
        "4 bits": product(4),
        "4 bits, packed zeros": product(4, "packed"),
        "4 bits, float zeros": product(4, "float"),
        "4 bits, bias": product(4, bias=True),
        "4 bits, whole blocks": product(4, k=64),
        "4 bits, half": product(4, half=True),
        "8 bits": product(8),
        "8 bits, packed zeros": product(8, "packed"),
        "2 bits, packed zeros": product(2, "packed"),
        "table of 4 bits": table(4),
        "table of 4 bits, zeros": table(4, zero=True, width=48),
        "table of 8 bits, zeros": table(8, zero=True),
        "table, index out of range": table(4, index=np.array([9, -10, 3], I32)),
    }
