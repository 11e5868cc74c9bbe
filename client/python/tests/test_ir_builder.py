"""The builder and IRModule."""

import ml_dtypes
import numpy as np
import pytest
from reference.evaluator import evaluate

from inlay.errors import InvalidModelError
from inlay.ir import FunctionBuilder, TensorType
from inlay.ir.joins import JoiningBuilder


def _mlp():
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 4)).astype(np.float32)
    b = FunctionBuilder()
    x = b.param("x", "f32", ("n", 8))
    y = b.op("relu", b.op("matmul", x, b.weight(w, "w")))
    return b, w, y


def test_module_runs_and_keeps_its_weights_by_digest():
    b, w, y = _mlp()
    assert y.type == TensorType("f32", ("n", 4))
    module = b.finish([y], ["y"])
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    (out,) = evaluate(module.proto, module.weights, [x])
    np.testing.assert_allclose(out, np.maximum(x @ w, 0), rtol=1e-5)
    assert [c.WhichOneof("value") for c in module.proto.constants] == ["digest"]
    assert np.shares_memory(next(iter(module.weights.values())), w)  # not copied
    assert module.weight_bytes() == w.nbytes
    assert module.outputs() == ["y"]


def test_equal_literals_are_one_and_unused_code_is_left_out():
    b, w, y = _mlp()
    assert b.weight(w.copy(), "again") != b.weight(w, "w")  # the structure does not depend on values
    assert b.literal(1.0, "f32") == b.literal(1.0, "f32")
    assert b.literal(1.0, "f32") != b.literal(1.0, "f16")
    b.op("exp", y)
    module = b.finish([y])
    assert [x.call.op for x in module.functions["main"].body.bindings] == ["matmul", "relu"]


def test_tuple_results_are_taken_apart():
    b = FunctionBuilder()
    x = b.param("x", "f32", (2, 5))
    values, indices = b.op("topk", x, k=2)
    module = b.finish([indices, values])
    data = np.array([[1, 5, 2, 5, 0], [3, 1, 2, 9, 8]], np.float32)
    index, value = evaluate(module.proto, module.weights, [data])
    assert index.tolist() == [[1, 3], [3, 4]]
    assert value.tolist() == [[5, 5], [9, 8]]


def test_errors_name_the_operator_and_the_place():
    b = FunctionBuilder()
    x = b.param("x", "f32", (2, 3))
    b.location = "layer1"
    with pytest.raises(InvalidModelError, match=r"layer1: matmul: inner extents 3 and 2 differ"):
        b.op("matmul", x, x)
    with pytest.raises(InvalidModelError, match="no operator 'frobnicate'"):
        b.op("frobnicate", x)
    with pytest.raises(InvalidModelError, match="relu has no attribute alpha"):
        b.op("relu", x, alpha=1.0)
    with pytest.raises(InvalidModelError, match="attribute perm is missing"):
        b.op("transpose", x)
    with pytest.raises(ValueError, match="over 65536 use weight"):
        b.literal(np.zeros(65537, np.int8))


def test_with_attr_and_configuration_copy():
    from inlay._proto import config_pb2

    b, _, y = _mlp()
    module = b.finish([y])
    marked = module.with_attr("producer", "test").with_attr("sizes", [1, 2])
    assert marked.attrs["producer"].s == "test"
    assert list(marked.attrs["sizes"].ints.v) == [1, 2]
    assert not module.attrs
    assert marked.weights.keys() == module.weights.keys()
    config = config_pb2.CompilationConfig(num_threads=3)
    assert module.with_configuration(config).config.num_threads == 3
    assert module.config.num_threads == 0


def test_bounds_of_symbols():
    b = FunctionBuilder()
    x = b.param("x", "f32", ("seq", "4*h"))
    module = b.finish([b.op("relu", x), b.op("exp", b.param("y", "f32", ("w", 3)))])
    assert module.bounds() == {} and module.required_extents() == []

    bounds = {"seq": (8, 512), "h": (None, 100), "w": (0, None)}
    bounded = module.with_bounds(bounds)
    assert bounded.bounds() == bounds
    assert bounded.required_extents() == ["seq-8", "-seq+512", "-h+100", "w"]
    assert module.bounds() == {}
    assert "required_extents=['seq-8', '-seq+512', '-h+100', 'w']} {" in str(bounded)
    assert bounded.with_bounds({"w": (2, 2), "seq": (None, None)}).bounds() == {"w": (2, 2)}
    unbounded = bounded.with_bounds({})
    assert unbounded.proto == module.proto

    of_seq = ["seq-1", "2*seq-9", "seq-2", "-seq+9", "-3*seq+20", "-seq+8"]
    required = ["h-w", *of_seq, "20 - 3*seq", "8*(seq/8) - seq", "(seq+1)/2 - 2", 0, "2*2-3", "h - w"]
    module = module.with_required_extents(required)
    others = ["h-w", "8*((seq)/8)-seq", "((seq+1)/2)-2"]
    assert module.required_extents() == [others[0], *of_seq, *others[1:]]
    assert module.bounds() == {"seq": (5, 6)}
    # What is said of several symbols, or of what follows from one, is no bound.
    assert module.with_bounds({"h": (1, None)}).required_extents() == ["h-1", *others]
    assert module.with_required_extents(["w-1"]).required_extents() == ["w-1"]
    assert "required_extents" not in module.with_required_extents([]).functions["main"].attrs


def test_bounds_that_cannot_be():
    b = FunctionBuilder()
    module = b.finish([b.op("relu", b.param("x", "f32", ("seq", "4*h")))])
    for bounds in ({"sequence": (1, 2)}, {"4*h": (1, 2)}, {"h-1": (None, None)}):
        with pytest.raises(ValueError, match=r"no input has the symbol '.*'; main has 'seq', 'h'"):
            module.with_bounds(bounds)
    for bounds in ((3, 2), (None, -1), (-5, -1)):
        with pytest.raises(ValueError, match=f"no size of 'seq' is within its bounds, {bounds[0]} to {bounds[1]}"):
            module.with_bounds({"seq": bounds})
    with pytest.raises(TypeError):
        module.with_bounds({"seq": (1.5, None)})
    for expression in ("w", "seq-w", "(w+1)/2", "seq-", ""):
        with pytest.raises(ValueError, match="no input has the symbol"):
            module.with_required_extents([expression])
    for expression in ("3-8", -5):
        with pytest.raises(ValueError, match="is -5, and must be 0 or more"):
            module.with_required_extents([expression])
    static = FunctionBuilder()
    static = static.finish([static.op("relu", static.param("x", "f32", (3,)))])
    with pytest.raises(ValueError, match="no input has the symbol 'seq'; main has none"):
        static.with_bounds({"seq": (1, 2)})


def halves(b, x):
    """Its floor and its ceiling."""
    pool = {"dilations": [1], "ceil_mode": False, "strides": [2]}
    return (b.op("max_pool", x, kernel=[2], pads=[0, 0], **pool), b.op("max_pool", x, kernel=[3], pads=[1, 1], **pool))


def test_arguments_are_joined_where_main_can_require_it():
    b = JoiningBuilder()
    x, flag = b.param("x", "f32", (1, 4, "2*n+h")), b.param("flag", "bool", ())
    low, high = halves(b, x)
    both = ["((h)/2)-((h+1)/2)", "-((h)/2)+((h+1)/2)"]
    assert b.op("add", high, low).shape[2] == "((h)/2)+n" and b.required == both
    b.preferred = frozenset([high.shape[2]])
    assert b.op("where", b.op("less", low, high), b.op("neg", high), low).shape[2] == "((h+1)/2)+n"
    before = len(b.required)

    def refused(builder, one, other):
        with pytest.raises(InvalidModelError, match="do not broadcast"):
            builder.op("mul", one, other)
        with pytest.raises(InvalidModelError, match="differ outside axis 1"):
            builder.op("concat", one, other, axis=1)

    # A name that a slice brings is none of main's inputs.
    k = b.op("slice", x, begins=[0] * 3, ends=[2**63 - 1] * 3, steps=[1] * 3, dims=["", "", "k"])
    refused(b, *halves(b, k))
    b.if_(flag, lambda: [refused(b, low, high) or low], lambda: [low])

    def body(inner, going, state):
        refused(inner, *halves(inner, state))
        return going, state

    b.while_("turn", body, [flag, x])
    assert len(b.required) == before


def test_text_form_names_operators_types_and_places():
    b, _, _ = _mlp()
    b.location = "act (Tanh)"
    y = b.op("tanh", b.param("z", "bf16", (2,)))
    text = str(b.finish([y]))
    assert "def main(%0 x: f32[n, 8], %1 z: bf16[2]) {" in text
    assert "%2: bf16[2] = tanh(%1)  # act (Tanh)" in text


def test_bf16_and_scalars_survive():
    b = FunctionBuilder()
    x = b.param("x", ml_dtypes.bfloat16, ())
    y = b.op("add", x, b.literal(1.5, "bf16"))
    module = b.finish([y])
    (out,) = evaluate(module.proto, module.weights, [np.asarray(2.0, ml_dtypes.bfloat16)])
    assert out.shape == () and out.dtype == ml_dtypes.bfloat16 and float(out) == 3.5
