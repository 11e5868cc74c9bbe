"""FunctionBuilder: writes an IRModule one operator at a time.

    import numpy as np
    from inlay.ir import FunctionBuilder

    b = FunctionBuilder()
    x = b.param("x", "f32", (1, 64))
    w = b.weight(np.random.rand(64, 10).astype(np.float32), "w")
    y = b.op("softmax", b.op("matmul", x, w), axis=-1)
    module = b.finish([y], ["probabilities"])

Operators, attributes and meanings are those of core/ir/OPS.md; every result's type is inferred at once, so a wrong shape
is an error at the line that made it. Not thread-safe.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from inlay._proto import ir_pb2
from inlay.errors import InvalidModelError
from inlay.ir import ops, ops_data  # noqa: F401  (ops_data registers its operators)
from inlay.ir.attrs import encode_attr
from inlay.ir.dims import Dim, Shape
from inlay.ir.module import LITERAL_LIMIT, IRModule, digest_of
from inlay.ir.types import TensorType, dtype_name


@dataclasses.dataclass(frozen=True)
class Var:
    """A value of a function under construction: a Var or a Constant of the IR, with its type."""

    type: TensorType
    constant: bool
    index: int

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)


class FunctionBuilder:
    """Builds one function, and with `finish` the module around it."""

    def __init__(self, name: str = "main"):
        self.name = name
        self.location = ""  # put into every binding made from now on
        self._function = ir_pb2.Function()
        self._constants: list[ir_pb2.Constant] = []
        self._weights: dict[bytes, np.ndarray] = {}
        self._known: dict[tuple, Var] = {}  # equal literals are one

    def param(self, name: str, dtype, shape: Sequence[Dim]) -> Var:
        """A parameter; parameters are passed in the order of these calls. Extents are ints or symbol names."""
        type_ = TensorType.of(dtype, shape)
        var = self._var(type_, name)
        self._function.params.append(var.index)
        return var

    def weight(self, array: np.ndarray, name: str = "") -> Var:
        """A constant by digest: no pass looks at its value and no key contains it. The array is not copied if it is
        already dense and little-endian, and must not change afterwards.

        Each call makes a constant of its own, also where two arrays are equal: that is a coincidence of their values
        (biases before training are all zero), and a module's structure must not depend on it."""
        array, type_ = self._dense(array)
        digest = digest_of(array)
        self._weights[digest] = array
        return self._constant(ir_pb2.Constant(type=type_.to_proto(), digest=digest, name=name), type_)

    def literal(self, value, dtype=None, name: str = "") -> Var:
        """A constant that is part of the program's meaning: hashed, foldable, at most 64 KiB."""
        array, type_ = self._dense(np.asarray(value, dtype=None if dtype is None else TensorType.of(dtype, ()).numpy))
        if array.nbytes > LITERAL_LIMIT:
            raise ValueError(f"a literal of {array.nbytes} bytes; over {LITERAL_LIMIT} use weight()")
        data = array.tobytes()
        key = (data, type_)
        if key not in self._known:
            self._known[key] = self._constant(ir_pb2.Constant(type=type_.to_proto(), literal=data, name=name), type_)
        return self._known[key]

    def op(self, op_name: str, *args: Var, **attrs: Any) -> Any:
        """Calls an operator. Returns its Var, or a tuple of Vars for an operator with several results.

        Attributes that are None are left out. Raises InvalidModelError naming the op and the location.
        """
        schema = ops.REGISTRY.get(op_name)
        where = f"{self.location}: " if self.location else ""
        if schema is None:
            raise InvalidModelError(f"{where}no operator {op_name!r} in core/ir/OPS.md")
        unknown = sorted(set(attrs) - set(schema.attrs))
        if unknown:
            raise InvalidModelError(f"{where}{op_name} has no attribute {', '.join(unknown)}")
        binding = ir_pb2.Binding(location=self.location)
        binding.call.op = op_name
        full: dict[str, Any] = {}
        try:
            for name, (kind, default) in schema.attrs.items():
                value = attrs.get(name)
                if value is None:
                    if default is ...:
                        raise ValueError(f"attribute {name} is missing")
                    full[name] = default
                    continue
                binding.attrs[name].CopyFrom(encode_attr(value, kind))
                full[name] = dtype_name(value) if kind == "dtype" else value
            inferred = schema.infer([a.type for a in args], full)
        except (ValueError, TypeError) as error:
            raise InvalidModelError(f"{where}{op_name}: {error}") from None
        binding.args.extend(self._operand(a) for a in args)
        return self._bind(binding, inferred)

    def finish(self, results: Sequence[Var], names: Sequence[str] | None = None) -> IRModule:
        """The module with this one function; bindings and constants that nothing uses are left out."""
        names = list(names) if names is not None else [f"output_{i}" for i in range(len(results))]
        if len(names) != len(results):
            raise ValueError(f"{len(results)} results and {len(names)} names")
        needed: set[int] = set()
        constants: set[int] = set()

        def use(operand: ir_pb2.Operand) -> None:
            (constants if operand.WhichOneof("kind") == "constant" else needed).add(
                operand.constant if operand.WhichOneof("kind") == "constant" else operand.var
            )

        operands = [self._operand(r) for r in results]
        for operand in operands:
            use(operand)
        kept = []
        for binding in reversed(self._function.body.bindings):
            if binding.var in needed:
                kept.append(binding)
                for operand in binding.args:
                    use(operand)
        return self._pack(list(reversed(kept)), operands, names, needed, sorted(constants))

    def _pack(self, bindings, results, names, needed, constants) -> IRModule:
        """Renumbers what is used: parameters first, then bindings in order."""
        module = ir_pb2.IRModule()
        function = module.functions[self.name]
        order = list(self._function.params) + [b.var for b in bindings]
        var_at = {old: new for new, old in enumerate(order)}
        constant_at = {old: new for new, old in enumerate(constants)}
        function.vars.extend(self._function.vars[i] for i in order)
        function.params.extend(range(len(self._function.params)))

        def renumber(operand):
            if operand.WhichOneof("kind") == "constant":
                return ir_pb2.Operand(constant=constant_at[operand.constant])
            return ir_pb2.Operand(var=var_at[operand.var])

        for binding in bindings:
            added = function.body.bindings.add()
            added.CopyFrom(binding)
            added.var = var_at[binding.var]
            del added.args[:]
            added.args.extend(renumber(a) for a in binding.args)
        function.body.results.extend(renumber(r) for r in results)
        function.result_names.extend(names)
        module.constants.extend(self._constants[i] for i in constants)
        used = {c.digest for c in module.constants if c.WhichOneof("value") == "digest"}
        return IRModule(module, {d: a for d, a in self._weights.items() if d in used})

    def _bind(self, binding: ir_pb2.Binding, inferred) -> Any:
        if isinstance(inferred, TensorType):
            var = self._var(inferred)
            binding.var = var.index
            self._function.body.bindings.append(binding)
            return var
        whole = len(self._function.vars)
        proto = self._function.vars.add()
        if all(t.static for t in inferred):
            for field in inferred:
                proto.type.tuple.fields.add().tensor.CopyFrom(field.to_proto())
        binding.var = whole
        self._function.body.bindings.append(binding)
        results = []
        for i, field in enumerate(inferred):
            var = self._var(field)
            item = self._function.body.bindings.add(var=var.index, location=self.location)
            item.tuple_get_item.index = i
            item.args.add(var=whole)
            results.append(var)
        return tuple(results)

    def _var(self, type_: TensorType, name: str = "") -> Var:
        index = len(self._function.vars)
        proto = self._function.vars.add(name=name)
        # A symbolic result's type is left to the server, whose expressions need not be spelled as ours are.
        if type_.static or name:
            proto.type.tensor.CopyFrom(type_.to_proto())
        return Var(type_, False, index)

    def _constant(self, proto: ir_pb2.Constant, type_: TensorType) -> Var:
        self._constants.append(proto)
        return Var(type_, True, len(self._constants) - 1)

    @staticmethod
    def _operand(var: Var) -> ir_pb2.Operand:
        return ir_pb2.Operand(constant=var.index) if var.constant else ir_pb2.Operand(var=var.index)

    @staticmethod
    def _dense(array: np.ndarray) -> tuple[np.ndarray, TensorType]:
        array = np.asarray(array)
        type_ = TensorType.of(array.dtype, array.shape)
        shape = array.shape
        dense = np.ascontiguousarray(array, dtype=type_.numpy.newbyteorder("<")).reshape(shape)
        return dense, type_
