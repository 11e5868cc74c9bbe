"""The second seed document, the CompilationConfig RFC: its statements, in its order, as one writes them with inlay.

The C++ side (`module.config()` never absent, `const CompilationConfig&` for passes, completion in one place) is in
//core/target:compilation_config_test, //core/ir:proto_conversion_test and //core/passes:structure_test.
docs: core/target/README.md, client/README.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import grpc
import numpy as np
import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay import CompilationConfig, Executor, PassContext, Runtime, Target
from inlay.models import resnet
from inlay.passes import DumpIR, Instrument, PassTimings


@pytest.fixture(scope="module")
def model():
    return resnet.build(resnet.TINY)


@pytest.fixture(scope="module")
def mod(model):
    return inlay.from_onnx(model)


def cli(*words):
    done = subprocess.run(
        [sys.executable, "-m", "inlay", *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    return done.returncode, done.stdout, done.stderr


# Motivation: one object instead of arguments that are passed side by side.


def test_user_api():
    """config = CompilationConfig(target_host=target, targets=[target], executor=Executor("aot", {...}), runtime=...)"""
    target = Target("c")
    config = CompilationConfig(
        target_host=target,
        targets=[target],
        executor=Executor("aot", {"interface-api": "c", "unpacked-api": True}),
        runtime=Runtime("crt", {"system-lib": True}),
    )
    assert config.executor.kind == "aot"
    assert config.executor["interface-api"] == "c"
    assert config.executor["unpacked-api"] is True
    assert config.executor["workspace-byte-alignment"] == 64  # its default
    assert config.runtime["system-lib"] is True
    assert CompilationConfig.from_proto(config.to_proto()) == config


def test_build_takes_a_configuration(mod, model, client):
    """relay.build(ir_mod, config)"""
    config = CompilationConfig(targets=[Target("llvm -mcpu=x86-64-v3")], num_threads=1, search="none")
    ex = inlay.build(mod, config, server=client)
    inputs = inputs_of(ex)
    check_close([ex.jit()["main"](*inputs.values())], reference(model, inputs))


@pytest.mark.parametrize("target", ["llvm -mcpu=x86-64-v3", Target("llvm -mcpu=x86-64-v3")])
def test_build_takes_a_target(mod, client, target):
    """if isinstance(config, Target): config = CompilationConfig.from_target(config); a text stands for its Target."""
    ex = inlay.build(mod, target, server=client)
    same = inlay.build(mod, CompilationConfig.from_target(target), server=client)
    assert ex.digest == same.digest
    assert ex.config.target.attrs["mcpu"] == "x86-64-v3"


def test_from_target_with_a_host(client):
    """CompilationConfig.from_target(config, target_host=target_host)"""
    config = CompilationConfig.from_target("llvm -mcpu=x86-64-v3", target_host="llvm -mcpu=x86-64-v2")
    completed = client.check_config(config.to_proto())
    assert completed.target_host.attrs["mcpu"] == "x86-64-v2"
    assert completed.targets[0].attrs["mcpu"] == "x86-64-v3"


def test_the_server_completes_the_configuration(client):
    """Set up in one place: host, features and defaults are there once it has gone through."""
    completed = client.check_config(CompilationConfig().to_proto())
    assert completed.target_host == completed.targets[0]
    assert completed.targets[0].attrs["mtriple"] == "x86_64-unknown-linux-gnu"
    assert "+avx2" in completed.targets[0].attrs["mattr"].split(",")
    assert completed.executor.kind == completed.executor.GRAPH
    assert completed.runtime.kind == completed.runtime.CPP


# Developer API.


def test_with_configuration(mod, client):
    """ir_mod = ir_mod.with_configuration(config); mod.config is never absent."""
    assert not mod.has_config
    assert mod.config == CompilationConfig()
    configured = mod.with_configuration(inlay.config.cpu("x86-64-v3", num_threads=3))
    assert configured.config.num_threads == 3
    assert not mod.has_config  # a module is a value
    assert inlay.build(configured, server=client).config.num_threads == 3
    assert mod.with_configuration("llvm -mcpu=x86-64-v2").config.target == Target("llvm -mcpu=x86-64-v2")


def test_should_link_params(mod, client, tmp_path):
    """ir_mod->GetConfig()->ShouldLinkParams()"""
    assert CompilationConfig().should_link_params()
    config = inlay.config.cpu("x86-64-v3", link_params=False)
    assert not mod.with_configuration(config).config.should_link_params()
    inlay.build(mod, config, server=client).export_library(tmp_path / "a.so")
    assert (tmp_path / "a.so.safetensors").exists()


def test_attributes_remain_beside_it(mod):
    """WithAttr<String>(ir_mod, "woof", "woof")"""
    barking = mod.with_attr("woof", "woof")
    assert barking.attrs["woof"].s == "woof"
    assert "woof" not in mod.attrs
    assert barking.config == mod.config


# Reference: the members of CompilationConfigNode, each checked.


def disagreeing():
    crt = {"executor": "aot", "runtime": "crt"}
    yield {"targets": ["llvm"], "target_host": "c"}, "config.target_host and config.targets[0]"
    yield (
        {"targets": ["llvm -mtriple=x86_64-linux-gnu"], "target_host": "llvm -mtriple=aarch64-linux-gnu"},
        "config.target_host and config.targets[0] disagree: aarch64-unknown-linux-gnu against x86_64-unknown-linux-gnu",
    )
    yield {"runtime": "crt"}, "config.executor.kind and config.runtime.kind disagree: GRAPH reads its plan"
    yield {"executor": "vm", "runtime": "crt"}, "config.executor.kind and config.runtime.kind disagree: the VM"
    yield {"targets": ["c"]}, "config.targets[0] and config.runtime.kind disagree"
    yield {**crt, "link_params": False}, "config.link_params and config.runtime.kind disagree"
    yield {**crt, "num_threads": 4}, "config.num_threads and config.runtime.kind disagree"
    yield {**crt, "search": "measured"}, "config.search.mode and config.runtime.kind disagree"
    yield {"executor": Executor("aot", {"unpacked-api": 1})}, "config.executor.unpacked_api and config.runtime.kind"
    yield (
        {"executor": Executor("aot", {"workspace-byte-alignment": 16})},
        "config.executor.workspace_byte_alignment and config.runtime.kind",
    )
    yield {"targets": ["llvm", "native -winograd=0", "native -winograd=0"]}, "config.targets[1] and config.targets[2]"
    yield {"targets": ["llvm", "llvm -mcpu=x86-64-v2"]}, "a second device ('llvm' after 'llvm')"
    yield {"targets": ["native"]}, "config.targets[0]: 'native' is no device"
    yield {"disabled_passes": ["no_such_pass"]}, "there is no pass 'no_such_pass'; there are infer_types"
    yield {"targets": ["llvm", "native -no-such=1"]}, "no-such"


@pytest.mark.parametrize(("fields", "text"), list(disagreeing()))
def test_fields_that_disagree_are_named_before_any_work(client, fields, text):
    """CheckAndUpdateHostConsistency, and every other combination: refused before a weight is uploaded, both fields named."""
    sent = []
    weights = np.random.default_rng(len(text)).standard_normal((64, 64), dtype=np.float32)
    builder = inlay.FunctionBuilder()
    x = builder.param("x", "f32", (4, 64))
    module = builder.finish([builder.op("matmul", x, builder.weight(weights, "w"))])
    with pytest.raises(inlay.CompileError, match=re.escape(text)) as error:
        inlay.build(module, CompilationConfig(**fields), server=client, progress=lambda *p: sent.append(p[0]))
    assert error.value.code == grpc.StatusCode.INVALID_ARGUMENT
    assert "upload" not in sent


def test_options_of_another_kind_are_refused_at_once():
    with pytest.raises(ValueError, match="executor graph has no option 'unpacked-api': it is one of executor aot"):
        Executor("graph", {"unpacked-api": True})
    with pytest.raises(ValueError, match="runtime crt has no option 'heap'; it has system-lib"):
        Runtime("crt", {"heap": 1})
    with pytest.raises(ValueError, match="executor aot: interface-api=java must be one of packed, c"):
        Executor("aot", {"interface-api": "java"})
    with pytest.raises(ValueError, match="executor is 'jet'; there are graph, aot, vm"):
        Executor("jet")


def test_targets_have_three_forms_and_a_scope(mod, client):
    """Text, JSON, object; `Target.current()`; attributes by kind."""
    target = Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    assert Target(str(target)) == Target(target.to_json()) == Target(json.loads(target.to_json())) == target
    assert Target.current() is None
    with Target("llvm -mcpu=x86-64-v2"), target:
        assert Target.current() == target
        ex = inlay.build(mod, server=client)
    assert Target.current() is None
    assert ex.config.target == target
    with pytest.raises(ValueError, match="target llvm has no option 'march'; it has mattr, mcpu, mtriple, num-cores"):
        Target("llvm -march=haswell")
    with pytest.raises(ValueError, match="num-cores=0 must be a number from 1 to 4096"):
        Target("llvm -num-cores=0")


def test_two_variants_of_one_backend_compete(mod, model, client):
    """Several targets of one kind: each is a variant with attributes of its own."""
    config = inlay.config.cpu("x86-64-v3", search="measured", num_threads=1, backends=["native"])
    config = config.replace(targets=[*config.targets, Target("native -winograd=0"), Target("native -winograd=1")])
    ex = inlay.build(mod, config, server=client)
    tried = {candidate.backend for candidate in ex.report.candidates}
    assert {"native", "native#2"} <= tried
    used = {part.backend: part.codegen_target for part in ex.report.partitions}
    expected = {"native": "native -winograd=0", "native#2": "native -winograd=1"}
    assert used.items() <= expected.items()
    inputs = inputs_of(ex)
    check_close([ex.jit()["main"](*inputs.values())], reference(model, inputs))


# Configuration creators.


def test_creators():
    """The functions of python/tvm/target/target.py return CompilationConfigs."""
    assert inlay.config.cpu("znver4").target == Target("llvm -mcpu=znver4")
    micro = inlay.config.micro("mps2_an385")
    assert micro.target == Target("c -model=mps2_an385 -mcpu=cortex-m3")
    assert (micro.executor.kind, micro.runtime.kind, micro.runtime["system-lib"]) == ("aot", "crt", True)
    assert inlay.config.micro(executor=Executor("aot", {"interface-api": "c"})).runtime["system-lib"] is False
    assert inlay.config.micro("nrf52840", {"num-cores": "1"}).target.attrs["num-cores"] == "1"
    with pytest.raises(ValueError, match="micro model 'toaster' is not known; there are unknown, host, mps2_an385"):
        inlay.config.micro("toaster")
    assert inlay.config.cuda("sm_80").target == Target("cuda -arch=sm_80")
    cross = inlay.config.cross("riscv64-linux-gnu", "sifive-u74")
    assert cross.target.attrs == {"mtriple": "riscv64-linux-gnu", "mcpu": "sifive-u74"}
    assert cross.runtime.kind == "crt"


def test_what_is_not_there_says_so(mod, client):
    with pytest.raises(inlay.UnsupportedError, match="kind 'cuda' is not there yet") as error:
        inlay.build(mod, inlay.config.cuda(), server=client)
    assert error.value.code == grpc.StatusCode.UNIMPLEMENTED


# Prior art: PassContext.


def test_pass_context(mod, client, tmp_path):
    """Optimisation level, disabled passes, instruments, the module after each pass."""
    timings, dump = PassTimings(), DumpIR(tmp_path / "ir", only=["fold_scale_bias", "dead_code"])

    order = []

    class Order(Instrument):
        def run_after_pass(self, info):
            assert info.index == len(order)
            order.append(info.name)

    with PassContext(disabled_passes=["sink_reshapes"], instruments=[timings, dump, Order()]):
        ex = inlay.build(mod, "llvm -mcpu=x86-64-v3", server=client)
    assert ex.config.disabled_passes == ("sink_reshapes",)
    assert "sink_reshapes" not in timings.timings
    assert timings.timings["simplify"] > 0
    assert order[0] == "infer_types"
    assert {path.name[4:-4] for path in dump.written} == {"fold_scale_bias", "dead_code"}
    assert "conv" in dump.written[0].read_text()
    assert not inlay.build(mod, "llvm -mcpu=x86-64-v3", server=client).config.disabled_passes  # the scope is over


def test_pass_contexts_nest(mod, client):
    with PassContext(opt_level=0, disabled_passes=["fold_pads"]), PassContext(opt_level=1):
        context = PassContext.current()
        assert (context.opt_level, context.disabled_passes) == (1, ("fold_pads",))
        assert inlay.build(mod, "llvm", server=client).config.opt_level == 1
    assert PassContext.current() == PassContext()
    with (
        pytest.raises(inlay.CompileError, match="'infer_types' can't be disabled"),
        PassContext(disabled_passes=["infer_types"]),
    ):
        inlay.build(mod, "llvm", server=client)


# tvmc --target=c --executor=aot --runtime=crt


def test_command_line_is_made_from_the_schema():
    """Every option of the schema has its flag, and help."""
    from inlay import schema

    text = re.sub(r"\s+", " ", cli("compile", "--help")[1])
    for option in schema.executor_options().values():
        assert f"--executor-{option.of_kind}-{option.name}" in text
    for option in schema.runtime_options().values():
        assert f"--runtime-{option.of_kind}-{option.name}" in text
    for kind, attrs in schema.target_kinds().items():
        for attr in attrs.values():
            assert f"--target-{kind}-{attr.name}" in text


def test_command_line_refuses_what_disagrees(shared_daemon, tmp_path, model):
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    words = ("compile", tmp_path / "m.onnx", "--server", shared_daemon.address)
    status, _, said = cli(*words, "--executor-aot-unpacked-api=1")
    assert status == 2
    assert "--executor-aot-unpacked-api is an option of executor aot, and --executor is graph" in said
    status, _, said = cli(*words, "--target", "c", "--target-llvm-mcpu=znver4")
    assert status == 2
    assert "--target-llvm-mcpu is an option of target llvm, and --target is c" in said
    status, _, said = cli(*words, "--runtime", "crt")
    assert status == 1
    assert "config.executor.kind and config.runtime.kind disagree" in said


def test_command_line_configures(shared_daemon, tmp_path, model):
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    status, out, said = cli(
        "compile", tmp_path / "m.onnx", "--server", shared_daemon.address, "--json", "--target-llvm-mcpu=x86-64-v2",
        "--target", "llvm", "--target", "native -winograd=0", "--disable-pass=fold_pads", "--dump-ir", tmp_path / "ir",
    )  # fmt: skip
    assert status == 0, said
    result = json.loads(out)
    assert all("fold_pads" not in path for path in result["dumped"])
    assert {p["codegen_target"] for p in result["partitions"] if p["backend"] == "native"} == {"native -winograd=0"}
    status, out, _ = cli("passes", "--server", shared_daemon.address, "--json")
    assert status == 0
    assert {"name": "infer_types", "min_opt_level": 0} in json.loads(out)["passes"]
