"""IRModule: the proto of a module together with the weights that its constants name by digest."""

from __future__ import annotations

import hashlib
import operator
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from inlay._proto import config_pb2, ir_pb2
from inlay.errors import InvalidModelError
from inlay.ir import dims
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

    Modules are values: what begins with `with_` returns a new one that shares the weights.

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

    def updates(self) -> dict[str, str]:
        """{output: input} of main's outputs that are new values of its inputs, as `with_updates` says them."""
        main, names = self._function("main"), [name for name, _ in self.inputs()]
        given = main.attrs["updates"].ints.v if "updates" in main.attrs else ()
        return {main.result_names[o]: names[i] for o, i in enumerate(given) if i >= 0}

    def with_updates(self, updates: Mapping[str, str]) -> IRModule:
        """A copy whose "main" gives these outputs by writing to inputs of the same type: {"present.0.key":
        "past.0.key"}, for a decoder's caches. A compiled module's call then writes to the caller's own tensors, which
        must be dense, and returns them; what is only changed in part is not copied. Replaces what was said before; {}:
        no input is written to. Raises ValueError where a name is unknown, or an input named twice; the server refuses
        types that differ."""
        inputs, outputs = [name for name, _ in self.inputs()], self.outputs()
        for kind, named, known in (("output", updates.keys(), outputs), ("input", updates.values(), inputs)):
            unknown = sorted(set(named) - set(known))
            if unknown:
                raise ValueError(f"no {kind} {', '.join(map(repr, unknown))}; main has {', '.join(map(repr, known))}")
        if len(set(updates.values())) != len(updates):
            raise ValueError("two outputs update one input")
        proto = self._copy()
        proto.functions["main"].attrs.pop("updates", None)
        if updates:
            given = [inputs.index(updates[name]) if name in updates else -1 for name in outputs]
            proto.functions["main"].attrs["updates"].CopyFrom(encode_attr(given))
        return IRModule(proto, self.weights)

    def required_extents(self) -> list[str]:
        """The expressions that must be 0 or more in a run of main, as `with_required_extents` says them, in the normal
        form of `inlay.ir.dims` ("512-seq": "-seq+512")."""
        main = self._function("main")
        given = main.attrs["required_extents"].strings.v if "required_extents" in main.attrs else ()
        return [str(dims.canonical(text)) for text in given]

    def with_required_extents(self, expressions: Iterable[dims.Dim]) -> IRModule:
        """A copy that refuses a run in which one of these is below 0: expressions over the symbols of main's inputs, such
        as "seq-8" (seq is 8 or more), "512-seq", "h-w", "8*(seq/8)-seq" (seq is a multiple of 8), for a graph that is
        wrong for other sizes. A run's error names the symbols, their values, and the inputs that have them. Replaces all
        that was said before, by `with_bounds` too; []: nothing is required. A number, left where every symbol got its
        value, says nothing. Raises ValueError where it is below 0, or a text has a symbol that no input has or is no
        expression."""
        required, known = [], self._symbols()
        for expression in expressions:
            dim = dims.canonical(expression) if isinstance(expression, str) else expression
            if isinstance(dim, str):
                self._check_symbols(dims.names_in(dim), known)
                required.append(dim)
            elif dim < 0:
                raise ValueError(f"{expression!r} is {dim}, and must be 0 or more")
        proto = self._copy()
        proto.functions["main"].attrs.pop("required_extents", None)
        if required:
            attr = encode_attr(list(dict.fromkeys(required)))
            proto.functions["main"].attrs["required_extents"].CopyFrom(attr)
        return IRModule(proto, self.weights)

    def bounds(self) -> dict[str, tuple[int | None, int | None]]:
        """{symbol: (least, most)} of main's inputs, both included, None: no bound; as `with_bounds` says them, or what
        `with_required_extents` says of one symbol alone. Symbols without bounds are left out."""
        return dims.ranges(self.required_extents())

    def with_bounds(self, bounds: Mapping[str, tuple[int | None, int | None]]) -> IRModule:
        """A copy that refuses a run in which a symbol of main's inputs is less or more than this, both included:
        {"seq": (8, 512), "h": (None, 100)}; None, or no entry: no bound. Replaces the bounds said before; required
        extents of several symbols stay. Raises ValueError where no input has a symbol, or no size is within its
        bounds."""
        required: list[dims.Dim] = []
        self._check_symbols(bounds, self._symbols())
        for symbol, (least, most) in bounds.items():
            if most is not None and most < max(0, least or 0):
                raise ValueError(f"no size of {symbol!r} is within its bounds, {least} to {most}")
            if least is not None:
                required.append(dims.sub(symbol, operator.index(least)))
            if most is not None:
                required.append(dims.sub(operator.index(most), symbol))
        # Those of one symbol first: the first that a run breaks is what it says.
        others = [e for e in self.required_extents() if dims.linear_in_one(e) is None]
        return self.with_required_extents([*required, *others])

    def with_configuration(
        self, config: str | Target | CompilationConfig | config_pb2.CompilationConfig | None
    ) -> IRModule:
        """A copy that carries this configuration (a Target or a text stands for the one it makes); `inlay.build`
        without one takes it."""
        from inlay.config import make

        proto = self._copy()
        proto.config.CopyFrom(config if isinstance(config, config_pb2.CompilationConfig) else make(config).to_proto())
        return IRModule(proto, self.weights)

    def save(self, path: str | os.PathLike) -> pathlib.Path:
        """Writes the module, with its attributes and configuration, to be read by `inlay.load_module`, or in C++ by
        inlay::LoadModule; returns the path.

        Two files: `path` is the serialised proto.IRModule, `<path>.safetensors` its weights, where there are any: each a
        U8 tensor of its bytes, named by its digest in hex. Raises ValueError where the data of a weight is not here.
        """
        from safetensors.numpy import save_file

        path, named = pathlib.Path(path), {}
        for constant in self.proto.constants:
            if not constant.digest:
                continue
            if constant.digest not in self.weights:
                raise ValueError(f"the module can't be saved: it has no data of its weight {constant.name!r}")
            array = np.ascontiguousarray(self.weights[constant.digest])
            named[constant.digest.hex()] = array.reshape(-1).view(np.uint8)
        # The weights first: who finds the module finds them.
        for target, write in (
            (_weights_beside(path), lambda part: save_file(named, part)),
            (path, lambda part: part.write_bytes(self.proto.SerializeToString(deterministic=True))),
        ):
            if target == path or named:
                part = target.with_name(f".{target.name}.part")
                write(part)
                part.replace(target)
        return path

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

    def _symbols(self) -> list[str]:
        """Of main's inputs, each once."""
        extents = dims.symbols([dim for _, type_ in self.inputs() for dim in type_.shape])
        return list(dict.fromkeys(name for extent in extents for name in dims.names_in(extent)))

    @staticmethod
    def _check_symbols(named: Iterable[str], known: Sequence[str]) -> None:
        unknown = sorted(set(named) - set(known))
        if unknown:
            has = ", ".join(map(repr, known)) or "none"
            raise ValueError(f"no input has the symbol {', '.join(map(repr, unknown))}; main has {has}")

    def _copy(self) -> ir_pb2.IRModule:
        proto = ir_pb2.IRModule()
        proto.CopyFrom(self.proto)
        return proto


def load_module(path: str | os.PathLike) -> IRModule:
    """What `IRModule.save` wrote. Raises InvalidModelError where a file is damaged, OSError."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path, proto = pathlib.Path(path), ir_pb2.IRModule()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError:
        proto.Clear()
    if "main" not in proto.functions:
        raise InvalidModelError(f"{path} is no IRModule, or damaged")
    weights: dict[bytes, np.ndarray] = {}
    wanted = {c.digest: TensorType.from_proto(c.type) for c in proto.constants if c.digest}
    if wanted:
        beside = _weights_beside(path)
        try:
            loaded = load_file(beside)
            for digest, kind in wanted.items():
                shape = [int(dim) for dim in kind.shape]
                weights[digest] = loaded[digest.hex()].view(kind.numpy).reshape(shape)
        except (SafetensorError, KeyError, ValueError) as error:
            raise InvalidModelError(f"{beside} is damaged, or belongs to another module: {error}") from None
    return IRModule(proto, weights)


def _weights_beside(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.safetensors")
