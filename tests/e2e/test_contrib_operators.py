"""onnxruntime's own operators (com.microsoft): single nodes and optimised models, beside onnxruntime running the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import check_close, reference
from onnx import helper, numpy_helper

import inlay

F, I32, I64 = np.float32, np.int32, np.int64


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(F)


@dataclasses.dataclass
class Node:
    """One node. inputs: in order, None for one that is absent; those in `weights` are initialisers."""

    op: str
    inputs: list[np.ndarray | None]
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outputs: tuple[type | None, ...] = (F,)
    weights: tuple[int, ...] = ()
    domain: str = "com.microsoft"

    def model(self) -> onnx.ModelProto:
        names = [f"i{i}" if v is not None else "" for i, v in enumerate(self.inputs)]
        made = [f"o{i}" if kind else "" for i, kind in enumerate(self.outputs)]
        node = helper.make_node(self.op, names, made, name="it", domain=self.domain, **self.attributes)
        elem = helper.np_dtype_to_tensor_dtype
        graph = helper.make_graph(
            [node],
            "one",
            [helper.make_tensor_value_info(n, elem(v.dtype), v.shape) for n, v in self.graph_inputs().items()],
            [helper.make_tensor_value_info(n, elem(np.dtype(k)), None) for n, k in zip(made, self.outputs) if k],
            [numpy_helper.from_array(self.inputs[i], f"i{i}") for i in self.weights],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def graph_inputs(self) -> dict[str, np.ndarray]:
        return {f"i{i}": v for i, v in enumerate(self.inputs) if v is not None and i not in self.weights}


def run(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray], client, **options) -> list[np.ndarray]:
    executable = inlay.build(inlay.from_onnx(model, **options), inlay.config.cpu(num_threads=1), server=client)
    result = executable.jit()["main"](*(inputs[spec[0]] for spec in executable.inputs))
    return [np.from_dlpack(r) for r in (result if isinstance(result, tuple | list) else [result])]


def check_node(node: Node, client) -> None:
    model = node.model()
    check_close(run(model, node.graph_inputs(), client), reference(model, node.graph_inputs()))
