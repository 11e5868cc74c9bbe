"""The backend csource end to end: models through generated C, kernels of a user's own, and what is refused."""

from __future__ import annotations

import contextlib
import pathlib
import time

import numpy as np
import onnx
import pytest
from conftest import check_close, inputs_of, reference, run_everywhere
from test_models import LIGHT, SMALL

import inlay
from inlay.ir import FunctionBuilder

# All that csource can take, whatever it costs.
ALL: dict = {"backends": ["csource", "native"], "search": "none"}
# Smallest first; the whole set takes gcc minutes.
CHOSEN = [path for path in LIGHT if path.stem in ("light_squeezenet", "light_shufflenet", "light_bvlc_alexnet")]

RELU = inlay.CKernel(
    "relu",
    "my_relu",
    source="""
static float positive(float v) { return v > 0 ? v : 0; }
void my_relu(const float *x, const int64_t *x_dims, int32_t x_rank, float *y, const int64_t *y_dims, int32_t y_rank) {
  int64_t n = 1;
  (void)y_dims, (void)y_rank;
  for (int32_t i = 0; i < x_rank; ++i) n *= x_dims[i];
  for (int64_t i = 0; i < n; ++i) y[i] = positive(x[i]) + 1000;  /* so that it shows */
}
""",
)


def module_of(*ops: str, shape=(3, 17)):
    b = FunctionBuilder()
    x = b.param("x", "f32", shape)
    for op in ops:
        x = b.op(op, x)
    return b.finish([x])


def config(*kernels: inlay.CKernel, cflags: str = "", **options) -> inlay.CompilationConfig:
    attrs = {"cflags": cflags} if cflags else {}
    return inlay.CompilationConfig(
        targets=["llvm -mcpu=native", inlay.Target("csource", attrs, kernels=kernels)], num_threads=1, **options
    )


@pytest.mark.parametrize("name", ["mlp", "bert", "resnet"])
def test_small_models(name, client, tmp_path):
    model = SMALL[name]()
    executable = inlay.build(inlay.from_onnx(model), config(**ALL), server=client)
    assert "csource" in executable.report.backends()
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


@pytest.mark.slow
@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.stem)
def test_light(path, client, tmp_path):
    model = onnx.load(path)
    executable = inlay.build(inlay.from_onnx(model), config(**ALL), server=client)
    assert "csource" in executable.report.backends()
    inputs = inputs_of(executable)
    want = reference(model, inputs)
    for got in run_everywhere(executable, inputs, tmp_path).values():
        check_close(got, want)


def test_only_where_it_is_named(client):
    executable = inlay.build(module_of("exp"), inlay.config.cpu(search="none"), server=client)
    assert "csource" not in executable.report.backends()
    (info,) = (b for b in client.server_info().backends if b.name == "csource")
    assert info.on_request and not info.unusable and "gcc" in info.version
    assert "csource" not in client.usable_backends()


def test_a_users_kernel(client, tmp_path):
    """It takes what it is for, and nothing takes it from it; the rest goes where it would have gone."""
    for options in ({}, {"search": "none"}, ALL):
        executable = inlay.build(module_of("abs", "relu", "neg"), config(RELU, **options), server=client)
        parts = executable.report.partitions
        mine = [part for part in parts if part.backend == "csource"]
        assert any("csource.kernel.my_relu" in part.why and "relu" in part.ops for part in mine), mine
        if options is not ALL:
            assert [part.ops for part in mine] == [["relu"]]
    x = np.random.default_rng(0).standard_normal((3, 17)).astype(np.float32)
    want = [-(np.abs(x) + 1000)]
    path = executable.export_library(tmp_path / "m.so")
    check_close(inlay.load_library(path)["main"](x), want)
    check_close(executable.jit()["main"](x), want)


@pytest.mark.parametrize("search", ["analytic", "measured"])
def test_a_kernel_in_any_search(search, client):
    """A user's kernel is neither measured, nor compared with anybody's, nor replaced."""
    executable = inlay.build(module_of("exp", "relu", "softmax"), config(RELU, search=search), server=client)
    assert [part.ops for part in executable.report.partitions if part.backend == "csource"] == [["relu"]]
    x = np.random.default_rng(1).standard_normal((3, 17)).astype(np.float32)
    y = np.exp(np.exp(x) - np.exp(x).max(1, keepdims=True))
    check_close(executable.jit()["main"](x), [y / y.sum(1, keepdims=True)])


def test_csource_is_measured_where_it_is_named(client):
    model = config(backends=["csource", "native"], search="measured")
    executable = inlay.build(module_of("exp", "softmax", shape=(64, 128)), model, server=client)
    csource = [c for c in executable.report.candidates if c["backend"] == "csource"]
    assert any(c["measured"] for c in csource), executable.report.candidates


def test_kernels_are_in_csources_keys_alone(client):
    def actions(*kernels):
        executable = inlay.build(module_of("abs", "softmax"), config(*kernels), server=client)
        return {(part.backend, part.action) for part in executable.report.partitions}

    assert actions() == actions(RELU), "no relu is in it"


def test_the_server_does_not_run_a_users_kernel(client, start_daemon):
    executable = inlay.build(module_of("relu"), config(RELU), server=client)
    with pytest.raises(inlay.CompileError, match="my_relu|C kernels that came with the model.*trust_client_kernels"):
        executable.jit(remote=True)
    trusting = start_daemon(flags=("--trust_client_kernels=true",)).client
    executable = inlay.build(module_of("relu"), config(RELU), server=trusting)
    x = np.zeros((3, 17), np.float32)
    with executable.jit(remote=True) as remote:
        check_close(remote["main"](x), [x + 1000])


def test_two_variants(client):
    """Options are part of the key: each variant is compiled, both compute the same."""
    first, second = (
        inlay.build(module_of("exp", "tanh"), config(cflags=f, **ALL), server=client)
        for f in ("-O1", "-O3 -funroll-loops")
    )
    digests = [{p.action for p in ex.report.partitions} for ex in (first, second)]
    assert not digests[0] & digests[1]
    again = inlay.build(module_of("exp", "tanh"), config(cflags="-O1", **ALL), server=client)
    assert again.report.actions_run == 0
    x = np.linspace(-2, 2, 51, dtype=np.float32).reshape(3, 17)
    for ex in (first, second):
        check_close(ex.jit()["main"](x), [np.tanh(np.exp(x))])


def broken(source: str) -> inlay.CKernel:
    return inlay.CKernel("relu", "f", source=source)


SIGNATURE = "(const float *x, const int64_t *d, int32_t r, float *y, const int64_t *e, int32_t s)"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (f"void f{SIGNATURE} {{ y[0] = z; }}", "kernel 'f'.*f.c:1.*'z' undeclared"),
        ("void f(const double *x, double *y) {}", "conflicting types for 'f'"),
        ("static int x;", "does not define f"),
        (f"void helper(void) {{}} void f{SIGNATURE} {{}}", "defines helper as well; all but f must be static"),
        (f'int system(const char *); void f{SIGNATURE} {{ system("ls"); }}', "undefined symbol system"),
        ('#include "/etc/passwd"', "line 1: #include"),
        ('__asm__(".incbin \\"/etc/passwd\\"");', "the name '__asm__'"),
    ],
)
def test_bad_kernels(source, message, client):
    with pytest.raises(inlay.CompileError, match=f"(?s){message}") as error:
        inlay.build(module_of("relu"), config(broken(source)), server=client)
    assert "root:" not in str(error.value)


@pytest.mark.parametrize("cflags", ["-fplugin=/tmp/x.so", "-march=native", "-I/etc", "@/etc/passwd", "-B/tmp"])
def test_bad_options(cflags, client):
    with pytest.raises(inlay.CompileError, match=cflags.split("/")[0]):
        inlay.build(module_of("relu"), config(cflags=cflags, **ALL), server=client)


def test_a_server_without_compilers(start_daemon):
    """It compiles as ever, says that csource is not to be had and why, and refuses who asks for it."""
    daemon = start_daemon(flags=("--compilers=none",))
    executable = inlay.build(module_of("exp", "relu"), server=daemon.client)
    x = np.ones((3, 17), np.float32)
    check_close(executable.jit()["main"](x), [np.exp(x)])
    (info,) = (b for b in daemon.client.server_info().backends if b.name == "csource")
    assert "needs a C compiler, and this server has none" in info.unusable
    for asking in (config(**ALL), config(RELU), config(cflags="-O2")):
        with pytest.raises(inlay.CompileError, match="asks for csource: csource needs a C compiler"):
            inlay.build(module_of("relu"), asking, server=daemon.client)


def processes_of(daemon, name: str) -> list[int]:
    """Of the daemon's session: what it started, and what that started."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            program, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            state, _, _, session = rest.split()[:4]
            if program == name and int(session) == daemon.process.pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def test_a_source_that_compiles_for_ever(start_daemon):
    """The server's time limit ends the compiler, all of its processes."""
    daemon = start_daemon(flags=("--action_timeout_s=2",))
    doublings = "".join(f"#define A{i + 1} A{i} A{i}\n" for i in range(60))
    source = f"#define A0\n{doublings}A60\nvoid f{SIGNATURE} {{}}"
    with pytest.raises(inlay.InlayError, match="csource"):
        inlay.build(module_of("relu"), config(broken(source)), server=daemon.client)
    deadline = time.monotonic() + 60
    while processes_of(daemon, "cc1") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_of(daemon, "cc1")
    inlay.build(module_of("relu"), server=daemon.client)
