"""Exported libraries on this machine: what one says of itself, and loading it.

Start with `load_library`. Its manifest is read and checked before any of its code is mapped, so that a library for
another CPU, or one whose libraries are missing, is an error that says so and not a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import pathlib
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, Self

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from inlay import compatibility, mlf
from inlay.compatibility import Dependency
from inlay.ir import dims
from inlay.runtime import LibraryModule, TensorSpec
from inlay.server_errors import LoadError

MANIFEST_SECTION = ".inlay.manifest"  # core/artifact/FORMAT.md


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What an exported library says of itself (core/artifact/FORMAT.md).

    Attributes:
        inputs, outputs: [(name, dtype, shape)] in call order; an open dimension is a text, "2*batch".
        updates: of each output the input whose memory it is written to; -1: none.
        required_extents: expressions over open dimensions that must be 0 or more in a run and may be less: what
            `IRModule.with_bounds` and `with_required_extents` said, and what the model's own operators need.
        target_features: what the CPU must have, "+avx2,+fma".
        compatibility: what a machine must have to run it, in one line.
        required_libraries: what it loads.
        data: the whole JSON object.
    """

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    updates: list[int]
    required_extents: list[str]
    target_triple: str
    target_cpu: str
    target_features: str
    compatibility: str
    required_libraries: list[Dependency]
    data: dict[str, Any]

    @staticmethod
    def parse(data: dict[str, Any]) -> Manifest:
        # An extent below zero is one of those that are open until a run (core/runtime/PLAN.md).
        extents = [extent[0] for extent in data["plan"].get("shapes", {}).get("extents", [])]

        def tensors(key: str) -> list[TensorSpec]:
            return [
                (t["name"], t["dtype"], tuple(d if d >= 0 else extents[-1 - d] for d in t["shape"]))
                for t in data["plan"][key]
            ]

        target = data.get("target", {})
        return Manifest(
            inputs=tensors("inputs"),
            outputs=tensors("outputs"),
            updates=[t.get("updates", -1) for t in data["plan"]["outputs"]],
            required_extents=[e for e in extents if (least := dims.bound(e)) is None or least < 0],
            target_triple=target.get("triple", ""),
            target_cpu=target.get("cpu", ""),
            target_features=target.get("features", ""),
            compatibility=data.get("compatibility", ""),
            required_libraries=[Dependency.parse(r) for r in data.get("required_libraries", [])],
            data=data,
        )


def read_manifest(path: str | os.PathLike) -> Manifest:
    """The manifest of an exported library; nothing of the library is run. Raises LoadError."""
    try:
        with open(path, "rb") as file:
            section = ELFFile(file).get_section_by_name(MANIFEST_SECTION)
            if section is None:
                raise LoadError(f"{path} is a shared library, but not one that inlay exported")
            return Manifest.parse(json.loads(section.data().rstrip(b"\0")))
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from None
    except ELFError:
        hint = "; it is a model library (runtime crt): build it for its device" if mlf.is_model_library(path) else ""
        raise LoadError(f"{path} is not a shared library{hint}") from None
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise LoadError(f"{path}: its manifest can't be read ({error}); export it again with this version") from None


def check(manifest: Manifest, folder: pathlib.Path | None, what: str) -> None:
    """Raises LoadError where this machine can't run the library; nothing of it, and of what it needs, is loaded."""
    found = compatibility.problems(manifest.data, folder)
    if found:
        raise LoadError(f"{what} {'; '.join(found)}")


def preload(required: Iterable[Dependency], folder: pathlib.Path | None) -> None:
    """Maps the shared libraries that an exported library needs, so that it finds them wherever they are."""
    for dependency in required:
        path = compatibility.locate(dependency.soname, folder)
        try:
            ctypes.CDLL(str(path or dependency.soname), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise LoadError(f"needs {dependency.who}, which can't be loaded: {error}; {dependency.remedy()}") from None


_loaded: dict[str, tuple[int, int]] = {}  # resolved path -> (device, inode) of the file first loaded from there


def load_library(path: str | os.PathLike, num_threads: int = 0) -> LibraryModule:
    """Loads an exported library into this process.

    Args:
        path: of the .so; parameters that lie beside it are found there.
        num_threads: its pool's; 0: what it was compiled for.

    Raises LoadError: not one of inlay's, for another CPU, or a library that it needs is missing.
    """
    path = pathlib.Path(path)
    manifest = read_manifest(path)
    check(manifest, path.resolve().parent, str(path))
    preload(manifest.required_libraries, path.resolve().parent)
    with _unambiguous(path.resolve()) as unambiguous:
        return _open(unambiguous, manifest, str(path), num_threads)


class MemoryFiles:
    """A library, and where they lie beside it its parameters, in memory: nothing is written to a disk.

    tvm-ffi wants a path with a suffix, so each is a memfd behind a symlink in a private folder. Write what arrives to
    `library` and `params`, then `load`. A context manager; what was loaded outlives it.
    """

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="inlay-"))
            self._path = pathlib.Path(folder) / "module.so"
            self.library = stack.enter_context(open(os.memfd_create("inlay-library"), "wb"))
            self.params = stack.enter_context(open(os.memfd_create("inlay-params"), "wb"))
            self._path.symlink_to(f"/proc/self/fd/{self.library.fileno()}")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def clear(self) -> None:
        """Forgets what was written, for a download that begins anew."""
        for file in (self.library, self.params):
            file.seek(0)
            file.truncate()

    def load(self, num_threads: int = 0) -> LibraryModule:
        """The module; raises LoadError."""
        self.library.flush()
        self.params.flush()
        if self.params.tell():
            pathlib.Path(f"{self._path}.safetensors").symlink_to(f"/proc/self/fd/{self.params.fileno()}")
        manifest = read_manifest(self._path)
        check(manifest, None, "the library")
        preload(manifest.required_libraries, None)
        return _open(self._path, manifest, "the library", num_threads)


def _open(path: pathlib.Path, manifest: Manifest, what: str, num_threads: int) -> LibraryModule:
    import tvm_ffi  # here, since it imports PyTorch where that is installed: seconds

    try:
        module = tvm_ffi.load_module(path)
    except (RuntimeError, OSError) as error:
        raise LoadError(f"{what} can't be loaded: {_first_line(error)}") from None
    loaded = LibraryModule(module, manifest.inputs, manifest.outputs, what, manifest.updates, manifest.required_extents)
    try:
        # Now, and not at the first call: parameters are packed, and what is wrong with them comes out here.
        loaded.load(num_threads)
    except (RuntimeError, ValueError, MemoryError) as error:
        raise LoadError(f"{what} can't be loaded: {_first_line(error)}") from None
    return loaded


@contextlib.contextmanager
def _unambiguous(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """A path under which the dynamic linker does not confuse this file with one loaded from the same path before."""
    stat = path.stat()
    identity = (stat.st_dev, stat.st_ino)
    if _loaded.setdefault(str(path), identity) == identity:
        yield path
        return
    # It was replaced since (compiled again). A link under a new name, which nothing needs once it is loaded.
    with tempfile.TemporaryDirectory(prefix="inlay-") as folder:
        link = pathlib.Path(folder) / path.name
        link.symlink_to(path)
        beside = pathlib.Path(f"{path}.safetensors")
        if beside.exists():
            pathlib.Path(f"{link}.safetensors").symlink_to(beside)
        yield link


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
