"""Arrays of a model's initializers, in place wherever the bytes already lie in memory or in a file."""

from __future__ import annotations

import contextlib
import math
import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from inlay.errors import InvalidModelError

_PACKED = {  # several elements a byte: their bits
    onnx.TensorProto.INT4: 4, onnx.TensorProto.UINT4: 4, onnx.TensorProto.FLOAT4E2M1: 4,
    getattr(onnx.TensorProto, "INT2", -1): 2, getattr(onnx.TensorProto, "UINT2", -1): 2,
}  # fmt: skip


def load_tensor(tensor: onnx.TensorProto, base: pathlib.Path | None) -> np.ndarray:
    """The tensor's array; external data is memory-mapped read-only from below `base`. Raises InvalidModelError."""
    if tensor.data_type in _PACKED:
        return load_packed(tensor, base)()
    with _about(tensor):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            return _external(tensor, base, _dtype(tensor), tuple(tensor.dims))
        if tensor.HasField("raw_data") and tensor.data_type != onnx.TensorProto.STRING:
            return np.frombuffer(tensor.raw_data, dtype=_dtype(tensor)).reshape(tuple(tensor.dims))
        return numpy_helper.to_array(tensor)


def is_packed(tensor: onnx.TensorProto) -> bool:
    return tensor.data_type in _PACKED


def load_packed(tensor: onnx.TensorProto, base: pathlib.Path | None) -> Callable[[], np.ndarray]:
    """A function that gives the array of a tensor whose elements share bytes, each in a byte of its own. Raises
    InvalidModelError; that function does not."""
    with _about(tensor):
        elements = math.prod(tensor.dims)
        size = -(-elements * _PACKED[tensor.data_type] // 8)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raw = _external(tensor, base, np.dtype(np.uint8), (size,))
        elif tensor.HasField("raw_data"):
            raw = np.frombuffer(tensor.raw_data, np.uint8)
            if raw.size != size:
                raise ValueError(f"{raw.size} bytes, shape {list(tensor.dims)} wants {size}")
        else:
            array = numpy_helper.to_array(tensor)
            return lambda: array

    def unpacked() -> np.ndarray:
        return numpy_helper.to_array(
            onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw.tobytes())
        )

    return unpacked


@contextlib.contextmanager
def _about(tensor: onnx.TensorProto) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise InvalidModelError(f"initializer {tensor.name!r}: {error}") from None


def _dtype(tensor: onnx.TensorProto) -> np.dtype:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")


def _external(
    tensor: onnx.TensorProto, base: pathlib.Path | None, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    info = {entry.key: entry.value for entry in tensor.external_data}
    if base is None:
        raise ValueError("its data is in another file, and the model was not loaded from a path")
    path = (base / info.get("location", "")).resolve()
    if not path.is_relative_to(base.resolve()):  # a model must not be able to name any file of its reader
        raise ValueError(f"external data {info.get('location')!r} is outside the model's folder")
    if tensor.data_type == onnx.TensorProto.STRING:
        raise ValueError("external data of strings")
    offset = int(info.get("offset", 0))
    wanted = math.prod(shape) * dtype.itemsize
    if "length" in info and int(info["length"]) != wanted:
        raise ValueError(f"external data has {info['length']} bytes, shape {list(tensor.dims)} wants {wanted}")
    if offset < 0 or offset + wanted > path.stat().st_size:
        raise ValueError(f"external data {path.name} ends before byte {offset + wanted}")
    if wanted == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape or (1,)).reshape(shape)
