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
_OF_THE_INPUT = ("length", "samples", "frames")


def draw(r: random.Random) -> tuple[str, Sizes]:
    """(family, its sizes)."""
    family = r.choice(sorted(FAMILIES))
    sizes = FAMILIES[family].sizes(r)
    if FAMILIES[family].takes in _NAMES:
        sizes.setdefault("length", r.choice([16, 33, 64, 128, 200]))
    return family, sizes


def input_names(family: str) -> list[str]:
    takes = FAMILIES[family].takes
    return [takes.name] if isinstance(takes, Floats) else _NAMES[takes]


def inputs(family: str, sizes: Sizes, batch: int, generator: Any) -> tuple[Any, ...]:
    """Ids (i64 [batch, length]), alone, with a mask of ones or with half as many for a decoder; or f32 of the family's
    shape, such as images [batch, 3, side, side]."""
    import torch

    takes = FAMILIES[family].takes
    if isinstance(takes, Floats):
        return (torch.randn(batch, *takes.shape(sizes), generator=generator),)
    ids = torch.randint(0, sizes["vocab_size"], (batch, sizes["length"]), generator=generator)
    others = {"ids": (), "text": (torch.ones_like(ids),), "pair": (ids[:, : sizes["length"] // 2],)}
    return (ids, *others[takes])


def network(family: str, sizes: Sizes, attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    this = FAMILIES[family]
    config = getattr(transformers, this.config)(**without(sizes, *_OF_THE_INPUT))
    network = getattr(transformers, this.network)
    config._attn_implementation = attention if network._supports_sdpa else "eager"
    names = input_names(family)

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

    return Picked()
