"""A user's model, whichever form it has, as the IRModule to compile and the configuration to compile it with."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import onnx

from inlay.config import CompilationConfig, Executor
from inlay.inspection import read_module
from inlay.ir import IRModule, load_module

if TYPE_CHECKING:
    from inlay.runtime import TensorSpec


class FixedShapesError(ValueError):
    """Shapes were given for a saved module."""

    def __init__(self) -> None:
        super().__init__("--shape: a saved module keeps its shapes; from_onnx and from_torch take shape=.")


def is_saved(path: str) -> bool:
    """Whether it is what `IRModule.save` wrote, under any name; true of all that is called .inlay."""
    suffix = pathlib.Path(path).suffix
    return suffix == ".inlay" or (suffix not in (".onnx", ".pt2") and read_module(path) is not None)


def load(
    model: str | onnx.ModelProto,
    shape: Mapping[str, Any],
    config_of: Callable[[CompilationConfig | None], CompilationConfig],
) -> tuple[IRModule, CompilationConfig]:
    """The module of an .onnx or .pt2 file, of one that was saved, or of an ONNX model in memory.

    Args:
        shape: fixes extents, as `from_onnx` and `from_torch` have it.
        config_of: the configuration, given the one that a saved module carries; None: there is none.

    Raises what these and `load_module` do, FixedShapesError.
    """
    if isinstance(model, str) and is_saved(model):
        if shape:
            raise FixedShapesError
        module = load_module(model)
        return module, config_of(module.config if module.has_config else None)
    config = config_of(None)
    if isinstance(model, str) and model.endswith(".pt2"):
        from inlay.torch_import import from_torch

        return from_torch(model, shape=shape), config
    from inlay.onnx_import import from_onnx

    return from_onnx(model, shape=shape, executor=Executor(config.executor).kind), config


def input_specs(module: IRModule) -> list[TensorSpec]:
    """Of main's inputs, as a compiled module has them."""
    return [(name, type_.dtype, type_.shape) for name, type_ in module.inputs()]
