"""onnxruntime's mixture of experts (com.microsoft.MoE), beside onnxruntime running the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest
from conftest import check_close, reference
from contrib_nodes import F, Node, in_half, rand
from onnx import helper, numpy_helper
from reference.evaluator import evaluate

import inlay

TOKENS, EXPERTS, HIDDEN, INNER = 7, 5, 6, 9
ACTIVATIONS = ["relu", "gelu", "silu", "identity", "swiglu"]


def experts(
    activation: str | None = "relu",
    k: int | None = 2,
    biases: str = "12",
    shape: tuple[int, ...] = (TOKENS,),
    router: np.ndarray | None = None,
    inner: int = INNER,
    weights: bool = True,
    **attributes: Any,
) -> Node:
    """biases: of which layers. shape: of the input, but for the last dimension."""
    wide = inner
    if activation == "swiglu":
        wide, attributes = 2 * inner, {"swiglu_fusion": 1, **attributes}
    given = {"activation_type": activation, "k": k}
    inputs = [
        rand(*shape, HIDDEN),
        rand(int(np.prod(shape)), EXPERTS) if router is None else router,
        rand(EXPERTS, wide, HIDDEN),
        rand(EXPERTS, wide) if "1" in biases else None,
        rand(EXPERTS, HIDDEN, inner),
        rand(EXPERTS, HIDDEN) if "2" in biases else None,
    ]
    attributes |= {name: value for name, value in given.items() if value is not None}
    return Node("MoE", inputs, attributes, weights=[2, 3, 4, 5] if weights else [])


# Softmax of the first row is 1 for one expert and 0 for all others; of the second one, equal for three.
EXTREME = rand(TOKENS, EXPERTS)
EXTREME[0], EXTREME[1] = [0, 0, 200, 0, 0], [1, -1, 1, 1, -2]

CASES = {
    **{name: experts(name) for name in ACTIVATIONS},
    **{f"{name}, one expert, no biases": experts(name, 1, "") for name in ACTIVATIONS},
    "defaults": experts(None, None),
    "a bias of the first layer": experts("silu", biases="1"),
    "a bias of the second layer": experts("gelu", biases="2"),
    "normalised": experts(normalize_routing_weights=1),
    "normalised, one expert": experts(k=1, normalize_routing_weights=1),
    "normalised, all experts": experts(k=EXPERTS, normalize_routing_weights=1),
    "all experts": experts(k=EXPERTS),
    "swiglu, parameters": experts("swiglu", activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.75),
    "swiglu, no limit": experts("swiglu", swiglu_limit=float("inf")),
    "swiglu, limit 0": experts("swiglu", swiglu_limit=0.0, activation_beta=0.5),
    "parameters that only swiglu has": experts("silu", activation_alpha=2.0, activation_beta=1.0, swiglu_limit=0.1),
    "sequences": experts("silu", shape=(2, 3), normalize_routing_weights=1),
    "sequences, one expert": experts(k=1, shape=(3, 1), biases=""),
    "one token": experts("swiglu", shape=(1,)),
    "as wide as its input": experts(inner=HIDDEN),
    "weights that are inputs": experts("swiglu", weights=False),
    "equals": experts(router=np.zeros((TOKENS, EXPERTS), F)),
    "extremes": experts(k=3, router=EXTREME, normalize_routing_weights=1),
}


def wanted_of(node: Node) -> list[np.ndarray]:
    return reference(node.model(), node.graph_inputs())


def compiled(model: onnx.ModelProto, client, executor: str = "graph", **options) -> inlay.Executable:
    module = inlay.from_onnx(model, executor=executor, **options)
    return inlay.build(module, inlay.config.cpu(num_threads=1, executor=executor), server=client)


def run(executable: inlay.Executable, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [np.from_dlpack(executable.jit()["main"](*(inputs[spec[0]] for spec in executable.inputs)))]


@pytest.mark.parametrize("case", CASES)
def test_node(case):
    """What the importer makes of it, by the IR's evaluator."""
    node = CASES[case]
    module = inlay.from_onnx(node.model())
    inputs = node.graph_inputs()
    got = evaluate(module.proto, module.weights, [inputs[name] for name, _ in module.inputs()])
    check_close(got, wanted_of(node))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if i % 2 == 0 else pytest.mark.slow) for i, case in enumerate(CASES)]
)
def test_compiled_node(case, client):
    node = CASES[case]
    check_close(run(compiled(node.model(), client), node.graph_inputs()), wanted_of(node))


def test_each_layer_is_one_product(client):
    """No matrix is copied for the rows that it meets."""
    report = compiled(experts("silu", biases="").model(), client).report
    assert sum(p["ops"].count("gather_matmul") for p in report.partitions) == 2
    assert not any("gather" in p["ops"] for p in report.partitions)


# --- Sizes that are left open ----------------------------------------------------------------------------------------


def opened(node: Node, *shapes: list[str | int]) -> onnx.ModelProto:
    """With these shapes of the first inputs."""
    model = node.model()
    for value, shape in zip(model.graph.input, shapes):
        for dim, name in zip(value.type.tensor_type.shape.dim, shape):
            dim.ClearField("dim_value")
            dim.dim_param = name
    return model


@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_any_number_of_tokens(activation, client):
    model = opened(experts(activation), ["tokens"], ["tokens"])
    executable = compiled(model, client, "vm")
    for tokens in (1, 7, 40):
        inputs = {"i0": rand(tokens, HIDDEN), "i1": rand(tokens, EXPERTS)}
        check_close(run(executable, inputs), reference(model, inputs))


def test_sequences_of_any_length(client):
    """A layer with its router, as exporters write it."""
    node = experts("silu", shape=(2, 3), normalize_routing_weights=1)
    model = opened(node, ["batch", "length"])
    graph = model.graph
    del graph.input[1]
    graph.initializer.extend(
        numpy_helper.from_array(v, n)
        for n, v in (("router", rand(HIDDEN, EXPERTS)), ("flat", np.array([-1, EXPERTS], np.int64)))
    )
    graph.node.insert(0, helper.make_node("MatMul", ["i0", "router"], ["logits"]))
    graph.node.insert(1, helper.make_node("Reshape", ["logits", "flat"], ["i1"]))
    executable = compiled(model, client, "vm")
    for batch, length in ((2, 3), (1, 1), (3, 11)):
        inputs = {"i0": rand(batch, length, HIDDEN)}
        check_close(run(executable, inputs), reference(model, inputs))


def test_rows_that_are_said_to_be_as_many_as_tokens(client):
    model = opened(experts(shape=(2, 3)), ["batch", "length"], ["rows"])
    with pytest.raises(inlay.UnsupportedOperatorError, match=r"shape=\{'rows': 'batch\*length'\} says that they are"):
        inlay.from_onnx(model, executor="vm")
    executable = compiled(model, client, "vm", shape={"rows": "batch*length"})
    inputs = {"i0": rand(3, 4, HIDDEN), "i1": rand(12, EXPERTS)}
    check_close(run(executable, inputs), reference(model, inputs))


# --- What is refused -------------------------------------------------------------------------------------------------


def with_inputs(node: Node, **inputs: np.ndarray) -> Node:
    given = [*node.inputs, None, None]
    for name, value in inputs.items():
        given[int(name[1:])] = value
    return dataclasses.replace(node, inputs=given, weights=[*node.weights, 6, 7])


REFUSED = {
    r"input 6 \(fc3_experts_weights\)": with_inputs(experts(), i6=rand(EXPERTS, INNER, HIDDEN)),
    "attribute use_sparse_mixer 1: only 0 is": experts(use_sparse_mixer=1),
    "activation 'tanh': relu, gelu, silu, identity and swiglu are": experts("tanh"),
    "attribute swiglu_fusion 0: only 1 is": experts("swiglu", swiglu_fusion=0),
    "attribute swiglu_fusion 2: only 1 is": experts("swiglu", swiglu_fusion=2),
    "attribute swiglu_limit -1.0: only 0 and more are": experts("swiglu", swiglu_limit=-1.0),
    "attribute normalize_routing_weights 2: only 0 or 1 is": experts(normalize_routing_weights=2),
    "attribute k 6: only 1 to 5, the number of experts, are": experts(k=6),
    "attribute k 0: only 1 to 5, the number of experts, are": experts(k=0),
    "experts in f16: only f32 is": in_half(experts()),
    "an input of rank 4 with router_probs of rank 2: only": experts(shape=(1, 1, 2)),
    "an input of rank 3 with router_probs of rank 3: only": experts(shape=(2, 3), router=rand(2, 3, EXPERTS)),
    "6 rows of router_probs for 7 tokens": experts(router=rand(6, EXPERTS)),
    r"for an input \[7, 6\] and router_probs \[7, 8\]: only \[experts, inner": experts(router=rand(TOKENS, 8)),
    r"weights of \[5, 6, 9\] and \[5, 9, 6\] for": with_inputs(
        experts(biases=""), i2=rand(EXPERTS, HIDDEN, INNER), i4=rand(EXPERTS, INNER, HIDDEN)
    ),
    r"weights of \[5, 9, 6\] and \[5, 6, 9\] for .*: only \[experts, 2 \* inner, hidden\]": with_inputs(
        experts("swiglu", biases=""), i2=rand(EXPERTS, INNER, HIDDEN)
    ),
    r"a bias of \[5, 1\]: only \[5, 9\] is": with_inputs(experts(), i3=rand(EXPERTS, 1)),
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    with pytest.raises(inlay.UnsupportedOperatorError, match=message):
        inlay.from_onnx(REFUSED[message].model())
