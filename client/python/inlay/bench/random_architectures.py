"""Real architectures (Hugging Face transformers) with random sizes: number N of a seed is always the same model, with the
same weights. Nothing is downloaded. For `inlay bench --random`: what holds for the models that we know must hold here.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import onnx

from inlay.errors import InlayError

OPSET = 17


def _rng(seed: int, number: int) -> random.Random:
    return random.Random(f"{seed}/{number}")


def _text(r: random.Random) -> dict[str, int]:
    """Sizes of a transformer on tokens; heads of 32 or 64, widths that are no round numbers of vectors too."""
    heads, head = r.choice([2, 3, 4, 6, 8, 12]), r.choice([32, 64])
    return {
        "hidden_size": heads * head,
        "num_attention_heads": heads,
        "num_hidden_layers": r.randint(2, 6),
        "intermediate_size": heads * head * r.choice([2, 3, 4]),
        "vocab_size": r.choice([1000, 5003, 30522]),
    }


def _image(r: random.Random) -> dict[str, int]:
    sizes = _text(r)
    del sizes["vocab_size"]
    return {**sizes, "image_size": r.choice([96, 160, 224]), "patch_size": r.choice([16, 32])}


def _channels(r: random.Random, stages: int, step: int = 8) -> list[int]:
    first = step * r.randint(2, 8)
    return [first << i for i in range(stages)]


Sizes = dict[str, Any]


def _renamed(sizes: Sizes, names: dict[str, str]) -> Sizes:
    return {names.get(key, key): value for key, value in sizes.items()}


# family -> (config class, model class, sizes, what of the result is the output, "text" or "image")
_FAMILIES: dict[str, tuple[str, str, Callable[[random.Random], Sizes], str, str]] = {
    "bert": ("BertConfig", "BertModel", _text, "last_hidden_state", "text"),
    "roberta": ("RobertaConfig", "RobertaModel", _text, "last_hidden_state", "text"),
    "electra": ("ElectraConfig", "ElectraModel", _text, "last_hidden_state", "text"),
    "albert": (
        "AlbertConfig",
        "AlbertModel",
        lambda r: {**_text(r), "embedding_size": r.choice([64, 128])},
        "last_hidden_state",
        "text",
    ),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertModel",
        lambda r: _renamed(
            _text(r),
            {
                "hidden_size": "dim",
                "num_attention_heads": "n_heads",
                "num_hidden_layers": "n_layers",
                "intermediate_size": "hidden_dim",
            },
        ),
        "last_hidden_state",
        "text",
    ),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        lambda r: {
            **_renamed(
                _text(r),
                {
                    "hidden_size": "n_embd",
                    "num_attention_heads": "n_head",
                    "num_hidden_layers": "n_layer",
                    "intermediate_size": "n_inner",
                },
            ),
            "use_cache": False,
        },
        "logits",
        "text",
    ),
    "vit": ("ViTConfig", "ViTForImageClassification", _image, "logits", "image"),
    "deit": ("DeiTConfig", "DeiTForImageClassification", _image, "logits", "image"),
    "resnet": (
        "ResNetConfig",
        "ResNetForImageClassification",
        lambda r: {
            "embedding_size": 8 * r.randint(2, 8),
            "hidden_sizes": _channels(r, 4),
            "depths": [r.randint(1, 3) for _ in range(4)],
            "layer_type": r.choice(["basic", "bottleneck"]),
            "image_size": r.choice([96, 160, 224]),
        },
        "logits",
        "image",
    ),
    "regnet": (
        "RegNetConfig",
        "RegNetForImageClassification",
        lambda r: {
            "embedding_size": 32,
            "hidden_sizes": _channels(r, 4, 16),
            "depths": [r.randint(1, 3) for _ in range(4)],
            "groups_width": 16,
            "layer_type": r.choice(["x", "y"]),
            "image_size": r.choice([96, 160, 224]),
        },
        "logits",
        "image",
    ),
    "mobilenet_v1": (
        "MobileNetV1Config",
        "MobileNetV1ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.25, 0.5, 0.75, 1.0]), "image_size": r.choice([96, 160, 224])},
        "logits",
        "image",
    ),
    "mobilenet_v2": (
        "MobileNetV2Config",
        "MobileNetV2ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.35, 0.5, 0.75, 1.0, 1.4]), "image_size": r.choice([96, 160, 224])},
        "logits",
        "image",
    ),
    "convnext": (
        "ConvNextConfig",
        "ConvNextForImageClassification",
        lambda r: {
            "hidden_sizes": _channels(r, 4),
            "depths": [r.randint(1, 3) for _ in range(4)],
            "image_size": r.choice([96, 160, 224]),
        },
        "logits",
        "image",
    ),
    "efficientnet": (
        "EfficientNetConfig",
        "EfficientNetForImageClassification",
        lambda r: {
            **r.choice([{"width_coefficient": w, "hidden_dim": round(1280 * w)} for w in (0.5, 0.75, 1.0)]),
            "depth_coefficient": r.choice([0.5, 1.0]),
            "image_size": r.choice([96, 160, 224]),
        },
        "logits",
        "image",
    ),
}


@functools.cache
def _choice(seed: int, number: int) -> tuple[str, Sizes, int]:
    """(family, its configuration's arguments, tokens of an input of text)."""
    r = _rng(seed, number)
    family = r.choice(sorted(_FAMILIES))
    return family, _FAMILIES[family][2](r), r.choice([16, 33, 64, 128, 200])


def describe(seed: int, number: int) -> tuple[str, str]:
    """(name, sizes in words)."""
    family, sizes, length = _choice(seed, number)
    words = [f"{key}={value}" for key, value in sizes.items()]
    if _FAMILIES[family][4] == "text":
        words.append(f"length={length}")
    return f"{family}-{seed}-{number}", ", ".join(words)


def find(name: str) -> tuple[int, int] | None:
    """(seed, number) of a name that `describe` gives, else None."""
    match = re.fullmatch(r"\w+-(\d+)-(\d+)", name)
    if match is None:
        return None
    seed, number = int(match[1]), int(match[2])
    return (seed, number) if describe(seed, number)[0] == name else None


def module(seed: int, number: int, attention: str = "sdpa") -> Any:
    """The PyTorch module: takes ids and a mask (i64 [1, length]), ids alone (GPT-2), or an image (f32 [1, 3, s, s])."""
    try:
        import torch
        import transformers
    except ImportError:
        raise InlayError("random architectures need torch and transformers: deploy/setup.sh --bench") from None
    family, sizes, _ = _choice(seed, number)
    config_name, model_name, _, output, _ = _FAMILIES[family]
    transformers.logging.set_verbosity_error()
    torch.manual_seed(hash((seed, number)) & 0x7FFFFFFF)
    config = getattr(transformers, config_name)(**sizes)
    if hasattr(config, "num_attention_heads") or hasattr(config, "n_head") or hasattr(config, "n_heads"):
        config._attn_implementation = attention
    names = _input_names(family)
    network = _lively(getattr(transformers, model_name)(config).eval())

    class Picked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, *inputs):
            named = dict(zip(names, inputs, strict=True))
            if family == "gpt2":  # a given mask spares the exporter operators that ONNX has not
                named["attention_mask"] = torch.ones_like(named["input_ids"])
            return self.network(**named)[output]

    return Picked().eval()


def _input_names(family: str) -> list[str]:
    if _FAMILIES[family][4] == "image":
        return ["pixel_values"]
    return ["input_ids"] if family == "gpt2" else ["input_ids", "attention_mask"]


def _lively(network: Any) -> Any:
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
            part.bias.data.uniform_(-0.1, 0.1)
    return network


def inputs(seed: int, number: int) -> tuple[Any, ...]:
    """Seeded inputs of `module`, in its order; masks are ones."""
    import torch

    family, sizes, length = _choice(seed, number)
    generator = torch.Generator().manual_seed(seed)
    if _FAMILIES[family][4] == "image":
        side = sizes["image_size"]
        return (torch.randn(1, 3, side, side, generator=generator),)
    ids = torch.randint(0, sizes["vocab_size"], (1, length), generator=generator)
    return (ids,) if family == "gpt2" else (ids, torch.ones_like(ids))


def export(seed: int, number: int) -> onnx.ModelProto:
    """The ONNX form, as PyTorch's exporter writes it. Raises InlayError where it can't."""
    network = module(seed, number, attention="eager")
    import torch

    examples = inputs(seed, number)
    buffer: Any = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        names = _input_names(_choice(seed, number)[0])
        options: dict[str, Any] = {"input_names": names, "output_names": ["output"]}
        try:
            torch.onnx.export(network, examples, buffer, opset_version=OPSET, dynamo=False, **options)
        except Exception as error:  # noqa: BLE001  the exporter raises whatever it meets
            raise InlayError(f"PyTorch can't export it: {error}") from None
    return onnx.load_from_string(buffer.getvalue())
