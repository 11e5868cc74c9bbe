"""Hugging Face transformers' architectures with random sizes, for random_architectures."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

Sizes = dict[str, Any]


def _text(r: random.Random) -> Sizes:
    """Sizes of a transformer on tokens; heads of 32 or 64, widths that are no round numbers of vectors too."""
    heads, head = r.choice([2, 3, 4, 6, 8, 12]), r.choice([32, 64])
    return {
        "hidden_size": heads * head,
        "num_attention_heads": heads,
        "num_hidden_layers": r.randint(2, 6),
        "intermediate_size": heads * head * r.choice([2, 3, 4]),
        "vocab_size": r.choice([1000, 5003, 30522]),
    }


def _decoder(r: random.Random) -> Sizes:
    """Some query heads to a head of keys and values."""
    sizes = _text(r)
    heads = sizes["num_attention_heads"]
    shared = r.choice([share for share in (1, 2, 3, 4) if heads % share == 0])
    head = sizes["hidden_size"] // heads
    return {**sizes, "num_key_value_heads": heads // shared, "head_dim": head, "use_cache": False, "pad_token_id": 0}


def _side(r: random.Random) -> Sizes:
    return {"image_size": r.choice([96, 160, 224])}


def _image(r: random.Random) -> Sizes:
    sizes = _text(r)
    del sizes["vocab_size"]
    return {**sizes, **_side(r), "patch_size": r.choice([16, 32])}


def _stages(r: random.Random, step: int = 8) -> Sizes:
    first = step * r.randint(2, 8)
    return {
        "hidden_sizes": [first << i for i in range(4)],
        "depths": [r.randint(1, 3) for _ in range(4)],
        **_side(r),
    }


def _audio(r: random.Random) -> Sizes:
    sizes = _text(r)
    return {
        **sizes,
        "vocab_size": 32,
        "conv_dim": [r.choice([64, 96, 128])] * 7,
        "samples": r.choice([4000, 8000, 16000]),
    }


def _windows(r: random.Random) -> Sizes:
    heads = r.choice([2, 3])
    return {
        "image_size": 224,
        "embed_dim": heads * 32,
        "num_heads": [heads << i for i in range(4)],
        "depths": [2, 2, 2 * r.randint(1, 2), 2],
    }


def _upscaled(r: random.Random) -> Sizes:
    heads = r.choice([2, 3, 6])
    return {
        "image_size": r.choice([48, 64]),
        "embed_dim": heads * r.choice([10, 16, 30]),
        "num_heads": [heads] * 2,
        "depths": [2, 2 * r.randint(1, 2)],
        "upscale": r.choice([2, 3, 4]),
    }


def _renamed(sizes: Sizes, **names: str) -> Sizes:
    return {names.get(key, key): value for key, value in sizes.items()}


def _without(sizes: Sizes, *names: str) -> Sizes:
    return {key: value for key, value in sizes.items() if key not in names}


# Names that one architecture has for what all have.
_GPT2 = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
}
_DISTILBERT = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
}
_OPT = {"intermediate_size": "ffn_dim"}
_BLOOM = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
_T5 = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "d_ff",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """config, network: classes of transformers. sizes: the configuration's arguments, and "length", "samples" or
    "frames" of the input. takes: "ids", "text" (ids and a mask), "image", "audio" or "spectrogram". output: which of the
    results; "": there is but one."""

    config: str
    network: str
    sizes: Callable[[random.Random], Sizes]
    takes: str
    output: str = "logits"


_HIDDEN = "last_hidden_state"
FAMILIES = {
    "bert": Family("BertConfig", "BertModel", _text, "text", _HIDDEN),
    "roberta": Family("RobertaConfig", "RobertaModel", _text, "text", _HIDDEN),
    "electra": Family("ElectraConfig", "ElectraModel", _text, "text", _HIDDEN),
    "albert": Family(
        "AlbertConfig", "AlbertModel", lambda r: {**_text(r), "embedding_size": r.choice([64, 128])}, "text", _HIDDEN
    ),
    "distilbert": Family(
        "DistilBertConfig", "DistilBertModel", lambda r: _renamed(_text(r), **_DISTILBERT), "text", _HIDDEN
    ),
    "mpnet": Family("MPNetConfig", "MPNetModel", _text, "text", _HIDDEN),
    "modernbert": Family(
        "ModernBertConfig",
        "ModernBertModel",
        lambda r: {
            **_text(r),
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
        },
        "text",
        _HIDDEN,
    ),
    "deberta_v2": Family(
        "DebertaV2Config",
        "DebertaV2Model",
        lambda r: {
            **_text(r),
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 32,
            "share_att_key": True,
        },
        "text",
        _HIDDEN,
    ),
    "t5_encoder": Family(
        "T5Config", "T5EncoderModel", lambda r: {**_renamed(_text(r), **_T5), "d_kv": 64}, "text", _HIDDEN
    ),
    "gpt2": Family(
        "GPT2Config", "GPT2LMHeadModel", lambda r: {**_renamed(_text(r), **_GPT2), "use_cache": False}, "ids"
    ),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", lambda r: {**_text(r), "use_cache": False}, "text"),
    "opt": Family(
        "OPTConfig",
        "OPTForCausalLM",
        lambda r: {
            **(sizes := _renamed(_text(r), **_OPT)),
            "word_embed_proj_dim": sizes["hidden_size"],
            "use_cache": False,
        },
        "text",
    ),
    "bloom": Family(
        "BloomConfig",
        "BloomForCausalLM",
        lambda r: {**_without(_renamed(_text(r), **_BLOOM), "intermediate_size"), "use_cache": False},
        "text",
    ),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", _decoder, "text"),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", _decoder, "text"),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", _decoder, "text"),
    "vit": Family("ViTConfig", "ViTForImageClassification", _image, "image"),
    "deit": Family("DeiTConfig", "DeiTForImageClassification", _image, "image"),
    "dinov2": Family(
        "Dinov2Config", "Dinov2Model", lambda r: _without(_image(r), "intermediate_size"), "image", _HIDDEN
    ),
    "clip": Family("CLIPVisionConfig", "CLIPVisionModel", _image, "image", _HIDDEN),
    "beit": Family(
        "BeitConfig", "BeitModel", lambda r: {**_image(r), "use_relative_position_bias": True}, "image", _HIDDEN
    ),
    "swin": Family("SwinConfig", "SwinForImageClassification", _windows, "image"),
    "segformer": Family("SegformerConfig", "SegformerForSemanticSegmentation", _side, "image"),
    "swin2sr": Family("Swin2SRConfig", "Swin2SRForImageSuperResolution", _upscaled, "image", "reconstruction"),
    "resnet": Family(
        "ResNetConfig",
        "ResNetForImageClassification",
        lambda r: {
            **_stages(r),
            "embedding_size": 8 * r.randint(2, 8),
            "layer_type": r.choice(["basic", "bottleneck"]),
        },
        "image",
    ),
    "regnet": Family(
        "RegNetConfig",
        "RegNetForImageClassification",
        lambda r: {**_stages(r, 16), "embedding_size": 32, "groups_width": 16, "layer_type": r.choice(["x", "y"])},
        "image",
    ),
    "mobilenet_v1": Family(
        "MobileNetV1Config",
        "MobileNetV1ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.25, 0.5, 0.75, 1.0]), **_side(r)},
        "image",
    ),
    "mobilenet_v2": Family(
        "MobileNetV2Config",
        "MobileNetV2ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.35, 0.5, 0.75, 1.0, 1.4]), **_side(r)},
        "image",
    ),
    "convnext": Family("ConvNextConfig", "ConvNextForImageClassification", _stages, "image"),
    "convnext_v2": Family("ConvNextV2Config", "ConvNextV2ForImageClassification", _stages, "image"),
    "efficientnet": Family(
        "EfficientNetConfig",
        "EfficientNetForImageClassification",
        lambda r: {
            **r.choice([{"width_coefficient": w, "hidden_dim": round(1280 * w)} for w in (0.5, 0.75, 1.0)]),
            "depth_coefficient": r.choice([0.5, 1.0]),
            **_side(r),
        },
        "image",
    ),
    "wav2vec2": Family("Wav2Vec2Config", "Wav2Vec2ForCTC", _audio, "audio"),
    "hifigan": Family(
        "SpeechT5HifiGanConfig",
        "SpeechT5HifiGan",
        lambda r: {
            "model_in_dim": r.choice([80, 100]),
            "upsample_initial_channel": r.choice([64, 96, 256]),
            **r.choice(
                [
                    {"upsample_rates": [4, 4, 4, 4], "upsample_kernel_sizes": [8, 8, 8, 8]},
                    {"upsample_rates": [8, 8, 2, 2], "upsample_kernel_sizes": [16, 16, 4, 4]},
                    {"upsample_rates": [5, 4, 3], "upsample_kernel_sizes": [11, 8, 7]},
                ]
            ),
            "frames": r.choice([20, 40, 75]),
        },
        "spectrogram",
        "",
    ),
}
_INPUT_NAMES = {
    "ids": ["input_ids"],
    "text": ["input_ids", "attention_mask"],
    "image": ["pixel_values"],
    "audio": ["input_values"],
    "spectrogram": ["spectrogram"],
}
_OF_THE_INPUT = ("length", "samples", "frames")


def draw(r: random.Random) -> tuple[str, Sizes]:
    """(family, its sizes)."""
    family = r.choice(sorted(FAMILIES))
    sizes = FAMILIES[family].sizes(r)
    if FAMILIES[family].takes in ("ids", "text"):
        sizes["length"] = r.choice([16, 33, 64, 128, 200])
    return family, sizes


def input_names(family: str) -> list[str]:
    return _INPUT_NAMES[FAMILIES[family].takes]


def inputs(family: str, sizes: Sizes, batch: int, generator: Any) -> tuple[Any, ...]:
    """Ids (i64 [batch, length]) and a mask of ones, or ids alone; images (f32 [batch, 3, side, side]); audio
    (f32 [batch, samples]); or spectrograms (f32 [batch, frames, bands])."""
    import torch

    takes = FAMILIES[family].takes
    if takes == "image":
        side = sizes["image_size"]
        return (torch.randn(batch, 3, side, side, generator=generator),)
    if takes == "audio":
        return (torch.randn(batch, sizes["samples"], generator=generator),)
    if takes == "spectrogram":
        return (torch.randn(batch, sizes["frames"], sizes["model_in_dim"], generator=generator),)
    ids = torch.randint(0, sizes["vocab_size"], (batch, sizes["length"]), generator=generator)
    return (ids,) if takes == "ids" else (ids, torch.ones_like(ids))


def network(family: str, sizes: Sizes, attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    this = FAMILIES[family]
    config = getattr(transformers, this.config)(**_without(sizes, *_OF_THE_INPUT))
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
