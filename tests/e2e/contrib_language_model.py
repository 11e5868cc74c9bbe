"""A small language model of the nodes that onnxruntime-genai's builder writes, with seeded weights."""

from __future__ import annotations

import numpy as np
import onnx
from contrib_attention_nodes import angles
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, WIDTH, HEADS, KV_HEADS, SIZE, INNER, LAYERS, POSITIONS = 99, 32, 4, 2, 16, 48, 2, 40
BLOCK = 16
I64, F32 = TensorProto.INT64, TensorProto.FLOAT


class LanguageModel:
    """bits: of the blocks that its matrices are quantised in (MatMulNBits), None for floats (MatMul)."""

    def __init__(self, bits: int | None):
        self.bits = bits

    def model(self, new: int | str, cached: int | str) -> onnx.ModelProto:
        """input_ids [1, new], attention_mask [1, total], past.*.key and .value -> logits, present.*."""
        self.random = np.random.default_rng(7)  # the same weights whatever the lengths
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        static = isinstance(new, int) and isinstance(cached, int)
        total = new + cached if static else "total"
        cos, sin = (self.weight(f"{name}_cache", a) for name, a in zip(("cos", "sin"), angles(POSITIONS, SIZE // 2)))

        ones = self.op(
            "ReduceSum", ["attention_mask", self.weight("one", np.array([1], np.int64))], domain="", keepdims=0
        )
        last = self.op("Sub", [ones, "one"], domain="")
        lengths = self.op("Cast", [last], domain="", to=TensorProto.INT32)
        shape = self.op("Shape", ["attention_mask"], domain="")
        at = self.op("Gather", [shape, self.weight("at", np.array(1, np.int64))], domain="")
        length = self.op("Cast", [at], domain="", to=TensorProto.INT32)

        residual = self.op("Gather", [self.weight("embedding", self.normal(VOCABULARY, WIDTH)), "input_ids"], domain="")
        x = self.op("SimplifiedLayerNormalization", [residual, self.scale("norm")], domain="", epsilon=1e-5)
        infos = [
            helper.make_tensor_value_info("input_ids", I64, [1, new]),
            helper.make_tensor_value_info("attention_mask", I64, [1, total]),
        ]
        outputs = [helper.make_tensor_value_info("logits", F32, [1, new, VOCABULARY])]
        for i in range(LAYERS):
            caches = [f"past.{i}.key", f"past.{i}.value"]
            presents = [f"present.{i}.key", f"present.{i}.value"]
            infos += [helper.make_tensor_value_info(c, F32, [1, KV_HEADS, cached, SIZE]) for c in caches]
            outputs += [helper.make_tensor_value_info(p, F32, [1, KV_HEADS, total, SIZE]) for p in presents]
            q = self.linear(x, f"{i}.q", WIDTH, HEADS * SIZE)
            k, v = (self.linear(x, f"{i}.{name}", WIDTH, KV_HEADS * SIZE) for name in "kv")
            y = self.op(
                "GroupQueryAttention", [q, k, v, *caches, lengths, length, cos, sin], presents, num_heads=HEADS,
                kv_num_heads=KV_HEADS, do_rotary=1,
            )  # fmt: skip
            y = self.linear(y, f"{i}.o", HEADS * SIZE, WIDTH)
            x, residual = self.normalised_sum(residual, y, f"{i}.norm")
            gate, up = (self.linear(x, f"{i}.{name}", WIDTH, INNER) for name in ("gate", "up"))
            act = self.op("Mul", [gate, self.op("Sigmoid", [gate], domain="")], domain="")
            y = self.linear(self.op("Mul", [act, up], domain=""), f"{i}.down", INNER, WIDTH)
            x, residual = self.normalised_sum(residual, y, f"{i}.last_norm")
        logits = self.linear(x, "head", WIDTH, VOCABULARY)
        self.nodes.append(helper.make_node("Identity", [logits], ["logits"]))
        graph = helper.make_graph(self.nodes, "language_model", infos, outputs, self.weights)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def inputs(self, ids: np.ndarray, caches: list[np.ndarray] | None) -> dict[str, np.ndarray]:
        """caches: what the last run left, keys and values of each layer; None: nothing."""
        caches = caches or [np.zeros((1, KV_HEADS, 0, SIZE), np.float32)] * (2 * LAYERS)
        names = [f"past.{i}.{name}" for i in range(LAYERS) for name in ("key", "value")]
        mask = np.ones((1, caches[0].shape[2] + ids.shape[1]), np.int64)
        return {"input_ids": ids, "attention_mask": mask, **dict(zip(names, caches, strict=True))}

    # --- Nodes ---

    def normal(self, *shape: int) -> np.ndarray:
        return (self.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scale(self, name: str) -> str:
        return self.weight(name, (1 + 0.1 * self.random.standard_normal(WIDTH)).astype(np.float32))

    def op(
        self, op: str, inputs: list[str], more: list[str] | None = None, domain: str = "com.microsoft", **attributes
    ):
        """The name of the first output; more: those of the others."""
        made = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [made, *(more or [])], name=made, domain=domain, **attributes))
        return made

    def normalised_sum(self, residual: str, y: str, name: str) -> tuple[str, str]:
        total = f"{name}_sum"
        x = self.op(
            "SkipSimplifiedLayerNormalization", [residual, y, self.scale(name)], ["", "", total], epsilon=1e-5
        )  # fmt: skip
        return x, total

    def linear(self, x: str, name: str, features_in: int, features_out: int) -> str:
        if self.bits is None:
            return self.op("MatMul", [x, self.weight(name, self.normal(features_out, features_in).T.copy())], domain="")
        blocks = features_in // BLOCK
        packed = self.random.integers(0, 256, (features_out, blocks, BLOCK * self.bits // 8)).astype(np.uint8)
        scales = self.random.uniform(0.5, 1.5, (features_out, blocks)) / (2**self.bits * 0.3 * np.sqrt(features_in))
        inputs = [x, self.weight(name, packed), self.weight(f"{name}.scales", scales.astype(np.float32))]
        return self.op("MatMulNBits", inputs, K=features_in, N=features_out, bits=self.bits, block_size=BLOCK)
