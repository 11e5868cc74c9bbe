"""Real architectures as ONNX models, built here (no PyTorch needed), with seeded weights: for benchmarks and tests.

`build("resnet50")` gives a ModelProto; `NAMES` lists what there is. A model with trained weights is the same builder
fed with them (`bert.build(config, weights)`; see inlay.examples.minilm).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx

from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, vit

# name -> configuration, and how it is built: with the inputs' shapes as `inlay bench` shows them.
_BUILDERS: dict[str, tuple[Any, Callable[[Any], onnx.ModelProto]]] = {
    "resnet50": (resnet.RESNET50, resnet.build),
    "mobilenet_v2": (mobilenet.MOBILENET_V2, mobilenet.build),
    "bert_base": (bert.BERT_BASE, lambda c: bert.build(c, batch=1, length=128)),
    "minilm": (bert.MINILM, lambda c: bert.build(c, batch=1, length=128)),
    "gpt2": (gpt2.GPT2, lambda c: gpt2.build(c, batch=1, length=64)),
    "vit_small": (vit.VIT_SMALL, vit.build),
    "lstm": (recurrent.LSTM, recurrent.build_lstm),
    "mlp": (recurrent.MLP, recurrent.build_mlp),
    "lstm_512": (recurrent.LSTM_512, recurrent.build_lstm),
    "mlp_16": (recurrent.MLP_16, recurrent.build_mlp),
}
NAMES = tuple(_BUILDERS)


def build(name: str) -> onnx.ModelProto:
    """The model of that name. Raises ValueError listing the names."""
    configuration = config(name)
    return _BUILDERS[name][1](configuration)


def config(name: str) -> Any:
    """Its configuration (ResnetConfig, ...). Raises ValueError listing the names."""
    if name not in _BUILDERS:
        raise ValueError(f"no built-in model {name!r}; there are {', '.join(NAMES)}")
    return _BUILDERS[name][0]
