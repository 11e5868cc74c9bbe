"""How large random_transformers draws its architectures: a configuration's arguments, by kind of model."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Sizes = dict[str, Any]


def text(r: random.Random) -> Sizes:
    """Sizes of a transformer on tokens; heads of 32 or 64, widths that are no round numbers of vectors too."""
    heads, head = r.choice([2, 3, 4, 6, 8, 12]), r.choice([32, 64])
    return {
        "hidden_size": heads * head,
        "num_attention_heads": heads,
        "num_hidden_layers": r.randint(2, 6),
        "intermediate_size": heads * head * r.choice([2, 3, 4]),
        "vocab_size": r.choice([1000, 5003, 30522]),
    }


def decoder(r: random.Random) -> Sizes:
    """Some query heads to a head of keys and values."""
    sizes = text(r)
    heads = sizes["num_attention_heads"]
    shared = r.choice([share for share in (1, 2, 3, 4) if heads % share == 0])
    head = sizes["hidden_size"] // heads
    return {**sizes, "num_key_value_heads": heads // shared, "head_dim": head, "use_cache": False, "pad_token_id": 0}


def experts(r: random.Random) -> Sizes:
    """Layers of several experts, of which a token meets some."""
    sizes, count = decoder(r), r.choice([4, 8, 16])
    names = ("num_experts", "num_local_experts")
    return {**sizes, **dict.fromkeys(names, count), "num_experts_per_tok": r.choice([1, 2, 4])}


def step(of: Callable[[random.Random], Sizes]) -> Callable[[random.Random], Sizes]:
    """A token's, behind so many."""
    return lambda r: {**of(r), "use_cache": True, "past": r.choice([63, 127, 255, 511, 1000])}


def side(r: random.Random) -> Sizes:
    return {"image_size": r.choice([96, 160, 224])}


def image(r: random.Random) -> Sizes:
    sizes = text(r)
    del sizes["vocab_size"]
    return {**sizes, **side(r), "patch_size": r.choice([16, 32])}


def stages(r: random.Random, step: int = 8) -> Sizes:
    first = step * r.randint(2, 8)
    return {
        "hidden_sizes": [first << i for i in range(4)],
        "depths": [r.randint(1, 3) for _ in range(4)],
        **side(r),
    }


def video(r: random.Random) -> Sizes:
    return {**image(r), "image_size": r.choice([96, 112]), "patch_size": 16, "num_frames": r.choice([4, 8])}


def resnet(r: random.Random) -> Sizes:
    """A backbone."""
    sizes = without(stages(r), "image_size")
    return {"model_type": "resnet", **sizes, "layer_type": r.choice(["basic", "bottleneck"])}


def dense(r: random.Random) -> Sizes:
    """What predicts a value for each pixel from four layers of a transformer."""
    return {
        "neck_hidden_sizes": [r.choice([32, 48, 64]) << i for i in range(4)],
        "fusion_hidden_size": r.choice([32, 64]),
    }


def audio(r: random.Random) -> Sizes:
    sizes = text(r)
    return {
        **sizes,
        "vocab_size": 32,
        "conv_dim": [r.choice([64, 96, 128])] * 7,
        "samples": r.choice([4000, 8000, 16000]),
    }


def pair(r: random.Random) -> Sizes:
    """An encoder and a decoder of as many layers."""
    sizes = text(r)
    layers, heads, inner = (sizes[key] for key in ("num_hidden_layers", "num_attention_heads", "intermediate_size"))
    return {
        "d_model": sizes["hidden_size"],
        "vocab_size": sizes["vocab_size"],
        **dict.fromkeys(("encoder_layers", "decoder_layers"), layers),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), heads),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), inner),
        "use_cache": False,
    }


def windows(r: random.Random) -> Sizes:
    heads = r.choice([2, 3])
    return {
        "image_size": 224,
        "embed_dim": heads * 32,
        "num_heads": [heads << i for i in range(4)],
        "depths": [2, 2, 2 * r.randint(1, 2), 2],
    }


def upscaled(r: random.Random) -> Sizes:
    heads = r.choice([2, 3, 6])
    return {
        "image_size": r.choice([48, 64]),
        "embed_dim": heads * r.choice([10, 16, 30]),
        "num_heads": [heads] * 2,
        "depths": [2, 2 * r.randint(1, 2)],
        "upscale": r.choice([2, 3, 4]),
    }


def renamed(sizes: Sizes, **names: str) -> Sizes:
    return {names.get(key, key): value for key, value in sizes.items()}


def without(sizes: Sizes, *names: str) -> Sizes:
    return {key: value for key, value in sizes.items() if key not in names}
