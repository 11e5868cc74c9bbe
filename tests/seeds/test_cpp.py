"""The seed documents' statements in C++: the tests of tests/seeds/cpp, built outside of Bazel by plain g++ against the
client that deploy/setup.sh installed (or the one in $INLAY_PREFIX), as a user builds a program.

docs: client/README.md, "C++"; client/cpp/README.md.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from conftest import inputs_of, reference

import inlay
from inlay.ir import FunctionBuilder
from inlay.models import resnet

FOLDER = pathlib.Path(__file__).parent / "cpp"
PREFIX = pathlib.Path(os.environ.get("INLAY_PREFIX") or sys.prefix)
SOURCES = sorted(FOLDER.glob("*.cc"))
TESTS = [
    f"{a}.{b}" for file in SOURCES for a, b in re.findall(r"^TEST_F\((\w+), (\w+)\)", file.read_text(), re.MULTILINE)
]


def flags(*packages: str) -> list[str]:
    """What pkg-config says that a compiler needs for the client."""
    path = PREFIX / "lib" / "pkgconfig"
    assert (path / "inlay.pc").exists(), f"no C++ client in {PREFIX}: run deploy/setup.sh"
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", *packages],
        env={**os.environ, "PKG_CONFIG_PATH": str(path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


def run(command, **more):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300, **more)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder():
    path = pathlib.Path(tempfile.mkdtemp(prefix="inlay-t"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def program(folder):
    """The tests as one program. Files are compiled at once, as many as there are."""
    options = flags("inlay", "gtest_main", "gmock")
    compile_ = ["g++", "-std=c++17", "-O0", "-Wall", "-Werror"]
    started = [
        subprocess.Popen(
            [*compile_, "-c", source, "-o", folder / f"{source.stem}.o", *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for source in SOURCES
    ]  # fmt: skip
    for process in started:
        said = process.communicate(timeout=600)[0]
        assert process.returncode == 0, said[-6000:]
    run(["g++", *[folder / f"{source.stem}.o" for source in SOURCES], "-o", folder / "seeds", *options])
    return folder / "seeds"


@pytest.fixture(scope="module")
def environment(folder, shared_daemon):
    """A model that Python imported and saved, inputs, and onnxruntime's outputs."""
    import tvm_ffi

    model = resnet.build(resnet.TINY)
    module = inlay.from_onnx(model)
    module.save(folder / "model.inlay")
    inputs = inputs_of(inlay.build(module, "llvm -mcpu=native", server=shared_daemon.client))
    for i, array in enumerate(inputs.values()):
        (folder / f"input{i}.f32").write_bytes(array.astype(np.float32).tobytes())
    for i, array in enumerate(reference(model, inputs)):
        (folder / f"output{i}.f32").write_bytes(array.tobytes())
    with_c = inlay.config.cpu(executor=inlay.Executor("aot", {"interface-api": "c"}))
    inlay.build(module, with_c, server=shared_daemon.client).export_library(folder / "model.so")  # and model.h
    b = FunctionBuilder()  # of open sizes; C++ makes the same one
    b.finish([b.op("tanh", b.param("x", "f32", ("rows", "columns")))], ["y"]).save(folder / "open.inlay")
    package = pathlib.Path(tvm_ffi.__file__).parent
    return {
        **os.environ,
        "INLAY_SERVER": shared_daemon.address,
        "INLAY_TEST_DATA": str(folder),
        "INLAY_TEST_TVM_FFI": str(package),
    }


@pytest.mark.parametrize("name", TESTS)
def test_cpp(name, program, environment):
    said = run([program, f"--gtest_filter={name}", "--gtest_brief=1"], env=environment)
    assert "1 test" in said


def test_example(folder, environment, tmp_path):
    """client/cpp/examples: a program of a user's, its output compared with onnxruntime's; and what it says of what it can't
    read."""
    source, example = FOLDER.parents[2] / "client" / "cpp" / "examples" / "run_model.cc", tmp_path / "run_model"
    run(["g++", "-std=c++17", "-Wall", "-Werror", source, "-o", example, *flags("inlay")])
    words = [example, folder / "model.inlay", tmp_path / "a.so", folder / "input0.f32"]
    got = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
    want = np.fromfile(folder / "output0.f32", np.float32)
    np.testing.assert_allclose(np.frombuffer(got, np.float32), want, rtol=1e-3, atol=1e-4)
    done = subprocess.run(
        [example, tmp_path / "no.inlay", tmp_path / "b.so"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "no.inlay" in done.stderr
