"""The six desiderata for a backend (core/backend/README.md), as they show in whole artifacts: a test of each, for each
backend. What shows in one StaticLibrary is in core/backend/testing/conformance/desiderata_test.cc; deployment is in
test_bundle.py."""

from __future__ import annotations

import collections
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from mixes import WIDTH, backends, chain, check, pairs_with, pinned

import inlay
from inlay.library import read_manifest

BACKENDS = backends()
# A value for attributes that take a text.
TEXTS = {"cflags": "-O1"}


@pytest.fixture(scope="module")
def usable(shared_daemon):
    found = {b.name: b for b in shared_daemon.client.server_info().backends}
    assert sorted(found) == BACKENDS
    assert not [b.unusable for b in found.values() if b.unusable], "deploy/setup.sh installs every backend's library"
    return found


def everywhere(executable, x, tmp_path):
    """Its results by the exported library, and loaded into the server where that runs such code."""
    yield inlay.load_library(executable.export_library(tmp_path / "m.so"))["main"](x)
    with executable.jit(remote=True) as remote:
        yield remote["main"](x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_independent(backend, usable, client, tmp_path):
    """A model in which the backend stands beside every other one, before it and after it, in one artifact."""
    order = pairs_with(backend, BACKENDS)
    module, x, want = chain([WIDTH] * (len(order) + 1))
    executable = pinned(client, module, order)
    calls = collections.Counter({p.name: p.call_sites for p in executable.report.partitions})
    assert sum(calls.values()) >= len(order)
    for got in everywhere(executable, x, tmp_path):
        check(got, want)


def test_independent_all_in_every_order(usable, client, tmp_path):
    order = BACKENDS + BACKENDS[::-1] + BACKENDS[1::2] + BACKENDS[::2]
    module, x, want = chain([WIDTH] * (len(order) + 1))
    executable = pinned(client, module, order)
    for got in everywhere(executable, x, tmp_path):
        check(got, want)
    listed = read_manifest(tmp_path / "m.so").data["backends"]
    assert sorted(b["name"] for b in listed) == BACKENDS


def another_value(attr) -> str:
    if attr.type == "bool":
        return "0" if attr.default_value == "1" else "1"
    if attr.type == "int":
        return str(2 * int(attr.default_value))
    return next((c for c in attr.choices if c != attr.default_value), TEXTS.get(attr.name, ""))


@pytest.mark.parametrize("backend", BACKENDS)
def test_configurable(backend, usable, client, tmp_path):
    """Each attribute of its codegen target makes another action (key), and code that runs."""
    attrs = usable[backend].attrs
    assert attrs, "no attribute"
    assert all(attr.help for attr in attrs)
    tried = 0
    module, x, want = chain([WIDTH, WIDTH])
    actions = {p.action for p in pinned(client, module, [backend]).report.partitions if p.backend == backend}
    for attr in attrs:
        value = another_value(attr)
        if not value:
            continue
        tried += 1
        executable = pinned(client, module, [backend], [inlay.Target(backend, {attr.name: value})])
        changed = {p.action for p in executable.report.partitions if p.backend == backend}
        assert not actions & changed, attr.name
        # Rounding may be what is configured: bf16 has 8 bits.
        for got in everywhere(executable, x, tmp_path):
            check(got, want, 2e-2)
    assert tried


@pytest.mark.parametrize("backend", BACKENDS)
def test_unknown_attributes_are_refused(backend, usable, client):
    module, _, _ = chain([WIDTH, WIDTH])
    config = inlay.CompilationConfig(targets=["llvm -mcpu=x86-64-v3", inlay.Target(backend, {"no-such": "1"})])
    with pytest.raises(inlay.CompileError, match=f"codegen target {backend} has no attribute 'no-such'; it has ") as e:
        inlay.build(module, config, server=client)
    for attr in usable[backend].attrs:
        assert attr.name in str(e.value)


OWN = re.compile(r"inlay_[0-9a-f]{32}")  # of a partition
SHARED = re.compile(r"_ZNK?5inlay|inlay_[a-z]+_(init|run|destroy)$")  # of the runtime and of backends' components


def symbols_of(path: pathlib.Path) -> dict[str, int]:
    """The functions that the library defines, hidden ones too: how often."""
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        symbols = (s for s in table.iter_symbols() if s["st_shndx"] != "SHN_UNDEF")
        return collections.Counter(s.name for s in symbols if s["st_info"]["type"] == "STT_FUNC")


def text_bytes(path: pathlib.Path) -> int:
    with path.open("rb") as file:
        return ELFFile(file).get_section_by_name(".text")["sh_size"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_sharing(backend, usable, client, tmp_path):
    """Ten partitions of a backend, beside one: what they have in common is in the artifact once."""
    one, _, _ = chain([WIDTH, WIDTH])
    widths = [WIDTH + 16 * i for i in range(11)]
    ten, x, want = chain(widths)
    alone = pinned(client, one, [backend]).export_library(tmp_path / "one.so")
    executable = pinned(client, ten, [backend] * 10)
    path = executable.export_library(tmp_path / "ten.so")
    check(inlay.load_library(path)["main"](x), want)
    counts, before = symbols_of(path), symbols_of(alone)
    assert len([name for name in counts if OWN.match(name) and name.endswith("_run")]) == 10
    shared = {name: count for name, count in counts.items() if SHARED.match(name)}
    assert shared == {name: count for name, count in before.items() if SHARED.match(name)}
    assert all(count == 1 for name, count in shared.items() if name.startswith("inlay_"))
    # Nine more: code that is their own, and no second runtime.
    assert text_bytes(path) - text_bytes(alone) < 9 * 32_000
    assert len(read_manifest(path).data["plan"]["functions"]) == 10


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_partitions_are_one_function(backend, usable, client, tmp_path):
    """Other weights, the same structure: code for one, called three times."""
    module, x, want = chain([WIDTH] * 4)
    executable = pinned(client, module, [backend] * 3)
    assert [p.call_sites for p in executable.report.partitions if p.backend == backend] == [3]
    path = executable.export_library(tmp_path / "m.so")
    assert len(read_manifest(path).data["plan"]["functions"]) == 1
    check(inlay.load_library(path)["main"](x), want)


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_run_overhead(backend, usable, client, tmp_path):
    """The plan's run steps call the partitions and nothing else: state, packing, tuning belong to its load steps. And
    calls leave nothing behind."""
    module, x, want = chain([WIDTH] * 4)
    executable = pinned(client, module, [backend] * 3, num_threads=1)
    path = executable.export_library(tmp_path / "m.so")
    plan = read_manifest(path).data["plan"]
    assert [step["do"] for step in plan["run"]] == ["run"] * 3
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run([sys.executable, "-c", CALLS, tmp_path], check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) < 1 << 20  # half a kilobyte a call
    check(np.load(tmp_path / "y.npy"), want)


# In a process of its own: in the tests' own, threads of channels and caches of other tests come and go meanwhile.
CALLS = """
import pathlib, sys
import numpy as np
import inlay

def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

folder = pathlib.Path(sys.argv[1])
main, x = inlay.load_library(folder / "m.so")["main"], np.load(folder / "x.npy")
for _ in range(500):
    main(x)
before = resident_bytes()
for _ in range(2000):
    y = main(x)
print(resident_bytes() - before)
np.save(folder / "y.npy", np.from_dlpack(y))
"""
