"""inlay: compile machine-learning models on an inlay server and run what comes back.

Names are loaded when first used, so that `import inlay` is quick and needs no more than its caller does.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# Public name -> module that has it.
_LAZY = {
    "from_onnx": "inlay.onnx_import",
    "IRModule": "inlay.ir",
    "FunctionBuilder": "inlay.ir",
    "InlayError": "inlay.errors",
    "InvalidModelError": "inlay.errors",
    "UnsupportedOperatorError": "inlay.errors",
}

__all__ = ["FunctionBuilder", "IRModule", "InlayError", "InvalidModelError", "UnsupportedOperatorError", "from_onnx"]


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'inlay' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
