"""Which of Hugging Face transformers' architectures random_transformers draws, and how large they may be."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from inlay.bench.transformers_sizes import (
    Sizes,
    audio,
    decoder,
    dense,
    experts,
    image,
    pair,
    renamed,
    resnet,
    side,
    stages,
    step,
    text,
    upscaled,
    video,
    windows,
    without,
)

# Names that one architecture has for what all have.
_GPT = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
_GPT2 = {**_GPT, "intermediate_size": "n_inner"}
_DISTILBERT = {
    "hidden_size": "dim",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
}
_OPT = {"intermediate_size": "ffn_dim"}
_XGLM = {
    **_OPT,
    "hidden_size": "d_model",
    "num_attention_heads": "attention_heads",
    "num_hidden_layers": "num_layers",
}
_BLOOM = {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}
_MPT = {"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}
_T5 = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "d_ff",
}
_XLNET = {
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "d_inner",
}


@dataclasses.dataclass(frozen=True)
class Floats:
    """An input, f32 [batch, *shape(sizes)]."""

    name: str
    shape: Callable[[Sizes], tuple[int, ...]]


def _sides(sizes: Sizes) -> tuple[int, int]:
    extent = sizes["image_size"]
    return tuple(extent) if isinstance(extent, list) else (extent, extent)


IMAGE = Floats("pixel_values", lambda sizes: (3, *_sides(sizes)))
VIDEO = Floats("pixel_values", lambda sizes: (sizes["num_frames"], 3, *_sides(sizes)))
AUDIO = Floats("input_values", lambda sizes: (sizes["samples"],))


@dataclasses.dataclass(frozen=True)
class Family:
    """config, network: classes of transformers. sizes: the configuration's arguments, and "length", "samples" or
    "frames" of the input. takes: "ids", "text" (ids and a mask), "pair" (an encoder's ids and a decoder's), "step" (an
    id, a mask, and what a decoder keeps of the tokens before it, "past" of them), or Floats.
    output: which of the results; "": there is but one."""

    config: str
    network: str
    sizes: Callable[[random.Random], Sizes]
    takes: str | Floats
    output: str = "logits"


_HIDDEN = "last_hidden_state"
_NO_TIMM = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None}
FAMILIES = {
    "bert": Family("BertConfig", "BertModel", text, "text", _HIDDEN),
    "roberta": Family("RobertaConfig", "RobertaModel", text, "text", _HIDDEN),
    "electra": Family("ElectraConfig", "ElectraModel", text, "text", _HIDDEN),
    "albert": Family(
        "AlbertConfig", "AlbertModel", lambda r: {**text(r), "embedding_size": r.choice([64, 128])}, "text", _HIDDEN
    ),
    "distilbert": Family(
        "DistilBertConfig", "DistilBertModel", lambda r: renamed(text(r), **_DISTILBERT), "text", _HIDDEN
    ),
    "mpnet": Family("MPNetConfig", "MPNetModel", text, "text", _HIDDEN),
    "modernbert": Family(
        "ModernBertConfig",
        "ModernBertModel",
        lambda r: {
            **text(r),
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0),
        },
        "text",
        _HIDDEN,
    ),
    "deberta_v2": Family(
        "DebertaV2Config",
        "DebertaV2Model",
        lambda r: {
            **text(r),
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 32,
            "share_att_key": True,
        },
        "text",
        _HIDDEN,
    ),
    "t5_encoder": Family(
        "T5Config", "T5EncoderModel", lambda r: {**renamed(text(r), **_T5), "d_kv": 64}, "text", _HIDDEN
    ),
    "gpt2": Family("GPT2Config", "GPT2LMHeadModel", lambda r: {**renamed(text(r), **_GPT2), "use_cache": False}, "ids"),
    "gpt_neox": Family("GPTNeoXConfig", "GPTNeoXForCausalLM", lambda r: {**text(r), "use_cache": False}, "text"),
    "opt": Family(
        "OPTConfig",
        "OPTForCausalLM",
        lambda r: {
            **(sizes := renamed(text(r), **_OPT)),
            "word_embed_proj_dim": sizes["hidden_size"],
            "use_cache": False,
        },
        "text",
    ),
    "bloom": Family(
        "BloomConfig",
        "BloomForCausalLM",
        lambda r: {**without(renamed(text(r), **_BLOOM), "intermediate_size"), "use_cache": False},
        "text",
    ),
    "llama": Family("LlamaConfig", "LlamaForCausalLM", decoder, "text"),
    "qwen3": Family("Qwen3Config", "Qwen3ForCausalLM", decoder, "text"),
    "mixtral": Family("MixtralConfig", "MixtralForCausalLM", experts, "text"),
    "qwen3_moe": Family(
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        lambda r: {**experts(r), "moe_intermediate_size": 32 * r.randint(2, 8)},
        "text",
    ),
    "gemma2": Family("Gemma2Config", "Gemma2ForCausalLM", decoder, "text"),
    "vit": Family("ViTConfig", "ViTForImageClassification", image, IMAGE),
    "deit": Family("DeiTConfig", "DeiTForImageClassification", image, IMAGE),
    "dinov2": Family("Dinov2Config", "Dinov2Model", lambda r: without(image(r), "intermediate_size"), IMAGE, _HIDDEN),
    "clip": Family("CLIPVisionConfig", "CLIPVisionModel", image, IMAGE, _HIDDEN),
    "beit": Family(
        "BeitConfig", "BeitModel", lambda r: {**image(r), "use_relative_position_bias": True}, IMAGE, _HIDDEN
    ),
    "swin": Family("SwinConfig", "SwinForImageClassification", windows, IMAGE),
    "segformer": Family("SegformerConfig", "SegformerForSemanticSegmentation", side, IMAGE),
    "swin2sr": Family("Swin2SRConfig", "Swin2SRForImageSuperResolution", upscaled, IMAGE, "reconstruction"),
    "resnet": Family(
        "ResNetConfig",
        "ResNetForImageClassification",
        lambda r: {
            **stages(r),
            "embedding_size": 8 * r.randint(2, 8),
            "layer_type": r.choice(["basic", "bottleneck"]),
        },
        IMAGE,
    ),
    "regnet": Family(
        "RegNetConfig",
        "RegNetForImageClassification",
        lambda r: {**stages(r, 16), "embedding_size": 32, "groups_width": 16, "layer_type": r.choice(["x", "y"])},
        IMAGE,
    ),
    "mobilenet_v1": Family(
        "MobileNetV1Config",
        "MobileNetV1ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.25, 0.5, 0.75, 1.0]), **side(r)},
        IMAGE,
    ),
    "mobilenet_v2": Family(
        "MobileNetV2Config",
        "MobileNetV2ForImageClassification",
        lambda r: {"depth_multiplier": r.choice([0.35, 0.5, 0.75, 1.0, 1.4]), **side(r)},
        IMAGE,
    ),
    "convnext": Family("ConvNextConfig", "ConvNextForImageClassification", stages, IMAGE),
    "convnext_v2": Family("ConvNextV2Config", "ConvNextV2ForImageClassification", stages, IMAGE),
    "efficientnet": Family(
        "EfficientNetConfig",
        "EfficientNetForImageClassification",
        lambda r: {
            **r.choice([{"width_coefficient": w, "hidden_dim": round(1280 * w)} for w in (0.5, 0.75, 1.0)]),
            "depth_coefficient": r.choice([0.5, 1.0]),
            **side(r),
        },
        IMAGE,
    ),
    "wav2vec2": Family("Wav2Vec2Config", "Wav2Vec2ForCTC", audio, AUDIO),
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
        Floats("spectrogram", lambda sizes: (sizes["frames"], sizes["model_in_dim"])),
        "",
    ),
    "esm": Family(
        "EsmConfig",
        "EsmModel",
        lambda r: {**text(r), "pad_token_id": 1, "position_embedding_type": r.choice(["rotary", "absolute"])},
        "text",
        _HIDDEN,
    ),
    "squeezebert": Family(
        "SqueezeBertConfig",
        "SqueezeBertModel",
        lambda r: {**(sizes := text(r)), "embedding_size": sizes["hidden_size"]},
        "text",
        _HIDDEN,
    ),
    "mobilebert": Family(
        "MobileBertConfig",
        "MobileBertModel",
        lambda r: {"num_hidden_layers": r.randint(2, 8), "vocab_size": r.choice([1000, 30522])},
        "text",
        _HIDDEN,
    ),
    "convbert": Family(
        "ConvBertConfig",
        "ConvBertModel",
        lambda r: {**text(r), "num_attention_heads": 4, "hidden_size": r.choice([128, 256]), "embedding_size": 128},
        "text",
        _HIDDEN,
    ),
    "xlnet": Family("XLNetConfig", "XLNetModel", lambda r: renamed(text(r), **_XLNET), "text", _HIDDEN),
    "longformer": Family(
        "LongformerConfig",
        "LongformerModel",
        lambda r: {**text(r), "attention_window": r.choice([16, 32])},
        "text",
        _HIDDEN,
    ),
    "clip_text": Family(
        "CLIPTextConfig",
        "CLIPTextModel",
        lambda r: {
            **text(r),
            "max_position_embeddings": 200,
            "bos_token_id": 0,
            "eos_token_id": 1,
        },
        "text",
        _HIDDEN,
    ),
    "t5": Family(
        "T5Config", "T5Model", lambda r: {**renamed(text(r), **_T5), "d_kv": 64, "use_cache": False}, "pair", _HIDDEN
    ),
    "bart": Family("BartConfig", "BartModel", pair, "pair", _HIDDEN),
    "marian": Family("MarianConfig", "MarianModel", lambda r: {**pair(r), "pad_token_id": 0}, "pair", _HIDDEN),
    "phi": Family("PhiConfig", "PhiForCausalLM", lambda r: {**text(r), "use_cache": False, "pad_token_id": 0}, "text"),
    # Without ALiBi, whose slopes torch's exporter (2.13) writes as a cast to complex numbers.
    "falcon": Family(
        "FalconConfig",
        "FalconForCausalLM",
        lambda r: {**without(text(r), "intermediate_size"), "alibi": False, "use_cache": False},
        "text",
    ),
    "gptj": Family(
        "GPTJConfig",
        "GPTJForCausalLM",
        lambda r: {**without(renamed(text(r), **_GPT), "intermediate_size"), "rotary_dim": 16, "use_cache": False},
        "text",
    ),
    "mpt": Family(
        "MptConfig",
        "MptForCausalLM",
        lambda r: {**without(renamed(text(r), **_MPT), "intermediate_size"), "use_cache": False},
        "text",
    ),
    "xglm": Family(
        "XGLMConfig", "XGLMForCausalLM", lambda r: {**renamed(text(r), **_XGLM), "use_cache": False}, "text"
    ),
    "olmo2": Family("Olmo2Config", "Olmo2ForCausalLM", decoder, "text"),
    "gemma3": Family("Gemma3TextConfig", "Gemma3ForCausalLM", decoder, "text"),
    "starcoder2": Family(
        "Starcoder2Config", "Starcoder2ForCausalLM", lambda r: without(decoder(r), "head_dim"), "text"
    ),
    "mamba": Family(
        "MambaConfig",
        "MambaModel",
        lambda r: {
            "hidden_size": r.choice([64, 128, 256]),
            "num_hidden_layers": r.randint(1, 3),
            "vocab_size": 5003,
            "length": r.choice([8, 16, 33]),  # its recurrence is unrolled
            "use_cache": False,
        },
        "text",
        _HIDDEN,
    ),
    "siglip": Family("SiglipVisionConfig", "SiglipVisionModel", image, IMAGE, "pooler_output"),
    "yolos": Family(
        "YolosConfig",
        "YolosForObjectDetection",
        lambda r: {**(sizes := image(r)), "image_size": [sizes["image_size"]] * 2},
        IMAGE,
    ),
    "detr": Family(
        "DetrConfig",
        "DetrForObjectDetection",
        lambda r: {
            **without(pair(r), "vocab_size", "use_cache"),
            **side(r),
            **_NO_TIMM,
            "backbone_config": resnet(r),
        },
        IMAGE,
    ),
    "dpt": Family(
        "DPTConfig",
        "DPTForDepthEstimation",
        lambda r: {
            **image(r),
            **dense(r),
            "num_hidden_layers": 4,
            "patch_size": 16,
            "backbone_out_indices": [0, 1, 2, 3],
            "is_hybrid": False,
        },
        IMAGE,
        "predicted_depth",
    ),
    "glpn": Family("GLPNConfig", "GLPNForDepthEstimation", side, IMAGE, "predicted_depth"),
    "cvt": Family("CvtConfig", "CvtForImageClassification", side, IMAGE),
    "mobilevit": Family(
        "MobileViTConfig",
        "MobileViTForSemanticSegmentation",
        lambda r: {"image_size": r.choice([128, 256])},
        IMAGE,
    ),
    "vitdet": Family("VitDetConfig", "VitDetModel", lambda r: without(image(r), "intermediate_size"), IMAGE, _HIDDEN),
    "sam_vision": Family(
        "SamVisionConfig",
        "SamVisionModel",
        lambda r: {
            **without(image(r), "intermediate_size"),
            "image_size": r.choice([256, 512]),
            "patch_size": 16,
            "global_attn_indexes": [1],
            "window_size": r.choice([7, 14]),
            "output_channels": r.choice([64, 256]),
        },
        IMAGE,
        _HIDDEN,
    ),
    "videomae": Family("VideoMAEConfig", "VideoMAEModel", video, VIDEO, _HIDDEN),
    "timesformer": Family("TimesformerConfig", "TimesformerModel", video, VIDEO, _HIDDEN),
    "vivit": Family(
        "VivitConfig",
        "VivitModel",
        lambda r: {**without(video(r), "patch_size"), "tubelet_size": [2, 16, 16]},
        VIDEO,
        _HIDDEN,
    ),
    "hubert": Family("HubertConfig", "HubertModel", audio, AUDIO, _HIDDEN),
    "conformer": Family("Wav2Vec2ConformerConfig", "Wav2Vec2ConformerModel", audio, AUDIO, _HIDDEN),
    "ast": Family(
        "ASTConfig",
        "ASTForAudioClassification",
        lambda r: {**without(image(r), "image_size"), "patch_size": 16, "max_length": r.choice([256, 512])},
        Floats("input_values", lambda sizes: (sizes["max_length"], 128)),
    ),
    "whisper_encoder": Family(
        "WhisperConfig",
        "WhisperForAudioClassification",
        lambda r: {
            **without(pair(r), "use_cache"),
            "num_mel_bins": r.choice([80, 128]),
            "max_source_positions": r.choice([150, 500, 1500]),
        },
        Floats("input_features", lambda sizes: (sizes["num_mel_bins"], 2 * sizes["max_source_positions"])),
    ),
    "wav2vec2_bert": Family(
        "Wav2Vec2BertConfig",
        "Wav2Vec2BertModel",
        lambda r: {**without(text(r), "vocab_size"), "frames": r.choice([50, 128, 200])},
        Floats("input_features", lambda sizes: (sizes["frames"], 160)),
        _HIDDEN,
    ),
}
FAMILIES |= {
    f"{name}_step": dataclasses.replace(FAMILIES[name], sizes=step(FAMILIES[name].sizes), takes="step")
    for name in ("gpt2", "gpt_neox", "llama", "olmo2", "opt", "phi", "qwen3", "starcoder2")
}
