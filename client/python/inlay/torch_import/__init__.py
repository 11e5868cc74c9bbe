"""PyTorch's exported programs as IRModules. Start with api.py; converters stand in ops_*.py. Needs torch."""

from __future__ import annotations

from typing import Any


def from_torch(program: Any, args: Any = None, kwargs: Any = None, *, shape: Any = None, dynamic_shapes: Any = None):
    """Imports a torch.export program; see inlay.torch_import.api.from_torch for arguments and errors."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError("inlay.from_torch needs PyTorch, which is not installed: pip install torch") from None
    from inlay.torch_import import api

    return api.from_torch(program, args, kwargs, shape=shape, dynamic_shapes=dynamic_shapes)


__all__ = ["from_torch"]
