"""The third seed document, three styles of backend and Collage's six desiderata: its statements as one tries them.

The desiderata have tests of their own for every backend: tests/e2e/test_desiderata.py, tests/e2e/test_bundle.py, and in
C++ Desiderata.* of //core/backends/NAME:conformance_test. docs: core/backend/README.md.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay import ModuleProperty, Target
from inlay.models import resnet

DEVICE = "llvm -mcpu=x86-64-v3"


@pytest.fixture(scope="module")
def model():
    return resnet.build(resnet.TINY)


@pytest.fixture(scope="module")
def mod(model):
    return inlay.from_onnx(model)


def by(backend: str, *targets: str, **options) -> inlay.CompilationConfig:
    return inlay.CompilationConfig(targets=[DEVICE, *targets], backends=[backend], search="none", **options)


def exported(ex, folder):
    path = ex.export_library(folder / "a.so")
    names = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    return path, {line.split()[-1] for line in names.splitlines()}


def runs(path, ex, model):
    inputs = inputs_of(ex)
    check_close([inlay.load_library(path)["main"](*inputs.values())], reference(model, inputs))


@pytest.mark.parametrize("backend", ["onednn", "xnnpack"])
def test_custom_runtime_module(backend, mod, model, client, tmp_path):
    """ "the external codegen function produces a JSON runtime module which is serialized into the overall .so file ...
    At runtime ... Init sets up the execution environment, and Run actually triggers execution" """
    ex = inlay.build(mod, by(backend), server=client)
    path, symbols = exported(ex, tmp_path)
    regions = re.findall(rb'\{[^\0{]*"num_inputs":\d+,[^\0]*"steps":\[\{[^\0]+', path.read_bytes())
    assert len(regions) == sum(p.backend == backend for p in ex.report.partitions)
    assert {f"inlay_{backend}_init", f"inlay_{backend}_run"} <= symbols
    runs(path, ex, model)


@pytest.mark.parametrize("backend", ["libxsmm", "openblas"])
def test_built_in(backend, mod, model, client, tmp_path):
    """ "an extern call to a shim function built into the runtime": a product is one call of it, compiled natively."""
    ex = inlay.build(mod, by(backend), server=client)
    path, symbols = exported(ex, tmp_path)
    assert f"inlay_{backend}_run" in symbols
    own = {p.name for p in ex.report.partitions if p.backend == backend}
    assert own
    assert all(f"{name}_run" in symbols for name in own)
    runs(path, ex, model)


def test_csource(mod, model, client, tmp_path):
    """ "produces a CSource module which is actually compiled": here by its own hook, so that export needs no options."""
    ex = inlay.build(mod, by("csource", "csource -cflags=-O1"), server=client)
    assert {p.backend for p in ex.report.partitions} == {"csource"}
    path, _ = exported(ex, tmp_path)
    runs(path, ex, model)


def test_options_are_in_the_codegen_target(mod, client):
    """ "I extend the 'external codegen' Target with all the options which influence tuning and compilation": another
    option is another key, and a wrong one is refused by name."""
    first = inlay.build(mod, by("csource", "csource -cflags=-O1"), server=client)
    again = inlay.build(mod, by("csource", "csource -cflags=-O1"), server=client)
    other = inlay.build(mod, by("csource", "csource -cflags=-Os"), server=client)
    assert again.report.actions_run == 0
    keys = [{p.action for p in ex.report.partitions} for ex in (first, again, other)]
    assert keys[0] == keys[1]
    assert not keys[0] & keys[2]
    with pytest.raises(inlay.CompileError, match="csource.*'colour'"):
        inlay.build(mod, by("csource", "csource -colour=red"), server=client)


def test_device_and_codegen_targets(mod, client):
    """ "I require the user to supply both the usual Target("cuda") as well as the 'external codegen' Target" """
    ex = inlay.build(mod, inlay.CompilationConfig(targets=[DEVICE, "native -winograd=0"], search="none"), server=client)
    assert ex.config.target == Target(DEVICE)
    assert {p.codegen_target for p in ex.report.partitions if p.backend == "native"} == {"native -winograd=0"}


def test_static_libraries_carry_objects_to_the_link(mod, client):
    """ "a new StaticLibraryNode ... convey the contents of a generated .o file ... to the final export_library" """
    ex = inlay.build(mod, by("onednn"), server=client)
    carried = [m for m in ex.mod.imported_modules if m.kind == "static_library"]
    assert {m.backend for m in carried} == {"onednn"}
    assert all(m.properties == ModuleProperty.COMPILATION_EXPORTABLE for m in carried)


def test_exportable_is_a_method(mod, client):
    """ "centralizing the 'is dso module' predicate as a method on runtime::Module" """
    ex = inlay.build(mod, by("onednn"), server=client)
    assert all(module.is_exportable for module in ex.mod.walk())
    assert not inlay.PythonModule({"f": abs}).is_exportable
    assert not ex.jit().is_exportable


@pytest.mark.parametrize("executor", ["aot", "vm"])
def test_executors_share_partitions(executor, mod, model, client, tmp_path):
    """ "differences in the VM and Graph/AOT build paths": none here, the partitions are the same actions."""
    graph = inlay.build(mod, by("native"), server=client)
    ex = inlay.build(mod, by("native", executor=executor), server=client)
    actions = [{p.action for p in e.report.partitions if p.backend == "native"} for e in (graph, ex)]
    assert actions[0] == actions[1]
    runs(ex.export_library(tmp_path / "a.so"), ex, model)
