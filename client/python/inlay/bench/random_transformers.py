"""Hugging Face transformers' architectures with random sizes, for random_architectures."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any


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
FAMILIES: dict[str, tuple[str, str, Callable[[random.Random], Sizes], str, str]] = {
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


def draw(r: random.Random) -> tuple[str, Sizes]:
    """(family, its configuration's arguments; of one on tokens also "length")."""
    family = r.choice(sorted(FAMILIES))
    sizes = FAMILIES[family][2](r)
    return family, {**sizes, "length": r.choice([16, 33, 64, 128, 200])} if _takes_text(family) else sizes


def _takes_text(family: str) -> bool:
    return FAMILIES[family][4] == "text"


def input_names(family: str) -> list[str]:
    if not _takes_text(family):
        return ["pixel_values"]
    return ["input_ids"] if family == "gpt2" else ["input_ids", "attention_mask"]


def inputs(family: str, sizes: Sizes, batch: int, generator: Any) -> tuple[Any, ...]:
    """Ids (i64 [batch, length]) and a mask of ones, ids alone (GPT-2), or images (f32 [batch, 3, side, side])."""
    import torch

    if not _takes_text(family):
        side = sizes["image_size"]
        return (torch.randn(batch, 3, side, side, generator=generator),)
    ids = torch.randint(0, sizes["vocab_size"], (batch, sizes["length"]), generator=generator)
    return (ids,) if family == "gpt2" else (ids, torch.ones_like(ids))


def network(family: str, sizes: Sizes, attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    config_name, model_name, _, output, _ = FAMILIES[family]
    config = getattr(transformers, config_name)(**{key: value for key, value in sizes.items() if key != "length"})
    if hasattr(config, "num_attention_heads") or hasattr(config, "n_head") or hasattr(config, "n_heads"):
        config._attn_implementation = attention
    names = input_names(family)

    class Picked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = getattr(transformers, model_name)(config)

        def forward(self, *inputs):
            named = dict(zip(names, inputs, strict=True))
            if family == "gpt2":  # a given mask spares the exporter operators that ONNX has not
                named["attention_mask"] = torch.ones_like(named["input_ids"])
            return self.network(**named)[output]

    return Picked()
