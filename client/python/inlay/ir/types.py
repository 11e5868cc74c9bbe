"""Element types and tensor types: NumPy's names on one side, proto/ir.proto's on the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from inlay._proto import ir_pb2
from inlay.ir.dims import Dim, Shape, canonical, static

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_BY_NAME: dict[str, tuple[int, np.dtype]] = {
    "f32": (ir_pb2.F32, np.dtype(np.float32)),
    "f64": (ir_pb2.F64, np.dtype(np.float64)),
    "f16": (ir_pb2.F16, np.dtype(np.float16)),
    "bf16": (ir_pb2.BF16, BFLOAT16),
    "i8": (ir_pb2.I8, np.dtype(np.int8)),
    "u8": (ir_pb2.U8, np.dtype(np.uint8)),
    "i16": (ir_pb2.I16, np.dtype(np.int16)),
    "i32": (ir_pb2.I32, np.dtype(np.int32)),
    "i64": (ir_pb2.I64, np.dtype(np.int64)),
    "bool": (ir_pb2.BOOL, np.dtype(np.bool_)),
}
_BY_PROTO = {number: name for name, (number, _) in _BY_NAME.items()}
_BY_NUMPY = {dtype: name for name, (_, dtype) in _BY_NAME.items()}

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i8", "u8", "i16", "i32", "i64")
ALL = FLOATS + INTS + ("bool",)


def dtype_name(dtype) -> str:
    """ "f32" from "f32", np.float32, "float32", ml_dtypes.bfloat16, or a DType of the proto. Raises ValueError."""
    if isinstance(dtype, str) and dtype in _BY_NAME:
        return dtype
    if isinstance(dtype, int) and not isinstance(dtype, bool) and dtype in _BY_PROTO:
        return _BY_PROTO[dtype]
    try:
        found = _BY_NUMPY.get(np.dtype(dtype).newbyteorder("="))
    except TypeError:
        found = None
    if found is None:
        raise ValueError(f"dtype {dtype} is not one of {', '.join(ALL)}")
    return found


def numpy_dtype(name: str) -> np.dtype:
    return _BY_NAME[name][1]


def proto_dtype(name: str) -> int:
    return _BY_NAME[name][0]


@dataclasses.dataclass(frozen=True)
class TensorType:
    """dtype ("f32", ...) and shape (ints and symbol names)."""

    dtype: str
    shape: Shape

    @staticmethod
    def of(dtype, shape: Sequence[Dim]) -> TensorType:
        """Accepts any spelling of a dtype and of an expression. Raises ValueError on a negative extent or a foreign
        dtype."""
        dims: list[Dim] = []
        for dim in shape:
            if dim == "":
                raise ValueError(f"empty symbol in shape {list(shape)}")
            dim = canonical(dim) if isinstance(dim, str) else int(dim)
            if isinstance(dim, int) and dim < 0:
                raise ValueError(f"negative extent in shape {list(shape)}")
            dims.append(dim)
        return TensorType(dtype_name(dtype), tuple(dims))

    @staticmethod
    def from_proto(proto: ir_pb2.TensorType) -> TensorType:
        dims = tuple(d.symbol if d.WhichOneof("kind") == "symbol" else d.value for d in proto.dims)
        return TensorType(dtype_name(proto.dtype), dims)

    def to_proto(self) -> ir_pb2.TensorType:
        proto = ir_pb2.TensorType(dtype=proto_dtype(self.dtype))  # type: ignore[arg-type]
        for dim in self.shape:
            if isinstance(dim, str):
                proto.dims.add(symbol=dim)
            else:
                proto.dims.add(value=dim)
        return proto

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def static(self) -> bool:
        return static(self.shape)

    @property
    def numpy(self) -> np.dtype:
        return numpy_dtype(self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(str(d) for d in self.shape)}]"
