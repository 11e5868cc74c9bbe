"""Whether a machine can run an exported library: said without loading it, and by whatever loads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from conftest import check_close, environment, inputs_of, reference

import inlay
from inlay import compatibility, cpu, library
from inlay.models import recurrent, resnet

PLAIN = "import sys, tvm_ffi; m = tvm_ffi.load_module(sys.argv[1]); m['get_metadata'](); m[sys.argv[2]]()"


@pytest.fixture(scope="module")
def exported(shared_daemon, tmp_path_factory):
    """(model, executable, path) of a ResNet that oneDNN takes part in."""
    model = resnet.build(resnet.TINY)
    config = inlay.config.cpu("x86-64-v3", backends=["onednn"], search="none")
    executable = inlay.build(inlay.from_onnx(model), config, server=shared_daemon.client)
    assert "onednn" in {p.backend for p in executable.report.partitions}
    return model, executable, executable.export_library(tmp_path_factory.mktemp("x") / "m.so")


def inspect(path, folder, *flags):
    """`inlay inspect`: (exit code, its JSON)."""
    command = [sys.executable, "-m", "inlay.cli", "inspect", str(path), "--json", *flags]
    done = subprocess.run(command, env=environment(folder), capture_output=True, text=True, timeout=60)  # noqa: PLW1510
    return done.returncode, json.loads(done.stdout)


@pytest.fixture
def without_onednn(monkeypatch):
    """A machine where nothing has libdnnl."""
    real = compatibility.locate
    monkeypatch.setattr(
        compatibility, "locate", lambda soname, folder: None if "dnnl" in soname else real(soname, folder)
    )


def test_the_manifest_has_it_in_one_line(exported):
    line = library.read_manifest(exported[2]).compatibility
    words = line.split()
    assert words[0] == "inlay_library=1"
    assert words[1].startswith("kernel_abi=")
    assert words[2] == "triple=x86_64-unknown-linux-gnu"
    assert words[3].startswith("features=+")
    assert "+avx2" in words[3]
    assert "glibc>=2.35" in words
    assert "libdnnl.so.3=3.2.0" in words
    assert "libgomp.so.1" in words


def test_what_is_needed_is_named_with_its_user_and_source(exported):
    needed = {d.soname: d for d in library.read_manifest(exported[2]).required_libraries}
    assert needed["libdnnl.so.3"].backends == ("onednn",)
    assert "PyPI" in needed["libdnnl.so.3"].package
    assert "dnnl_primitive_execute" in needed["libdnnl.so.3"].functions
    assert "GOMP_parallel" in needed["libgomp.so.1"].functions


def test_inspect_says_that_it_runs_here(exported, tmp_path):
    code, answer = inspect(exported[2], tmp_path)
    assert (code, answer["runs_here"], answer["problems"]) == (0, True, [])
    model, executable, path = exported
    inputs = inputs_of(executable)
    check_close(inlay.load_library(path)["main"](**inputs), reference(model, inputs))


def test_a_library_for_a_cpu_that_nobody_has_any_more(exported, tmp_path):
    """The manifest is changed in place, by one of the same length."""
    foreign = tmp_path / "foreign.so"
    features = library.read_manifest(exported[2]).target_features.encode()
    changed = features.replace(b"+avx2,", b"+xop,,", 1)
    assert changed != features
    foreign.write_bytes(exported[2].read_bytes().replace(features, changed))
    code, answer = inspect(foreign, tmp_path)
    assert (code, answer["runs_here"]) == (1, False)
    assert "with xop, which this CPU lacks" in answer["problems"][0]
    plain = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", PLAIN, foreign, "check_compatibility"], capture_output=True, text=True
    )
    assert plain.returncode != 0
    assert "needs xop; this CPU lacks it" in plain.stderr


def test_a_cpu_without_a_feature(exported, monkeypatch):
    data = library.read_manifest(exported[2]).data
    monkeypatch.setattr(cpu, "features", lambda: frozenset({"sse3"}))
    assert any("avx2" in p and "--target" in p for p in compatibility.problems(data, None))


def test_formats_and_c_libraries_are_compared(exported):
    data = library.read_manifest(exported[2]).data
    assert "format 7" in compatibility.problems({**data, "inlay_library": 7}, None)[0]
    assert "glibc 9.99" in compatibility.problems({**data, "glibc": "9.99"}, None)[0]
    other = {**data, "target": {**data["target"], "triple": "aarch64-unknown-linux-gnu"}}
    assert "is for aarch64" in compatibility.problems(other, None)[0]


def test_a_missing_library_is_said_without_loading(exported, without_onednn):
    data = library.read_manifest(exported[2]).data
    found = compatibility.problems(data, exported[2].parent)
    assert len(found) == 1
    assert "needs libdnnl.so.3 (for onednn), which is not on this machine" in found[0]
    assert "onednn-cpu-gomp==" in found[0]


def test_load_library_says_it(exported, without_onednn):
    with pytest.raises(inlay.LoadError, match=r"libdnnl\.so\.3 \(for onednn\).*onednn-cpu-gomp.*--bundle"):
        inlay.load_library(exported[2])


def test_client_jit_says_it(exported, without_onednn):
    with pytest.raises(inlay.LoadError, match=r"libdnnl\.so\.3 \(for onednn\)"):
        exported[1].jit()


@pytest.mark.parametrize("function", ["check_compatibility", "load"])
def test_plain_tvm_ffi_says_it(exported, tmp_path, function):
    """In a process that knows nothing of inlay, where libdnnl is not on the dynamic linker's path."""
    path = shutil.copy(exported[2], tmp_path / "m.so")
    env = {k: v for k, v in environment(tmp_path).items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(  # noqa: PLW1510
        [sys.executable, "-c", PLAIN, path, function], env=env, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "needs libdnnl.so.3 (for onednn), which can't be loaded" in done.stderr
    assert "onednn-cpu-gomp==" in done.stderr


def test_plain_tvm_ffi_finds_it_beside_the_library(exported, tmp_path):
    path = shutil.copy(exported[2], tmp_path / "m.so")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libdnnl.so.3").symlink_to(compatibility.locate("libdnnl.so.3", None))
    subprocess.run([sys.executable, "-c", PLAIN, path, "load"], check=True)


def test_another_version_of_a_library_is_named_by_what_it_lacks(exported, tmp_path, monkeypatch):
    """Beside the library lies a libdnnl.so.3 that has none of the functions."""
    source, folder = tmp_path / "empty.c", tmp_path / "lib"
    source.write_text("int nothing;\n")
    folder.mkdir()
    fake = folder / "libdnnl.so.3"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libdnnl.so.3", "-o", fake, source], check=True)
    path = shutil.copy(exported[2], tmp_path / "m.so")
    done = subprocess.run([sys.executable, "-c", PLAIN, path, "load"], capture_output=True, text=True)  # noqa: PLW1510
    assert "of libdnnl.so.3 (for onednn); the one that was found is another version" in done.stderr
    monkeypatch.setattr(compatibility, "environment_folders", lambda: iter(()))
    data = library.read_manifest(path).data
    assert "is another version without it" in compatibility.problems(data, tmp_path)[0]


def test_inspect_names_what_is_no_library(tmp_path):
    (tmp_path / "x.so").write_bytes(b"no")
    code, answer = inspect(tmp_path / "x.so", tmp_path)
    assert code == 1
    assert "not a shared library" in answer["error"]


def test_inspect_in_words(shared_daemon, tmp_path):
    model = inlay.from_onnx(recurrent.build_mlp(recurrent.TINY_MLP))
    executable = inlay.build(model, server=shared_daemon.client)
    path = executable.export_library(tmp_path / "a.so")
    command = [sys.executable, "-m", "inlay.cli", "inspect", str(path)]
    out = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=True).stdout
    assert "compatibility" in out
    assert "runs here" in out
