"""The command line against the fake server; with a real daemon: tests/e2e/test_cli.py."""

from __future__ import annotations

import json
import re

import click
import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from inlay import bounds, cli, cli_command, cli_model, open_sizes
from inlay.config import CompilationConfig
from inlay.ir import FunctionBuilder, IRModule, dims, load_module
from inlay.models import recurrent


@pytest.fixture
def invoke(server):
    def run(*arguments):
        return CliRunner().invoke(cli.main, [*map(str, arguments)], env={"INLAY_SERVER": server.address})

    return run


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(recurrent.build_mlp(recurrent.TINY_MLP), path)
    return path


def test_compile_prints_the_report(invoke, model):
    result = invoke("compile", model, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["partitions"][0]["cache"] == "miss"
    assert report["inputs"] == [{"name": "input", "dtype": "f32", "shape": [4, 16]}]
    text = invoke("compile", model).stdout
    assert "1 native" in text
    assert "0 from the cache" in text


def test_options_reach_the_server(invoke, server, model):
    options = ["--target", "llvm -mcpu=x86-64-v2", "--threads", 3, "--search", "none", "--backends", "native,onednn"]
    assert invoke("compile", model, *options, "--opt-level", 1, "--params-beside", "--json").exit_code == 0
    config = server.requests[-1].module.config
    assert config.targets[0].attrs["mcpu"] == "x86-64-v2"
    assert (config.num_threads, config.search.mode, config.passes.opt_level) == (3, 1, 1)
    assert list(config.search.backends) == ["native", "onednn"]
    assert config.link_params is False


def test_server_commands(invoke):
    assert json.loads(invoke("stats", "--json").stdout) == {"inlay_requests_total": 3}
    assert json.loads(invoke("info", "--json").stdout)["workers"] == 2
    assert json.loads(invoke("handles", "--json").stdout)["handles"][0]["runs"] == 2
    assert "h1" in invoke("handles", "--unload", "h1").stdout
    assert "inlay_requests_total" in invoke("stats").stdout


def test_failures_are_one_line_with_an_exit_code(invoke, server, model):
    import grpc

    server.fail["Compile"] = [
        (grpc.StatusCode.INVALID_ARGUMENT, "main: conv1:\nbad", ()),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "no memory", ()),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "late", ()),
    ]
    for code in (cli_command.EXIT_FAILED, cli_command.EXIT_SERVER, cli_command.EXIT_TIMEOUT):
        result = invoke("compile", model, "--json")
        assert result.exit_code == code
        assert len(result.stderr.strip().splitlines()) == 1
        assert json.loads(result.stdout)["error"]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (("batch=1",), {"batch": 1}),
        (("x=1,3,224,224",), {"x": [1, 3, 224, 224]}),
        (("x=1x3", "n=2"), {"x": [1, 3], "n": 2}),
        (("x=[n,4]",), {"x": ["n", 4]}),
        (("x=1,3,8*max,8*w", "h=8*n"), {"x": [1, 3, "8*max", "8*w"], "h": "8*n"}),
    ],
)
def test_shapes(values, want):
    assert cli_model.shapes(values) == want


@pytest.mark.parametrize("value", ["batch", "=1", "batch=", "x=1,,2"])
def test_bad_shapes(value):
    with pytest.raises(click.BadParameter):
        cli_model.shapes((value,))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (("seq=8:512",), {"seq": (8, 512)}),
        (("seq=8:512, h = :100", "n=3:"), {"seq": (8, 512), "h": (None, 100), "n": (3, None)}),
        (("seq=:",), {"seq": (None, None)}),
        (("a=b=0:0",), {"a=b": (0, 0)}),
    ],
)
def test_bounds(values, want):
    assert bounds.parse(values) == want


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("seq", "'seq' is not NAME=LEAST:MOST, such as seq=8:512, seq=8: or seq=:512"),
        ("seq=8", "'seq=8' is not NAME=LEAST:MOST, such as seq=8:512, seq=8: or seq=:512; --shape seq=8 makes it"),
        ("=1:2", "'=1:2' is not"),
        ("seq=-1:2", "'seq=-1:2' is not"),
        ("seq=1:2:3", "'seq=1:2:3' is not"),
        ("seq=1:2,", "'' is not"),
        ("seq=a:b", "'seq=a:b' is not"),
        ("seq=\u0661:2", "is not"),
        ("seq=:" + "9" * 5000, "is not"),
        ("seq=1:,seq=:2", "'seq' has bounds twice"),
    ],
)
def test_bad_bounds(value, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        bounds.parse((value,))


@pytest.fixture
def open_model(tmp_path):
    """tanh of x, which is [rows, columns]."""
    kinds = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["rows", "columns"]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Tanh", ["x"], ["y"])], "open", kinds[:1], kinds[1:])
    path = tmp_path / "open.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_bounds_reach_the_server(invoke, server, open_model):
    options = ["--executor", "vm", "--shape", "columns=2*n"]
    result = invoke("compile", open_model, *options, "--bounds", "rows=8:512,n=:100", "--json")
    assert result.exit_code == 0, result.stderr
    main = server.requests[-1].module.functions["main"]
    assert list(main.attrs["required_extents"].strings.v) == ["rows-8", "-rows+512", "-n+100"]
    for wrong, text in [
        ("columns=1:2", "--bounds: no input has the symbol 'columns'; main has 'rows', 'n'"),
        ("rows=9:8", "--bounds: no size of 'rows' is within its bounds, 9 to 8"),
        ("rows=:9999999999999999999", "--bounds: an extent overflows 64 bits"),
        ("rows=8", "'rows=8' is not NAME=LEAST:MOST"),
    ]:
        bundle = ["--bundle", open_model.parent / "bundle"]
        for command, *more in (["compile"], ["export", *bundle], ["explain"], ["profile"]):
            result = invoke(command, open_model, *more, *options, "--bounds", wrong)
            assert result.exit_code == cli_command.EXIT_USAGE
            assert text in " ".join(result.stderr.split())


def test_bounds_of_a_library_are_fixed(invoke, tmp_path):
    (tmp_path / "m.so").write_bytes(b"\x7fELF")
    for command in (["export", tmp_path / "m.so", "--bundle", tmp_path / "bundle"], ["profile", tmp_path / "m.so"]):
        result = invoke(*command, "--bounds", "rows=1:2")
        assert result.exit_code == cli_command.EXIT_USAGE
        assert "those of a library are fixed" in " ".join(result.stderr.split())


def test_bounds_are_added_to_those_that_a_model_has():
    b = FunctionBuilder()
    x = b.param("x", "f32", ("n", "m"))
    module = b.finish([b.op("neg", x)], ["y"]).with_required_extents(["n-2", "9-m", "n-m"])
    assert bounds.added(module, ()) is module
    assert bounds.added(module, ("n=:7",)).required_extents() == ["-n+7", "-m+9", "-m+n"]
    assert bounds.added(module, ("n=:",)).required_extents() == ["-m+9", "-m+n"]


@pytest.mark.parametrize(
    ("required", "lines"),
    [
        (["h-w", "-h+w"], ["h = w"]),
        (["h-8", "n-2", "-h+8", "-n+9", "m-1", "-k+1"], ["h = 8", "n: 2 to 9", "m: 1 or more", "k: 1 or less"]),
        (
            ["-2*((h)/2)+h", "n", "2*((h)/2)-h", "((h)/4)-1", "-h+n", "((h+1)/8)-((h+5)/8)", "-((h+1)/8)+((h+5)/8)"],
            ["n: 0 or more", "2*((h)/2) = h", "((h)/4)-1: 0 or more", "-h+n: 0 or more", "((h+1)/8) = ((h+5)/8)"],
        ),
        (["-((h)/4)+1", "((h)/4)-1"], ["((h)/4) = 1"]),
        (["-h-w", "h-w"], ["-h-w: 0 or more", "h-w: 0 or more"]),
    ],
)
def test_bounds_in_words(required, lines):
    assert bounds.in_words(required) == lines


def test_inspect_shows_a_saved_module(invoke, tmp_path):
    b = FunctionBuilder()
    x = b.param("x", "f32", ("n", 4))
    y = b.op("add", x, b.weight(np.ones((1, 4), np.float32), "w"))
    plain = b.finish([y, b.op("neg", y)], ["y", "z"])
    module = plain.with_updates({"y": "x"}).with_bounds({"n": (2, 9)}).with_configuration("llvm -mcpu=x86-64-v2")
    path = module.with_required_extents([*module.required_extents(), "8*(n/8)-n"]).save(tmp_path / "m.inlay")
    (tmp_path / "m.inlay.safetensors").unlink()  # weights are not looked at
    result = invoke("inspect", path)
    assert result.exit_code == 0, result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[1:] == [
        "input x: f32[n, 4]",
        "output y, written to input x",
        "output z",
        "bounds n: 2 to 9",
        "bounds 8*((n)/8)-n: 0 or more",
        "target llvm -mcpu=x86-64-v2",
    ]
    found = json.loads(invoke("inspect", path, "--json").stdout)
    assert found["inputs"] == [{"name": "x", "dtype": "f32", "shape": ["n", 4]}]
    assert found["bounds"] == {"n": [2, 9]}
    assert found["required_extents"] == ["n-2", "-n+9", "8*((n)/8)-n"]
    assert "bounds" not in invoke("inspect", plain.save(tmp_path / "plain.inlay")).stdout


@pytest.fixture
def saved(tmp_path):
    """x + w of an open x; built for vm, two threads, another CPU. Its name says nothing."""
    b = FunctionBuilder()
    x = b.param("x", "f32", ("n", 2**15))
    module = b.finish([b.op("add", x, b.weight(np.ones((1, 2**15), np.float32), "w"))], ["y"])
    config = CompilationConfig(
        targets=["llvm -mcpu=x86-64-v2", "native -winograd=0"], executor="vm", num_threads=2, dim_hints={"n": 4096},
        opt_level=1, link_params=False,
    )  # fmt: skip
    return module.with_required_extents(["n-4096", "4096-n"]).with_configuration(config).save(tmp_path / "module")


def test_compile_takes_a_saved_module(invoke, server, saved):
    """With its weights, updates, bounds and configuration."""

    def sent(*options):
        result = invoke("compile", saved, *options, "--json")
        assert result.exit_code == 0, result.stderr
        module = server.requests[-1].module
        return module, CompilationConfig.from_proto(module.config)

    own = load_module(saved)
    module, config = sent()
    assert module == own.proto
    assert own.weights.keys() <= server.blobs.keys()
    # What an option says, it says in place of the module, be it the default of other models.
    assert sent("--threads", 0)[1] == config.replace(num_threads=0)
    assert sent("--executor", "vm", "--opt-level", 0)[1] == config.replace(opt_level=0)
    assert sent("--executor", "graph", "--runtime", "cpp")[1] == config.replace(executor="graph")
    assert sent("--target", "llvm -mcpu=x86-64-v3")[1] == config.replace(targets=["llvm -mcpu=x86-64-v3"])
    attrs = "llvm -mattr=+fma -mcpu=x86-64-v2"
    assert sent("--target-llvm-mattr", "+fma")[1] == config.replace(targets=[attrs, "native -winograd=0"])
    module, _ = sent("--update", "y=x", "--bounds", "n=:4096")
    assert list(module.functions["main"].attrs["updates"].ints.v) == [0]
    assert list(module.functions["main"].attrs["required_extents"].strings.v) == ["-n+4096"]
    # One that says nothing is compiled as other models are.
    proto = own.proto.__class__()
    proto.CopyFrom(own.proto)
    proto.ClearField("config")
    IRModule(proto, own.weights).save(saved)
    assert sent("--target", "llvm -mcpu=x86-64-v3")[1] == CompilationConfig(targets=["llvm -mcpu=x86-64-v3"])


@pytest.mark.parametrize("command", [["explain"], ["profile", "--size", "n=7"]])
def test_other_commands_compile_what_compile_does(invoke, server, saved, open_model, command):
    for model, options in [
        (saved, ["--bounds", "n=5:4096", "--threads", 1]),
        (open_model, ["--executor", "vm", "--shape", "columns=3", "--shape", "rows=n", "--bounds", "n=5:"]),
    ]:
        sent = []
        for arguments in (["compile"], command):
            invoke(arguments[0], model, *options, *arguments[1:], "--json")  # a fake server has no library to profile
            sent.append(server.requests.pop().module)
        assert sent[0] == sent[1]
        assert sent[0].functions["main"].attrs["required_extents"].strings.v[0] == "n-5"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "input x is f32[rows, columns]: 'rows' may be 4 to 9, so say which (--size rows=N)"),
        (["--size", "rows=5"], "input x is f32[rows, columns]: 'columns' may be any number, so say which (--size col"),
        (["--size", "row=5"], "--size row=5: no input has the symbol 'row'; the model has 'rows', 'columns'"),
        (["--size", "rows=3", "--size", "columns=1"], "--size rows=3: the model refuses that, it needs rows: 4 to 9"),
        (
            ["--executor", "aot"],
            "executor aot leaves nothing open; take --executor vm and --size rows=N, or import the",
        ),
    ],
)
def test_sizes_that_can_not_be_run_are_refused_before_any_work(invoke, server, open_model, options, text):
    b = FunctionBuilder()
    module = b.finish([b.op("tanh", b.param("x", "f32", ("rows", "columns")))], ["y"])
    saved = module.with_configuration(CompilationConfig(executor="vm")).save(open_model.with_name("saved"))
    for command in (["profile"], ["bench", "--vs", "none", "--no-cold"]):
        for model, more in ((open_model, ["--executor", "vm"]), (saved, [])):
            result = invoke(*command, model, *more, "--bounds", "rows=4:9", *options)
            assert result.exit_code == cli_command.EXIT_FAILED
            assert text in " ".join((result.stderr or result.stdout).split())
    assert not server.requests


def test_sizes():
    specs = [("x", "f32", ("n", "2*m+1")), ("y", "i64", (3,))]
    open_sizes.check({"n": 4, "m": 4}, specs, ["n-4", "-n+m", "n-m", "9-n"])
    assert open_sizes.extents(specs[0], {"n": 4, "m": 4}) == [4, 9]
    for sizes, required, text in [
        ({"n": 4, "m": 5}, ["n-4", "n-m", "-n+m"], "--size m=5, n=4: the model refuses that, it needs m = n"),
        ({"n": 4, "m": 5}, ["n-m", "n-2"], "--size m=5, n=4: the model refuses that, it needs -m+n: 0 or more"),
        ({"n": 9, "m": 5}, ["n-8", "8-n"], "--size n=9: the model refuses that, it needs n = 8"),
        ({"n": 9}, ["m-1"], "input x is f32[n, 2*m+1]: 'm' may be 1 or more, so say which (--size m=N)"),
        ({"n": 9}, ["5-m"], "'m' may be 5 or less"),
        ({"n": 9, "2*m+1": 3}, [], "--size 2*m+1=3: no input has the symbol '2*m+1'; the model has 'n', 'm'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(text)):
            open_sizes.check(sizes, specs, [str(dims.canonical(e)) for e in required])
    with pytest.raises(ValueError, match=re.escape("input x is f32[n-4]: with these sizes that is [-1]")):
        open_sizes.check_symbols({"n": 3}, [("x", "f32", ("n-4",))], [])
    with pytest.raises(ValueError, match="no input has the symbol 'n'; the model has none"):
        open_sizes.check_symbols({"n": 3}, specs[1:], [])
    open_sizes.check_executor("graph", specs[1:])


def test_what_a_saved_module_is_not_compiled_of(invoke, saved):
    bundle = saved.parent / "bundle"
    for command in (["compile", saved], ["export", saved, "--bundle", bundle], ["explain", saved], ["profile", saved]):
        result = invoke(*command, "--shape", "n=3")
        assert result.exit_code == cli_command.EXIT_USAGE
        assert "--shape: a saved module keeps its shapes" in " ".join(result.stderr.split())
        result = invoke(*command, "--executor-aot-interface-api", "c")
        assert result.exit_code == cli_command.EXIT_USAGE
        assert "is an option of executor aot, and --executor is vm" in " ".join(result.stderr.split())
    named = saved.rename(saved.with_name("m.inlay"))
    result = invoke("compile", named)
    assert result.exit_code == cli_command.EXIT_FAILED
    assert "m.inlay.safetensors" in result.stderr
    named.write_bytes(named.read_bytes()[:100])
    assert "m.inlay is no IRModule, or damaged" in invoke("compile", named).stderr
    assert "No such file or directory: 'none.inlay'" in invoke("compile", "none.inlay").stderr


def test_inspect_of_what_says_nothing(invoke, model, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    for path, text in [
        (model, "m.onnx is not a shared library"),
        (tmp_path / "empty", "empty is not a shared library"),
        (tmp_path / "none.so", "none.so: No such file or directory"),
        (tmp_path, "is no bundle: it has no model.so"),
    ]:
        result = invoke("inspect", path)
        assert result.exit_code == cli_command.EXIT_FAILED
        assert text in result.stderr
