"""Hugging Face transformers' architectures with random sizes, for random_architectures."""

from __future__ import annotations

import random
from typing import Any

from inlay.bench.transformers_families import FAMILIES, Floats
from inlay.bench.transformers_sizes import Sizes, without

_NAMES = {
    "ids": ["input_ids"],
    "text": ["input_ids", "attention_mask"],
    "pair": ["input_ids", "decoder_input_ids"],
}
_OF_THE_INPUT = ("length", "samples", "frames", "past")


def draw(r: random.Random) -> tuple[str, Sizes]:
    """(family, its sizes)."""
    family = r.choice(sorted(FAMILIES))
    sizes = FAMILIES[family].sizes(r)
    if FAMILIES[family].takes in _NAMES:
        sizes.setdefault("length", r.choice([16, 33, 64, 128, 200]))
    return family, sizes


def input_names(family: str, sizes: Sizes) -> list[str]:
    takes = FAMILIES[family].takes
    if takes == "step":
        layers = _config(family, sizes).num_hidden_layers
        return [*_NAMES["text"], *(f"past_{what}_{layer}" for layer in range(layers) for what in ("key", "value"))]
    return [takes.name] if isinstance(takes, Floats) else _NAMES[takes]


def inputs(family: str, sizes: Sizes, batch: int, generator: Any) -> tuple[Any, ...]:
    """Ids (i64 [batch, length]), alone, with a mask of ones or with half as many for a decoder; of a step one id, a mask
    of ones (i64 [batch, past + 1]) and each layer's keys and values (f32 [batch, heads, past, size]); or f32 of the
    family's shape, such as images [batch, 3, side, side]."""
    import torch

    takes = FAMILIES[family].takes
    if takes == "step":
        config, past = _config(family, sizes), sizes["past"]
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        ids = torch.randint(0, sizes["vocab_size"], (batch, 1), generator=generator)
        caches = (
            torch.randn(batch, heads, past, size, generator=generator) for _ in range(2 * config.num_hidden_layers)
        )
        return (ids, torch.ones(batch, past + 1, dtype=torch.int64), *caches)
    if isinstance(takes, Floats):
        return (torch.randn(batch, *takes.shape(sizes), generator=generator),)
    ids = torch.randint(0, sizes["vocab_size"], (batch, sizes["length"]), generator=generator)
    others = {"ids": (), "text": (torch.ones_like(ids),), "pair": (ids[:, : sizes["length"] // 2],)}
    return (ids, *others[takes])


def _config(family: str, sizes: Sizes) -> Any:
    import transformers

    return getattr(transformers, FAMILIES[family].config)(**without(sizes, *_OF_THE_INPUT))


def network(family: str, sizes: Sizes, attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor, or of a step logits and each layer's keys and values."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    this = FAMILIES[family]
    config = _config(family, sizes)
    network = getattr(transformers, this.network)
    config._attn_implementation = attention if network._supports_sdpa else "eager"
    if "num_experts_per_tok" in sizes:
        config._experts_implementation = "batched_mm"  # the one that ONNX has operators for
    names = input_names(family, sizes)

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network(config)

        def forward(self, ids, mask, *past):
            cache = transformers.DynamicCache()
            for layer, (keys, values) in enumerate(zip(past[::2], past[1::2], strict=True)):
                cache.update(keys, values, layer)
            results = self.network(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
            layers = results.past_key_values.layers
            return results.logits, *(x for layer in layers for x in (layer.keys, layer.values))

    class Picked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network(config)

        def forward(self, *inputs):
            named = dict(zip(names, inputs, strict=True))
            if this.takes == "ids":  # a given mask spares the exporter operators that ONNX has not
                named["attention_mask"] = torch.ones_like(named["input_ids"])
            results = self.network(**named)
            return results[this.output] if this.output else results

    return Step() if this.takes == "step" else Picked()
