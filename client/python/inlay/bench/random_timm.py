"""timm's image models, as they are, for random_architectures."""

from __future__ import annotations

import random
from typing import Any

# Of nearly every family of timm 1.0.31 that PyTorch exports to ONNX, with fewer than 40 million weights.
NAMES = """
botnet26t_256 cait_xs24_384 coat_lite_mini coatnet_nano_rw_224 convit_small convmixer_1024_20_ks9_p14
convnext_pico_ols convnext_tiny convnextv2_atto cpubone_b0_bfrobust crossvit_9_240 cs3darknet_m cspnext_m
cspresnet50 davit_tiny deit3_small_patch16_384 deit_tiny_patch16_224 densenet121 densenet169 dla34 dla60_res2next
dpn48b eca_nfnet_l0 eca_resnet33ts ecaresnet26t edgenext_xx_small efficientformer_l1 efficientformer_l3
efficientformerv2_l efficientnet_b0 efficientnet_lite0 efficientvim_m4_dist efficientvit_b1 efficientvit_m5
ese_vovnet19b_slim_dw ese_vovnet39b eva02_tiny_patch14_224 fasternet_t0 fastvit_mci0 fbnetc_100 focalnet_tiny_lrf
gcvit_xtiny gernet_s ghostnet_100 ghostnetv2_100 gmlp_ti16_224 hardcorenas_a hardcorenas_d hgnet_tiny hiera_tiny_224
hrnet_w18_small hrnet_w18_ssld iformer_m inception_next_tiny inception_v3 lcnet_050 lcnetv2_small legacy_seresnet34
legacy_seresnext26_32x4d legacy_xception levit_128 levit_conv_128s lowformer_b0 mambaout_tiny maxvit_tiny_rw_256
mixer_s32_224 mixnet_s mnasnet_100 mobilenetv2_100 mobilenetv3_small_100 mobilenetv4_conv_small mobileone_s0
mobilevit_xxs mobilevitv2_050 mvitv2_small nest_small nextvit_small nf_resnet26 pit_ti_distilled_224 poolformer_s12
pvt_v2_b2_li rdnet_tiny regnetx_002 regnetx_006 regnety_008 regnetz_b16 repghostnet_058 repvgg_a0 repvit_m1_0
res2net50_26w_4s res2next50 resmlp_12_224 resnest50d_4s2x40d resnet18 resnet26d resnet50_gn resnetblur50
resnetv2_50t resnext50_32x4d rexnet_100 rexnetr_200 selecsls42 semnasnet_100 sequencer2d_s seresnet50 shvit_s1
skresnet18 skresnext50_32x4d spnasnet_100 starnet_s3 swiftformer_l1 swin_tiny_patch4_window7_224 swinv2_cr_tiny_384
swinv2_tiny_window8_256 tf_mobilenetv3_large_075 tiny_vit_21m_384 tinynet_a tnt_s_legacy_patch16_224 tresnet_m
twins_pcpvt_small twins_svt_small visformer_tiny vit_small_patch32_224 vit_small_r26_s32_224
vit_srelpos_medium_patch16_224 vit_tiny_patch16_224 vit_xsmall_patch16_clip_224 vitamin_small_224 xception65
xcit_nano_12_p8_384 xcit_tiny_12_p16_224
""".split()  # noqa: SIM905
_EXTENT = 224


def draw(r: random.Random) -> tuple[str, dict[str, Any]]:
    """(model, nothing to be said of its sizes)."""
    return r.choice(NAMES), {}


def input_names(_family: str, _sizes: Any) -> list[str]:
    return ["pixel_values"]


def inputs(family: str, _sizes: dict[str, Any], batch: int, generator: Any) -> tuple[Any, ...]:
    """Images (f32 [batch, channels, side, side]) of the size that the model is made for."""
    import timm
    import torch

    config = timm.get_pretrained_cfg(family)
    shape = config.input_size if config is not None else (3, _EXTENT, _EXTENT)
    return (torch.randn(batch, *shape, generator=generator),)


def network(family: str, _sizes: dict[str, Any], _attention: str) -> Any:
    """The PyTorch module; takes `inputs`, gives one tensor."""
    import timm

    return timm.create_model(family, exportable=True)
