"""from_onnx: what becomes a weight, a literal or an attribute; folding; symbolic dims; refusals."""

import mmap

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from reference.evaluator import evaluate

from inlay import InvalidModelError, UnsupportedOperatorError, from_onnx

RNG = np.random.default_rng(0)


def make(nodes, inputs, outputs, initializers=(), opset=17):
    """inputs: {name: (elem type, shape)}; outputs: names; initializers: {name: array}."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in dict(initializers).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def ops_of(module):
    return [b.call.op for b in module.functions["main"].body.bindings if b.WhichOneof("expr") == "call"]


def run(module, *inputs):
    return evaluate(module.proto, module.weights, list(inputs))


F32 = TensorProto.FLOAT


def test_weights_go_by_digest_scalars_are_literals():
    w = RNG.standard_normal((4, 3)).astype(np.float32)
    model = make(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Mul", ["m", "s"], ["y"])],
        {"x": (F32, [2, 4])},
        ["y"],
        {"w": w, "s": np.float32([2.0]).reshape(())},
    )
    module = from_onnx(model)
    kinds = {c.name: c.WhichOneof("value") for c in module.proto.constants}
    assert kinds == {"w": "digest", "s": "literal"}
    x = RNG.standard_normal((2, 4)).astype(np.float32)
    np.testing.assert_allclose(run(module, x)[0], (x @ w) * 2, rtol=1e-5)


def test_new_weights_leave_the_program_unchanged():
    def program(seed):
        w = np.random.default_rng(seed).standard_normal((4, 3)).astype(np.float32)
        nodes = [
            helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
            helper.make_node("Gemm", ["x", "t"], ["y"], transB=1),
        ]
        proto = from_onnx(make(nodes, {"x": (F32, [2, 4])}, ["y"], {"w": w})).proto
        for constant in proto.constants:
            constant.digest = b""
        return proto.SerializeToString(deterministic=True)

    assert program(1) == program(2)


def test_what_the_reference_gets_wrong_is_not_folded():
    numbers = np.arange(6, dtype=np.int32).reshape(1, 2, 3)
    nodes = [
        helper.make_node("Cast", ["c"], ["x"], to=F32),
        helper.make_node("GlobalMaxPool", ["x"], ["largest"]),
        helper.make_node("ReduceSumSquare", ["c"], ["squares"], keepdims=0),
    ]
    largest, squares = run(from_onnx(make(nodes, {}, ["largest", "squares"], {"c": numbers})))
    np.testing.assert_array_equal(largest, [[[2], [5]]])
    assert (squares, squares.dtype) == (55, np.int32)


def test_shape_arithmetic_folds_to_attributes():
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["nl"]),
        helper.make_node("Concat", ["nl", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    model = make(nodes, {"x": (F32, ["batch", 3, 4])}, ["y"], constants)
    for shape, want in ((None, [-1, 12]), ({"batch": 5}, [5, -1])):
        module = from_onnx(model, shape)
        assert ops_of(module) == ["reshape"]
        x = RNG.standard_normal((5, 3, 4)).astype(np.float32)
        assert run(module, x)[0].shape == (5, 12)
        assert list(module.functions["main"].body.bindings[0].attrs["shape"].ints.v) == want


def test_symbolic_dims_stay_or_are_fixed():
    model = make([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, ["batch", None])}, ["y"])
    assert from_onnx(model).inputs()[0][1].shape == ("batch", "x_dim_1")
    assert from_onnx(model, {"batch": 2}).inputs()[0][1].shape == (2, "x_dim_1")
    assert from_onnx(model, {"x": [2, 7]}).inputs()[0][1].shape == (2, 7)
    with pytest.raises(InvalidModelError, match="neither an input"):
        from_onnx(model, {"bacth": 2})
    with pytest.raises(InvalidModelError, match="has not the rank"):
        from_onnx(model, {"x": [2]})


def test_expressions_of_symbols_follow_from_them():
    model = make([helper.make_node("Relu", ["x"], ["y"])], {"x": (F32, ["n", "2*n + 1", "n*m"])}, ["y"])
    assert from_onnx(model, {"n": 3}).inputs()[0][1].shape == (3, 7, "3*m")
    assert from_onnx(model, {"n": 3, "m": 2}).inputs()[0][1].shape == (3, 7, 6)


def test_an_expression_is_the_extent_that_it_says():
    """As exporters name a mask's length beside caches that are appended to."""
    inputs = {
        "mask": (F32, [1, "past_length + new"]), "past": (F32, [1, "past_length"]), "x": (F32, [1, "new"]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=1),
        helper.make_node("Add", ["present", "mask"], ["y"]),
    ]
    model = make(nodes, inputs, ["y"])
    assert from_onnx(model).inputs()[0][1].shape == (1, "new+past_length")
    assert from_onnx(model, {"new": 1}).inputs()[0][1].shape == (1, "past_length+1")
    assert from_onnx(model, {"new": 1, "past_length": 4}).inputs()[0][1].shape == (1, 5)


def conv(x, w, y, stride=1, pad=0):
    return helper.make_node("Conv", [x, w], [y], strides=[stride] * 2, pads=[pad] * 4)


def with_result(nodes, x, y, weights):
    """A model whose result y is added to an input z of the shape that it must have, so it imports only if it has."""
    nodes = [*nodes, helper.make_node("Add", ["y", "z"], ["sum"])]
    return make(nodes, {"x": (F32, x), "z": (F32, y)}, ["sum"], weights)


def shapes(module):
    return [type_.shape for _, type_ in module.inputs()]


def test_residuals_of_open_height_and_width():
    """A block's two ways to a half, as ResNet's: a 3x3 window with pads, a 1x1 without."""
    nodes = [
        conv("x", "w3", "stem", 2, 1),
        helper.make_node("MaxPool", ["stem"], ["p"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        conv("p", "w3", "a", 2, 1), conv("a", "w3", "b", 1, 1), conv("p", "w1", "short", 2),
        helper.make_node("Add", ["b", "short"], ["y"]),
    ]  # fmt: skip
    weights = {"w3": np.ones((4, 4, 3, 3), np.float32), "w1": np.ones((4, 4, 1, 1), np.float32)}
    result = ["n", 4, "(height + 7) / 8", "(width - 1) / 8 + 1"]
    model = with_result(nodes, ["n", 4, "height", "width"], result, weights)
    assert shapes(from_onnx(model))[1] == ("n", 4, "((height+7)/8)", "((width+7)/8)")
    module = from_onnx(model, {"height": "8*h", "width": 33, "n": "m*2"})
    assert shapes(module) == [("2*m", 4, "8*h", 33), ("2*m", 4, "h", 5)]


def test_sizes_that_must_halve():
    """A U-Net: what comes up again meets what went down, in runs of such sizes, or of all where they are declared."""
    nodes = [
        helper.make_node("MaxPool", ["x"], ["down"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["down", "w"], ["up"], strides=[2, 2]),
        helper.make_node("Concat", ["up", "x"], ["y"], axis=1),
    ]
    weights = {"w": np.ones((4, 4, 2, 2), np.float32)}
    model = with_result(nodes, [1, 4, "height", "width"], [1, 8, "height", "width"], weights)
    module = from_onnx(model, {"width": 6})
    assert ops_of(module) == ["max_pool", "conv_transpose", "slice", "concat", "add"]
    assert module.required_extents() == ["-2*((height)/2)+height", "2*((height)/2)-height"]
    assert len(from_onnx(model).required_extents()) == 4
    for shape in ({"height": "8 * h", "width": "2*w"}, {"x": [1, 4, "8*h", "w*2"], "z": [1, 8, "4*h*2", "2*w"]}):
        module = from_onnx(model, shape)
        assert shapes(module) == [(1, 4, "8*h", "2*w"), (1, 8, "8*h", "2*w")]
        assert module.required_extents() == []


def halves(*ways):
    """x [h] pooled in several ways: by (window, stride, pad at either end)."""
    return [
        helper.make_node("MaxPool", ["x"], [f"p{i}"], kernel_shape=[k], strides=[s], pads=[p, p])
        for i, (k, s, p) in enumerate(ways)
    ]


@pytest.mark.parametrize(
    "join",
    [
        helper.make_node("Mul", ["p0", "p1"], ["y"]),
        helper.make_node("Concat", ["p1", "p0"], ["y"], axis=-2),
        helper.make_node("Sum", ["p0", "p1", "p0"], ["y"]),
        helper.make_node("Where", ["true", "p0", "p1"], ["y"]),
        helper.make_node("Less", ["one", "p1"], ["y"]),  # nothing but p1: no extents to join
    ],
    ids=lambda node: node.op_type,
)
def test_extents_that_differ_by_the_rest_of_a_division(join):
    """Floor and ceiling of a half are equal in every second run."""
    constants = {"true": np.array([True]), "one": np.ones([1, 1, 1], np.float32)}
    model = make([*halves((2, 2, 0), (3, 2, 1)), join], {"x": (F32, [1, 4, "h"])}, ["y"], constants)
    module = from_onnx(model)
    both = ["((h)/2)-((h+1)/2)", "-((h)/2)+((h+1)/2)"]
    assert module.required_extents() == ([] if join.op_type == "Less" else both)
    assert ops_of(module).count("slice") == {"Less": 0, "Sum": 1}.get(join.op_type, 1)


def test_the_simplest_extent_is_kept():
    """What follows has it as well, and is joined no more."""
    nodes = [
        *halves((2, 2, 0)),
        helper.make_node("ConvTranspose", ["p0", "w"], ["up"], strides=[2]),
        helper.make_node("Add", ["up", "x"], ["a"]),
        helper.make_node("Concat", ["x", "up", "a"], ["y"], axis=0),
        helper.make_node("Sub", ["y", "x"], ["z"]),
    ]
    module = from_onnx(make(nodes, {"x": (F32, [1, 4, "h"])}, ["z"], {"w": np.ones((4, 4, 2), np.float32)}))
    assert ops_of(module).count("slice") == 2  # "up", for each that reads it
    assert module.required_extents() == ["-2*((h)/2)+h", "2*((h)/2)-h"]


def test_extents_that_are_never_equal_or_nobody_knows_in_time():
    x = {"x": (F32, [1, 4, "h"]), "y": (F32, [1, 4, "k"]), "c": (TensorProto.BOOL, [])}

    def refused(nodes, why, inputs=x):
        with pytest.raises(UnsupportedOperatorError, match=why):
            from_onnx(make(nodes, inputs, ["z"]), executor="vm")

    def add(a, b):
        return helper.make_node("Add", [a, b], ["z"])

    refused([*halves((2, 2, 0)), add("p0", "x")], r"\(\(h\)/2\) and h do not broadcast; declare h as a multiple")
    refused([*halves((2, 1, 0)), add("p0", "x")], "h-1 and h do not broadcast$")
    refused([*halves((2, 2, 0), (2, 2, 1)), add("p0", "p1")], "do not broadcast")  # h/2 and h/2 + 1
    refused([*halves((2, 2, 0)), add("p0", "y")], "do not broadcast")
    pooled = helper.make_graph(
        [*halves((2, 2, 0), (3, 2, 1)), add("p0", "p1")], "then", [], [helper.make_empty_tensor_value_info("z")]
    )
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e"])], "else", [], [helper.make_empty_tensor_value_info("e")]
    )
    choice = helper.make_node("If", ["c"], ["z"], then_branch=pooled, else_branch=other)
    refused([choice], "do not broadcast.*declare h as a multiple")  # a run may take the other branch


def test_auto_pad_of_multiples():
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 2], auto_pad="SAME_UPPER")
    weights = {"w": np.ones((4, 4, 3, 3), np.float32)}
    model = with_result([node], [1, 4, "h", "h"], [1, 4, "h/2", "h/2"], weights)
    with pytest.raises(UnsupportedOperatorError, match=r"over the symbolic dimension 'h'; fix it .*or make it '2\*n'"):
        from_onnx(model)
    assert shapes(from_onnx(model, {"h": "2*n"}))[1] == (1, 4, "n", "n")


def test_blocks_of_open_sizes():
    for mode in ("DCR", "CRD"):
        node = helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=mode)
        model = with_result([node], ["n", 12, "h", "w"], ["n", 3, "2*h", "2*w"], {})
        assert shapes(from_onnx(model))[0] == ("n", 12, "h", "w")
    node = helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2)
    model = with_result([node], ["n", 3, "h", "w"], ["n", 12, "h/2", "w/2"], {})
    with pytest.raises(UnsupportedOperatorError, match=r"h is no multiple of 2; declare h as a multiple"):
        from_onnx(model)
    assert shapes(from_onnx(model, {"h": "2*a", "w": "4*b"}))[1] == ("n", 12, "a", "2*b")
    with pytest.raises(UnsupportedOperatorError, match="16 is no multiple of 9"):
        from_onnx(
            make([helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=3)], {"x": (F32, [1, 16, 2, 2])}, ["y"])
        )


def test_resizes_of_open_sizes():
    def resize(x, sizes, inputs, weights, **attrs):
        nodes = [helper.make_node("Resize", ["x", *inputs], ["y"], **attrs)]
        if "sizes" in inputs:
            nodes = [
                helper.make_node("Shape", ["z"], ["all"]),
                helper.make_node("Slice", ["all", "two", "four"], ["sizes"]), *nodes,
            ]  # fmt: skip
            weights = {"two": i64(2), "four": i64(4)}
        module = from_onnx(with_result(nodes, x, sizes, weights))
        (attrs,) = [b.attrs for b in module.functions["main"].body.bindings if b.call.op == "resize"]
        return [dim or size for dim, size in zip(attrs["dims"].strings.v, attrs["sizes"].ints.v)], attrs[
            "scales"
        ].floats.v

    x = ["n", 4, "h", 9]

    def by(sizes, *scales, **attrs):
        return resize(x, sizes, ["", "scales"], {"scales": np.array(scales, np.float32)}, **attrs)

    assert by(["n", 4, "2*h", 18], 1, 1, 2, 2) == (["n", 4, "2*h", 18], [1, 1, 2, 2])
    assert by(["n", 4, "h / 2", 4], 1, 1, 0.5, 0.5) == (["n", 4, "((h)/2)", 4], [1, 1, 0.5, 0.5])
    assert by(["n", 4, "3 * h / 2", 9], 1, 1, 1.5, 1, mode="linear")[0] == ["n", 4, "((h)/2)+h", 9]
    # To another's size: a run finds the scale, but of what is as large.
    both = {"axes": [2, 3], "coordinate_transformation_mode": "align_corners", "mode": "linear"}
    assert resize(x, ["n", 4, "a", 9], ["", "", "sizes"], {}, **both) == (["n", 4, "a", 9], [1, 1, 0, 1])
    for wanted, scales, attrs in [
        ("align_corners by the scale 1.5 needs", (1, 1, 1.5, 1), {"coordinate_transformation_mode": "align_corners"}),
        ("antialias or a region needs", (1, 1, 0.5, 1), {"antialias": 1, "mode": "linear"}),
    ]:
        with pytest.raises(UnsupportedOperatorError, match=f"{wanted} the symbolic dimension 'h'; fix it with shape="):
            by(x, *scales, **attrs)
    with pytest.raises(UnsupportedOperatorError, match="'not_larger' needs the symbolic dimension 'a'"):
        resize(x, x[:2] + ["a", 9], ["", "", "sizes"], {}, axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    node = helper.make_node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0])
    model = make([node], {"x": (F32, x)}, ["y"])
    model.opset_import[0].version = 7
    assert from_onnx(model).inputs()[0][1].shape == ("n", 4, "h", 9)


def i64(*values):
    return np.array(values, np.int64)


def extent(axis, name):
    """The nodes that read one extent of x."""
    return [
        helper.make_node("Shape", ["x"], [f"{name}.shape"]),
        helper.make_node("Gather", [f"{name}.shape", axis], [name]),
    ]


def test_what_is_left_of_a_reshape_to_symbols():
    """As torch.nn.PixelUnshuffle and windows of tokens write it; scalars on the way."""
    nodes = [
        *extent("three", "w"),
        helper.make_node("Div", ["w", "two"], ["half"]),
        helper.make_node("Concat", ["head", "w"], ["rows"], axis=0),
        helper.make_node("Reshape", ["x", "rows"], ["split"]),  # [1, 16, -1, 2, 2*w]
        helper.make_node("Concat", ["head", "half", "two"], ["blocks"], axis=0),
        helper.make_node("Reshape", ["split", "blocks"], ["y"]),
    ]
    weights = {"head": i64(1, 16, -1, 2), "two": i64(2), "three": i64(3)}
    model = with_result(nodes, [1, 16, "2*h", "2*w"], [1, 16, "h", 2, "w", 2], weights)
    assert shapes(from_onnx(model))[1] == (1, 16, "h", 2, "w", 2)
    model = with_result(nodes, [1, 16, "h", "2*w"], [1, 16, "h/2", 2, "w", 2], weights)
    with pytest.raises(UnsupportedOperatorError, match="does not fit into shape.* declare h as a multiple"):
        from_onnx(model)
    scalar = [
        *extent("two", "h"),
        helper.make_node("Mul", ["h", "two"], ["twice"]),
        helper.make_node("Unsqueeze", ["twice", "zero"], ["target"]),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"two": np.int64(2), "zero": i64(0)}
    assert shapes(from_onnx(with_result(scalar, [1, 2, "h"], ["2*h"], weights)))[1] == ("2*h",)


def sliced(x, y, begin, end, step=1):
    """A slice of the last axis; begins and ends: numbers, or names of values."""
    ends = {n: i64(v) for n, v in (("begin", begin), ("end", end), ("axis", -1), ("step", step)) if isinstance(v, int)}
    names = [v if isinstance(v, str) else n for n, v in (("begin", begin), ("end", end))]
    nodes = [
        *extent("last", "w"),
        helper.make_node("Div", ["w", "two"], ["half"]),
        helper.make_node("Sub", ["w", "two"], ["but_two"]),
        helper.make_node("Slice", ["x", *names, "axis", "step"], ["y"]),
    ]
    return with_result(nodes, x, y, {"last": i64(-1), "two": i64(2), **ends})


MAX, MIN = 2**63 - 1, -(2**63)


def test_slices_of_open_extents():
    for begin, end, step, left in [
        (1, MAX, 1, "w-1"), (0, -1, 1, "w-1"), (1, "but_two", 1, "w-3"), (0, "half", 1, "w/2"), (2, 2**31 - 1, 1, "w-2"),
        (-1, MIN, -1, "w"), (-1, MIN + 1, -1, "w"), (-1, -(2**31), -1, "w"), (0, MAX, 2, "(w+1)/2"), (1, MAX, 2, "w/2"),
        ("half", MAX, 1, "w-w/2"), ("half", "w", 1, "w-w/2"), ("half", "but_two", 1, "w-w/2-2"),
        ("half", -1, 1, "w-w/2-1"), (0, 1, 1, 7), (-1, MAX, 1, 7),  # one is as good as seven
    ]:  # fmt: skip
        from_onnx(sliced([3, "w"], [3, left], begin, end, step))
    with pytest.raises(UnsupportedOperatorError, match="slices from .* by 2 of .w.; fix it"):
        from_onnx(sliced([3, "w"], [3, "w"], "half", MAX, 2))
    with pytest.raises(UnsupportedOperatorError, match="to 10 of 'w', which may be less"):
        from_onnx(sliced([3, "w"], [3, "w"], "half", 10))
    from_onnx(sliced([3, 12], [3, 4], "half", 10))
    # Two halves of an even extent, in both ways to write it.
    from_onnx(sliced([3, "2*w"], [3, "w"], "half", MAX))
    split = helper.make_node("Split", ["x"], ["a", "b"], axis=1)
    from_onnx(with_result([split, helper.make_node("Add", ["a", "b"], ["y"])], [3, "2*w"], [3, "w"], {}))
    with pytest.raises(UnsupportedOperatorError, match="splits the symbolic dimension 'w' into 2; declare it"):
        from_onnx(with_result([split, helper.make_node("Add", ["a", "b"], ["y"])], [3, "w"], [3, "w/2"], {}))


def test_pads_of_open_extents():
    for mode in ("constant", "reflect", "edge", "wrap"):
        node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
        from_onnx(with_result([node], [1, "h", "w"], [1, "h+3", "w-1"], {"pads": i64(0, 1, 0, 0, 2, -1)}))
        # To a multiple of 8, in PyTorch's words.
        nodes = [
            *extent("last", "w"),
            helper.make_node("Mod", ["w", "eight"], ["over"]),
            helper.make_node("Sub", ["eight", "over"], ["room"]),
            helper.make_node("Mod", ["room", "eight"], ["after"]),
            helper.make_node("Concat", ["none", "after"], ["pads"], axis=0),
            helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode),
        ]
        weights = {"last": i64(-1), "eight": i64(8), "none": i64(0, 0, 0, 0, 0)}
        from_onnx(with_result(nodes, [1, "h", "w"], [1, "h", "8*w-8*(7*w/8)"], weights))
        assert "pad" not in ops_of(from_onnx(with_result(nodes, [1, "h", "8*w"], [1, "h", "8*w"], weights)))


def test_counting_in_floats_to_an_extent():
    nodes = [
        *extent("zero", "n"),
        helper.make_node("Cast", ["n"], ["float"], to=F32),
        helper.make_node("Range", ["from", "float", "by"], ["y"]),
    ]
    weights = {"zero": np.int64(0), "from": np.float32(0), "by": np.float32(1)}
    from_onnx(with_result(nodes, ["n"], ["n"], weights))


def test_every_unsupported_node_is_listed_at_once():
    nodes = [
        helper.make_node("NonZero", ["x"], ["nz"], name="first"),
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("RandomUniformLike", ["r"], ["u"], name="second"),
        helper.make_node("Frobnicate", ["u"], ["y"], name="third", domain="com.example"),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(make(nodes, {"x": (F32, [2, 2])}, ["y", "nz"]))
    assert [n.name for n in caught.value.nodes] == ["first", "second", "third"]
    assert "depends on data" in str(caught.value)
    assert "com.example.Frobnicate" in str(caught.value)


def test_attributes_and_inputs_that_nobody_read_are_refused():
    lstm = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=2, clip=1.0)
    shapes = {"x": (F32, [3, 1, 2]), "w": (F32, [1, 8, 2]), "r": (F32, [1, 8, 2])}
    with pytest.raises(UnsupportedOperatorError, match="clip"):
        from_onnx(make([lstm], shapes, ["y"]))
    odd = helper.make_node("Relu", ["x"], ["y"], slope=2.0)
    with pytest.raises(UnsupportedOperatorError, match="attribute slope is not supported"):
        from_onnx(make([odd], {"x": (F32, [1])}, ["y"]))


def test_inputs_that_decide_shapes_can_be_bound():
    model = make(
        [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": (F32, [2, 6]), "s": (TensorProto.INT64, [2])}, ["y"]
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        from_onnx(model)
    assert caught.value.needed_constants == ("s",)
    module = from_onnx(model, constants={"s": np.array([3, 4])})
    assert [n for n, _ in module.inputs()] == ["x"]
    assert run(module, np.zeros((2, 6), np.float32))[0].shape == (3, 4)


def test_malformed_models_are_named():
    with pytest.raises(InvalidModelError, match="reads 'nowhere'"):
        from_onnx(make([helper.make_node("Relu", ["nowhere"], ["y"])], {"x": (F32, [1])}, ["y"]))
    with pytest.raises(InvalidModelError, match="no such file"):
        from_onnx("/nonexistent/model.onnx")
    with pytest.raises(UnsupportedOperatorError, match="differ"):
        from_onnx(make([helper.make_node("MatMul", ["x", "x"], ["y"])], {"x": (F32, [2, 3])}, ["y"]))


def test_not_an_onnx_file(tmp_path):
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"\xff\x07 this is not a protobuf")
    with pytest.raises(InvalidModelError, match="not an ONNX model"):
        from_onnx(path)


def test_external_data_is_memory_mapped_and_confined(tmp_path):
    w = RNG.standard_normal((300, 200)).astype(np.float32)
    model = make([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (F32, [1, 300])}, ["y"], {"w": w})
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    module = from_onnx(tmp_path / "m.onnx")
    (array,) = module.weights.values()
    owner = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
        owner = owner.base
    assert isinstance(owner, (np.memmap, mmap.mmap))
    np.testing.assert_array_equal(array, w)

    hostile = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    hostile.graph.initializer[0].external_data[0].value = "../../etc/passwd"
    (tmp_path / "h.onnx").write_bytes(hostile.SerializeToString())
    with pytest.raises(InvalidModelError, match="outside the model's folder"):
        from_onnx(tmp_path / "h.onnx")


def test_functions_of_the_model_are_inlined():
    relu2 = helper.make_function(
        "local",
        "Relu2",
        ["a"],
        ["b"],
        [
            helper.make_node("Relu", ["a"], ["t"]),
            helper.make_node("Add", ["t", "t"], ["b"]),
        ],
        [helper.make_opsetid("", 17)],
    )
    model = make([helper.make_node("Relu2", ["x"], ["y"], domain="local")], {"x": (F32, [3])}, ["y"])
    model.functions.append(relu2)
    model.opset_import.append(helper.make_opsetid("local", 1))
    module = from_onnx(model)
    assert ops_of(module) == ["relu", "add"]
    assert run(module, np.float32([-1, 0, 2]))[0].tolist() == [0, 0, 4]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types(dtype):
    elem = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16, "float64": TensorProto.DOUBLE}[dtype]
    numpy_type = helper.tensor_dtype_to_np_dtype(elem)
    w = RNG.standard_normal((4, 4)).astype(numpy_type)
    model = make([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (elem, [2, 4])}, ["y"], {"w": w})
    x = RNG.standard_normal((2, 4)).astype(numpy_type)
    (y,) = run(from_onnx(model), x)
    assert y.dtype == numpy_type
    np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64) @ w.astype(np.float64), rtol=2e-2, atol=2e-2)
