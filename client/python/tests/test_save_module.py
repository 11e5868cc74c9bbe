"""IRModule.save and load_module: what C++ reads too (client/cpp/client_test.cc, tests/seeds/test_cpp.py)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import inlay
from inlay.ir import FunctionBuilder


@pytest.fixture
def module():
    b = FunctionBuilder()
    x = b.param("x", "f32", (2, 3))
    zeros = b.weight(np.zeros(3, np.float32), "zeros")
    # Another type with the same bytes, hence the same digest.
    same = b.op("cast", b.weight(np.zeros((3, 2), ml_dtypes.bfloat16), "same"), dtype="f32")
    y = b.op("matmul", b.op("add", x, zeros), same)
    return b.finish([y], ["y"]).with_attr("woof", "woof").with_configuration("llvm -mcpu=x86-64-v3")


def test_bounds_are_kept(tmp_path):
    b = FunctionBuilder()
    module = b.finish([b.op("relu", b.param("x", "f32", ("n", "m")))]).with_required_extents(["n-m"])
    loaded = inlay.load_module(module.with_bounds({"n": (8, None)}).save(tmp_path / "m.inlay"))
    assert loaded.required_extents() == ["n-8", "-m+n"]
    assert loaded.bounds() == {"n": (8, None)}


def test_saved_and_loaded(module, tmp_path):
    path = module.save(tmp_path / "m.inlay")
    loaded = inlay.load_module(path)
    assert loaded.proto == module.proto
    assert loaded.config == module.config
    assert {k: v.tobytes() for k, v in loaded.weights.items()} == {k: v.tobytes() for k, v in module.weights.items()}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.inlay", "m.inlay.safetensors"]


def test_without_weights(tmp_path):
    b = FunctionBuilder()
    x = b.param("x", "f32", (2,))
    path = b.finish([b.op("relu", x)], ["y"]).save(tmp_path / "m.inlay")
    assert [p.name for p in tmp_path.iterdir()] == ["m.inlay"]
    assert inlay.load_module(path).outputs() == ["y"]


def test_a_module_without_its_weights_is_not_saved(module, tmp_path):
    with pytest.raises(ValueError, match="has no data of its weight 'zeros'"):
        inlay.IRModule(module.proto).save(tmp_path / "m.inlay")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["m.inlay", "m.inlay.safetensors"])
def test_damaged_files(module, tmp_path, name):
    path = module.save(tmp_path / "m.inlay")
    data = (tmp_path / name).read_bytes()
    for damaged in (b"", b"text", data[: len(data) // 2]):
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(inlay.InvalidModelError, match="damaged"):
            inlay.load_module(path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError):
        inlay.load_module(path)
