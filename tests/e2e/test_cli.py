"""The command line as a user has it: its own daemon, started by the first command."""

from __future__ import annotations

import html
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import pytest
from conftest import check_close, environment, reference

from inlay.config import CompilationConfig
from inlay.ir import FunctionBuilder
from inlay.models import recurrent, resnet
from inlay.onnx_import import from_onnx


@pytest.fixture(scope="module")
def inlay():
    """Runs `inlay ARGUMENTS` with a daemon and cache of its own; gives (exit code, stdout, stderr)."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="inlay-t"))

    def run(*arguments, check=True):
        command = [sys.executable, "-m", "inlay.cli", *map(str, arguments)]
        done = subprocess.run(  # noqa: PLW1510
            command,
            env=environment(folder),
            capture_output=True,
            text=True,
            timeout=300,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done.returncode, done.stdout, done.stderr

    run.folder = folder
    yield run
    run("drain", check=False)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(resnet.build(resnet.TINY), path)
    return path


def test_compile_and_run(inlay, model, tmp_path):
    library = tmp_path / "m.so"
    _, out, err = inlay(
        "compile",
        model,
        "--target",
        "llvm -mcpu=native",
        "--threads",
        1,
        "-o",
        library,
        "--json",
    )
    report = json.loads(out)
    assert {"server_ms", "actions_run", "partitions"} <= set(report)
    assert {"name", "backend", "ops", "cache", "why", "compile_ms", "cost_us"} <= set(report["partitions"][0])
    assert err == "", "no progress where there is no terminal"
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "x.npz", input=x)
    _, out, _ = inlay(
        "run",
        library,
        "--input",
        tmp_path / "x.npz",
        "-o",
        tmp_path / "y.npz",
        "--json",
    )
    assert json.loads(out)["outputs"][0]["name"] == "logits"
    check_close(
        [np.load(tmp_path / "y.npz")["logits"]],
        reference(onnx.load(model), {"input": x}),
    )
    # The same for people.
    _, out, _ = inlay("compile", model)
    assert "from the cache" in out
    _, out, _ = inlay("run", library, "--random", 1)
    assert "logits" in out
    _, out, _ = inlay("inspect", library)
    assert "x86_64" in out
    _, out, _ = inlay("inspect", library, "--json")
    assert json.loads(out)["plan"]["inputs"][0]["name"] == "input"


def test_updates(inlay, tmp_path):
    """A library whose runs write to their inputs, said with one pattern for all caches."""
    nodes, inputs, outputs = [], [], []
    for i in range(2):
        nodes.append(onnx.helper.make_node("ScatterND", [f"past.{i}", "at", "row"], [f"present.{i}"]))
        inputs.append(onnx.helper.make_tensor_value_info(f"past.{i}", onnx.TensorProto.FLOAT, [5, 3]))
        outputs.append(onnx.helper.make_tensor_value_info(f"present.{i}", onnx.TensorProto.FLOAT, [5, 3]))
    inputs.append(onnx.helper.make_tensor_value_info("at", onnx.TensorProto.INT64, [1, 1]))
    inputs.append(onnx.helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [1, 3]))
    graph = onnx.helper.make_graph(nodes, "caches", inputs, outputs)
    model, library = tmp_path / "caches.onnx", tmp_path / "caches.so"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), model)
    inlay("compile", model, "--update", "present.*=past.*", "-o", library)
    _, out, _ = inlay("inspect", library)
    assert "present.1: f32[5, 3], written to input past.1" in " ".join(out.split())
    values = {"past.0": np.zeros((5, 3), np.float32), "past.1": np.ones((5, 3), np.float32)}
    np.savez(tmp_path / "x.npz", at=np.array([[2]]), row=np.full((1, 3), 7, np.float32), **values)
    inlay("run", library, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    result = np.load(tmp_path / "y.npz")
    for i in range(2):
        want = values[f"past.{i}"].copy()
        want[2] = 7
        np.testing.assert_array_equal(result[f"present.{i}"], want)
    for wrong, text in [
        ("present.*=past", "is not OUTPUT=INPUT, each with one * or none"),
        ("now.*=past.*", "no output is called so; there are present.0, present.1"),
        ("present.0=then", "no input 'then'; main has 'past.0', 'past.1', 'at', 'row'"),
    ]:
        code, _, err = inlay("compile", model, "--update", wrong, check=False)
        assert code == 2
        assert text in err


def test_bounds(inlay, tmp_path):
    """A library and a bundle that refuse other sizes, and say so before they run. The graph itself needs two rows."""
    kind = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Tanh", ["x"], ["t"]), onnx.helper.make_node("Slice", ["x", "at", "end"], ["u"])]
    at = [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in (("at", 2), ("end", 2**63 - 1))]
    x, t = (kind(name, onnx.TensorProto.FLOAT, ["rows", "columns"]) for name in "xt")
    graph = onnx.helper.make_graph(
        nodes, "open", [x], [t, kind("u", onnx.TensorProto.FLOAT, ["rows-2", "columns"])], initializer=at
    )
    model, library, bundle = tmp_path / "open.onnx", tmp_path / "open.so", tmp_path / "bundle"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), model)
    compile_open = ("compile", model, "--executor", "vm", "-o", library)

    def inspected(path):
        table = [" ".join(line.split()) for line in inlay("inspect", path)[1].splitlines()]
        found = json.loads(inlay("inspect", path, "--json")[1])
        return [line for line in table if line.startswith("bounds")], found["bounds"], found["required_extents"]

    def run(rows, columns, bundled=False):
        if not bundled:
            sizes = ("--size", f"rows={rows}", "--size", f"columns={columns}")
            return inlay("run", library, "--random", 1, *sizes, check=False)
        np.savez(tmp_path / "x.npz", x=np.zeros((rows, columns), np.float32))
        program = [bundle / "run", "--input", tmp_path / "x.npz"]
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    inlay(*compile_open)
    assert inspected(library) == (["bounds rows: 2 or more"], {"rows": [2, None]}, ["rows-2"])
    assert run(513, 101)[0] == 0
    inlay(*compile_open, "--bounds", "rows=4:512,columns=:100", "--bundle", bundle)
    for path in (library, bundle):
        lines, ranges, required = inspected(path)
        assert lines == ["bounds rows: 4 to 512", "bounds columns: 100 or less"]
        assert ranges == {"rows": [4, 512], "columns": [None, 100]}
        assert required == ["rows-4", "-rows+512", "-columns+100", "rows-2"]
    for rows, columns, bundled in ((4, 100, False), (4, 100, True), (512, 0, True)):
        code, _, err = run(rows, columns, bundled)
        assert code == 0, err
    for rows, columns, bundled, text in [
        (513, 1, False, "the model needs 'rows' to be 512 or less; it is 513 from input 'x'"),
        (3, 1, True, "the model needs 'rows' to be 4 or more; it is 3 from input 'x'"),
        (4, 101, True, "the model needs 'columns' to be 100 or less; it is 101 from input 'x'"),
    ]:
        code, _, err = run(rows, columns, bundled)
        assert code == 1
        assert text in err
    code, _, err = inlay(*compile_open, "--bounds", "row=4:512", check=False)
    assert code == 2
    assert "no input has the symbol 'row'; main has 'rows', 'columns'" in " ".join(err.split())


def joined_product():
    """[x @ w, x] of an x of open rows."""
    kind = onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["m"]),
        onnx.helper.make_node("Concat", ["m", "x"], ["y"], axis=1),
    ]
    w = onnx.numpy_helper.from_array(np.random.default_rng(0).standard_normal((160, 160)).astype(np.float32), "w")
    x, y = kind("x", onnx.TensorProto.FLOAT, ["rows", 160]), kind("y", onnx.TensorProto.FLOAT, ["rows", 320])
    graph = onnx.helper.make_graph(nodes, "saved", [x], [y], initializer=[w])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_a_saved_module(inlay, tmp_path):
    """What Python saved is compiled here: its weights, what it requires and its configuration; options come first."""
    model = joined_product()
    module = from_onnx(model, executor="vm").with_required_extents(["2*(rows/2)-rows", "rows-2*(rows/2)"])
    config = CompilationConfig(targets=["llvm -mcpu=x86-64-v2"], executor="vm", num_threads=1)
    path = module.with_configuration(config).save(tmp_path / "m.inlay")
    assert path.with_name("m.inlay.safetensors").exists()
    library, bundle = tmp_path / "m.so", tmp_path / "bundle"
    inlay("compile", path, "-o", library, "--bounds", "rows=2:64")
    inlay("export", path, "--target", "llvm -mcpu=x86-64-v3", "--bundle", bundle)
    for built, cpu in ((library, "x86-64-v2"), (bundle, "x86-64-v3")):
        table = [" ".join(line.split()) for line in inlay("inspect", built)[1].splitlines()]
        assert f"target x86_64-unknown-linux-gnu {cpu}" in table
        assert ["bounds rows: 2 to 64"] * (built == library) + ["bounds 2*((rows)/2) = rows"] == [
            line for line in table if line.startswith("bounds")
        ]
    tensors, results = tmp_path / "x.npz", tmp_path / "y.npz"

    def run(rows, bundled):
        x = np.random.default_rng(rows).standard_normal((rows, 160)).astype(np.float32)
        np.savez(tensors, x=x)
        if not bundled:
            return x, *inlay("run", library, "--input", tensors, "--output", results, check=False)
        program = [bundle / "run", "--input", tensors, "--output", results]
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        return x, ran.returncode, ran.stdout, ran.stderr

    for bundled in (False, True):
        x, code, _, err = run(4, bundled)
        assert code == 0, err
        check_close([np.load(results)["y"]], reference(model, {"x": x}))
        _, code, _, err = run(5, bundled)
        assert code == 1
        assert "needs '2*((rows)/2)' and 'rows' to be equal; they are 4 and 5 (rows = 5 from input 'x')" in err
    code, _, err = inlay("compile", path, "--shape", "rows=4", check=False)
    assert code == 2
    assert "--shape: a saved module keeps its shapes" in " ".join(err.split())
    path.with_name("m.inlay.safetensors").unlink()
    code, _, err = inlay("compile", path, check=False)
    assert code == 1
    assert "m.inlay.safetensors" in err


def test_open_sizes_are_explained_and_profiled(inlay, tmp_path):
    """An .onnx file whose rows are left open, and a module that was saved, by the same options; at the sizes that are
    said, or those of inputs of one's own."""
    path = tmp_path / "m.onnx"
    onnx.save(joined_product(), path)
    config = CompilationConfig(targets=["llvm -mcpu=x86-64-v3"], executor="vm", num_threads=1)
    module = from_onnx(joined_product(), executor="vm").with_required_extents(["2*(rows/2)-rows", "rows-2*(rows/2)"])
    saved = module.with_configuration(config).save(tmp_path / "m.inlay")
    np.savez(tmp_path / "x.npz", x=np.zeros((6, 160), np.float32))
    for model, more in ((path, ("--executor", "vm", "--threads", 1)), (saved, ())):
        options = (*more, "--bounds", "rows=2:64")
        found = json.loads(inlay("explain", model, *options, "--dim-hint", "rows=8", "--json")[1])
        assert any("matmul" in p["ops"] for p in found["partitions"])
        flops = []
        for sizes in (("--size", "rows=4"), ("--size", "rows=64"), ("--input", tmp_path / "x.npz")):
            _, out, _ = inlay("profile", model, *options, *sizes, "--offline", "--runs", 2, "--json")
            result = json.loads(out)
            assert result["threads"] == 1
            flops.append(sum(p["flops"] * p["calls"] for p in result["partitions"] if "matmul" in p["ops"]))
        assert flops == [2 * rows * 160 * 160 for rows in (4, 64, 6)]
        code, _, err = inlay("profile", model, *options, "--size", "rows=65", "--offline", check=False)
        assert (code, err) == (1, "inlay: --size rows=65: the model refuses that, it needs rows: 2 to 64\n")
    code, _, err = inlay("profile", saved, "--size", "rows=5", "--offline", check=False)
    assert (code, err) == (1, "inlay: --size rows=5: the model refuses that, it needs 2*((rows)/2) = rows\n")
    # A library, which says the same of itself.
    library = tmp_path / "m.so"
    inlay("compile", path, "--executor", "vm", "--bounds", "rows=2:64", "-o", library)
    for command in (["profile", library, "--offline"], ["run", library, "--random", 1]):
        code, _, err = inlay(*command, check=False)
        assert code == 1
        assert "input x is f32[rows, 160]: 'rows' may be 2 to 64, so say which (--size rows=N)" in err


def test_what_operators_need_is_said_of_sizes(inlay, tmp_path):
    """Once it is known, which it is when the model is compiled."""
    b = FunctionBuilder()
    x = b.param("x", "f32", ("rows", 4))
    y = b.op("slice", x, begins=[2, 0], ends=[2**63 - 1] * 2, steps=[1, 1])
    path = b.finish([b.op("tanh", y)], ["y"]).save(tmp_path / "m.inlay")
    for command in (["profile", path, "--offline"], ["bench", path, "--vs", "none", "--no-cold"]):
        code, out, err = inlay(*command, "--executor", "vm", "--size", "rows=1", check=False)
        assert code == 1
        assert "--size rows=1: the model refuses that, it needs rows: 2 or more" in out + err


def test_measured_search_and_its_plan(inlay, model, tmp_path):
    """The fastest plan is chosen by real measurements; a saved plan is repeated without a search, on this model only."""
    plan = tmp_path / "plan.json"
    search = ("--threads", 1, "--search", "measured", "--search-budget", 20)
    first = json.loads(inlay("compile", model, *search, "--save-plan", plan, "--json")[1])
    assert {p["backend"] for p in first["partitions"]} <= {g["backend"] for g in _groups(plan)} - {""}
    library = tmp_path / "m.so"
    again = json.loads(inlay("compile", model, "--threads", 1, "--plan", plan, "-o", library, "--json")[1])
    assert again["actions_run"] == 0
    assert [(p["backend"], p["ops"]) for p in again["partitions"]] == [
        (p["backend"], p["ops"]) for p in first["partitions"]
    ]
    renewed = json.loads(inlay("compile", model, *search, "--replan", "--json")[1])
    assert renewed["partitions"]
    other = tmp_path / "other.onnx"
    onnx.save(recurrent.build_mlp(recurrent.MlpConfig(widths=(8, 8), batch=1)), other)
    code, _, err = inlay("compile", other, "--plan", plan, check=False)
    assert code == 1
    assert "made for another module" in err


def _groups(plan):
    return [g for f in json.loads(plan.read_text())["functions"] for g in f["groups"]]


def test_server_commands(inlay):
    _, out, _ = inlay("info", "--json")
    info = json.loads(out)
    assert "native" in info["backends"]
    _, out, _ = inlay("stats", "--json")
    assert json.loads(out)
    _, out, _ = inlay("handles", "--json")
    assert json.loads(out) == {"handles": []}
    for command in ("info", "stats", "handles"):
        assert inlay(command)[1]


def test_one_daemon_for_all_commands(inlay):
    pids = {json.loads(inlay("info", "--json")[1])["pid"] for _ in range(3)}
    assert len(pids) == 1


def test_drain_and_start_again(inlay):
    before = json.loads(inlay("info", "--json")[1])["pid"]
    assert json.loads(inlay("drain", "--json")[1])["drained"]
    assert json.loads(inlay("info", "--json")[1])["pid"] != before


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["compile", "none.onnx"], 1, "none.onnx"),
        (["compile"], 2, "MODEL"),
        (["compile", "MODEL", "-o", "/no/such/folder/m.so"], 1, "make it first"),
        (["compile", "MODEL", "--target", "llvm bad"], 1, "bad"),
        (["compile", "MODEL", "--target", "cuda"], 1, "not supported"),
        (["compile", "MODEL", "--runtime", "crt"], 1, "disagree"),
        (["compile", "MODEL", "--shape", "batch"], 2, "NAME=DIMS"),
        (
            ["compile", "MODEL", "--server", "127.0.0.1:1", "--timeout", "1"],
            3,
            "inlay serve",
        ),
        (["run", "none.so", "--random", "0"], 1, "none.so"),
        (["run", "MODEL", "--random", "0"], 1, "not a shared library"),
        (["bench", "no_such_model"], 1, ""),
    ],
)
def test_errors_are_one_line(inlay, model, arguments, code, text):
    arguments = [str(model) if a == "MODEL" else a for a in arguments]
    got, out, err = inlay(*arguments, check=False)
    assert got == code
    assert text in err + out
    if code != 2:
        assert len((err or out).strip().splitlines()) == 1
        assert "Traceback" not in err


def test_errors_as_json(inlay):
    code, out, _ = inlay("compile", "none.onnx", "--json", check=False)
    assert code == 1
    assert "none.onnx" in json.loads(out)["error"]


def test_bench(inlay, tmp_path):
    path = tmp_path / "mlp.onnx"
    onnx.save(recurrent.build_mlp(recurrent.TINY_MLP), path)
    _, out, _ = inlay(
        "bench", path, "--vs", "onnxruntime,torch.compile", "--plans", "--profile", "--rounds", 5, "--json"
    )
    result = json.loads(out)
    assert result["cpu"]
    assert result["versions"]["onnxruntime"]
    (row,) = result["models"]
    assert row["runners"]["inlay"]["median_ms"] > 0
    assert row["runners"]["inlay"]["max_abs_error"] < 1e-4
    assert row["runners"]["onnxruntime"]["ratio"] == row["best_ratio"]
    assert row["runners"]["onnxruntime"]["prepare_cold_s"] > 0
    alone = row["runners"]["native alone"]
    assert alone["median_ms"] > 0 if "is_mix" not in alone else list(row["backends"]) == ["native"]
    timed = [row["runners"][name] for name in ("native alone", "onednn where it may")]
    assert any(cell.get("median_ms", 0) > 0 for cell in timed)  # one library can't be both
    assert all(p["roofline_share"] > 0 for p in row["profile"]["partitions"] if p["flops"])
    # A peer that can't take the model is a cell, whatever the reason.
    assert re.search("no PyTorch form|not installed", row["runners"]["torch.compile"]["error"])
    assert row["compile_cold_s"] > 0
    assert row["cached_actions_run"] == 0
    _, out, _ = inlay(
        "bench",
        path,
        "--vs",
        "none",
        "--plans",
        "--rounds",
        2,
        "--no-cold",
        "--backends",
        "native",
        "--search",
        "none",
        "--json",
    )
    assert json.loads(out)["models"][0]["runners"]["native alone"] == {"is_mix": True}
    _, out, _ = inlay(
        "bench", path, "--vs", "onnxruntime", "--rounds", 2, "--no-cold", "--threads", 2, "--profile", "--markdown"
    )
    assert out.startswith("| model | inlay ms | onnxruntime ms |")
    assert "| us/call | share | of roofline |" in out
    assert "2 thread(s)" in out
    # A long run says how far it is.
    code, _, err = inlay("bench", path, "nowhere", "--vs", "none", "--rounds", 2, "--no-cold", check=False)
    assert code == 1
    assert re.search(r"^1 of 2: mlp \S+ ±\S+ ms$", err, re.MULTILINE)
    assert "2 of 2: nowhere: nowhere is neither a file nor a built-in model" in err


def test_bench_of_open_sizes(inlay, tmp_path):
    """Peers have the file with its rows open, and the same inputs; of a saved module inlay alone is timed."""
    path = tmp_path / "m.onnx"
    onnx.save(joined_product(), path)
    config = CompilationConfig(targets=["llvm -mcpu=x86-64-v3"], executor="vm", num_threads=7, search="none")
    saved = from_onnx(joined_product(), executor="vm").with_configuration(config).save(tmp_path / "saved.inlay")
    options = ("--bounds", "rows=2:64", "--size", "rows=48", "--rounds", 2, "--no-cold")
    _, out, _ = inlay("bench", path, "--executor", "vm", "--vs", "onnxruntime", "--profile", *options, "--json")
    (row,) = json.loads(out)["models"]
    assert row["detail"] == "rows = 48"
    assert row["runners"]["inlay"]["max_abs_error"] < 1e-3
    assert row["runners"]["onnxruntime"]["ratio"] > 0
    assert max(p["flops"] for p in row["profile"]["partitions"]) >= 2 * 48 * 160 * 160
    _, out, _ = inlay("bench", saved, "--vs", "onnxruntime,torch.compile", *options)
    assert "saved: as configured: llvm -mcpu=x86-64-v3, executor vm; rows = 48" in out
    for peer in ("onnxruntime", "torch.compile"):
        assert f"{peer} on saved: takes no such model: a saved module" in out
    _, out, _ = inlay("bench", saved, "--vs", "none", *options, "--target", "llvm -mcpu=x86-64-v2", "--json")
    result = json.loads(out)
    assert result["threads"] == 1, "what is compared has as many threads as was asked for"
    assert result["models"][0]["runners"]["inlay"].keys() >= {"median_ms"}
    assert "llvm -mcpu=x86-64-v2" in result["models"][0]["detail"]


def test_bench_that_is_interrupted_tells_what_is_done(inlay, tmp_path):
    for name in ("first", "second"):
        onnx.save(recurrent.build_mlp(recurrent.TINY_MLP), tmp_path / f"{name}.onnx")
    models = [str(tmp_path / f"{name}.onnx") for name in ("first", "second")]
    options = ["--vs", "none", "--no-cold", "--rounds", "3000", "--markdown"]
    # What a shell without job control starts in the background is to ignore it.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "inlay.cli", "bench", *models, *options]
    with subprocess.Popen(
        command, env=environment(inlay.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as bench:
        try:
            assert bench.stderr.readline().startswith("1 of 2: first ")
            bench.send_signal(signal.SIGINT)
            out, err = bench.communicate(timeout=60)
        finally:
            bench.kill()
    assert bench.returncode == 130, err
    assert re.search(r"^\| first \| \S+ ±\S+ \|", out, re.MULTILINE), out
    assert "second: interrupted" in out
    assert "Traceback" not in err


def test_bench_says_which_peers_there_are(inlay):
    peers = json.loads(inlay("bench", "--list-peers", "--json")[1])
    assert peers["onnxruntime"][0].isdigit()
    assert set(peers) >= {"openvino", "torch.compile", "aotinductor", "iree"}
    assert inlay("bench", check=False)[0] == 2
    code, _, err = inlay("bench", "mlp", "--vs", "nobody", check=False)
    assert code == 1
    assert "no peer 'nobody'" in err


def test_explain(inlay, model, tmp_path):
    picture = tmp_path / "m.svg"
    _, out, _ = inlay("explain", model, "--svg", picture, "--json")
    found = json.loads(out)
    assert found["partitions"]
    assert all(p["verdict"] for p in found["partitions"])
    assert picture.read_text().count('<g id="node') >= 10
    _, out, _ = inlay("explain", model, "--limit", 1)
    assert "1. " in out
    code, _, err = inlay("explain", model, "--svg", "/no/such/folder/m.svg", check=False)
    assert code == 1
    assert "make it first" in err


def test_explain_says_why_a_backend_does_not_take_a_convolution(inlay, tmp_path):
    """Groups of one input channel and two filters, for which oneDNN has a reference kernel only."""
    weights = onnx.numpy_helper.from_array(np.ones([64, 1, 7, 7], np.float32), "w")
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], name="large", group=32, strides=[2, 2], pads=[3, 3, 3, 3])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 32, 16, 16])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64, 8, 8])
    graph = onnx.helper.make_graph([node], "grouped", [x], [y], [weights])
    opset = [onnx.helper.make_opsetid("", 17)]
    path = tmp_path / "grouped.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    found = json.loads(inlay("explain", path, "--backends", "onednn", "--json")[1])
    (partition,) = found["partitions"]
    assert partition["backend"] == "native"
    reason = "a convolution in groups of 1 input and 2 output channels: oneDNN has no kernel for it but a reference one"
    assert reason in partition["verdict"]
    assert reason in inlay("explain", path, "--backends", "onednn")[1].replace("\n", " ")


def test_explain_says_why_a_backend_cannot_serve_at_all(inlay, model, tmp_path):
    picture = tmp_path / "m.svg"
    options = ("--target", "llvm -mcpu=x86-64-v2", "--backends", "libxsmm,native")
    found = json.loads(inlay("explain", model, *options, "--svg", picture, "--json")[1])
    [unusable] = found["unusable"]
    assert (unusable["backend"], unusable["named"]) == ("libxsmm", True)
    assert unusable["reason"] == "libxsmm needs a target with avx2, which x86-64-v2 is not"
    line = f"libxsmm, which the configuration names, cannot serve: {unusable['reason']}"
    assert line in inlay("explain", model, *options)[1]  # now from the plan cache
    assert "which the configuration names, cannot serve" in html.unescape(picture.read_text()).replace("\xa0", " ")
    # None named: of those that are registered.
    found = json.loads(inlay("explain", model, "--target", "llvm -mcpu=x86-64-v2", "--json")[1])
    assert ("libxsmm", False) in [(b["backend"], b["named"]) for b in found["unusable"]]


@pytest.mark.parametrize("threads", [1, 2])
def test_profile(inlay, model, tmp_path, threads):
    library = tmp_path / "m.so"
    inlay("compile", model, "--threads", threads, "-o", library)
    for subject in (library, model):
        _, out, _ = inlay("profile", subject, "--threads", threads, "--runs", 3, "--json")
        result = json.loads(out)
        assert result["threads"] == threads
        assert result["total_us"] > 0
        assert result["peak_gflops"] > 0
        assert sum(p["share"] for p in result["partitions"]) == pytest.approx(1)
        convolutions = [p for p in result["partitions"] if "conv" in p["ops"]]
        assert convolutions
        assert all(p["flops"] > 0 and p["bytes"] > 0 and p["backend"] for p in convolutions)
    text = inlay("profile", library, "--offline", "--runs", 2, "--threads", 1)[1]
    assert "of roofline" in text
    assert "NumPy" in text


def test_a_plan_is_saved_and_used_again(inlay, model, tmp_path):
    plan = tmp_path / "plan.json"
    _, out, _ = inlay("compile", model, "--save-plan", plan, "--json")
    assert json.loads(out)["plan_source"] in ("search", "plan cache")
    _, again, _ = inlay("compile", model, "--plan", plan, "--json")
    assert json.loads(again)["plan_source"] == "pinned"
    assert [p["backend"] for p in json.loads(again)["partitions"]] == [
        p["backend"] for p in json.loads(out)["partitions"]
    ]
    plan.write_text("{nothing")
    code, _, err = inlay("compile", model, "--plan", plan, check=False)
    assert code == 1
    assert "no plan that inlay wrote" in err
