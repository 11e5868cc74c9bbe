"""`inlay inspect` of a module that was saved: what it says of itself, without its weights."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf.message import DecodeError

from inlay import bounds
from inlay._proto import ir_pb2
from inlay.ir import IRModule


def read_module(path: str | os.PathLike) -> IRModule | None:
    """What `IRModule.save` wrote to `path`, without what lies beside it; None where that is something else, or nothing."""
    proto = ir_pb2.IRModule()
    try:
        with open(path, "rb") as file:
            if file.read(4) == b"\x7fELF":
                return None
            file.seek(0)
            proto.ParseFromString(file.read())
    except (OSError, DecodeError):
        return None
    return IRModule(proto) if "main" in proto.functions else None


def describe(module: IRModule) -> dict[str, Any]:
    """What `inlay inspect --json` prints of it. Types of outputs are inferred when it is compiled."""
    return {
        "inputs": [{"name": name, "dtype": type_.dtype, "shape": list(type_.shape)} for name, type_ in module.inputs()],
        "outputs": module.outputs(),
        "updates": module.updates(),
        "bounds": module.bounds(),
        "required_extents": module.required_extents(),
        "targets": [str(target) for target in module.config.targets],
    }


def rows(found: dict[str, Any]) -> list[list[str]]:
    """The same for people."""
    table = [["input", f"{t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]"] for t in found["inputs"]]
    for name in found["outputs"]:
        updated = found["updates"].get(name)
        table.append(["output", name if updated is None else f"{name}, written to input {updated}"])
    table += [["bounds", line] for line in bounds.in_words(found["required_extents"])]
    return table + [["target", target] for target in found["targets"]]
