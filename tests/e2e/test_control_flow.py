"""If, loops and calls into the process, left to the run by executor vm: against onnxruntime and NumPy, in every way to run."""

from __future__ import annotations

import concurrent.futures

import numpy as np
import onnxruntime
import pytest
from conftest import check_close, run_everywhere
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.ir import FunctionBuilder

F, I, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
VM = inlay.CompilationConfig(executor="vm", num_threads=1)


def info(name, dtype=F, shape=(4, 8)):
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name, *shape, seed=0):
    return numpy_helper.from_array(np.random.default_rng(seed).normal(size=shape).astype(np.float32) * 0.3, name)


def scalar(name, value, dtype):
    return numpy_helper.from_array(np.array(value, dtype), name)


def model_of(nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def branch(name, nodes, outputs, initializers=()):
    return helper.make_graph(nodes, name, [], outputs, list(initializers))


def if_model():
    """A branch with a weight of its own and one of the outer graph; another If inside; a branch that only passes on."""
    inner_then = branch("t2", [helper.make_node("Tanh", ["h"], ["a"])], [info("a")])
    inner_else = branch("e2", [helper.make_node("Identity", ["h"], ["b"])], [info("b")])
    then = branch(
        "then",
        [
            helper.make_node("MatMul", ["x", "w"], ["h0"]),
            helper.make_node("Add", ["h0", "own"], ["h"]),
            helper.make_node("If", ["d"], ["r"], then_branch=inner_then, else_branch=inner_else, name="inner"),
        ],
        [info("r"), info("h")],
        [weight("own", 8, seed=3)],
    )
    other = branch(
        "else",
        [helper.make_node("Identity", ["x"], ["p"]), helper.make_node("Relu", ["x"], ["q"])],
        [info("p"), info("q")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["u", "v"], then_branch=then, else_branch=other, name="outer"),
        helper.make_node("Add", ["u", "x"], ["y"]),
    ]
    return model_of(nodes, [info("x"), info("c", B, ()), info("d", B, ())], [info("y"), info("v")], [weight("w", 8, 8)])


def loop_model(cond_input=True):
    """x = tanh(x @ w) + x while fewer than n turns and its sum is small; counts the turns."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["m"]),
            helper.make_node("Tanh", ["m"], ["t"]),
            helper.make_node("Add", ["t", "x"], ["s_out"]),
            helper.make_node("ReduceMax", ["s_out"], ["top"], keepdims=0),
            helper.make_node("Less", ["top", "limit"], ["again"]),
            helper.make_node("Add", ["k", "one"], ["k_out"]),
        ],
        "body",
        [info("i", I, ()), info("go", B, ()), info("s"), info("k", I, ())],
        [info("again", B, ()), info("s_out"), info("k_out", I, ())],
        [scalar("one", 1, np.int64)],
    )
    loop = helper.make_node(
        "Loop", ["n", "start" if cond_input else "", "x", "zero"], ["y", "turns"], body=body, name="repeat"
    )
    inputs = [info("x"), info("n", I, ()), info("limit", F, ())] + ([info("start", B, ())] if cond_input else [])
    return model_of([loop], inputs, [info("y"), info("turns", I, ())], [weight("w", 8, 8), scalar("zero", 0, np.int64)])


def check(model, feeds, folder, client, count=1):
    module = inlay.from_onnx(model, executor="vm")
    executable = inlay.build(module, VM, server=client)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for feed in feeds:
        want = session.run(None, feed)
        for way, got in run_everywhere(executable, feed, folder).items():
            check_close(got, want)
            assert len(got) == len(want), way
    return executable


X = np.random.default_rng(1).normal(size=(4, 8)).astype(np.float32)


def test_if(client, tmp_path):
    check(
        if_model(),
        [{"x": X, "c": np.array(c), "d": np.array(d)} for c in (True, False) for d in (True, False)],
        tmp_path,
        client,
    )


@pytest.mark.parametrize("cond_input", [True, False])
def test_loop(cond_input, client, tmp_path):
    feeds = []
    for n, limit, start in ((0, 9.0, True), (1, 9.0, True), (5, 99.0, True), (2000, 2.5, True), (7, 9.0, False)):
        feed = {"x": X, "n": np.array(n, np.int64), "limit": np.array(limit, np.float32)}
        feeds.append({**feed, "start": np.array(start)} if cond_input else feed)
    check(loop_model(cond_input), feeds, tmp_path, client)


def test_an_if_in_a_loop(client, tmp_path):
    up = branch("up", [helper.make_node("Add", ["s", "w"], ["a"])], [info("a", F, (4,))])
    down = branch(
        "down", [helper.make_node("Mul", ["s", "half"], ["b"])], [info("b", F, (4,))], [scalar("half", 0.5, np.float32)]
    )
    body = helper.make_graph(
        [
            helper.make_node("ReduceSum", ["s"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "limit"], ["small"]),
            helper.make_node("If", ["small"], ["s_out"], then_branch=up, else_branch=down),
            helper.make_node("Identity", ["go"], ["again"]),
        ],
        "body",
        [info("i", I, ()), info("go", B, ()), info("s", F, (4,))],
        [info("again", B, ()), info("s_out", F, (4,))],
    )
    model = model_of(
        [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="walk")],
        [info("x", F, (4,)), info("n", I, ()), info("limit", F, ())],
        [info("y", F, (4,))],
        [weight("w", 4)],
    )
    feeds = [{"x": X[0, :4], "n": np.array(n, np.int64), "limit": np.array(1.5, np.float32)} for n in (0, 3, 50)]
    check(model, feeds, tmp_path, client)


def test_a_search_that_measures_does_not_run_loops(client):
    """Their inputs would be made up, and the number of turns with them."""
    config = VM.replace(search="measured")
    report = inlay.build(inlay.from_onnx(loop_model(), executor="vm"), config, server=client).report
    assert report.measure_ms == 0


def test_many_callers_at_once(client):
    executable = inlay.build(inlay.from_onnx(loop_model(), executor="vm"), VM, server=client)
    module = executable.jit()
    feeds = [
        {"x": X * k, "n": np.array(3 * k, np.int64), "limit": np.array(99, np.float32), "start": np.array(True)}
        for k in range(1, 9)
    ]

    def run(feed):
        return [np.from_dlpack(t).tobytes() for t in module["main"](**feed)]

    want = [run(feed) for feed in feeds]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(10):
            assert list(pool.map(run, feeds)) == want


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_other_executors_refuse_by_name(executor, client):
    config = inlay.CompilationConfig(executor=executor)
    for model, name in ((if_model(), "outer"), (loop_model(), "repeat")):
        with pytest.raises(inlay.UnsupportedError, match=f"'{name} .*use executor vm"):
            inlay.build(inlay.from_onnx(model, executor="vm"), config, server=client)
    with pytest.raises(inlay.UnsupportedOperatorError, match="repeat.*executor vm"):
        inlay.from_onnx(loop_model())


def test_a_loop_that_stacks_results_is_refused_by_name():
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["again"]), helper.make_node("Cast", ["i"], ["scan"], to=F)],
        "body",
        [info("i", I, ()), info("go", B, ())],
        [info("again", B, ()), info("scan", F, ())],
    )
    model = model_of(
        [helper.make_node("Loop", ["n", ""], ["y"], body=body, name="pile")],
        [info("n", I, ())],
        [info("y", F, (None,))],
    )
    with pytest.raises(inlay.UnsupportedOperatorError, match="pile.*stacks results"):
        inlay.from_onnx(model, executor="vm")


def packed_module(name, results=(("f32", (4, 8)),)):
    b = FunctionBuilder()
    x = b.param("x", "f32", (4, 8))
    b.location = "mine (call)"
    made = b.call_packed(name, [b.op("relu", x), b.literal(np.float32(3))], results)
    return b.finish([b.op("exp", r) if r.dtype == "f32" else r for r in made])


def test_call_packed(client, tmp_path):
    calls = []

    @inlay.register_func("inlay_test.scale", override=True)
    def scale(x, factor):
        calls.append(x.shape)
        assert x.dtype == np.float32 and factor.shape == ()
        if x.max() > 1e6:
            raise ValueError("far too big")
        return x / factor

    executable = inlay.build(packed_module("inlay_test.scale"), VM, server=client)
    want = np.exp(np.maximum(X, 0) / np.float32(3))
    library = inlay.load_library(executable.export_library(tmp_path / "p.so"))
    for module in (executable.jit(), library):
        np.testing.assert_allclose(np.from_dlpack(module["main"](X)), want, rtol=1e-5)
    assert calls == [(4, 8), (4, 8)]
    with pytest.raises(inlay.RunError, match="inlay_test.scale.*far too big"):
        library["main"](X * np.float32(1e9))
    with pytest.raises(inlay.InlayError, match="inlay_test.scale.*client's process"):
        executable.jit(remote=True)


def test_call_packed_with_several_results_and_wrong_ones(client):
    inlay.register_func("inlay_test.two", lambda x, k: (x + k, x.argmax(1)), override=True)
    types = (("f32", (4, 8)), ("i64", (4,)))
    module = inlay.build(packed_module("inlay_test.two", types), VM, server=client).jit()
    a, b = (np.from_dlpack(t) for t in module["main"](X))
    np.testing.assert_allclose(a, np.exp(np.maximum(X, 0) + 3), rtol=1e-5)
    np.testing.assert_array_equal(b, np.maximum(X, 0).argmax(1))
    inlay.register_func("inlay_test.two", lambda x, k: (x + k, x), override=True)
    with pytest.raises(inlay.RunError, match=r"result 1: expected i64\[4\], got f32\[4, 8\]"):
        module["main"](X)
    missing = inlay.build(packed_module("inlay_test.nobody"), VM, server=client).jit()
    with pytest.raises(inlay.RunError, match=r"inlay_test.nobody.*register_func"):
        missing["main"](X)


def test_the_builders_loop(client, tmp_path):
    """Powers by squaring: a loop with a function that the builder writes, and an If in it."""
    b = FunctionBuilder()
    x, n = b.param("x", "f64", (3,)), b.param("n", "i64", ())

    def turn(f, going, power, base, left):
        zero, two = f.literal(np.int64(0)), f.literal(np.int64(2))
        half = f.op("div", left, two)
        odd = f.op("equal", f.op("sub", left, f.op("mul", half, two)), f.literal(np.int64(1)))
        (power,) = f.if_(odd, lambda: [f.op("mul", power, base)], lambda: [power])
        return [f.op("greater", half, zero), power, f.op("mul", base, base), half]

    start = b.op("greater", n, b.literal(np.int64(0)))
    _, y, _, _ = b.while_("turn", turn, [start, b.literal(np.ones(3)), x, n])
    executable = inlay.build(b.finish([y], ["y"]), VM, server=client)
    values = np.array([1.5, -2.0, 0.5])
    for n in (0, 1, 2, 13):
        for got in run_everywhere(executable, {"x": values, "n": np.array(n, np.int64)}, tmp_path).values():
            np.testing.assert_allclose(np.from_dlpack(got[0]), values**n, rtol=1e-12)


def test_an_endless_loop_ends_with_its_clients_patience(start_daemon):
    """In a server, which goes on; nothing of it is left that would hinder a drain."""
    daemon = start_daemon()
    b = FunctionBuilder()
    n = b.param("n", "i64", ())
    first = b.op("greater", n, b.literal(np.int64(0)))
    _, y = b.while_("turn", lambda f, going, n: [f.op("greater", n, f.literal(np.int64(0))), n], [first, n])
    with inlay.build(b.finish([y], ["y"]), VM, server=daemon.client).jit(remote=True) as remote:
        with pytest.raises(inlay.DeadlineExceededError):
            remote["main"](np.array(1, np.int64), timeout=1)
        assert remote["main"](np.array(0, np.int64)) == 0
    daemon.client.drain(timeout=60)
    daemon.process.wait(60)
