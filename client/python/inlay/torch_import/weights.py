"""PyTorch tensors as arrays, sharing their memory."""

from __future__ import annotations

import numpy as np
import torch

from inlay.ir.types import BFLOAT16
from inlay.torch_import.registry import Unsupported, ir_dtype


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """The tensor's elements, without a copy where it is dense and on the CPU. Raises Unsupported."""
    ir_dtype(tensor.dtype)
    tensor = tensor.detach()
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Unsupported(f"a tensor of layout {str(tensor.layout).removeprefix('torch.')}, or quantised")
    if tensor.device.type == "meta" or isinstance(tensor, torch._subclasses.FakeTensor):
        raise Unsupported("a tensor without data (on the meta device, or fake)")
    tensor = tensor.cpu().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(BFLOAT16)
    return tensor.numpy()
