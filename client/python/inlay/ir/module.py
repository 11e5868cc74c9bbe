"""IRModule: the proto of a module together with the weights that its constants name by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from inlay._proto import config_pb2, ir_pb2
from inlay.ir.attrs import encode_attr
from inlay.ir.types import TensorType

if TYPE_CHECKING:
    from inlay.config import CompilationConfig
    from inlay.target import Target

LITERAL_LIMIT = 64 * 1024  # bytes; proto/ir.proto: Constant.literal


def digest_of(array: np.ndarray) -> bytes:
    """SHA-256 of the array's dense little-endian bytes (32 bytes). The array must be C-contiguous."""
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).digest()


class IRModule:
    """A module of proto/ir.proto plus its weights.

    Modules are values: `with_attr` and `with_configuration` return a new one that shares the weights.

    Attributes:
        proto: the `ir_pb2.IRModule`; treat as read-only.
        weights: {SHA-256 digest (32 bytes): C-contiguous little-endian array}. Arrays may be memory-mapped, and are
            never written. A digest names bytes: where constants of different types share them, the array has the type of
            one. Every Constant of the proto with a digest has its entry here unless the server already has it.
    """

    def __init__(self, proto: ir_pb2.IRModule, weights: Mapping[bytes, np.ndarray] | None = None):
        self.proto = proto
        self.weights: dict[bytes, np.ndarray] = dict(weights or {})

    @property
    def functions(self) -> Mapping[str, ir_pb2.Function]:
        """{name: Function}; "main" is the entry."""
        return self.proto.functions

    @property
    def attrs(self) -> Mapping[str, ir_pb2.AttrValue]:
        return self.proto.attrs

    @property
    def config(self) -> CompilationConfig:
        """The configuration that it carries; the default one where it carries none (see `has_config`)."""
        from inlay.config import CompilationConfig

        return CompilationConfig.from_proto(self.proto.config)

    @property
    def has_config(self) -> bool:
        """Whether `with_configuration` gave it one."""
        return self.proto.HasField("config")

    def inputs(self, function: str = "main") -> list[tuple[str, TensorType]]:
        """(name, type) of each parameter, in call order."""
        body = self._function(function)
        return [(body.vars[i].name, TensorType.from_proto(body.vars[i].type.tensor)) for i in body.params]

    def outputs(self, function: str = "main") -> list[str]:
        """The names of the results, in order."""
        return list(self._function(function).result_names)

    def with_attr(self, name: str, value: Any) -> IRModule:
        """A copy with the module attribute set (a bool, int, float, str, or list of ints, floats or strings)."""
        proto = self._copy()
        proto.attrs[name].CopyFrom(encode_attr(value))
        return IRModule(proto, self.weights)

    def with_configuration(
        self, config: str | Target | CompilationConfig | config_pb2.CompilationConfig | None
    ) -> IRModule:
        """A copy that carries this configuration (a Target or a text stands for the one it makes); `inlay.build`
        without one takes it."""
        from inlay.config import make

        proto = self._copy()
        proto.config.CopyFrom(config if isinstance(config, config_pb2.CompilationConfig) else make(config).to_proto())
        return IRModule(proto, self.weights)

    def weight_bytes(self) -> int:
        """Bytes of all weights, each distinct one counted once."""
        return sum(array.nbytes for array in self.weights.values())

    def __str__(self) -> str:
        from inlay.ir.printer import print_module

        return print_module(self.proto)

    def __repr__(self) -> str:
        calls = sum(len(f.body.bindings) for f in self.proto.functions.values())
        return f"<IRModule: {len(self.proto.functions)} function(s), {calls} bindings, {len(self.weights)} weights>"

    def _function(self, name: str) -> ir_pb2.Function:
        if name not in self.proto.functions:
            raise KeyError(f"no function {name!r} in the module; it has {sorted(self.proto.functions)}")
        return self.proto.functions[name]

    def _copy(self) -> ir_pb2.IRModule:
        proto = ir_pb2.IRModule()
        proto.CopyFrom(self.proto)
        return proto
