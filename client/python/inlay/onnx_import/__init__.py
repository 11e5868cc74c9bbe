"""The ONNX importer: `from_onnx`. Start with importer.py; one file a group of operators, each with its converters."""

from inlay.onnx_import.api import from_onnx

__all__ = ["from_onnx"]
