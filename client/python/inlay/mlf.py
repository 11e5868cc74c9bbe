"""What a Model Library Format (the .tar that runtime crt exports; core/artifact/MLF.md) says of itself."""

from __future__ import annotations

import json
import os
import tarfile
from typing import Any

from inlay.server_errors import LoadError

METADATA = "metadata.json"


def is_model_library(path: str | os.PathLike) -> bool:
    """Whether the file is a tar; what is in it is another question."""
    try:
        return tarfile.is_tarfile(path)
    except OSError:
        return False


def read_metadata(path: str | os.PathLike) -> dict[str, Any]:
    """metadata.json of a model library. Raises LoadError."""
    try:
        with tarfile.open(path) as archive:
            member = next((m for m in archive if m.name.removeprefix("./") == METADATA), None)
            file = archive.extractfile(member) if member is not None else None
            if file is None:
                raise LoadError(f"{path} is a tar, but not one that inlay exported: it has no {METADATA}")
            metadata = json.load(file)
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror or error}") from None
    except (tarfile.TarError, ValueError) as error:
        raise LoadError(f"{path}: {error}") from None
    version = metadata.get("model_library_format") if isinstance(metadata, dict) else None
    if version != 1:
        raise LoadError(f"{path}: a model library of format {version}; this version of inlay reads format 1")
    return metadata


def rows(metadata: dict[str, Any]) -> list[list[str]]:
    """The metadata as a table: tensors, target, memory, kernels."""
    memory = metadata["memory"]
    found = [
        [kind, f"{tensor['name']}: {tensor['dtype']}{tensor['shape']}"]
        for kind in ("input", "output")
        for tensor in metadata[kind + "s"]
    ]
    found += [["target", target] for target in metadata["target"]]
    found += [
        ["entry", f"{metadata['entry']} (interface {metadata['interface_api']}) of {metadata['header']}"],
        ["flash", f"{memory['constants_size_bytes']} bytes of constants, and the code"],
        ["RAM", f"{memory['workspace_size_bytes']} bytes of workspace"],
        ["tensors", f"{memory['io_size_bytes']} bytes of inputs and outputs"],
    ]
    found += [
        ["kernel", f"{f['function_name']}: {f['calls']} calls, {f['workspace_size_bytes']} bytes of workspace"]
        for f in metadata["functions"]
    ]
    return found
