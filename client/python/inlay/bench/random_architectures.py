"""Real architectures (Hugging Face transformers with random sizes, timm's as they are) and single operators of random
sizes, on random batches: number N of a seed is always the same model, with the same weights. Nothing is downloaded. For
`inlay bench --random` and `--operators`: what holds for the models that we know must hold here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import random
import re
import warnings
from typing import Any, NamedTuple

import onnx

from inlay.bench import random_operators, random_timm, random_transformers
from inlay.errors import InlayError

OPSET = 17


class Which(NamedTuple):
    """Number `number` of the architectures that a seed gives, or of the single operators."""

    seed: int
    number: int
    operator: bool = False


@functools.cache
def _choice(which: Which) -> tuple[Any, str, dict[str, Any], int]:
    """(source, family, sizes, batch)."""
    r = random.Random(f"{which.seed}/{which.number}")
    source = random_operators if which.operator else r.choice((random_transformers, random_timm))
    family, sizes = source.draw(r)
    return source, family, sizes, r.choice([1, 1, 2, 4])


def describe(which: Which) -> tuple[str, str]:
    """(name, sizes in words)."""
    _, family, sizes, batch = _choice(which)
    words = ", ".join(f"{key}={value}" for key, value in {**sizes, "batch": batch}.items())
    return f"{family}-{which.seed}-{which.number}", words


def find(name: str) -> Which | None:
    """What a name stands for that `describe` gives, else None."""
    match = re.fullmatch(r"\w+-(\d+)-(\d+)", name)
    if match is None:
        return None
    both = [Which(int(match[1]), int(match[2]), operator) for operator in (False, True)]
    return next((which for which in both if describe(which)[0] == name), None)


def module(which: Which, attention: str = "sdpa") -> Any:
    """The PyTorch module. An architecture's takes ids and a mask (i64 [batch, length]), ids alone (GPT-2), images
    (f32 [batch, 3, side, side]), audio (f32 [batch, samples]), or spectrograms (f32 [batch, frames, bands]); an
    operator's, what `random_operators.inputs` says. Raises InlayError where its packages are missing."""
    source, family, sizes, _ = _choice(which)
    try:
        import torch

        repair_torchvision()
        torch.manual_seed(hash((which.seed, which.number)) & 0x7FFFFFFF)
        network = source.network(family, sizes, attention)
    except ImportError as error:
        raise InlayError(f"{family}: {error}; deploy/setup.sh --bench installs what it needs") from None
    return lively(network.eval())


_TORCHVISION: list[Any] = []  # torch forgets what a Library defined when that is collected


def repair_torchvision() -> None:
    """Where PyPI's torchvision (for CUDA) meets the CPU build of torch, importing it fails, and with it transformers and
    timm: it describes two operators that its library, which can't be loaded, should have defined. No model needs them."""
    import torch

    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:  # transformers can do without
        return
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _TORCHVISION.append(library)


def lively(network: Any) -> Any:
    """Batch-norm statistics and scales as training leaves them, not zeros and ones."""
    import torch

    for part in network.modules():
        if isinstance(part, torch.nn.Conv2d):  # transformers' own is so small that nothing arrives at the end
            torch.nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
        if isinstance(part, torch.nn.BatchNorm2d):
            for statistic, low, high in ((part.running_mean, -0.1, 0.1), (part.running_var, 0.5, 1.5)):
                assert statistic is not None
                statistic.uniform_(low, high)
        if isinstance(part, (torch.nn.BatchNorm2d, torch.nn.LayerNorm)) and part.weight is not None:
            part.weight.data.uniform_(0.8, 1.2)
            if part.bias is not None:
                part.bias.data.uniform_(-0.1, 0.1)
    return network


def inputs(which: Which) -> tuple[Any, ...]:
    """Seeded inputs of `module`, in its order; masks are ones."""
    import torch

    repair_torchvision()
    source, family, sizes, batch = _choice(which)
    return source.inputs(family, sizes, batch, torch.Generator().manual_seed(which.seed))


def export(which: Which) -> onnx.ModelProto:
    """The ONNX form, as PyTorch's exporter writes it. Raises InlayError where it can't."""
    network = module(which, attention="eager")
    source, family, sizes, _ = _choice(which)
    return to_onnx(network, inputs(which), source.input_names(family, sizes))


def to_onnx(network: Any, examples: tuple[Any, ...], input_names: list[str]) -> onnx.ModelProto:
    """A PyTorch module of one result, of the examples' shapes. Raises InlayError where the exporter can't."""
    import torch

    buffer: Any = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {"input_names": input_names, "output_names": ["output"]}
        try:
            torch.onnx.export(network, examples, buffer, opset_version=OPSET, dynamo=False, **names)
        except Exception as error:  # noqa: BLE001  the exporter raises whatever it meets
            raise InlayError(f"PyTorch can't export it: {error}") from None
    return onnx.load_from_string(buffer.getvalue())
