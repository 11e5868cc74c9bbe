"""Module: what a build consists of and what runs, and the three properties that say what can be done with each.

A model's pieces can be of kinds that differ in what they allow:

| kind | properties | what it is |
| --- | --- | --- |
| "llvm" | runnable, compilation-exportable | code that inlay generated, on the server |
| "static_library" | compilation-exportable | objects: of a backend on the server, or a file of yours (`ObjectModule`) |
| "c", "cc", "cuda" | compilation-exportable | a source of yours (`SourceModule`) |
| "graph", "aot", "vm" | binary-serializable, runnable | what calls the rest in order |
| "library" | runnable | an exported library, loaded (`inlay.load_library`, `Executable.jit`) |
| "python" | runnable | Python functions of this process (`PythonModule`) |

`Executable.jit` makes a tree of them runnable, `Executable.export_library` a file of one; each says which member stands
in the way, and what to do about it.
"""

from __future__ import annotations

import enum
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from inlay.errors import InlayError


class ModuleProperty(enum.IntFlag):
    """What can be done with a module; the bits are tvm-ffi's."""

    BINARY_SERIALIZABLE = 1  # saved as bytes; runnable when loaded back
    RUNNABLE = 2  # its functions can be called now
    COMPILATION_EXPORTABLE = 4  # an object, or a source that becomes one, to be linked into a library


class ModuleError(InlayError):
    """A module can't be run, exported or compiled. The message names it and its kind, and says what to do."""


class Module:
    """A node of the tree: a kind, properties, functions, and the modules that it imports.

    Attributes:
        kind: see the table above.
        name: for messages.
        properties: a bit mask of `ModuleProperty`.
        imported_modules: modules whose functions are found through this one.
    """

    kind = "module"
    properties = ModuleProperty(0)

    def __init__(self, name: str = ""):
        self.name = name
        self.imported_modules: list[Module] = []

    @property
    def is_runnable(self) -> bool:
        return bool(self.properties & ModuleProperty.RUNNABLE)

    @property
    def is_exportable(self) -> bool:
        """Whether it can be part of an exported library: as code that is linked, or as bytes."""
        return bool(self.properties & (ModuleProperty.COMPILATION_EXPORTABLE | ModuleProperty.BINARY_SERIALIZABLE))

    def import_module(self, module: Module) -> None:
        """Adds `module` to the imports. Raises ModuleError where that would make a circle."""
        if any(node is self for node in module.walk()):
            raise ModuleError(f"{self} can't import {module}: that one imports it already")
        self.imported_modules.append(module)

    def walk(self) -> Iterator[Module]:
        """This module and all that it imports, each once, importers first."""
        seen: set[int] = set()
        pending: list[Module] = [self]
        while pending:
            node = pending.pop(0)
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                pending.extend(node.imported_modules)

    def own_function(self, name: str) -> Any | None:
        """The function of that name that this very module has; None: it has none, or can't run."""
        return None

    def __getitem__(self, name: str) -> Any:
        """The function `name` of this module, else of the first import that has it. Raises KeyError."""
        for node in self.walk():
            function = node.own_function(name)
            if function is not None:
                return function
        stuck = [str(node) for node in self.walk() if not node.is_runnable]
        more = f" ({', '.join(stuck)} can't run as it is: Executable.jit() makes it)" if stuck else ""
        raise KeyError(f"the module has no function {name!r}; a compiled model's is 'main'{more}")

    def __str__(self) -> str:
        return f"the module {self.name!r} of kind {self.kind!r}" if self.name else f"a module of kind {self.kind!r}"


class PythonModule(Module):
    """Python functions of this process: runnable, and nothing else.

    >>> double = PythonModule({"double": lambda x: 2 * x})
    >>> double["double"](21)
    42
    """

    kind = "python"
    properties = ModuleProperty.RUNNABLE

    def __init__(self, functions: Mapping[str, Callable], name: str = ""):
        super().__init__(name or ", ".join(functions))
        self.functions = dict(functions)

    def own_function(self, name: str) -> Callable | None:
        return self.functions.get(name)


class SourceModule(Module):
    """A source of your own: compilation-exportable. A function of it is found by name in the library where the source
    defines it with tvm-ffi's macro, TVM_FFI_DLL_EXPORT_TYPED_FUNC(name, ...), or in C as `int __tvm_ffi_<name>(void*
    self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)`.

    Args:
        source: the text.
        kind: "c", "cc" (C++) or "cuda".
    """

    properties = ModuleProperty.COMPILATION_EXPORTABLE
    SUFFIXES: ClassVar[dict[str, str]] = {"c": ".c", "cc": ".cc", "cuda": ".cu"}
    COMPILERS: ClassVar[dict[str, str]] = {"c": "cc", "cc": "c++", "cuda": "nvcc"}

    def __init__(self, source: str, kind: str = "c", name: str = ""):
        if kind not in self.SUFFIXES:
            raise ModuleError(f"a source of kind {kind!r}; there are {', '.join(self.SUFFIXES)}")
        super().__init__(name or f"source{self.SUFFIXES[kind]}")
        self.kind = kind
        self.source = source

    def compile(self, fcompile: str | Callable | None = None, options: Sequence[str] = ()) -> ObjectModule:
        """The object that it becomes.

        Args:
            fcompile: a compiler's name or path ("gcc-12", "nvcc"; default: the kind's own), or a function (output,
                sources, options) that makes one relocatable object of the sources.
            options: for it.

        Raises ModuleError with what the compiler said, or which compiler is missing.
        """
        with tempfile.TemporaryDirectory(prefix="inlay-") as folder:
            source = pathlib.Path(folder) / f"source{self.SUFFIXES[self.kind]}"
            output = pathlib.Path(folder) / "source.o"
            source.write_text(self.source)
            if callable(fcompile):
                fcompile(str(output), [str(source)], list(options))
                if not output.is_file():
                    raise ModuleError(f"{self}: fcompile returned and made no {output.name}")
            else:
                self._run_compiler(fcompile or self.COMPILERS[self.kind], source, output, options)
            return ObjectModule(output.read_bytes(), self.name)

    def _run_compiler(self, compiler: str, source: pathlib.Path, output: pathlib.Path, options: Sequence[str]) -> None:
        import tvm_ffi.libinfo

        found = shutil.which(compiler)
        if found is None:
            raise ModuleError(
                f"{self} must be compiled, and there is no {compiler!r} here: install it, or give another as fcompile"
            )
        pic = ["-Xcompiler", "-fPIC"] if self.kind == "cuda" else ["-fPIC"]
        includes = [f"-I{path}" for path in tvm_ffi.libinfo.include_paths()]
        command = [found, "-c", "-O2", *pic, *includes, *options, str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip()[-2000:]
            raise ModuleError(f"{self}: {compiler} failed:\n{said}")


class ObjectModule(Module):
    """A relocatable object of your own (position independent, for the device's CPU): compilation-exportable.

    Args:
        data: its bytes, or its file.
    """

    kind = "static_library"
    properties = ModuleProperty.COMPILATION_EXPORTABLE

    def __init__(self, data: bytes | str | os.PathLike, name: str = ""):
        super().__init__(name or ("object" if isinstance(data, bytes) else pathlib.Path(data).name))
        self.data = data if isinstance(data, bytes) else pathlib.Path(data).read_bytes()


class CompiledModule(Module):
    """What a backend made of one part of the model. It lies on the server, which links or loads it.

    Attributes:
        backend: that made it.
        ops: the operators in it.
    """

    def __init__(self, name: str, backend: str, ops: Sequence[str]):
        super().__init__(name)
        self.backend = backend
        self.ops = list(ops)
        generated = backend.partition("#")[0] == "native"
        self.kind = "llvm" if generated else "static_library"
        self.properties = ModuleProperty.COMPILATION_EXPORTABLE | (ModuleProperty.RUNNABLE if generated else 0)


class ExecutorModule(Module):
    """What calls the compiled parts in order: the root of an Executable's tree. It is data, so it goes into a library as
    bytes; what is around it can be run by `Executable.jit`."""

    properties = ModuleProperty.BINARY_SERIALIZABLE | ModuleProperty.RUNNABLE

    def __init__(self, kind: str, name: str = ""):
        super().__init__(name)
        self.kind = kind


def nodes(modules: Iterable[Module]) -> list[Module]:
    """All modules of the trees, each once."""
    found = {id(node): node for root in modules for node in root.walk()}
    return list(found.values())


def addons_of(modules: Iterable[Module], fcompile: str | Callable | None, options: Sequence[str]) -> list[ObjectModule]:
    """The objects to link into a library for `modules` (not what they import); sources are compiled here.

    Raises ModuleError naming the first that can't be in a library.
    """
    objects = []
    for module in modules:
        if isinstance(module, SourceModule):
            objects.append(module.compile(fcompile, options))
        elif isinstance(module, ObjectModule):
            objects.append(module)
        elif isinstance(module, CompiledModule | ExecutorModule):
            raise ModuleError(f"{module} belongs to another Executable; export that one by itself")
        else:
            why = (
                "Python functions live in this process alone: leave it out, and import it again after load_library"
                if isinstance(module, PythonModule)
                else "what is loaded can't be taken apart again: give its source or object"
            )
            raise ModuleError(f"{module} can't be exported: it is runnable only. {why}; or use jit()")
    return objects
