"""inlay: compile machine-learning models on an inlay server and run what comes back.

Names are loaded when first used, so that `import inlay` is quick and needs no more than its caller does.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

# Public name -> module that has it.
_LAZY = {
    "from_onnx": "inlay.onnx_import",
    "from_torch": "inlay.torch_import",
    "IRModule": "inlay.ir",
    "FunctionBuilder": "inlay.ir",
    "InlayError": "inlay.errors",
    "InvalidModelError": "inlay.errors",
    "UnsupportedOperatorError": "inlay.errors",
    "build": "inlay.executable",
    "Executable": "inlay.executable",
    "Target": "inlay.target",
    "CKernel": "inlay.target",
    "CompilationConfig": "inlay.config",
    "Executor": "inlay.config",
    "Runtime": "inlay.config",
    "PassContext": "inlay.passes",
    "Client": "inlay.client",
    "load_library": "inlay.library",
    "load_module": "inlay.ir",
    "Module": "inlay.modules",
    "ModuleProperty": "inlay.modules",
    "ModuleError": "inlay.modules",
    "PythonModule": "inlay.modules",
    "SourceModule": "inlay.modules",
    "ObjectModule": "inlay.modules",
    "LibraryModule": "inlay.runtime",
    "register_func": "inlay.packed",
    "VirtualMachine": "inlay.runtime",
    "RemoteModule": "inlay.remote",
    "CompileError": "inlay.server_errors",
    "UnsupportedError": "inlay.server_errors",
    "ServerError": "inlay.server_errors",
    "ServerUnavailableError": "inlay.server_errors",
    "ServerBusyError": "inlay.server_errors",
    "DeadlineExceededError": "inlay.server_errors",
    "RequestCancelledError": "inlay.server_errors",
    "NotFoundError": "inlay.server_errors",
    "RunError": "inlay.server_errors",
    "DaemonError": "inlay.server_errors",
    "LoadError": "inlay.server_errors",
}

# Modules that are used by name: inlay.config.cpu().
_MODULES = ("config", "passes", "onnx_backend")

__all__ = list(_LAZY)


def __getattr__(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"inlay.{name}")
    raise AttributeError(f"module 'inlay' has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
