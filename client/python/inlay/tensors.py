"""Tensors of any library as what an exported function takes, without copying where their memory allows it.

The trouble this file ends: NumPy refuses DLPack export of read-only arrays and knows no bfloat16; exported functions
want dense row-major data on the CPU.
"""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_CPU = 1  # DLDeviceType kDLCPU
_BFLOAT_CODE = 4  # DLDataTypeCode kDLBfloat


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _DLManagedTensor(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_DLManagedTensor))
_DLManagedTensor._fields_ = (("tensor", _DLTensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _DELETER))

_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_alive: dict[int, tuple[Any, ...]] = {}  # address of a managed tensor -> what it points at


@_DELETER
def _release(managed):
    _alive.pop(ctypes.addressof(managed.contents), None)


class _Bfloat16Export:
    """The DLPack producer for a C-contiguous bfloat16 array."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, **_) -> Any:
        shape = (ctypes.c_int64 * max(self.array.ndim, 1))(*self.array.shape)
        managed = _DLManagedTensor(deleter=_release)
        tensor = managed.tensor
        tensor.data, tensor.device_type, tensor.ndim = self.array.ctypes.data, _CPU, self.array.ndim
        tensor.code, tensor.bits, tensor.lanes = _BFLOAT_CODE, 16, 1
        tensor.shape = shape
        _alive[ctypes.addressof(managed)] = (managed, shape, self.array)
        return _new_capsule(ctypes.addressof(managed), b"dltensor", None)


def _writeable(array: np.ndarray) -> np.ndarray:
    """A view of a C-contiguous read-only array that claims to be writeable, so that DLPack export is not refused.
    Exported functions only read their inputs."""
    if array.nbytes == 0:
        return array.copy()
    memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    return np.frombuffer(memoryview(memory), dtype=array.dtype).reshape(array.shape)


def to_tensor(value: Any, what: str = "input") -> tuple[Any, Any]:
    """(what to hand to a tvm-ffi function, what must stay alive until it has returned).

    Args:
        value: a NumPy array or scalar, a PyTorch tensor, anything with `__dlpack__` (on the CPU) or the buffer protocol.
        what: names the value in errors.

    Raises TypeError for anything else, and for tensors that are not on the CPU or belong to an autograd graph.
    """
    import tvm_ffi  # here, since it imports PyTorch where that is installed: seconds

    if isinstance(value, tvm_ffi.Tensor):
        return value, value
    if not isinstance(value, np.ndarray | np.generic) and hasattr(value, "__dlpack__"):
        return _from_dlpack(value, what)
    try:
        array = np.asarray(
            value if isinstance(value, np.ndarray | np.generic | int | float | bool) else memoryview(value)
        )
    except TypeError:
        raise TypeError(
            f"{what}: a {type(value).__name__} has neither DLPack nor the buffer protocol; give a NumPy array"
        ) from None
    if array.dtype == object or array.dtype.kind in "SUVc" and array.dtype != _BFLOAT16:
        raise TypeError(f"{what}: dtype {array.dtype} is not one of a tensor's")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == _BFLOAT16:
        return tvm_ffi.from_dlpack(_Bfloat16Export(array)), array
    return tvm_ffi.from_dlpack(array if array.flags.writeable else _writeable(array)), array


def check_writeable(value: Any, what: str) -> None:
    """Raises TypeError where a compiled function that is given `value` could not write to its memory: a number, an array
    that is read-only or not dense in native byte order."""
    if isinstance(value, np.ndarray):
        fits = value.flags.writeable and value.flags.c_contiguous and value.dtype.isnative
    else:
        dense = getattr(value, "is_contiguous", lambda: True)
        fits = not isinstance(value, np.generic) and hasattr(value, "__dlpack__") and bool(dense())
    if not fits:
        raise TypeError(
            f"{what}: the model updates it in place; give a tensor that is writeable, dense and row-major, not a "
            f"{type(value).__name__} that is not"
        )


def _from_dlpack(value: Any, what: str) -> tuple[Any, Any]:
    import tvm_ffi

    device = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else _CPU
    if int(device) != _CPU:
        raise TypeError(f"{what}: the tensor is on device {device}, the library runs on the CPU; move it there first")
    if getattr(value, "requires_grad", False):
        raise TypeError(f"{what}: the tensor requires grad, and nothing is differentiated here; give x.detach()")
    contiguous = getattr(value, "is_contiguous", None)
    if callable(contiguous) and not contiguous():
        value = value.contiguous()
    try:
        tensor = tvm_ffi.from_dlpack(value)
    except (BufferError, RuntimeError, ValueError) as error:
        raise TypeError(f"{what}: {type(value).__name__} can't be read through DLPack: {error}") from None
    return tensor, value


def to_numpy(value: Any, what: str = "input") -> np.ndarray:
    """A C-contiguous little-endian array of anything that `to_tensor` takes; shares memory where it can."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        if getattr(value, "requires_grad", False):
            raise TypeError(f"{what}: the tensor requires grad, and nothing is differentiated here; give x.detach()")
        array = _numpy_from_dlpack(value, what)
    else:
        try:
            array = np.asarray(value if isinstance(value, int | float | bool) else memoryview(value))
        except TypeError:
            raise TypeError(
                f"{what}: a {type(value).__name__} has neither DLPack nor the buffer protocol; give a NumPy array"
            ) from None
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def _numpy_from_dlpack(value: Any, what: str) -> np.ndarray:
    if "bfloat16" in str(getattr(value, "dtype", "")):
        # NumPy reads no bfloat16 through DLPack: PyTorch's tensors go through their bits.
        if hasattr(value, "view") and type(value).__module__.startswith("torch"):
            import torch

            return np.from_dlpack(value.contiguous().view(torch.int16)).view(_BFLOAT16)
        raise TypeError(
            f"{what}: bfloat16 of {type(value).__name__} can't be read; give a NumPy array of ml_dtypes.bfloat16"
        )
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise TypeError(f"{what}: {type(value).__name__} can't be read through DLPack: {error}") from None
