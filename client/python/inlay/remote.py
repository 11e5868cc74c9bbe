"""RemoteModule: a model loaded into the daemon, run over the wire. Tensors are streamed, so they may be large."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from inlay._proto import compile_service_pb2 as pb
from inlay._proto import ir_pb2
from inlay.client import CHUNK_BYTES, Client
from inlay.ir.types import TensorType
from inlay.runtime import TensorSpec, check_updated, order_inputs
from inlay.server_errors import RunError
from inlay.tensors import to_numpy


def specs(types: Iterable[pb.NamedType]) -> list[TensorSpec]:
    """[(name, dtype, shape)] of what the service calls NamedType."""
    result = []
    for named in types:
        tensor = TensorType.from_proto(named.type)
        result.append((named.name, tensor.dtype, tensor.shape))
    return result


def static_shape(tensor: TensorType) -> tuple[int, ...]:
    """The shape of a tensor that a run made. Raises RunError where the server left a dimension open."""
    if not tensor.static:
        raise RunError(f"the server answered a tensor of the open shape {list(tensor.shape)}")
    return tuple(int(dim) for dim in tensor.shape)


class RemoteFunction:
    """ "main" of a RemoteModule."""

    def __init__(self, module: RemoteModule, name: str):
        self._module = module
        self._name = name

    def __call__(self, *args: Any, timeout: float | None = None, **named: Any) -> Any:
        """Runs it; returns a NumPy array, or a tuple of them. Inputs that the model updates are written to when all of
        the answer is here. Raises TypeError, RunError, NotFoundError (the handle was unloaded or expired)."""
        ordered = order_inputs(self._name, self._module.inputs, args, named)
        updates = self._module.updates
        check_updated(self._module.inputs, updates, ordered)
        arrays = [to_numpy(v, f"input {s[0]!r}") for s, v in zip(self._module.inputs, ordered, strict=True)]
        outputs = self._module._run(arrays, timeout)
        for output, i in enumerate(updates):
            if i >= 0:
                arrays[i][...] = outputs[output]
                outputs[output] = arrays[i]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


class RemoteModule:
    """A handle to a module in the daemon; unloads it when used as a context manager, or by `unload()`.

    Attributes:
        handle: the server's name for it.
        inputs, outputs: [(name, dtype, shape)] in call order.
        updates: of each output the input that it is the new value of; -1: none.
        load_ms: what loading took the server.
        last_run_ms: what the last run took the server, without the transfer.
    """

    def __init__(self, client: Client, response: pb.JitResponse):
        self.client = client
        self.handle = response.handle
        self.inputs = specs(response.inputs)
        self.outputs = specs(response.outputs)
        self.updates = list(response.updates) or [-1] * len(self.outputs)
        self.load_ms = response.load_ms
        self.last_run_ms = 0.0

    def __getitem__(self, name: str) -> RemoteFunction:
        if name != "main":
            raise KeyError(f"the module has no function {name!r}; a compiled model's is 'main'")
        return RemoteFunction(self, name)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self["main"](*inputs, **named)

    def run(self, inputs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Runs "main" on {input name: tensor}; returns {output name: array}."""
        result = self["main"](**inputs)
        results = result if isinstance(result, tuple) else (result,)
        return {spec[0]: value for spec, value in zip(self.outputs, results, strict=True)}

    def unload(self) -> None:
        self.client.unload(self.handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.unload()

    def _run(self, arrays: Sequence[np.ndarray], timeout: float | None) -> list[np.ndarray]:
        reader = _Outputs(len(self.outputs))
        for response in self.client.run(self.handle, tensor_chunks(arrays), timeout):
            if response.HasField("output"):
                reader.add(response.output)
            if response.run_ms:
                self.last_run_ms = response.run_ms
        return reader.finish()


def tensor_chunks(arrays: Sequence[np.ndarray]) -> Iterator[pb.TensorChunk]:
    """The chunks of C-contiguous little-endian arrays, in order; the type is in each tensor's first chunk."""
    for index, array in enumerate(arrays):
        data = array.reshape(-1).view(np.uint8).data
        tensor_type: ir_pb2.TensorType | None = TensorType.of(array.dtype, array.shape).to_proto()
        for begin in range(0, max(len(data), 1), CHUNK_BYTES):
            piece = data[begin : begin + CHUNK_BYTES]
            last = begin + len(piece) >= len(data)
            yield pb.TensorChunk(index=index, type=tensor_type, data=bytes(piece), last=last)
            tensor_type = None


class _Outputs:
    """Puts the chunks of the outputs together."""

    def __init__(self, count: int):
        self._count = count
        self._buffers: dict[int, tuple[TensorType, bytearray, int]] = {}

    def add(self, chunk: pb.TensorChunk) -> None:
        if chunk.HasField("type"):
            kind = TensorType.from_proto(chunk.type)
            size = math.prod(static_shape(kind)) * kind.numpy.itemsize
            self._buffers[chunk.index] = (kind, bytearray(size), 0)
        if chunk.index not in self._buffers:
            raise RunError(f"run: the server sent data of output {chunk.index} before its type")
        kind, buffer, filled = self._buffers[chunk.index]
        end = filled + len(chunk.data)
        if end > len(buffer):
            raise RunError(f"run: the server sent more than the {len(buffer)} bytes of output {chunk.index}")
        buffer[filled:end] = chunk.data
        self._buffers[chunk.index] = (kind, buffer, end)

    def finish(self) -> list[np.ndarray]:
        arrays = []
        for index in range(self._count):
            kind, buffer, filled = self._buffers.get(index, (None, b"", -1))
            if kind is None or filled != len(buffer):
                raise RunError(f"run: the server's answer ends before output {index} is complete")
            arrays.append(np.frombuffer(buffer, dtype=kind.numpy).reshape(static_shape(kind)))
        return arrays
