"""Targets, configurations and what "native" means."""

from __future__ import annotations

import json

import pytest

import inlay
from inlay import cpu
from inlay._proto import config_pb2


def test_target_text_and_back():
    target = inlay.Target("llvm -mcpu=znver4 -mattr=+avx512f,-avx512bf16 -num-cores=2")
    assert target.attrs == {"mcpu": "znver4", "mattr": "+avx512f,-avx512bf16", "num-cores": "2"}
    assert inlay.Target(str(target)) == target
    assert inlay.Target(target.to_proto()) == target


def test_a_value_with_blanks_is_quoted():
    target = inlay.Target("csource -cc=gcc '-cflags=-O2 -ffast-math'")
    assert target.attrs == {"cc": "gcc", "cflags": "-O2 -ffast-math"}
    assert inlay.Target(str(target)) == target


def test_kernels():
    kernel = inlay.CKernel("softmax", "mine", source="void mine() {}", attrs={"axis": -1}, shapes=[[None, 8]])
    target = inlay.Target("csource -cc=gcc", kernels=[kernel])
    (sent,) = json.loads(target.attrs["kernels"])
    assert sent == {
        "op": "softmax",
        "symbol": "mine",
        "source": "void mine() {}",
        "dtypes": ["f32"],
        "attrs": {"axis": -1},
        "shapes": [[-1, 8]],
    }
    assert inlay.Target(str(target)) == target
    assert inlay.Target(target.to_proto()) == target
    with pytest.raises(ValueError, match="csource"):
        inlay.Target("llvm", kernels=[kernel])


@pytest.mark.parametrize("text", ["", "-mcpu=native", "llvm mcpu=x", "llvm -mcpu", "llvm -=x"])
def test_bad_target_text(text):
    with pytest.raises(ValueError, match="target"):
        inlay.Target(text)


def test_native_from_cpuinfo(monkeypatch):
    monkeypatch.setattr(cpu, "features", lambda: frozenset(cpu._V3 | {"avx512f", "aes"}))
    assert cpu.native_attrs()["mcpu"] == "x86-64-v3"
    assert cpu.native_attrs()["mattr"] == "+aes,+avx512f"
    assert inlay.Target("llvm -mcpu=native -num-cores=4").resolved().attrs["num-cores"] == "4"
    monkeypatch.setattr(cpu, "features", frozenset)
    with pytest.raises(ValueError, match="name the CPU"):
        inlay.Target("llvm -mcpu=native").resolved()


def test_missing_features(monkeypatch):
    monkeypatch.setattr(cpu, "features", lambda: frozenset(cpu._V3))
    assert cpu.missing("+avx2,+fma,-avx512f,+prefer-256-bit") == []
    assert cpu.missing("+avx2,+avx512f,+avx512vl") == ["avx512f", "avx512vl"]


def test_this_machine_has_what_it_says():
    have = cpu.features()
    assert not have or cpu.missing(",".join(f"+{name}" for name in have)) == []


def test_config_round_trip():
    config = inlay.CompilationConfig(
        targets=["llvm -mcpu=x86-64-v4", "onednn -threads=2"],
        target_host="llvm",
        search="none",
        backends=["native"],
        link_params=False,
        num_threads=2,
        opt_level=0,
        disabled_passes=["fold"],
        mixed_precision="bf16",
    )
    assert inlay.CompilationConfig.from_proto(config.to_proto()) == config
    assert inlay.CompilationConfig.from_proto(config_pb2.CompilationConfig()) == inlay.CompilationConfig()


@pytest.mark.parametrize(
    ("field", "value"),
    [("executor", "jet"), ("runtime", "java"), ("search", "luck"), ("num_threads", -1), ("mixed_precision", "fp8")],
)
def test_bad_config_values(field, value):
    with pytest.raises(ValueError, match=field):
        inlay.CompilationConfig(**{field: value})
