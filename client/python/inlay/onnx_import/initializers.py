"""Arrays of a model's initializers, in place wherever the bytes already lie in memory or in a file."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
from onnx import numpy_helper

from inlay.errors import InvalidModelError

_PACKED = {  # several elements a byte: left to onnx's own reader
    onnx.TensorProto.INT4, onnx.TensorProto.UINT4, onnx.TensorProto.FLOAT4E2M1, onnx.TensorProto.STRING,
    getattr(onnx.TensorProto, "INT2", -1), getattr(onnx.TensorProto, "UINT2", -1),
}  # fmt: skip


def load_tensor(tensor: onnx.TensorProto, base: pathlib.Path | None) -> np.ndarray:
    """The tensor's array; external data is memory-mapped read-only from below `base`. Raises InvalidModelError."""
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, base)
        if tensor.HasField("raw_data") and tensor.data_type not in _PACKED:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")
            return np.frombuffer(tensor.raw_data, dtype=dtype).reshape(tuple(tensor.dims))
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise InvalidModelError(f"initializer {tensor.name!r}: {error}") from None


def _external(tensor: onnx.TensorProto, base: pathlib.Path | None) -> np.ndarray:
    info = {entry.key: entry.value for entry in tensor.external_data}
    if base is None:
        raise ValueError("its data is in another file, and the model was not loaded from a path")
    path = (base / info.get("location", "")).resolve()
    if not path.is_relative_to(base.resolve()):  # a model must not be able to name any file of its reader
        raise ValueError(f"external data {info.get('location')!r} is outside the model's folder")
    if tensor.data_type in _PACKED:
        raise ValueError("external data of a packed dtype")
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")
    shape = tuple(tensor.dims)
    offset = int(info.get("offset", 0))
    wanted = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if "length" in info and int(info["length"]) != wanted:
        raise ValueError(f"external data has {info['length']} bytes, shape {list(shape)} wants {wanted}")
    if offset < 0 or offset + wanted > path.stat().st_size:
        raise ValueError(f"external data {path.name} ends before byte {offset + wanted}")
    if wanted == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape or (1,)).reshape(shape)
