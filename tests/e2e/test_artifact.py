"""The exported library: self-contained, movable, loadable without inlay, and refused where it can't run."""

from __future__ import annotations

import concurrent.futures
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tvm_ffi
from conftest import check_close, inputs_of, reference

import inlay
from inlay import cpu, library
from inlay.models import bert, recurrent, resnet


@pytest.fixture(scope="module")
def built(shared_daemon):
    """(model, executable) of a small ResNet with what mix the server chooses."""
    model = resnet.build(resnet.TINY)
    return model, inlay.build(inlay.from_onnx(model), server=shared_daemon.client)


def test_runs_in_another_directory_and_process(built, tmp_path):
    model, executable = built
    path = executable.export_library(tmp_path / "a.so")
    elsewhere = tmp_path / "elsewhere" / "renamed.so"
    elsewhere.parent.mkdir()
    shutil.move(path, elsewhere)
    inputs = inputs_of(executable)
    np.savez(tmp_path / "x.npz", **inputs)
    code = "import sys, numpy as np, inlay; x = np.load(sys.argv[2]); np.save(sys.argv[3], np.from_dlpack(inlay.load_library(sys.argv[1])['main'](*[x[n] for n in x.files])))"
    subprocess.run(
        [sys.executable, "-c", code, elsewhere, tmp_path / "x.npz", tmp_path / "y.npy"],
        check=True,
        cwd="/",
    )
    check_close([np.load(tmp_path / "y.npy")], reference(model, inputs))


def test_plain_tvm_ffi_loads_it(client, tmp_path):
    """In a process that never imports inlay; native alone, since other backends' libraries are the loader's business."""
    model = resnet.build(resnet.TINY)
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(backends=["native"]), server=client)
    path = executable.export_library(tmp_path / "a.so")
    inputs = inputs_of(executable)
    np.save(tmp_path / "x.npy", inputs["input"])
    code = "import sys, numpy as np, tvm_ffi; m = tvm_ffi.load_module(sys.argv[1]); y = m['main'](tvm_ffi.from_dlpack(np.load(sys.argv[2]))); np.save(sys.argv[3], np.from_dlpack(y)); assert 'inlay' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code, path, tmp_path / "x.npy", tmp_path / "y.npy"],
        check=True,
    )
    check_close([np.load(tmp_path / "y.npy")], reference(model, inputs))


def test_parameters_beside_the_library(built, tmp_path):
    model, executable = built
    inside = executable.export_library(tmp_path / "inside.so")
    beside = executable.export_library(tmp_path / "beside.so", link_params=False)
    params = pathlib.Path(f"{beside}.safetensors")
    weights = sum(array.nbytes for array in inlay.from_onnx(model).weights.values())
    assert params.stat().st_size >= weights
    assert beside.stat().st_size < inside.stat().st_size - weights // 2
    assert not pathlib.Path(f"{inside}.safetensors").exists()
    from safetensors.numpy import load_file

    assert sum(a.nbytes for a in load_file(params).values()) >= weights
    inputs = inputs_of(executable)
    check_close(inlay.load_library(beside)["main"](**inputs), reference(model, inputs))
    lost = tmp_path / "lost.so"
    shutil.copy(beside, lost)
    with pytest.raises(inlay.LoadError, match="safetensors"):
        inlay.load_library(lost)


def test_beside_and_client_jit(client):
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    executable = inlay.build(inlay.from_onnx(model), inlay.config.cpu(link_params=False), server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


def test_a_replaced_file_is_loaded_anew(client, tmp_path, monkeypatch):
    """The dynamic linker would hand out what it has under that path. Nothing stays in the folder of temporary files."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    results = []
    for seed in (0, 1):
        model = recurrent.build_mlp(recurrent.TINY_MLP, seed)
        executable = inlay.build(inlay.from_onnx(model), server=client)
        executable.export_library(tmp_path / "same.so")
        inputs = inputs_of(executable)
        got = inlay.load_library(tmp_path / "same.so")["main"](**inputs)
        check_close(got, reference(model, inputs))
        results.append(np.from_dlpack(got).copy())
    assert np.abs(results[0] - results[1]).max() > 0.01
    assert list(scratch.iterdir()) == []


def test_takes_what_callers_have(built):
    model, executable = built
    module = executable.jit()
    array = inputs_of(executable)["input"]
    want = reference(model, {"input": array})
    readonly = array.copy()
    readonly.flags.writeable = False
    strided = np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    for value in (array, readonly, strided, tvm_ffi.from_dlpack(array.copy())):
        check_close(module["main"](value), want)
    check_close(inlay.VirtualMachine(module, "cpu")["main"](array), want)
    check_close(inlay.VirtualMachine(executable)["main"](array), want)
    torch = pytest.importorskip("torch")
    check_close(module["main"](torch.from_numpy(array)), want)


def test_wrong_inputs_are_named(built):
    _model, executable = built
    module = executable.jit()
    array = inputs_of(executable)["input"]
    with pytest.raises(inlay.RunError, match="input"):
        module["main"](array.astype(np.float64))
    with pytest.raises(inlay.RunError, match="input"):
        module["main"](array[:, :2])
    with pytest.raises(TypeError, match="1 input"):
        module["main"]()
    check_close(module["main"](array), reference(_model, {"input": array}))  # still well


def test_several_outputs_come_in_order(client):
    from onnx import TensorProto, helper

    names = ["c", "a", "b"]
    nodes = [helper.make_node(op, ["x"], [name]) for op, name in zip(("Relu", "Sigmoid", "Neg"), names, strict=True)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in names]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])], infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    executable = inlay.build(inlay.from_onnx(model), server=client)
    assert [spec[0] for spec in executable.outputs] == names
    x = np.array([-1, 0, 2], np.float32)
    got = executable.jit()["main"](x)
    assert isinstance(got, tuple)
    check_close(got, reference(model, {"x": x}))
    with executable.jit(remote=True) as remote:
        check_close(remote["main"](x), reference(model, {"x": x}))


def test_large_results_use_their_memory_again(client):
    """But never while anybody holds one: as a tensor, as an array made of it, in another thread."""
    from onnx import TensorProto, helper

    n = 1 << 19
    nodes = [helper.make_node("Neg", ["x"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [n]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    main = inlay.build(inlay.from_onnx(model), server=client).jit()["main"]
    xs = [np.full(n, i, np.float32) for i in range(8)]
    arrays = [np.from_dlpack(main(x)) for x in xs]
    for x, array in zip(xs, arrays, strict=True):
        np.testing.assert_array_equal(array, -x)
    assert len({array.ctypes.data for array in arrays}) == len(arrays)
    last = {array.ctypes.data for array in arrays[-2:]}
    del array, arrays
    assert np.from_dlpack(main(xs[0])).ctypes.data in last

    def call(x):
        for _ in range(50):
            np.testing.assert_array_equal(np.from_dlpack(main(x)), -x)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(call, xs))


def test_manifest_is_read_without_running(built, tmp_path):
    _model, executable = built
    manifest = library.read_manifest(executable.export_library(tmp_path / "a.so"))
    assert manifest.inputs == executable.inputs
    assert manifest.outputs == executable.outputs
    assert manifest.target_triple.startswith("x86_64")


def test_a_library_for_another_cpu_is_refused(client, tmp_path, monkeypatch):
    model = recurrent.build_mlp(recurrent.TINY_MLP)
    config = inlay.config.cpu("x86-64-v3", backends=["native"])
    path = inlay.build(inlay.from_onnx(model), config, server=client).export_library(tmp_path / "a.so")
    monkeypatch.setattr(cpu, "features", lambda: frozenset({"sse3"}))
    with pytest.raises(inlay.LoadError, match="avx2.*--target"):
        inlay.load_library(path)


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF" + bytes(60)])
def test_no_library(tmp_path, content):
    path = tmp_path / "x.so"
    path.write_bytes(content)
    with pytest.raises(inlay.LoadError, match="not a shared library|not one that inlay exported|x.so"):
        inlay.load_library(path)


def test_missing_file_and_foreign_library(tmp_path):
    with pytest.raises(inlay.LoadError, match="No such file"):
        inlay.load_library(tmp_path / "none.so")
    with pytest.raises(inlay.LoadError, match="not one that inlay exported"):
        inlay.load_library(pathlib.Path(tvm_ffi.__file__).parent / "lib" / "libtvm_ffi.so")


def test_same_inputs_same_bytes(client, tmp_path):
    executable = inlay.build(inlay.from_onnx(bert.build(bert.TINY, 1, 8)), server=client)
    one, two = (
        executable.export_library(tmp_path / "1.so"),
        executable.export_library(tmp_path / "2.so"),
    )
    assert one.read_bytes() == two.read_bytes()
