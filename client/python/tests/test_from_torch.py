"""from_torch: what becomes a weight, a literal, an input, an output; sizes; locations; refusals, all at once."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from reference.evaluator import evaluate
from reference.open_sizes import at_sizes
from torch import nn
from torch.export import Dim, export

import inlay
from inlay import InvalidModelError, UnsupportedOperatorError


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def of(function, *args, **kwargs):
    return inlay.from_torch(Of(function).eval(), args, kwargs)


def refusal(function, *args, **kwargs) -> str:
    with pytest.raises(UnsupportedOperatorError) as caught:
        inlay.from_torch(Of(function).eval() if not isinstance(function, nn.Module) else function, args, **kwargs)
    return str(caught.value)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("offsets", torch.arange(3))
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return (self.fc(x) + self.offsets) * self.scale


def test_weights_keep_their_names_and_share_memory():
    torch.manual_seed(0)
    network = Model().eval()
    module = inlay.from_torch(export(network, (torch.zeros(2, 4),)))
    kinds = {c.name: c.WhichOneof("value") for c in module.proto.constants}
    assert kinds == {"fc.weight": "digest", "fc.bias": "digest", "offsets": "literal", "scale": "literal"}
    shared = [np.shares_memory(w, network.fc.weight.detach().numpy()) for w in module.weights.values()]
    assert sum(shared) == 1
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    want = network(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(evaluate(module.proto, module.weights, [x])[0], want, rtol=1e-5, atol=1e-6)


def test_new_weights_leave_the_program_unchanged():
    def program(seed):
        torch.manual_seed(seed)
        proto = inlay.from_torch(Model().eval(), (torch.zeros(2, 4),)).proto
        for constant in proto.constants:
            constant.digest = b"" if constant.WhichOneof("value") == "digest" else constant.digest
        return proto.functions["main"].SerializeToString(deterministic=True)

    assert program(1) == program(2)


def test_weights_of_other_memory():
    """A transposed one, and bfloat16, which NumPy has not."""
    w = torch.arange(12.0).reshape(3, 4)
    transposed, half = nn.Parameter(w.t()), nn.Parameter(w.bfloat16())

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = transposed, half

        def forward(self, x):
            return x @ self.a, x.bfloat16().T @ self.b

    module = inlay.from_torch(Two().eval(), (torch.ones(3, 4),))
    a, b = evaluate(module.proto, module.weights, [np.ones((3, 4), np.float32)])
    np.testing.assert_array_equal(a, np.ones((3, 4)) @ w.t().numpy())
    np.testing.assert_array_equal(b.astype(np.float32), np.ones((4, 3)) @ w.numpy())


def test_inputs_and_outputs_have_their_names():
    class Named(nn.Module):
        def forward(self, x, *, mask, flag=3):
            return {"sum": x.sum(), "pair": (x * flag, mask), "nothing": None}

    program = export(Named().eval(), (torch.ones(2, 3),), {"mask": torch.ones(3)})
    module = inlay.from_torch(program)
    assert [(n, str(t)) for n, t in module.inputs()] == [("x", "f32[2, 3]"), ("mask", "f32[3]")]
    assert module.outputs() == ["sum", "pair.0", "pair.1"]
    assert of(lambda x: x + 1, torch.ones(2)).outputs() == ["output_0"]


def test_numbers_are_fixed():
    program = export(Of(lambda x, k: x * k).eval(), (torch.ones(2), 3))
    module = inlay.from_torch(program)
    assert len(module.inputs()) == 1
    assert evaluate(module.proto, module.weights, [np.ones(2, np.float32)])[0].tolist() == [3, 3]


def test_results_that_are_inputs_weights_or_each_other():
    w = torch.arange(3.0)

    def function(x):
        y = x + 1
        return x, x.view(-1), y, y, y.t(), w, torch.tensor(5)

    module = of(function, torch.ones(2, 3))
    got = evaluate(module.proto, module.weights, [np.ones((2, 3), np.float32)])
    assert [g.shape for g in got] == [(2, 3), (6,), (2, 3), (2, 3), (3, 2), (3,), ()]


def test_locations_name_the_module():
    network = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    module = inlay.from_torch(network.eval(), (torch.ones(1, 4),))
    places = [b.location for b in module.functions["main"].body.bindings if b.call.op == "matmul"]
    assert places == ["0/linear (aten.linear.default)", "1.1/linear_1 (aten.linear.default)"]


# --- Sizes -----------------------------------------------------------------------------------------------------------


def dynamic():
    network = Of(lambda x, y: torch.cat([x, y], 1).reshape(x.shape[0] * 2, -1) * x.shape[1])
    batch, length = Dim("batch", min=2, max=64), Dim("length", min=2)
    shapes = {"args": ({0: batch, 1: length}, {0: batch, 1: length})}
    return export(network.eval(), (torch.ones(3, 4), torch.ones(3, 4)), dynamic_shapes=shapes)


def symbols(program):
    """Of the first input."""
    first = next(n for n in program.graph.nodes if n.name == program.graph_signature.user_inputs[0])
    return [str(d) for d in first.meta["val"].shape]


def shapes(module):
    return [list(type_.shape) for _, type_ in module.inputs()]


def auto(function, *args):
    """Exported with all dimensions dynamic."""
    every = tuple({i: Dim.AUTO for i in range(a.dim())} for a in args)
    return export(Of(function).eval(), args, dynamic_shapes={"args": every})


def test_dimensions_stay_open_by_the_names_of_their_symbols():
    program = dynamic()
    module = inlay.from_torch(program)
    assert shapes(module) == [symbols(program)] * 2
    for sizes in ((2, 6), (5, 2), (7, 11)):
        x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
        (got,) = evaluate(at_sizes(module.proto, [x, x]), module.weights, [x, x])
        np.testing.assert_array_equal(got, program.module()(torch.from_numpy(x), torch.from_numpy(x)).numpy())


def test_dimensions_are_renamed_fixed_or_multiples():
    program = dynamic()
    batch, length = symbols(program)
    a, b = program.graph_signature.user_inputs
    assert shapes(inlay.from_torch(program, shape={a: ["batch", "length"]})) == [["batch", "length"]] * 2
    assert shapes(inlay.from_torch(program, shape={batch: "rows"})) == [["rows", length]] * 2
    assert shapes(inlay.from_torch(program, shape={a: [3, "length"]})) == [[3, "length"]] * 2
    assert shapes(inlay.from_torch(program, shape={length: 5})) == [[batch, 5]] * 2
    assert shapes(inlay.from_torch(program, shape={b: ["2*rows", "8 * n"], length: "8*n"})) == [["2*rows", "8*n"]] * 2


def test_several_inputs_share_a_name():
    """Where PyTorch does not see that two sizes are the same."""
    program = auto(lambda x, y: torch.slice_scatter(x, y, 0, 1, -1), torch.ones(6, 3), torch.ones(4, 3))
    with pytest.raises(UnsupportedOperatorError, match="do not broadcast"):
        inlay.from_torch(program)
    module = inlay.from_torch(program, shape={"args_0": ["n", "m"], "args_1": ["n-2", "m"]})
    x, y = np.zeros((9, 5), np.float32), np.ones((7, 5), np.float32)
    (got,) = evaluate(at_sizes(module.proto, [x, y]), module.weights, [x, y])
    assert got[:, 0].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 0]


def test_bounds_of_dimensions_are_the_modules():
    program = dynamic()
    batch = symbols(program)[0]
    assert inlay.from_torch(program).bounds() == {batch: (None, 64)}  # 2 is what every size is while PyTorch traces
    assert inlay.from_torch(program, shape={batch: "2*rows"}).bounds() == {"rows": (None, 32)}
    assert inlay.from_torch(program, shape={batch: 4}).required_extents() == []
    even = {"args": ({0: 2 * Dim("half", min=3, max=20)},)}
    module = inlay.from_torch(export(Of(lambda x: x + 1).eval(), (torch.ones(8, 2),), dynamic_shapes=even))
    ((half, bounds),) = module.bounds().items()
    assert shapes(module) == [[f"2*{half}", 2]] and bounds == (3, 20)


CONDITIONS = {
    "more": lambda x: x.shape[0] > 4,
    "no more": lambda x: x.shape[0] <= 12,
    "unequal": lambda x: x.shape[0] != 12,
    "equal": lambda x: x.shape[0] == x.shape[1] + 6,
    "a multiple": lambda x: x.shape[0] % 3 == 0,
    "a rest": lambda x: x.shape[0] % 4 == 1,
    "a quotient": lambda x: x.shape[0] // 2 > 3,
    "of both": lambda x: x.shape[0] * x.shape[1] > 2 * x.shape[1] + 14,
    "not so": lambda x: x.shape[0] == 12,
}


@pytest.mark.parametrize("saved", [False, True], ids=["", "saved"])
@pytest.mark.parametrize("examples", [True, False], ids=["", "without example inputs"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_a_branch_is_for_the_sizes_that_take_it(name, examples, saved, tmp_path):
    """Of a saved program the conditions are code, which PyTorch runs again while it decomposes one with example inputs."""
    condition = CONDITIONS[name]
    program = auto(lambda x: x * 2 if condition(x) else x, torch.ones(9, 3))
    if not examples:
        program.example_inputs = None
    if saved:
        torch.export.save(program, tmp_path / "program.pt2")
        program = torch.export.load(tmp_path / "program.pt2")
    module = inlay.from_torch(program)
    for n in range(30):
        x = np.ones((n, 3), np.float32)
        if condition(x) == condition(np.ones((9, 3))):
            (y,) = evaluate(at_sizes(module.proto, [x]), module.weights, [x])
            assert (y == (2 if condition(x) else 1)).all()
        else:
            with pytest.raises(ValueError, match="is refused"):
                at_sizes(module.proto, [x])


def test_fixed_sizes_take_the_branch_too():
    program = auto(lambda x: x * 2 if x.shape[0] != 12 else x, torch.ones(9, 3))
    with pytest.raises(InvalidModelError, match="not those that the program was traced for: Ne\\(s\\d+, 12\\)"):
        inlay.from_torch(program, shape={"args_0": [12, 3]})
    assert inlay.from_torch(program, shape={"args_0": [13, 3]}).required_extents() == []


def test_conditions_without_a_form_are_told_and_known_sizes_keep_to_them():
    program = auto(lambda x: x * 2 if x.shape[0] / 2 > 2.2 else x, torch.ones(9, 3))
    with pytest.warns(UserWarning, match="a run is not refused where its sizes are not those of .*2\\.2"):
        assert inlay.from_torch(program).required_extents() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inlay.from_torch(program, shape={"args_0": [5, "n"]})
        with pytest.raises(InvalidModelError, match="not those that the program was traced for"):
            inlay.from_torch(program, shape={"args_0": [4, "n"]})


def test_conditions_of_several_parts_are_kept():
    """A pool's rows and columns, each one or more."""
    program = auto(lambda x: torch.nn.functional.max_pool2d(x, 4), torch.ones(2, 3, 9, 11))
    module = inlay.from_torch(program, shape={"args_0": ["n", "c", "h", "w"]})
    assert {"((h)/4)-1", "((w)/4)-1"} <= set(module.required_extents())


def test_saved_sizes_that_are_sums(tmp_path):
    """PyTorch loads "s1+1" as a symbol of its own."""
    program = auto(lambda x, y: x[1:] + y, torch.ones(5, 2), torch.ones(4, 2))
    torch.export.save(program, tmp_path / "program.pt2")
    module, loaded = inlay.from_torch(program), inlay.from_torch(tmp_path / "program.pt2")
    assert shapes(loaded) == shapes(module) and shapes(module)[0][0] == f"{shapes(module)[1][0]}+1"


def test_numbers_that_no_size_tells():
    dynamic_shapes = {"args": ({0: Dim.AUTO}, Dim.AUTO)}
    program = export(Of(lambda x, k: x.repeat(k)).eval(), (torch.ones(4), 3), dynamic_shapes=dynamic_shapes)
    with pytest.raises(
        InvalidModelError, match="input 'args_1' is a number that no tensor's size tells; fix it: shape="
    ):
        inlay.from_torch(program)
    symbol = str(next(n for n in program.graph.nodes if n.name == "args_1").meta["val"])
    module = inlay.from_torch(program, shape={symbol: 2})
    x = np.arange(5, dtype=np.float32)
    (got,) = evaluate(at_sizes(module.proto, [x]), module.weights, [x])
    assert got.tolist() == [0, 1, 2, 3, 4] * 2


@pytest.mark.parametrize("sizes", [(2, 6), (5, 2)])
def test_dimensions_are_fixed_by_input(sizes):
    program = dynamic()
    name = program.graph_signature.user_inputs[0]
    module = inlay.from_torch(program, shape={name: sizes})
    x = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    want = program.module()(torch.from_numpy(x), torch.from_numpy(x)).numpy()
    np.testing.assert_array_equal(evaluate(module.proto, module.weights, [x, x])[0], want)


def test_dimensions_are_fixed_by_symbol():
    program = dynamic()
    first = next(n for n in program.graph.nodes if n.name == program.graph_signature.user_inputs[0]).meta["val"]
    batch, length = (str(d) for d in first.shape)
    assert str(inlay.from_torch(program, shape={batch: 3, length: 5}).inputs()[1][1]) == "f32[3, 5]"


def test_sizes_that_do_not_fit():
    program = dynamic()
    a, b = program.graph_signature.user_inputs
    with pytest.raises(InvalidModelError, match="shape names \\['z'\\], which is neither an input"):
        inlay.from_torch(program, shape={"z": 1})
    with pytest.raises(InvalidModelError, match="=65 is outside what was exported: 0 to 64"):
        inlay.from_torch(program, shape={a: [65, 4]})
    with pytest.raises(InvalidModelError, match="contradicts the program's"):
        inlay.from_torch(program, shape={a: [3, 4], b: [3, 5]})
    with pytest.raises(InvalidModelError, match="contradicts the program's"):
        inlay.from_torch(program, shape={a: ["n", 4], b: ["m", 4]})
    with pytest.raises(InvalidModelError, match="has not the rank of"):
        inlay.from_torch(program, shape={a: [3]})
    known = export(Of(lambda x: x + 1).eval(), (torch.ones(2, 3),))
    with pytest.raises(InvalidModelError, match="contradicts the program's \\[2, 3\\]"):
        inlay.from_torch(known, shape={"args_0": ["n", 3]})


# --- Refusals --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def forward(self, x):
        return x[x > 0].sum() + torch.special.i0(x).sum()


class Refused(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return self.block(x) + torch.linalg.det(x) + torch.rand(1)


def test_all_unsupported_operators_are_listed_at_once():
    text = refusal(Refused().eval(), torch.ones(3, 3))
    lines = text.splitlines()
    assert lines[0].endswith("unsupported nodes:")
    assert any("block/" in li and "depends on data" in li and "test_from_torch.py:" in li for li in lines)
    assert (
        any("block/special_i0 (aten.special_i0.default): there is no converter" in li for li in lines) or "i0" in text
    )
    assert any(
        "(aten.rand.default): its result is random; a compiled model is a function of its inputs" in li for li in lines
    )
    assert any("linalg_det" in li for li in lines)
    with pytest.raises(UnsupportedOperatorError) as caught:
        inlay.from_torch(Refused().eval(), (torch.ones(3, 3),))
    assert len(caught.value.nodes) == len(lines) - 1 and caught.value.nodes[0].opset is None


def test_training_is_refused():
    with pytest.raises(InvalidModelError, match="the module is in training mode; call module.eval\\(\\) first"):
        inlay.from_torch(nn.Dropout(), (torch.ones(2),))
    program = export(nn.Dropout().train(), (torch.ones(2),))
    with pytest.raises(UnsupportedOperatorError, match="drops at random: the model is in training mode"):
        inlay.from_torch(program)


def test_antialiased_bytes_are_refused():
    class Smaller(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.interpolate(x, (2, 2), mode="bilinear", antialias=True)

    with pytest.raises(UnsupportedOperatorError, match="integers, which PyTorch rounds after each axis"):
        inlay.from_torch(Smaller().eval(), (torch.zeros(1, 3, 4, 4, dtype=torch.uint8),))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        x.mul_(2)
        return x + self.count


def test_what_a_program_writes_to_is_an_input_and_an_output():
    module = inlay.from_torch(Counter().eval(), (torch.ones(2),))
    assert [name for name, _ in module.inputs()] == ["x", "count"]
    assert module.outputs() == ["output_0", "count", "x"]
    assert module.updates() == {"count": "count", "x": "x"}


@pytest.mark.parametrize(
    ("function", "args", "text"),
    [
        (lambda x: torch.fft.fft(x), (torch.ones(4),), "(aten._fft_r2c.default): there is no converter"),
        (lambda x: torch.nonzero(x), (torch.ones(4),), "the shape of its result depends on data"),
        (lambda x: x + 1, (torch.ones(4, dtype=torch.complex64),), "dtype complex64 is one that the IR lacks"),
        (lambda x: nn.functional.adaptive_max_pool2d(x, 2, return_indices=True)[1], (torch.ones(1, 1, 4, 4),), "the indices of a max"),
        (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, [x]), (torch.ones(4),), "higher-order operators"),
        (lambda x: torch.randn_like(x) + x, (torch.ones(4),), "its result is random"),
    ],
)  # fmt: skip
def test_refusal(function, args, text):
    assert text in refusal(function, *args)


def test_files(tmp_path):
    program = export(nn.ReLU(), (torch.ones(2),))
    torch.export.save(program, tmp_path / "relu.pt2")
    assert str(inlay.from_torch(tmp_path / "relu.pt2")) == str(inlay.from_torch(program))
    with pytest.raises(InvalidModelError, match="none.pt2: no such file"):
        inlay.from_torch(str(tmp_path / "none.pt2"))
    (tmp_path / "bad.pt2").write_bytes(b"no zip")
    with pytest.raises(InvalidModelError, match="bad.pt2: not a program of torch.export"):
        inlay.from_torch(tmp_path / "bad.pt2")


def test_a_file_whose_operators_are_not_there(tmp_path, capfd):
    with torch.library._scoped_library("inlay_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        program = export(Of(lambda x: torch.ops.inlay_test.twice(x)), (torch.ones(2),))
        torch.export.save(program, tmp_path / "twice.pt2")
    with pytest.raises(InvalidModelError, match="calls torch.ops.inlay_test.twice.default, which nothing here defines"):
        inlay.from_torch(tmp_path / "twice.pt2")
    assert capfd.readouterr().err == ""


def test_wrong_arguments():
    with pytest.raises(TypeError, match="from_torch takes a torch.export.ExportedProgram or an nn.Module, not a int"):
        inlay.from_torch(3)
    with pytest.raises(TypeError, match="example inputs and their dynamic shapes are for an nn.Module"):
        inlay.from_torch(export(nn.ReLU(), (torch.ones(2),)), (torch.ones(2),))


def test_torch_stays_optional():
    """`import inlay` must not import it, and from_torch says what is missing."""
    code = """
import sys
sys.modules["torch"] = None
import inlay, inlay.onnx_import
try:
    inlay.from_torch(None)
except ImportError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "inlay.from_torch needs PyTorch, which is not installed: pip install torch\n", done.stderr


def test_what_is_computed_for_checks_alone_is_not_compiled():
    def function(x, lengths):
        torch._check(lengths.max().item() <= 9)
        return x * 2

    module = of(function, torch.ones(3), torch.tensor([4, 5]))
    assert [b.call.op for b in module.functions["main"].body.bindings] == ["mul"]
    assert "known only when the model runs" in refusal(lambda x: x * x.sum().item(), torch.ones(3))
