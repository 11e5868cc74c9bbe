"""The built-in models as PyTorch modules with the ONNX forms' weights, written as a PyTorch user would (layers of torch.nn,
scaled_dot_product_attention): what `inlay bench` gives to the peers that compile PyTorch. Inputs are the ONNX form's, in
its order. Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

from inlay import models
from inlay.models import bert, gpt2, mobilenet, recurrent, resnet, vit

Weights = Mapping[str, np.ndarray]


def build(name: str) -> nn.Module:
    """The PyTorch form of a built-in model. Raises ValueError listing the names."""
    model = models.build(name)
    return from_weights(models.config(name), {t.name: numpy_helper.to_array(t) for t in model.graph.initializer})


def from_weights(config: Any, weights: Weights) -> nn.Module:
    for kind, form in _FORMS.items():
        if isinstance(config, kind):
            return form(config, weights).eval()
    raise ValueError(f"no PyTorch form of a {type(config).__name__}")


def _tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def _fill(layer: nn.Module, **values: np.ndarray) -> nn.Module:
    layer.load_state_dict({name: _tensor(value) for name, value in values.items()}, strict=False)
    return layer


def _linear(w: Weights, name: str, transposed: bool = True) -> nn.Module:
    """transposed: the ONNX form has it as [in, out], nn.Linear as [out, in]."""
    weight = w[f"{name}.weight"].T if transposed else w[f"{name}.weight"]
    return _fill(nn.Linear(weight.shape[1], weight.shape[0]), weight=weight, bias=w[f"{name}.bias"])


def _norm(w: Weights, name: str, epsilon: float) -> nn.Module:
    scale = w[f"{name}.weight"]
    return _fill(nn.LayerNorm(scale.shape[0], epsilon), weight=scale, bias=w[f"{name}.bias"])


def _embedding(w: Weights, name: str) -> nn.Module:
    return nn.Embedding.from_pretrained(_tensor(w[f"{name}.weight"]))


def _conv(w: Weights, name: str, stride: int = 1, groups: int = 1) -> nn.Module:
    """A convolution that keeps the size but for its stride, and its batch-norm."""
    weight = w[f"{name}.weight"]
    out, channels, kernel, _ = weight.shape
    conv = nn.Conv2d(channels * groups, out, kernel, stride, kernel // 2, groups=groups, bias=f"{name}.bias" in w)
    _fill(conv, weight=weight, **({"bias": w[f"{name}.bias"]} if f"{name}.bias" in w else {}))
    if f"{name}.bn.weight" not in w:
        return conv
    names = ("weight", "bias", "running_mean", "running_var")
    return nn.Sequential(conv, _fill(nn.BatchNorm2d(out), **{what: w[f"{name}.bn.{what}"] for what in names}))


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


class _Bottleneck(nn.Module):
    def __init__(self, w: Weights, name: str, stride: int):
        super().__init__()
        self.conv1, self.conv2 = _conv(w, f"{name}.conv1"), _conv(w, f"{name}.conv2", stride)
        self.conv3 = _conv(w, f"{name}.conv3")
        self.downsample = _conv(w, f"{name}.downsample", stride) if f"{name}.downsample.weight" in w else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.conv2(functional.relu(self.conv1(x))))
        return functional.relu(self.conv3(y) + self.downsample(x))


def _resnet(c: resnet.ResnetConfig, w: Weights) -> nn.Module:
    blocks: list[nn.Module] = []
    for stage, count in enumerate(c.blocks):
        for block in range(count):
            blocks.append(_Bottleneck(w, f"layer{stage + 1}.{block}", 2 if stage > 0 and block == 0 else 1))
    stem = [_conv(w, "conv1", 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), _linear(w, "fc", transposed=False))


class _InvertedResidual(nn.Module):
    def __init__(self, w: Weights, name: str, stride: int):
        super().__init__()
        hidden = w[f"{name}.depthwise.weight"].shape[0]
        layers = [_conv(w, f"{name}.depthwise", stride, hidden), nn.ReLU6(), _conv(w, f"{name}.project")]
        if f"{name}.expand.weight" in w:
            layers = [_conv(w, f"{name}.expand"), nn.ReLU6(), *layers]
            channels = w[f"{name}.expand.weight"].shape[1]
        else:
            channels = hidden
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and channels == w[f"{name}.project.weight"].shape[0]

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


def _mobilenet(c: mobilenet.MobilenetConfig, w: Weights) -> nn.Module:
    layers, number = [_conv(w, "features.0", 2), nn.ReLU6()], 1
    for _, _, blocks, first in c.stages:
        for block in range(blocks):
            layers.append(_InvertedResidual(w, f"features.{number}", first if block == 0 else 1))
            number += 1
    layers += [_conv(w, f"features.{number}"), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, _linear(w, "classifier", transposed=False))


class _BertLayer(nn.Module):
    def __init__(self, c: bert.BertConfig, w: Weights, name: str):
        super().__init__()
        self.heads = c.heads
        attention = f"{name}.attention"
        self.query, self.key, self.value = (_linear(w, f"{attention}.self.{p}") for p in ("query", "key", "value"))
        self.dense = _linear(w, f"{attention}.output.dense")
        self.norm = _norm(w, f"{attention}.output.LayerNorm", c.epsilon)
        self.up, self.down = _linear(w, f"{name}.intermediate.dense"), _linear(w, f"{name}.output.dense")
        self.norm2 = _norm(w, f"{name}.output.LayerNorm", c.epsilon)

    def forward(self, x, bias):
        q, k, v = (_heads(project(x), self.heads) for project in (self.query, self.key, self.value))
        context = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
        x = self.norm(self.dense(context) + x)
        return self.norm2(self.down(functional.gelu(self.up(x))) + x)


class _Bert(nn.Module):
    def __init__(self, c: bert.BertConfig, w: Weights):
        super().__init__()
        kinds = ("word", "token_type", "position")
        self.words, self.types, self.places = (_embedding(w, f"embeddings.{k}_embeddings") for k in kinds)
        self.norm = _norm(w, "embeddings.LayerNorm", c.epsilon)
        self.layers = nn.ModuleList(_BertLayer(c, w, f"encoder.layer.{i}") for i in range(c.layers))

    def forward(self, input_ids, attention_mask, token_type_ids):
        x = self.words(input_ids) + self.types(token_type_ids) + self.places.weight[: input_ids.shape[1]]
        x = self.norm(x)
        bias = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return x


class _Block(nn.Module):
    """A layer with its norms first: GPT-2's and ViT's."""

    def __init__(self, w: Weights, heads: int, causal: bool, gelu: str, epsilon: float, names: list[str]):
        super().__init__()
        self.heads, self.causal, self.gelu = heads, causal, gelu
        self.norm1, self.norm2 = _norm(w, names[0], epsilon), _norm(w, names[1], epsilon)
        self.qkv, self.proj, self.up, self.down = (_linear(w, name) for name in names[2:])

    def forward(self, x):
        q, k, v = (_heads(part, self.heads) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        x = x + self.proj(context)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate=self.gelu))


class _Gpt2(nn.Module):
    def __init__(self, c: gpt2.Gpt2Config, w: Weights):
        super().__init__()
        self.words, self.places = _embedding(w, "wte"), _embedding(w, "wpe")
        parts = ("ln_1", "ln_2", "attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
        self.layers = nn.Sequential(
            *(_Block(w, c.heads, True, "tanh", c.epsilon, [f"h.{i}.{p}" for p in parts]) for i in range(c.layers))
        )
        self.norm = _norm(w, "ln_f", c.epsilon)

    def forward(self, input_ids):
        x = self.words(input_ids) + self.places.weight[: input_ids.shape[1]]
        return functional.linear(self.norm(self.layers(x)), self.words.weight)


class _Vit(nn.Module):
    def __init__(self, c: vit.VitConfig, w: Weights):
        super().__init__()
        weight = w["patch_embed.weight"]
        self.patches = nn.Conv2d(3, c.width, c.patch, c.patch)
        _fill(self.patches, weight=weight, bias=w["patch_embed.bias"])
        self.token = nn.Parameter(_tensor(w["cls_token"]))
        self.places = nn.Parameter(_tensor(w["pos_embed"]))
        parts = ("norm1", "norm2", "attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
        self.layers = nn.Sequential(
            *(_Block(w, c.heads, False, "none", c.epsilon, [f"blocks.{i}.{p}" for p in parts]) for i in range(c.layers))
        )
        self.norm, self.head = _norm(w, "norm", c.epsilon), _linear(w, "head", transposed=False)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class _Lstm(nn.Module):
    def __init__(self, c: recurrent.LstmConfig, w: Weights):
        super().__init__()
        self.lstm = nn.LSTM(c.features, c.hidden, c.layers)
        for layer in range(c.layers):
            # ONNX keeps the gates as input, output, forget, cell; PyTorch as input, forget, cell, output.
            def gates(array: np.ndarray) -> np.ndarray:
                i, o, f, g = np.split(array, 4)
                return np.concatenate([i, f, g, o])

            bias = w[f"lstm.{layer}.B"][0]
            values = (w[f"lstm.{layer}.W"][0], w[f"lstm.{layer}.R"][0], *np.split(bias, 2))
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            _fill(self.lstm, **{f"{n}_l{layer}": gates(v) for n, v in zip(names, values, strict=True)})
        self.head = _linear(w, "fc", transposed=False)

    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])


def _mlp(c: recurrent.MlpConfig, w: Weights) -> nn.Module:
    layers: list[nn.Module] = []
    for i in range(len(c.widths) - 1):
        layers += [_linear(w, f"fc{i}", transposed=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


_FORMS: dict[type, Any] = {
    resnet.ResnetConfig: _resnet,
    mobilenet.MobilenetConfig: _mobilenet,
    bert.BertConfig: _Bert,
    gpt2.Gpt2Config: _Gpt2,
    vit.VitConfig: _Vit,
    recurrent.LstmConfig: _Lstm,
    recurrent.MlpConfig: _mlp,
}
