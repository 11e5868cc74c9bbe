"""What is benchmarked: built-in models, .onnx files, and real architectures and single operators with random sizes.

A Subject has an ONNX form, and where it can be had a PyTorch form with the same weights, for the peers that take
PyTorch: the built-in models' is inlay.models.torch_forms, a random one is PyTorch's from the beginning. An .onnx file has
none.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from inlay import models
from inlay.bench import random_architectures
from inlay.bench.random_architectures import Which, describe
from inlay.errors import InlayError
from inlay.model_files import is_saved
from inlay.running import random_input
from inlay.runtime import TensorSpec

Inputs = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Subject:
    """torch: what torch_module makes the PyTorch form of, as JSON; empty: there is none."""

    name: str
    torch: dict[str, Any]
    detail: str = ""

    def onnx_model(self) -> onnx.ModelProto | None:
        """None: it has no ONNX form, and is `name` to inlay alone. Raises InlayError, ValueError."""
        if self.torch.get("kind") == "random":
            return random_architectures.export(_which(self.torch))
        return None if self.only_inlays else load_model(self.name)

    @property
    def only_inlays(self) -> str:
        """What a file is that no other runtime takes; "" of all that has an ONNX form."""
        if self.torch:
            return ""
        return "a .pt2 file" if self.name.endswith(".pt2") else "a saved module" if is_saved(self.name) else ""

    @property
    def title(self) -> str:
        return pathlib.Path(self.name).stem


def find_model(name: str) -> str | onnx.ModelProto:
    """The ONNX model of a built-in name, or a random one's ("bert-0-7", "conv2d-0-7"); of others the name, which is that of
    a file. Raises InlayError, ValueError."""
    if name in models.NAMES:
        return models.build(name)
    if (found := random_architectures.find(name)) is not None:
        return random_architectures.export(found)
    if not pathlib.Path(name).exists():
        raise InlayError(f"{name} is neither a file nor a built-in model ({', '.join(models.NAMES)})")
    return name


def load_model(name: str) -> onnx.ModelProto:
    """The same; of an .onnx file what it holds."""
    found = find_model(name)
    return onnx.load(found) if isinstance(found, str) else found


def named(names: Sequence[str]) -> list[Subject]:
    return [_named(name) for name in names]


def _named(name: str) -> Subject:
    if name in models.NAMES:
        return Subject(name, {"kind": "built-in", "name": name})
    if (found := random_architectures.find(name)) is not None:
        return _random(found)
    return Subject(name, {})


def random(count: int, seed: int, operators: bool = False) -> list[Subject]:
    """Architectures, or single operators, number 0 .. count - 1 of a seed."""
    return [_random(Which(seed, number, operators)) for number in range(count)]


def _random(which: Which) -> Subject:
    title, detail = describe(which)
    return Subject(title, {"kind": "random", **which._asdict()}, detail)


def _which(subject: dict[str, Any]) -> Which:
    return Which(subject["seed"], subject["number"], subject["operator"])


def torch_module(subject: dict[str, Any]) -> Any:
    """The PyTorch form, which takes the ONNX form's inputs in their order. Raises ValueError where there is none."""
    if subject.get("kind") == "built-in":
        from inlay.models import torch_forms

        return torch_forms.build(subject["name"])
    if subject.get("kind") == "random":
        return random_architectures.module(_which(subject))
    raise ValueError("no PyTorch form: an .onnx file")


def make_inputs(specs: Sequence[TensorSpec], seed: int = 0, sizes: Mapping[str, int] | None = None) -> Inputs:
    """Seeded inputs; masks are ones, and types of tokens zeros, as in a call without padding. `sizes`: of dimensions
    that are open. Raises ValueError as `random_input` does."""
    generator = np.random.default_rng(seed)
    inputs = {}
    for spec in specs:
        array = random_input(spec, generator, sizes)
        if "mask" in spec[0]:
            array[...] = 1
        elif "token_type" in spec[0]:
            array[...] = 0
        inputs[spec[0]] = array
    return inputs


def with_shapes(model: onnx.ModelProto, shape: dict[str, Any]) -> onnx.ModelProto:
    """The model with --shape applied to its inputs, for the peers."""
    if not shape:
        return model
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for info in fixed.graph.input:
        dims = info.type.tensor_type.shape.dim
        for index, dim in enumerate(dims):
            value = shape.get(dim.dim_param) if dim.dim_param else None
            whole = shape.get(info.name)
            if isinstance(whole, list) and len(whole) == len(dims):
                value = whole[index]
            if isinstance(value, int):
                dim.dim_value = value
    return fixed
