"""Bundles: a folder that runs a model where there is glibc and nothing else. They are run in a root directory that has
glibc's files alone, so that whatever else a bundle needed would be missing."""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import check_close, environment, inputs_of, reference
from mixes import WIDTH, backends, chain, check, pinned

import inlay
from inlay import compatibility
from inlay.models import recurrent, resnet

BACKENDS = backends()
ANSWER = """
#include <tvm/ffi/c_api.h>
int __tvm_ffi_answer(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = 42;
  return 0;
}
"""
GLIBC = (
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
)


def make_root(folder: pathlib.Path) -> pathlib.Path:
    """A root directory: glibc's shared libraries where the dynamic linker looks, and empty folders."""
    libraries = folder / "lib" / "x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in GLIBC:
        shutil.copy(pathlib.Path("/lib/x86_64-linux-gnu") / name, libraries / name)
    (folder / "lib64").mkdir()
    shutil.copy("/lib64/ld-linux-x86-64.so.2", folder / "lib64")
    for empty in ("tmp", "proc", "sys"):
        (folder / empty).mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    return make_root(tmp_path / "root")


# /proc and /sys as on any machine, in a mount namespace that goes with the program.
ENTER = 'mount --rbind /proc "$1/proc" && mount --rbind /sys "$1/sys" && root=$1 && shift && exec chroot "$root" "$@"'


def in_root(root: pathlib.Path, *arguments) -> subprocess.CompletedProcess:
    """Runs a program of `root`, with nothing in its environment."""
    namespaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--map-root-user"]
    clear = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
    command = [*clear, "unshare", *namespaces, "sh", "-c", ENTER, "sh", str(root), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)  # noqa: PLW1510
    if done.stderr.startswith(("unshare:", "mount:", "chroot: cannot change root")):
        pytest.fail(
            f"a bundle is tested in a root directory of its own: run as root, or allow namespaces. {done.stderr}"
        )
    return done


@pytest.fixture(scope="module")
def bundled(shared_daemon, tmp_path_factory):
    """(model, executable, bundle) of a ResNet in which oneDNN and native code take part."""
    model = resnet.build(resnet.TINY)
    config = inlay.config.cpu("x86-64-v3", backends=["onednn"], search="none")
    executable = inlay.build(inlay.from_onnx(model), config, server=shared_daemon.client)
    assert {"onednn", "native"} <= set(executable.report.backends())
    return model, executable, executable.export_bundle(tmp_path_factory.mktemp("b") / "bundle")


def digests(folder: pathlib.Path) -> dict[str, tuple[str, int]]:
    return {
        str(p.relative_to(folder)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_mode & 0o777)
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def test_what_is_in_it(bundled):
    folder = bundled[2]
    files = digests(folder)
    libraries = {name.removeprefix("lib/") for name in files if name.startswith("lib/")}
    assert libraries == {"libtvm_ffi.so", "libdnnl.so.3", "libgomp.so.1", "libstdc++.so.6", "libgcc_s.so.1"}
    assert {"model.so", "run", "README.txt"} <= set(files)
    assert files["run"][1] == files["model.so"][1] == 0o755
    for library in libraries:
        licence = (folder / "licenses" / f"{library}.txt").read_text()
        assert "icen" in licence, library
        assert "No licence" not in licence, library
    assert "zlib" in (folder / "licenses" / "zlib1g-dev.txt").read_text()


def test_everything_that_it_needs_is_in_it_or_glibcs(bundled):
    folder = bundled[2]
    for path in (folder / "run", folder / "model.so", *(folder / "lib").iterdir()):
        for soname in compatibility.needed_by(path):
            assert (folder / "lib" / soname).is_file() or soname in GLIBC, f"{path.name} needs {soname}"
    assert compatibility.needed_by(folder / "run") == ["libc.so.6", "ld-linux-x86-64.so.2"]


def test_runs_where_there_is_glibc_alone(bundled, root):
    model, executable, folder = bundled
    shutil.copytree(folder, root / "anywhere")
    inputs = inputs_of(executable)
    np.savez(root / "tmp" / "x.npz", **inputs)
    done = in_root(root, "/anywhere/run", "--input", "/tmp/x.npz", "--output", "/tmp/y.npz", "--repeat", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ms, the median of 3" in done.stdout
    with np.load(root / "tmp" / "y.npz") as outputs:
        assert list(outputs) == [name for name, _, _ in executable.outputs]
        check_close(list(outputs.values()), reference(model, inputs))


@pytest.mark.parametrize("backend", BACKENDS)
def test_easy_deployment(backend, client, root, tmp_path):
    """Of each backend: its code and its libraries, copied elsewhere, run."""
    module, x, want = chain([WIDTH, WIDTH, WIDTH])
    pinned(client, module, [backend] * 2).export_bundle(root / "b")
    np.savez_compressed(root / "tmp" / "x.npz", x=x)
    done = in_root(root, "/b/run", "--input", "/tmp/x.npz", "--output", "/tmp/y.npz", "--threads", "2")
    assert (done.returncode, done.stderr) == (0, "")
    check(np.load(root / "tmp" / "y.npz")["y"], want)


def test_info(bundled, root):
    shutil.copytree(bundled[2], root / "b")
    done = in_root(root, "/b/run", "--info")
    assert (done.returncode, done.stderr) == (0, "")
    assert "input input: f32[1, 3, " in done.stdout
    assert "backends: native, onednn" in done.stdout
    assert "compatibility: inlay_library=1 " in done.stdout
    assert "this machine can run it" in done.stdout


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("lib/libdnnl.so.3", "needs libdnnl.so.3 (for onednn), which can't be loaded"),
        ("lib/libgomp.so.1", "libgomp.so.1: cannot open shared object file"),
        ("lib/libstdc++.so.6", "libstdc++.so.6: cannot open shared object file"),
        ("lib/libtvm_ffi.so", "lib/libtvm_ffi.so is missing: the bundle is not whole"),
        ("model.so", "model.so is missing"),
    ],
)
def test_a_lost_file_is_named(bundled, root, lost, message):
    """Which also shows that nothing of it is found elsewhere."""
    shutil.copytree(bundled[2], root / "b")
    (root / "b" / lost).unlink()
    done = in_root(root, "/b/run", "--info")
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def run(folder: pathlib.Path, *arguments) -> subprocess.CompletedProcess:
    return subprocess.run(  # noqa: PLW1510
        [folder / "run", *map(str, arguments)], capture_output=True, text=True, env={}, timeout=60
    )


@pytest.fixture(scope="module")
def small(shared_daemon, tmp_path_factory):
    """A bundle of (x f32[4, 32], i i64[3]) -> x + 1, i + i."""
    b = inlay.ir.FunctionBuilder()
    x, i = b.param("x", "f32", (4, 32)), b.param("i", "i64", (3,))
    module = b.finish([b.op("add", x, b.literal(1.0, "f32")), b.op("add", i, i)], ["y", "twice"])
    config = inlay.config.cpu("x86-64-v3", backends=["native"])
    return inlay.build(module, config, server=shared_daemon.client).export_bundle(tmp_path_factory.mktemp("s") / "b")


def test_inputs_of_every_form(small, tmp_path):
    x = np.random.default_rng(1).uniform(size=(4, 32)).astype(np.float32)
    i = np.arange(3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    np.save(tmp_path / "i.npy", i)
    np.savez(tmp_path / "xi.npz", x=x, i=i)
    np.savez_compressed(tmp_path / "c.npz", i=i)
    forms = [
        [tmp_path / "xi.npz"],
        [tmp_path / "x.npy", tmp_path / "i.npy"],
        [tmp_path / "f.npy", tmp_path / "i.npy"],
        [f"i={tmp_path}/i.npy", f"x={tmp_path}/x.npy"],
        [tmp_path / "c.npz", f"x={tmp_path}/x.npy"],
    ]
    for n, form in enumerate(forms):
        out = tmp_path / f"y{n}.npz"
        done = run(small, *[word for f in form for word in ("--input", f)], "--output", out)
        assert (done.returncode, done.stderr) == (0, ""), form
        with np.load(out) as outputs:
            np.testing.assert_array_equal(outputs["y"], x + 1)
            np.testing.assert_array_equal(outputs["twice"], 2 * i)
    assert (tmp_path / "y0.npz").read_bytes() == (tmp_path / "y1.npz").read_bytes()


def test_errors_are_one_line_and_a_code(small, tmp_path):
    np.savez(tmp_path / "half.npz", x=np.zeros((4, 32), np.float32))
    np.savez(tmp_path / "shape.npz", x=np.zeros((4, 31), np.float32), i=np.arange(3))
    np.savez(tmp_path / "dtype.npz", x=np.zeros((4, 32)), i=np.arange(3))
    np.savez(tmp_path / "more.npz", x=np.zeros((4, 32), np.float32), i=np.arange(3), z=np.zeros(1))
    np.savez(tmp_path / "complex.npz", x=np.zeros(3, complex))
    (tmp_path / "no.npz").write_bytes(b"no zip")
    cases = {
        ("--input", tmp_path / "half.npz"): "no --input has 'i', i64[3]",
        ("--input", tmp_path / "shape.npz"): "input 'x': expected f32[4, 32], got f32[4, 31]",
        ("--input", tmp_path / "dtype.npz"): "input 'x': expected f32[4, 32], got f64[4, 32]",
        ("--input", tmp_path / "more.npz"): "the model has no input 'z'",
        ("--input", tmp_path / "complex.npz"): "dtype '<c16', which no model takes",
        ("--input", tmp_path / "no.npz"): "can't be read, or is no .npz file",
        ("--input", tmp_path / "none.npy"): "none.npy: can't be read",
        ("--random", "1", "--output", "/no/such/y.npz"): "/no/such/y.npz: can't be written",
    }
    for arguments, message in cases.items():
        done = run(small, *arguments)
        assert done.returncode == 1, arguments
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
    for arguments in ([], ["--frobnicate"], ["--input"], ["--random", "x"], ["--info", "more"], ["--repeat", "0"]):
        done = run(small, *arguments)
        assert done.returncode == 2, arguments
        assert "usage: run" in done.stderr
    assert run(small, "--help").returncode == 0
    assert run(small, "--random", "7", "--repeat", "2").returncode == 0


def test_the_same_bytes_each_time(bundled, tmp_path):
    assert digests(bundled[1].export_bundle(tmp_path / "again")) == digests(bundled[2])


def test_of_a_library_that_was_exported_before(bundled, client, tmp_path):
    from inlay import bundle

    library = bundled[1].export_library(tmp_path / "m.so")
    assert digests(bundle.of_library(library, tmp_path / "b", client)) == digests(bundled[2])


def test_parameters_beside(client, root):
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu("x86-64-v3"), server=client)
    executable.export_bundle(root / "b", link_params=False)
    inputs = inputs_of(executable)
    np.savez(root / "tmp" / "x.npz", **inputs)
    done = in_root(root, "/b/run", "--input", "/tmp/x.npz", "--output", "/tmp/y.npz")
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(root / "tmp" / "y.npz") as outputs:
        check_close(list(outputs.values()), reference(model, inputs))
    (root / "b" / "model.so.safetensors").unlink()
    done = in_root(root, "/b/run", "--random", "1")
    assert done.returncode == 1
    assert "model.so.safetensors" in done.stderr


def test_python_loads_the_library_of_a_bundle(bundled):
    """By plain tvm-ffi, in a process that knows nothing of inlay: lib/ has what the library wants."""
    code = "import sys, tvm_ffi; tvm_ffi.load_module(sys.argv[1])['load']()"
    subprocess.run([sys.executable, "-c", code, bundled[2] / "model.so"], check=True)


def test_what_is_linked_in_goes_into_the_bundle_too(bundled, tmp_path):
    """Imported modules and addons, as into a library; the folder is still all that is needed."""
    source = inlay.SourceModule(ANSWER, "c", "answer.c")
    bundle = bundled[1].export_bundle(tmp_path / "b", addons=[source])
    code = "import sys, tvm_ffi; assert tvm_ffi.load_module(sys.argv[1])['answer']() == 42"
    subprocess.run([sys.executable, "-c", code, bundle / "model.so"], check=True)


def test_what_is_in_the_way(bundled, tmp_path):
    executable = bundled[1]
    first = executable.export_bundle(tmp_path / "b")
    assert executable.export_bundle(first) == first  # an earlier bundle is replaced
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("x")
    with pytest.raises(FileExistsError, match="other files than a bundle's"):
        executable.export_bundle(tmp_path / "other")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="a bundle is a folder"):
        executable.export_bundle(tmp_path / "file")
    assert (tmp_path / "other" / "precious").read_text() == "x"


def test_names_that_lead_elsewhere_are_refused(client):
    from inlay._proto import artifact_pb2

    for name in ("../../etc/passwd", "libx.so/../../y", "passwd", "-libx.so"):
        with pytest.raises(inlay.CompileError, match="is no shared library's name"):
            list(client.export_support([artifact_pb2.RequiredLibrary(soname=name)], []))
    with pytest.raises(inlay.CompileError, match="is no package"):
        list(client.export_support([], ["../../../root"]))


def test_command_line(tmp_path):
    folder = tmp_path / "d"
    folder.mkdir()
    model = tmp_path / "m.onnx"
    onnx.save(recurrent.build_mlp(recurrent.TINY_MLP), model)

    def cli(*arguments) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "inlay.cli", *map(str, arguments)]
        return subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=300)  # noqa: PLW1510

    try:
        for arguments in (
            ["compile", model, "--bundle", tmp_path / "one", "-o", tmp_path / "m.so"],
            ["export", model, "--bundle", tmp_path / "two"],
            ["export", tmp_path / "m.so", "--bundle", tmp_path / "three"],
        ):
            done = cli(*arguments)
            assert done.returncode == 0, done.stderr
        assert digests(tmp_path / "one") == digests(tmp_path / "two") == digests(tmp_path / "three")
        assert run(tmp_path / "three", "--random", "1").returncode == 0
        assert cli("export", model).returncode == 2
        assert cli("export", model, "--bundle", folder.parent).returncode == 1
    finally:
        cli("drain")


@pytest.mark.slow
def test_on_a_bare_debian(bundled, tmp_path):
    """Debian 12 as debootstrap makes it (minbase): no compiler, no Python, no OpenMP."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.fail("needs root, and debootstrap (apt-get install debootstrap)")
    root = tmp_path / "debian"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True, stdout=subprocess.DEVNULL)
    model, executable, folder = bundled
    shutil.copytree(folder, root / "opt" / "model")
    inputs = inputs_of(executable)
    np.savez(root / "tmp" / "x.npz", **inputs)
    done = in_root(root, "/opt/model/run", "--input", "/tmp/x.npz", "--output", "/tmp/y.npz")
    assert (done.returncode, done.stderr) == (0, "")
    with np.load(root / "tmp" / "y.npz") as outputs:
        check_close(list(outputs.values()), reference(model, inputs))
