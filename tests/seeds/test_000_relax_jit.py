"""The first seed document, "Relax JIT Build UX": its statements, in its order, as one writes them with inlay.

docs: client/README.md, "Executable, jit and modules".
"""

from __future__ import annotations

import json

import pytest
from conftest import check_close, inputs_of, reference

import inlay
from inlay import ModuleProperty as P
from inlay import library
from inlay.models import resnet

C_SOURCE = """
#include <tvm/ffi/c_api.h>
int __tvm_ffi_twice(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  (void)self;
  result->type_index = kTVMFFIInt;
  result->v_int64 = num_args == 1 ? 2 * args[0].v_int64 : -1;
  return 0;
}
"""
CC_SOURCE = """
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
static tvm::ffi::String Greet(tvm::ffi::String name) { return tvm::ffi::String("hello ") + name; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(greet, Greet);
"""


@pytest.fixture(scope="module")
def model():
    return resnet.build(resnet.TINY)


@pytest.fixture
def ex(model, client):
    """A new Executable for each test, for some import modules into theirs."""
    return inlay.build(inlay.from_onnx(model), "llvm -mcpu=native", server=client)


def run(vm, ex, model):
    inputs = inputs_of(ex)
    got = vm["main"](*[inputs[spec[0]] for spec in ex.inputs])
    check_close([got], reference(model, inputs))


def test_build_and_directly_run(ex, model):
    """vm = relax.VirtualMachine(ex.jit(), device)"""
    run(inlay.VirtualMachine(ex.jit(), "cpu"), ex, model)


def test_the_virtual_machine_calls_jit_itself(ex, model):
    """vm = relax.VirtualMachine(ex, device), "implicitly call ex.jit()" """
    run(inlay.VirtualMachine(ex, "cpu"), ex, model)


def test_export_and_load(ex, model, tmp_path):
    """ex.export_library("exported.so"); loaded_mod = ex.load_library("exported.so")"""
    ex.export_library(tmp_path / "exported.so")
    run(inlay.VirtualMachine(ex.load_library(tmp_path / "exported.so"), "cpu"), ex, model)
    run(inlay.VirtualMachine(inlay.load_library(tmp_path / "exported.so"), "cpu"), ex, model)


def test_modules_have_a_subset_of_three_properties(ex, tmp_path):
    """llvm: {runnable, dso_exportable}; a python module: {runnable}; cuda file: {dso_exportable}; bytecode:
    {binary_exportable, runnable}. As a bit mask, with tvm-ffi's bits."""
    import tvm_ffi

    assert [int(P[m.name]) for m in tvm_ffi.module.ModulePropertyMask] == [
        int(m) for m in tvm_ffi.module.ModulePropertyMask
    ]
    parts = {m.kind: m for m in ex.mod.imported_modules}
    assert parts["llvm"].properties == P.RUNNABLE | P.COMPILATION_EXPORTABLE
    assert inlay.PythonModule({"f": abs}).properties == P.RUNNABLE
    assert inlay.SourceModule("", "cuda").properties == P.COMPILATION_EXPORTABLE
    assert inlay.SourceModule("", "c").properties == P.COMPILATION_EXPORTABLE
    assert ex.mod.kind == "graph"
    assert ex.mod.properties == P.BINARY_SERIALIZABLE | P.RUNNABLE
    assert inlay.ObjectModule(b"").properties == P.COMPILATION_EXPORTABLE
    loaded = inlay.load_library(ex.export_library(tmp_path / "a.so"))
    assert (loaded.kind, loaded.properties) == ("library", P.RUNNABLE)
    assert loaded.ffi.is_runnable()
    assert not loaded.ffi.is_compilation_exportable()


def test_parts_of_libraries_are_static_libraries(model, client):
    """What another backend made is exportable, and runs only after a link."""
    ex = inlay.build(inlay.from_onnx(model), inlay.config.cpu(backends=["onednn"], search="none"), server=client)
    kinds = {m.backend: (m.kind, m.properties) for m in ex.mod.imported_modules}
    assert kinds["onednn"] == ("static_library", P.COMPILATION_EXPORTABLE)


def test_bytes_of_the_executor_are_runnable_when_loaded_back(ex, model, tmp_path):
    """binary_exportable: "when loaded back it will become runnable". The plan is in the library as bytes."""
    path = ex.export_library(tmp_path / "a.so")
    plan = library.read_manifest(path).data["plan"]
    assert plan["run"]
    assert json.loads(json.dumps(plan)) == plan
    run(inlay.load_library(path), ex, model)


def test_what_is_loaded_back_is_not_exportable_again(ex, client, tmp_path):
    """ "the loaded back library is not exportable again" """
    loaded = inlay.load_library(ex.export_library(tmp_path / "a.so"))
    ex.import_module(loaded)
    with pytest.raises(inlay.ModuleError, match=r"of kind 'library' can't be exported.*source or object.*jit\(\)"):
        ex.export_library(tmp_path / "b.so")
    assert not (tmp_path / "b.so").exists()


def test_direct_run_with_a_source_module(ex, model):
    """A module that is exportable and not runnable: jit exports it and loads it back."""
    source = inlay.SourceModule(C_SOURCE, "c", "twice.c")
    with pytest.raises(inlay.ModuleError, match=r"'twice.c' of kind 'c' can't run as it is.*jit\(\)"):
        inlay.VirtualMachine(source)
    ex.import_module(source)
    loaded = ex.jit()
    assert loaded["twice"](21) == 42
    run(loaded, ex, model)


def test_jit_names_a_compiler(ex):
    """relax.VirtualMachine(ex.jit("nvcc")): used where there is something to compile, and named where it is missing."""
    assert ex.jit("nvcc")["main"]  # nothing here wants a compiler
    ex.import_module(inlay.SourceModule("__global__ void f() {}", "cuda", "kernel.cu"))
    with pytest.raises(inlay.ModuleError, match=r"'kernel.cu' of kind 'cuda' must be compiled.*no 'no-nvcc' here"):
        ex.jit("no-nvcc")


def test_fcompile_may_be_a_function(ex, tmp_path):
    calls = []

    def fcompile(output, sources, options):
        import subprocess

        import tvm_ffi.libinfo

        calls.append(options)
        include = tvm_ffi.libinfo.find_include_path()
        subprocess.run(["cc", "-c", "-fPIC", f"-I{include}", *options, *sources, "-o", output], check=True)

    ex.import_module(inlay.SourceModule(C_SOURCE))
    path = ex.export_library(tmp_path / "a.so", fcompile, options=["-O1"])
    assert calls == [["-O1"]]
    assert inlay.load_library(path)["twice"](4) == 8


def test_what_the_compiler_says_is_in_the_error(ex):
    ex.import_module(inlay.SourceModule("int f( {", "c", "broken.c"))
    with pytest.raises(inlay.ModuleError, match=r"'broken.c' of kind 'c': cc failed:(.|\n)*error"):
        ex.jit()


def test_runnable_modules_are_imported_again(ex, model):
    """jit: "load back and re-import the runnable modules" """
    double = inlay.PythonModule({"double": lambda x: 2 * x}, "mine")
    ex.import_module(double)
    loaded = ex.jit()
    assert loaded["double"](4) == 8
    assert double in loaded.imported_modules
    run(loaded, ex, model)


def test_export_requires_all_modules_to_be_exportable(ex, tmp_path):
    """export_library: "require all modules to be exportable or binary_exportable"; the error names who is not."""
    ex.import_module(inlay.PythonModule({"double": lambda x: 2 * x}, "mine"))
    with pytest.raises(
        inlay.ModuleError,
        match=r"the module 'mine' of kind 'python' can't be exported: it is runnable only.*load_library; or use jit\(\)",
    ):
        ex.export_library(tmp_path / "a.so")
    assert not (tmp_path / "a.so").exists()
    with pytest.raises(inlay.ModuleError, match="'mine' of kind 'python' can't be exported"):
        ex.export_bundle(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_import_trees(ex):
    """Imports of imports are found too; a circle is refused; so is the run of what nobody has."""
    outer, inner = inlay.SourceModule(C_SOURCE), inlay.PythonModule({"triple": lambda x: 3 * x})
    outer.import_module(inner)
    with pytest.raises(inlay.ModuleError, match="imports it already"):
        inner.import_module(outer)
    ex.import_module(outer)
    loaded = ex.jit()
    assert (loaded["twice"](1), loaded["triple"](1)) == (2, 3)
    with pytest.raises(KeyError, match="no function 'nothing'"):
        loaded["nothing"]


def test_addons_are_linked_into_the_library(ex, tmp_path):
    """export_library(addons=...): sources, modules, files of objects; in a process without inlay too."""
    source = inlay.SourceModule(CC_SOURCE, "cc", "greet.cc")
    (tmp_path / "twice.o").write_bytes(inlay.SourceModule(C_SOURCE).compile().data)
    path = ex.export_library(tmp_path / "a.so", addons=[source, tmp_path / "twice.o"], options=["-std=c++17"])
    import tvm_ffi

    plain = tvm_ffi.load_module(path)
    assert plain["greet"]("inlay") == "hello inlay"
    assert plain["twice"](3) == 6


@pytest.mark.parametrize("data", [b"", b"INPUT(/etc/passwd)", b"!<arch>\n", b"\x7fELF" + b"\0" * 100])
def test_only_objects_are_linked(ex, tmp_path, data):
    """A linker takes scripts and archives too, which could name files of the server."""
    with pytest.raises(inlay.CompileError, match="'mine.o' is no relocatable object for x86_64"):
        ex.export_library(tmp_path / "a.so", addons=[inlay.ObjectModule(data, "mine.o")])


def test_a_server_runs_no_code_of_its_clients(ex):
    ex.import_module(inlay.SourceModule(C_SOURCE, "c", "twice.c"))
    with pytest.raises(inlay.ModuleError, match="'twice.c' of kind 'c' is yours, and a server runs no code"):
        ex.jit(remote=True)


def test_jit_twice_costs_once(ex, monkeypatch):
    """Memoised; importing a module makes the next one new, and leaves the old one as it was."""
    downloads = []
    export = ex.client.export
    monkeypatch.setattr(ex.client, "export", lambda *args, **more: downloads.append(args) or export(*args, **more))
    first = ex.jit()
    assert ex.jit() is first
    assert inlay.VirtualMachine(ex).module is first
    assert len(downloads) == 1
    ex.import_module(inlay.PythonModule({"f": abs}))
    assert ex.jit()["f"](-1) == 1
    with pytest.raises(KeyError):
        first["f"]


@pytest.mark.parametrize(
    ("thing", "text"), [("a.so", r"is a path: give inlay.load_library\(path\)"), (7, "runs a Module or an Executable")]
)
def test_the_virtual_machine_says_what_it_can_not_run(thing, text):
    with pytest.raises(inlay.ModuleError, match=text):
        inlay.VirtualMachine(thing)
