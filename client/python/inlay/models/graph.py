"""Graph: writes an ONNX graph one node at a time; weights are seeded, or given by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
Shape = Sequence[int | str]


class Graph:
    """Values are names (str). Not thread-safe.

    Args:
        name: of the graph.
        weights: {name: array} for `weight`; None: seeded ones, scaled so that activations keep their size.
        seed: of these.
    """

    def __init__(self, name: str, weights: Mapping[str, np.ndarray] | None = None, seed: int = 0):
        self.name = name
        self._weights = weights
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple, str] = {}

    def input(self, name: str, dtype: int, shape: Shape) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def weight(self, name: str, shape: Sequence[int], kind: str = "normal") -> str:
        """A floating initialiser.

        Args:
            kind: of the seeded form: "normal" (variance 1/fan-in, fan-in being all but the first extent), "matrix"
                (likewise, for [in, out]), "embedding", "ones" (about 1), "zeros" (about 0), "variance" (positive).

        Raises ValueError where a given weight has another shape.
        """
        if self._weights is not None:
            array = np.ascontiguousarray(self._weights[name], dtype=np.float32)
            if array.shape != tuple(shape):
                raise ValueError(f"weight {name} is {list(array.shape)}, the model wants {list(shape)}")
        else:
            array = self._seeded(tuple(shape), kind)
        self._initializers.append(numpy_helper.from_array(array, name))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A constant of the program (axes, shapes, epsilons); equal ones are one."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = f"const_{len(self._constants)}"
            self._initializers.append(numpy_helper.from_array(array, name))
            self._constants[key] = name
        return self._constants[key]

    def scalar(self, value: float) -> str:
        return self.constant(value, np.float32)

    def op(self, op_type: str, *inputs: str, outputs: int = 1, name: str = "", **attrs: Any) -> Any:
        """Adds a node; gives its output's name, or a list of them."""
        label = name or f"{op_type}_{len(self._nodes)}"
        names = [f"{label}_out{i}" if outputs > 1 else f"{label}_out" for i in range(outputs)]
        self._nodes.append(helper.make_node(op_type, list(inputs), names, name=label, **attrs))
        return names[0] if outputs == 1 else names

    def linear(self, x: str, name: str, features_in: int, features_out: int, transposed: bool = False) -> str:
        """x @ W + b. `transposed`: the weight lies as [out, in], as PyTorch's nn.Linear keeps it; it is transposed
        here, as exporters do."""
        weight = f"{name}.weight"
        if self._weights is not None and transposed:
            array = np.ascontiguousarray(self._weights[weight].T, dtype=np.float32)
            if array.shape != (features_in, features_out):
                raise ValueError(
                    f"weight {weight} is {list(array.T.shape)}, the model wants {[features_out, features_in]}"
                )
            self._initializers.append(numpy_helper.from_array(array, weight))
        else:
            self.weight(weight, (features_in, features_out), "matrix")
        bias = self.weight(f"{name}.bias", (features_out,), "zeros")
        return self.op("Add", self.op("MatMul", x, weight, name=f"{name}/MatMul"), bias, name=f"{name}/Add")

    def layer_norm(self, x: str, name: str, width: int, epsilon: float) -> str:
        scale = self.weight(f"{name}.weight", (width,), "ones")
        bias = self.weight(f"{name}.bias", (width,), "zeros")
        return self.op("LayerNormalization", x, scale, bias, name=name, axis=-1, epsilon=epsilon)

    def gelu(self, x: str, name: str) -> str:
        """x/2 (1 + erf(x / sqrt 2)), in the nodes that PyTorch's exporter writes at this opset."""
        erf = self.op("Erf", self.op("Div", x, self.scalar(2**0.5)), name=f"{name}/Erf")
        return self.op(
            "Mul", self.op("Mul", x, self.op("Add", erf, self.scalar(1.0))), self.scalar(0.5), name=f"{name}/Gelu"
        )

    def split_heads(self, x: str, shape: Sequence[int], permutation: Sequence[int]) -> str:
        return self.op("Transpose", self.op("Reshape", x, self.constant(list(shape))), perm=list(permutation))

    def finish(self, outputs: Sequence[tuple[str, str, Shape]]) -> onnx.ModelProto:
        """The checked model. outputs: [(value, name, shape)], all f32."""
        infos = []
        for value, name, shape in outputs:
            self._nodes.append(helper.make_node("Identity", [value], [name], name=f"output/{name}"))
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        graph = helper.make_graph(self._nodes, self.name, self._inputs, infos, self._initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        if model.ByteSize() < 1 << 30:
            onnx.checker.check_model(model)
        return model

    def _seeded(self, shape: tuple[int, ...], kind: str) -> np.ndarray:
        noise = self._random.standard_normal(shape).astype(np.float32)
        if kind == "ones":
            return 1 + 0.1 * noise
        if kind == "variance":
            return 1 + 0.1 * np.abs(noise)
        if kind == "zeros":
            return 0.1 * noise
        if kind == "embedding":
            return 0.5 * noise
        fan_in = shape[0] if kind == "matrix" else int(np.prod(shape[1:]))
        return noise * np.float32(1 / np.sqrt(max(fan_in, 1)))
