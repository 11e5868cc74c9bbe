"""Bundles: a folder that runs a model on a machine with glibc and nothing else (deploy/README.md).

The server assembles it where the libraries are and streams its files; here they are only written.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterable

from inlay._proto import artifact_pb2
from inlay._proto import compile_service_pb2 as pb
from inlay.client import Client
from inlay.library import Manifest, read_manifest
from inlay.server_errors import LoadError

LIBRARY, PROGRAM = "model.so", "run"


def write(folder: str | os.PathLike, fill: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Makes a bundle by `fill`, beside its place, and puts it there when all has arrived. An earlier bundle is
    replaced; a folder that holds anything else is an error (OSError)."""
    folder = pathlib.Path(folder)
    check_replaceable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.resolve().parent))
    try:
        fill(made)
        made.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def check_replaceable(folder: pathlib.Path) -> None:
    """Raises OSError where a bundle can't take the folder's place."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; a bundle is a folder")
    if any(folder.iterdir()) and not ((folder / LIBRARY).exists() and (folder / PROGRAM).exists()):
        raise FileExistsError(f"{folder} holds other files than a bundle's; name a new folder")


def library_of(folder: str | os.PathLike) -> pathlib.Path:
    """The library in a bundle. Raises LoadError."""
    library = pathlib.Path(folder) / LIBRARY
    if not library.is_file():
        raise LoadError(f"{folder} is no bundle: it has no {LIBRARY}")
    return library


def clear(folder: pathlib.Path) -> None:
    """Empties a folder, for a download that begins anew."""
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def receive(chunks: Iterable[pb.ExportLibraryChunk], folder: pathlib.Path) -> None:
    """Writes what a server streams: files one after the other, each announced by its name."""
    file = None
    try:
        for chunk in chunks:
            if chunk.file:
                if file is not None:
                    file.close()
                path = _inside(folder, chunk.file)
                path.parent.mkdir(parents=True, exist_ok=True)
                file = path.open("xb")
                path.chmod(0o755 if chunk.executable else 0o644)
            if chunk.data:
                if file is None:
                    raise LoadError("the server's answer is no bundle; is it of another version?")
                file.write(chunk.data)
    finally:
        if file is not None:
            file.close()


def of_library(path: str | os.PathLike, folder: str | os.PathLike, client: Client) -> pathlib.Path:
    """A bundle of a library that was exported before; a server gives what it needs."""
    path = pathlib.Path(path)
    manifest = read_manifest(path)

    def fill(made: pathlib.Path) -> None:
        receive(client.export_support(*_needs(manifest)), made)
        shutil.copyfile(path, made / LIBRARY)
        (made / LIBRARY).chmod(0o755)
        beside = pathlib.Path(f"{path}.safetensors")
        if not manifest.data.get("params_linked", True):
            shutil.copyfile(beside, made / f"{LIBRARY}.safetensors")

    return write(folder, fill)


def _needs(manifest: Manifest) -> tuple[list[artifact_pb2.RequiredLibrary], list[str]]:
    required = [
        artifact_pb2.RequiredLibrary(soname=d.soname, package=d.package, version=d.version)
        for d in manifest.required_libraries
    ]
    return required, list(manifest.data.get("linked_packages", []))


def _inside(folder: pathlib.Path, name: str) -> pathlib.Path:
    """A server's word for a path is not taken for one that leads out of the folder."""
    parts = pathlib.PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise LoadError(f"the server named a file {name!r} outside of the bundle")
    return folder.joinpath(*parts)
