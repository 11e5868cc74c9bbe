"""Real architectures as ONNX models, built here (no PyTorch needed), with seeded weights: for benchmarks and tests.

`build("resnet50")` gives a ModelProto; `NAMES` lists what there is. A model with trained weights is the same builder
fed with them (`bert.build(config, weights)`; see inlay.examples.minilm).
"""

from __future__ import annotations

from collections.abc import Callable

import onnx

from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, vit

# name -> builder and the inputs' shapes, as `inlay bench` shows them.
_BUILDERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: resnet.build(resnet.RESNET50),
    "mobilenet_v2": lambda: mobilenet.build(mobilenet.MOBILENET_V2),
    "bert_base": lambda: bert.build(bert.BERT_BASE, batch=1, length=128),
    "minilm": lambda: bert.build(bert.MINILM, batch=1, length=128),
    "gpt2": lambda: gpt2.build(gpt2.GPT2, batch=1, length=64),
    "vit_small": lambda: vit.build(vit.VIT_SMALL),
    "lstm": lambda: recurrent.build_lstm(recurrent.LSTM),
    "mlp": lambda: recurrent.build_mlp(recurrent.MLP),
}
NAMES = tuple(_BUILDERS)


def build(name: str) -> onnx.ModelProto:
    """The model of that name. Raises ValueError listing the names."""
    if name not in _BUILDERS:
        raise ValueError(f"no built-in model {name!r}; there are {', '.join(NAMES)}")
    return _BUILDERS[name]()
