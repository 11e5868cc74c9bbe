"""The client's form of inlay's IR: the module with its weights, types, and the builder. Start with builder.py."""

from inlay.ir.builder import FunctionBuilder, Var
from inlay.ir.module import IRModule, load_module
from inlay.ir.types import TensorType

__all__ = ["FunctionBuilder", "IRModule", "TensorType", "Var", "load_module"]
