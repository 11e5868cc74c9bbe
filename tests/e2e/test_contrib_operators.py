"""onnxruntime's own operators (com.microsoft): single nodes and optimised models, beside onnxruntime running the same."""

from __future__ import annotations

import collections
import math
import pathlib
import warnings
from collections.abc import Mapping, Sequence

import contrib_attention_nodes as attention_nodes
import contrib_nodes as nodes
import numpy as np
import onnx
import onnxruntime
import pytest
from conftest import ATOL, RTOL, check_close, inputs_of, reference
from contrib_attention_nodes import grouped
from contrib_language_model import HEADS, WIDTH, LanguageModel
from contrib_nodes import I32, I64, F, Node, rand
from onnxruntime.transformers import optimizer
from reference.evaluator import evaluate

import inlay
from inlay.bench.random_architectures import repair_torchvision
from inlay.models import bert, gpt2, mobilenet, resnet, vit

GROUPS = {
    "elementwise": nodes.elementwise(),
    "products": nodes.products(),
    "convolutions": nodes.convolutions(),
    "normalisations": nodes.normalisations(),
    "blocks": nodes.blocks(),
    "Attention": attention_nodes.attention(),
    "MultiHeadAttention": attention_nodes.multi_head_attention(),
    "RotaryEmbedding": attention_nodes.rotations(),
    "GroupQueryAttention": attention_nodes.group_query_attention(),
}
CASES = {f"{group}: {name}": node for group, cases in GROUPS.items() for name, node in cases.items()}


def compiled(model: onnx.ModelProto, client, executor: str = "graph", **options) -> inlay.Executable:
    module = inlay.from_onnx(model, executor=executor, **options)
    return inlay.build(module, inlay.config.cpu(num_threads=1, executor=executor), server=client)


def run(executable: inlay.Executable, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    result = executable.jit()["main"](*(inputs[spec[0]] for spec in executable.inputs))
    return [np.from_dlpack(r) for r in (result if isinstance(result, tuple | list) else [result])]


def result_of(node: Node, client) -> list[np.ndarray]:
    return run(compiled(node.model(), client), node.graph_inputs())


def wanted_of(node: Node) -> list[np.ndarray]:
    return reference(node.model(), node.graph_inputs())


def check_case(case: str, got: list[np.ndarray]) -> None:
    want = wanted_of(CASES[case])
    if np.float16 not in CASES[case].outputs:
        return check_close(got, want)
    for a, b in zip(got, want, strict=True):  # a unit in the last place
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype(F), b.astype(F), rtol=2e-3, atol=2e-3)
    return None


@pytest.mark.parametrize("case", CASES)
def test_node(case):
    """What the importer makes of it, by the IR's evaluator."""
    node = CASES[case]
    module = inlay.from_onnx(node.model())
    inputs = node.graph_inputs()
    check_case(case, evaluate(module.proto, module.weights, [inputs[name] for name, _ in module.inputs()]))


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if i % 3 == 0 else pytest.mark.slow) for i, case in enumerate(CASES)]
)
def test_compiled_node(case, client):
    check_case(case, result_of(CASES[case], client))


def test_a_prompt_padded_on_the_right(client):
    """What onnxruntime gives for the padding is whatever lay in its memory."""
    node = grouped(2, 5, None, 5, lengths=[4, 2], rotate=True)
    (got, *caches), (want, *wanted) = result_of(node, client), wanted_of(node)
    check_close([got[0], got[1, :3], *caches], [want[0], want[1, :3], *wanted])


# --- Operators without a kernel for CPUs, by what else says the same -------------------------------------------------


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))).astype(F)


def normalised_groups(x: np.ndarray, scale: np.ndarray, shift: np.ndarray, groups: int) -> np.ndarray:
    """x [N, ..., C]."""
    parts = np.moveaxis(x, -1, 1).reshape(x.shape[0], groups, -1)
    parts = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + F(1e-5))
    return np.moveaxis(parts.reshape(x.shape[0], x.shape[-1], *x.shape[1:-1]), 1, -1) * scale + shift


def test_bias_split_gelu(client):
    x, bias = rand(2, 3, 14), rand(14)
    left, right = np.split(x + bias, 2, axis=2)
    check_close(result_of(Node("BiasSplitGelu", [x, bias]), client), [left * gelu(right)])


def test_bias_add(client):
    x, bias, skip = rand(2, 3, 7), rand(7), rand(2, 3, 7, seed=1)
    check_close(result_of(Node("BiasAdd", [x, bias, skip]), client), [x + bias + skip])


@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_group_norm(client, channels_last, activation):
    x, scale, shift = rand(2, 5, 3, 6), rand(6), rand(6, seed=1)
    want = normalised_groups(x, scale, shift, 3)
    want = want / (1 + np.exp(-want)) if activation else want
    if not channels_last:
        x, want = np.moveaxis(x, 3, 1), np.moveaxis(want, 3, 1)
    attributes = {"groups": 3, "activation": activation, "channels_last": channels_last}
    check_close(result_of(Node("GroupNorm", [x, scale, shift], attributes, weights=[1, 2]), client), [want])


def test_skip_group_norm(client):
    x, scale, shift, skip, bias = rand(2, 5, 3, 6), rand(6), rand(6, seed=1), rand(2, 6), rand(6, seed=3)
    total = x + skip[:, None, None] + bias
    node = Node("SkipGroupNorm", [x, scale, shift, skip, bias], {"groups": 3, "activation": 0}, (F, F), [1, 2])
    check_close(result_of(node, client), [normalised_groups(total, scale, shift, 3), total])


@pytest.mark.parametrize("op", ["NhwcConv", "NhwcFusedConv"])
def test_channels_last(client, op):
    x, w, b, z = rand(1, 7, 5, 3), rand(4, 3, 3, 3), rand(4), rand(1, 7, 5, 4)
    pads = {"pads": [1, 1, 1, 1]}
    (want,) = wanted_of(Node("Conv", [np.moveaxis(x, 3, 1), w, b], pads, domain=""))
    want = np.moveaxis(want, 1, 3)
    if op == "NhwcConv":
        node = Node(op, [x, w, b], pads, weights=[1, 2])
    else:
        node, want = Node(op, [x, w, b, z], {**pads, "activation": "Relu"}, weights=[1, 2]), np.maximum(want + z, 0)
    check_close(result_of(node, client), [want])


def test_products_with_activations(client):
    a, b, bias = rand(5, 3), rand(3, 7), rand(7)
    node = Node("FusedMatMulActivation", [a, b], {"activation": "LeakyRelu", "activation_alpha": 0.25})
    check_close(result_of(node, client), [np.where(a @ b < 0, 0.25 * (a @ b), a @ b)])
    x = a @ b + bias
    want = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    check_close(result_of(Node("GemmFastGelu", [a, b, bias]), client), [want.astype(F)])


@pytest.mark.parametrize("packed", ["qkv", "kv"])
def test_packed_operands(client, packed):
    q, k, v = rand(2, 5, 3, 4), rand(2, 5, 3, 4, seed=1), rand(2, 5, 3, 4, seed=2)
    bias = rand(36) if packed == "qkv" else None
    flat = [x.reshape(2, 5, 12) for x in (q, k, v)]
    inputs = [np.stack([q, k, v], 3), None, None] if packed == "qkv" else [flat[0], np.stack([k, v], 3), None]
    want = wanted_of(Node("MultiHeadAttention", [*flat, bias], {"num_heads": 3}))
    check_close(result_of(Node("MultiHeadAttention", [*inputs, bias], {"num_heads": 3}), client), want)


def test_attention_without_a_bias(client):
    """onnxruntime 1.31 dies of it."""
    x, w = rand(2, 5, 12), rand(12, 36) / 4
    want = wanted_of(Node("Attention", [x, w, np.zeros(36, F)], {"num_heads": 3}))
    check_close(result_of(Node("Attention", [x, w], {"num_heads": 3}, weights=[1]), client), want)


# --- What is refused -------------------------------------------------------------------------------------------------

REFUSED = {
    "activation 'Selu'": Node("FusedGemm", [rand(5, 3), rand(3, 7)], {"activation": "Selu"}),
    "metric 'cosine'": Node("CDist", [rand(5, 3), rand(4, 3)], {"metric": "cosine"}),
    "attribute do_rotary 1: only 0 is": Node("Attention", [rand(1, 2, 4), rand(4, 12)], {"num_heads": 2, "do_rotary": 1}),
    r"a mask of \[1, 1, 9, 9\]": Node(
        "Attention", [rand(1, 2, 4), rand(4, 12), None, nodes.ints(2, 1, 1, 9, 9)], {"num_heads": 2}
    ),
    "output 3 is not supported": Node(
        "MultiHeadAttention", [rand(1, 2, 4)] * 3, {"num_heads": 2}, (F, None, None, F)
    ),
    "attribute smooth_softmax 1: only -1 or 0 is": grouped(1, 5, None, 5, smooth_softmax=1),
    "attribute causal 0: only 1": grouped(1, 5, None, 5, causal=0),
    "4 new positions after a past in a batch of 2: only one position": grouped(2, 4, 7, 11),
    "a total_sequence_length of 9 with 1 new": grouped(1, 1, 7, 9),
    "attribute scale 0.5: only 1.0 is": Node(
        "RotaryEmbedding", [rand(1, 2, 8), np.array([0], I64), rand(9, 4), rand(9, 4)], {"scale": 0.5}
    ),
    r"input 4 \(g_idx\)": Node(
        "MatMulNBits", [rand(2, 16), nodes.ints(256, 3, 1, 8, dtype=np.uint8), rand(3, 1), None, np.zeros(16, I32)],
        {"N": 3, "K": 16, "block_size": 16}, weights=[1, 2, 4],
    ),
    "of 3 bits in uint8: 2, 4 and 8": Node(
        "MatMulNBits", [rand(2, 16), nodes.ints(256, 3, 1, 6, dtype=np.uint8), rand(3, 1)],
        {"N": 3, "K": 16, "block_size": 16, "bits": 3}, weights=[1, 2],
    ),
    "output 1 is not supported": Node("SkipLayerNormalization", [rand(1, 2, 4), rand(1, 2, 4), rand(4)], {}, (F, F)),
    "there is no converter for this operator of onnxruntime's": Node("LongformerAttention", [rand(2, 3)]),
    "save the model at ORT_ENABLE_EXTENDED": Node("ReorderOutput", [rand(1, 8, 3, 3)], domain="com.microsoft.nchwc"),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    model = REFUSED[message].model()
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft.nchwc", 1))
    with pytest.raises(inlay.UnsupportedOperatorError, match=message):
        inlay.from_onnx(model)


def test_a_total_length_that_is_not_known():
    node = grouped(1, 1, 7, 8)
    node.weights = []
    with pytest.raises(inlay.UnsupportedOperatorError, match="total_sequence_length") as caught:
        inlay.from_onnx(node.model())
    assert caught.value.needed_constants == ("i6",)
    inlay.from_onnx(node.model(), constants={"i6": node.inputs[6]})


# --- Attention is one kernel -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        Node("Attention", [rand(2, 33, 64), rand(64, 192), rand(192), nodes.ints(2, 2, 33)], {"num_heads": 4}, (F,), [1, 2]),
        Node("MultiHeadAttention", [rand(2, 33, 64), rand(2, 17, 64), rand(2, 17, 64)], {"num_heads": 4, "scale": 0.3}),
        grouped(1, 33, None, 33, rotate=True, softcap=3.0),
        grouped(1, 1, 32, 33, rotate=True),
    ],
    ids=["Attention", "MultiHeadAttention", "prompt", "next"],
)  # fmt: skip
def test_attention_is_one_kernel(node, client):
    executable = compiled(node.model(), client)
    (whole,) = [p["ops"] for p in executable.report.partitions if "softmax" in p["ops"]]
    assert whole.count("matmul") == 2


# --- Whole models ----------------------------------------------------------------------------------------------------

SMALL = {
    "resnet": (lambda: resnet.build(resnet.TINY), {"FusedConv"}),
    "mobilenet": (lambda: mobilenet.build(mobilenet.TINY), {"FusedConv"}),
    "bert": (lambda: bert.build(bert.TINY, 2, 16), {"FusedMatMul", "Gelu", "SkipLayerNormalization"}),
    "gpt2": (lambda: gpt2.build(gpt2.TINY, 1, 16), {"FusedMatMul", "FastGelu", "SkipLayerNormalization"}),
    "vit": (lambda: vit.build(vit.TINY), {"FusedMatMul", "Gelu", "SkipLayerNormalization"}),
}


def optimised(model: onnx.ModelProto, folder: pathlib.Path, level: str = "ORT_ENABLE_EXTENDED") -> onnx.ModelProto:
    """As onnxruntime saves it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / f"{level}.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return onnx.load(options.optimized_model_filepath)


def transformed(model: onnx.ModelProto, folder: pathlib.Path, kind: str) -> onnx.ModelProto:
    """As onnxruntime.transformers.optimizer saves it."""
    onnx.save(model, folder / "plain.onnx")
    made = optimizer.optimize_model(str(folder / "plain.onnx"), kind, HEADS, WIDTH, opt_level=0)
    return made.model


def own_operators(model: onnx.ModelProto) -> collections.Counter[str]:
    return collections.Counter(n.op_type for n in model.graph.node if n.domain == "com.microsoft")


def check_model(model: onnx.ModelProto, client) -> None:
    executable = compiled(model, client)
    inputs = inputs_of(executable)
    if "attention_mask" in inputs:
        inputs["attention_mask"][-1, 9:] = 0
    check_close(run(executable, inputs), reference(model, inputs))


@pytest.mark.parametrize("name", SMALL)
def test_optimised_at_session_level(name, client, tmp_path):
    build, operators = SMALL[name]
    model = optimised(build(), tmp_path)
    assert operators <= set(own_operators(model))
    check_model(model, client)


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_optimised_by_transformers(name, client, tmp_path):
    model = transformed(SMALL[name][0](), tmp_path, name)
    assert own_operators(model)["SkipLayerNormalization"] >= 4
    check_model(model, client)


def test_layouts_of_one_machine_are_refused(tmp_path):
    model = optimised(SMALL["resnet"][0](), tmp_path, "ORT_ENABLE_ALL")
    with pytest.raises(inlay.UnsupportedOperatorError, match="save the model at ORT_ENABLE_EXTENDED instead"):
        inlay.from_onnx(model)


@pytest.fixture(scope="module")
def exported_bert(tmp_path_factory) -> onnx.ModelProto:
    """Of Hugging Face, batch and length left open; what optimizers know by heart."""
    torch = pytest.importorskip("torch")
    repair_torchvision()
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=99, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS, intermediate_size=48,
        max_position_embeddings=40, attn_implementation="eager",
    )  # fmt: skip

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, ids, mask, kinds):
            return self.network(input_ids=ids, attention_mask=mask, token_type_ids=kinds)[0]

    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    names = ["input_ids", "attention_mask", "token_type_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Encoder().eval(), tuple(torch.ones(2, 13, dtype=torch.int64) for _ in names), str(path),
            input_names=names, output_names=["y"], opset_version=17, dynamo=False,
            dynamic_axes={name: {0: "batch", 1: "length"} for name in [*names, "y"]},
        )  # fmt: skip
    return onnx.load(path)


def bert_inputs(batch: int, length: int) -> dict[str, np.ndarray]:
    mask = np.ones((batch, length), I64)
    mask[-1, length // 2 + 1 :] = 0
    rng = np.random.default_rng([batch, length])
    ids, kinds = rng.integers(0, 99, (batch, length)), rng.integers(0, 2, (batch, length))
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": kinds}


@pytest.mark.parametrize("by", ["session", "transformers"])
@pytest.mark.parametrize("open_shapes", [False, True])
def test_exported_bert(exported_bert, by, open_shapes, client, tmp_path):
    if by == "session":
        model, expected = optimised(exported_bert, tmp_path), {"FusedMatMul": 2, "BiasGelu": 2}
    else:
        model = transformed(exported_bert, tmp_path, "bert")
        expected = {"Attention": 2, "EmbedLayerNormalization": 1, "SkipLayerNormalization": 4, "BiasGelu": 2}
    assert own_operators(model) == expected
    if open_shapes:
        executable = compiled(model, client, "vm")
        sizes: Sequence[tuple[int, int]] = [(2, 13), (1, 7), (3, 1)]
    else:
        executable = compiled(model, client, shape={"batch": 2, "length": 13})
        sizes = [(2, 13)]
    for batch, length in sizes:
        inputs = bert_inputs(batch, length)
        check_close(run(executable, inputs), reference(model, inputs))


# --- A language model as onnxruntime-genai builds it -----------------------------------------------------------------


@pytest.mark.parametrize("bits", [4, 8, None])
def test_language_model(bits, client):
    """A prompt, then a token with the caches that it left; together they say what the whole text at once does."""
    language = LanguageModel(bits)
    text = np.random.default_rng(3).integers(0, 99, (1, 6))
    prompt = language.inputs(text[:, :5], None)
    logits, *caches = run(compiled(language.model(5, 0), client), prompt)
    check_close([logits, *caches], reference(language.model(5, 0), prompt))
    token = language.inputs(text[:, 5:], caches)
    got = run(compiled(language.model(1, 5), client), token)
    check_close(got, reference(language.model(1, 5), token))
    whole = reference(language.model(6, 0), language.inputs(text, None))
    np.testing.assert_allclose(got[0][:, -1], whole[0][:, -1], rtol=RTOL, atol=ATOL)


def test_language_model_of_open_lengths(client):
    """One program for prompts and tokens: all that it must be told is that the total is what is cached and what is new."""
    language = LanguageModel(4)
    model = language.model("new", "cached")
    with pytest.raises(
        inlay.UnsupportedOperatorError, match=r"shape=\{'total': 'cached\+new'\} says that it is their sum"
    ):
        inlay.from_onnx(model, executor="vm")
    executable = compiled(model, client, "vm", shape={"total": "cached+new"})
    caches = None
    for ids in ([[5, 17, 3, 60, 98]], [[4]], [[1, 2, 3]]):
        inputs = language.inputs(np.array(ids, I64), caches)
        logits, *caches = run(executable, inputs)
        check_close([logits, *caches], reference(model, inputs))
