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

Control flow (executor vm; the others refuse it) takes Python functions that write the branches and the loop's body:

    z = b.if_(condition, lambda: [b.op("exp", y)], lambda: [y])[0]
    going, i, x = b.while_("turn", lambda f, going, i, x: [...], [going, i, x])   # f: the body's own builder
    y = b.call_packed("mine", [x], [("f32", (1, 10))])[0]       # a function of the client's process
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from inlay._proto import ir_pb2
from inlay.errors import InvalidModelError
from inlay.ir import dims, ops, ops_data  # noqa: F401  (ops_data registers its operators)
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

    var_type: type[Var] = Var  # what it makes

    def __init__(self, name: str = "main"):
        self.name = name
        self.location = ""  # put into every binding made from now on
        self._function = ir_pb2.Function()
        self._blocks = [self._function.body]  # under construction, the innermost last
        # Of the whole module: a body's builder shares them.
        self._constants: list[ir_pb2.Constant] = []
        self._weights: dict[bytes, np.ndarray] = {}
        self._known: dict[tuple, Var] = {}  # equal literals are one
        self._functions: dict[str, ir_pb2.Function] = {}  # finished ones

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
                if kind in ("extent", "extents"):
                    value = self._encode_extents(binding, name, value, single=kind == "extent")
                else:
                    binding.attrs[name].CopyFrom(encode_attr(value, kind))
                full[name] = dtype_name(value) if kind == "dtype" else value
            inferred = schema.infer([a.type for a in args], full)
        except (ValueError, TypeError) as error:
            raise InvalidModelError(f"{where}{op_name}: {error}") from None
        binding.args.extend(self._operand(a) for a in args)
        return self._bind(binding, inferred)

    @staticmethod
    def _encode_extents(binding: ir_pb2.Binding, name: str, value: Any, single: bool) -> Any:
        """Sets the attribute: -1, and a text beside it, where it is symbolic (OPS.md, "Symbolic extents"). Gives it in
        normal form."""
        listed = [dims.canonical(v) if isinstance(v, str) else v for v in ([value] if single else value)]
        if dims.symbols(listed):
            texts = [v if isinstance(v, str) else "" for v in listed]
            binding.attrs["dims"].CopyFrom(encode_attr(texts, "strings"))
        numbers = [-1 if isinstance(v, str) else v for v in listed]
        binding.attrs[name].CopyFrom(encode_attr(numbers[0], "int") if single else encode_attr(numbers, "ints"))
        return listed[0] if single else listed

    def extent(self, dim: Dim) -> Var:
        """An extent as data, i64[1]: one that a run alone knows is the sum of as many ones."""
        if not isinstance(dim, str):
            return self.literal([dim], "i64")
        return self.op("reduce_sum", self.op("full", shape=[dim], value=1, dtype="i64"), axes=[0], keepdims=True)

    # --- Control flow ---

    @property
    def in_body(self) -> bool:
        """Whether what is written now is in a branch, or in another function than main: a run may never come to it."""
        return len(self._blocks) > 1 or self.name != "main"

    def if_(
        self, condition: Var, then: Callable[[], Sequence[Var]], otherwise: Callable[[], Sequence[Var]]
    ) -> tuple[Var, ...]:
        """At run time one of the two, which must give the same types. `condition`: a bool with one element.

        What a branch makes can't be used outside of it but through its results. Raises InvalidModelError.
        """
        binding = ir_pb2.Binding(location=self.location, args=[self._operand(condition)])
        types = []
        for block, write in ((binding.if_.then_block, then), (binding.if_.else_block, otherwise)):
            results = self._write_block(block, write)
            types.append([r.type for r in results])
        if types[0] != types[1] or not types[0]:
            raise InvalidModelError(f"{self.location}: the branches give {types[0]} and {types[1]}")
        return self._bind_all(binding, types[0])

    def _write_block(self, block: ir_pb2.Block, write: Callable[[], Sequence[Var]]) -> Sequence[Var]:
        self._blocks.append(block)
        try:
            results = write()
        finally:
            self._blocks.pop()
        block.results.extend(self._operand(r) for r in results)
        return results

    def while_(self, name: str, body: Callable[..., Sequence[Var]], state: Sequence[Var], fixed: Sequence[Var] = ()):
        """Repeats `body` while state[0], a bool with one element, holds; gives the last state as a tuple.

        `body(f, *state, *fixed)` writes a function of its own by its builder f, from values of the same types; it gives
        the next state. It sees no value of this function but those. Constants may be used everywhere.
        """
        inner = self.function(name)
        params = [inner.param(f"p{i}", v.dtype, v.shape) for i, v in enumerate([*state, *fixed])]
        types = [v.type for v in state]
        try:
            results = body(inner, *params)
            if [r.type for r in results] != types:
                made = ", ".join(str(r.type) for r in results)
                raise InvalidModelError(
                    f"{self.location}: the loop's body takes {', '.join(map(str, types))}, gives {made}"
                )
        except BaseException:
            del self._functions[inner.name]
            raise
        inner.end(results)
        binding = ir_pb2.Binding(location=self.location, args=[self._operand(v) for v in [*state, *fixed]])
        binding.call_function.function = inner.name
        binding.attrs["while"].b = True
        return self._bind_all(binding, types)

    def call_packed(self, name: str, args: Sequence[Var], results: Sequence[tuple[Any, Sequence[int]]]) -> tuple:
        """Calls the function that the client's process has registered (`inlay.register_func`); results: (dtype, shape)
        of each. Whatever effects it has, it is called where its results, or effects, are needed by nobody as well.
        """
        types = [TensorType.of(dtype, shape) for dtype, shape in results]
        binding = ir_pb2.Binding(location=self.location, args=[self._operand(a) for a in args])
        binding.call_packed.name = name
        whole = binding.call_packed.result
        for type_ in types:
            (whole.tensor if len(types) == 1 else whole.tuple.fields.add().tensor).CopyFrom(type_.to_proto())
        return self._bind_all(binding, types)

    def function(self, name: str) -> FunctionBuilder:
        """A builder of another function of the same module; its `end` adds it. The name may get a number."""
        unique = name
        while unique in self._functions or unique == self.name:
            unique = f"{name}.{len(self._functions)}"
        inner = type(self)(unique)
        inner._constants, inner._weights, inner._known = self._constants, self._weights, self._known
        inner._functions, inner.location = self._functions, self.location
        self._functions[unique] = inner._function  # keeps the name
        return inner

    def end(self, results: Sequence[Var]) -> None:
        """Of a builder that `function` gave: all is written."""
        self._function.body.results.extend(self._operand(r) for r in results)

    def call(self, name: str, args: Sequence[Var], types: Sequence[TensorType]) -> tuple:
        """Calls a function of the module whose results have these types."""
        binding = ir_pb2.Binding(location=self.location, args=[self._operand(a) for a in args])
        binding.call_function.function = name
        return self._bind_all(binding, types)

    def finish(self, results: Sequence[Var], names: Sequence[str] | None = None) -> IRModule:
        """The module; bindings and constants that nothing uses are left out."""
        names = list(names) if names is not None else [f"output_{i}" for i in range(len(results))]
        if len(names) != len(results):
            raise ValueError(f"{len(results)} results and {len(names)} names")
        self._function.body.results.extend(self._operand(r) for r in results)
        self._function.result_names.extend(names)
        module = ir_pb2.IRModule()
        packers = {name: _Packer(f) for name, f in {**self._functions, self.name: self._function}.items()}
        constants = sorted(set().union(*(p.constants for p in packers.values())))
        constant_at = {old: new for new, old in enumerate(constants)}
        for name, packer in packers.items():
            module.functions[name].CopyFrom(packer.pack(constant_at))
        del self._function.body.results[:], self._function.result_names[:]
        module.constants.extend(self._constants[i] for i in constants)
        used = {c.digest for c in module.constants if c.WhichOneof("value") == "digest"}
        return IRModule(module, {d: a for d, a in self._weights.items() if d in used})

    def _bind_all(self, binding: ir_pb2.Binding, types: Sequence[TensorType]) -> tuple:
        made = self._bind(binding, types[0] if len(types) == 1 else tuple(types))
        return made if isinstance(made, tuple) else (made,)

    def _bind(self, binding: ir_pb2.Binding, inferred) -> Any:
        if isinstance(inferred, TensorType):
            var = self._var(inferred)
            binding.var = var.index
            self._blocks[-1].bindings.append(binding)
            return var
        whole = len(self._function.vars)
        proto = self._function.vars.add()
        if all(t.static for t in inferred):
            for field in inferred:
                proto.type.tuple.fields.add().tensor.CopyFrom(field.to_proto())
        binding.var = whole
        self._blocks[-1].bindings.append(binding)
        results = []
        for i, field in enumerate(inferred):
            var = self._var(field)
            item = self._blocks[-1].bindings.add(var=var.index, location=self.location)
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
        return self.var_type(type_, False, index)

    def _constant(self, proto: ir_pb2.Constant, type_: TensorType) -> Var:
        self._constants.append(proto)
        return self.var_type(type_, True, len(self._constants) - 1)

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


class _Packer:
    """One function without what nothing uses, renumbered: parameters first, then bindings in order."""

    def __init__(self, function: ir_pb2.Function):
        self.constants: set[int] = set()
        self._function = function
        self._needed: set[int] = set()
        self._body = self._prune(function.body)

    def pack(self, constant_at: dict[int, int]) -> ir_pb2.Function:
        packed = ir_pb2.Function()
        order = list(self._function.params)
        self._collect(self._body, order)
        var_at = {old: new for new, old in enumerate(order)}
        packed.vars.extend(self._function.vars[i] for i in order)
        packed.params.extend(range(len(self._function.params)))
        packed.result_names.extend(self._function.result_names)
        packed.body.CopyFrom(self._body)
        self._renumber(packed.body, var_at, constant_at)
        return packed

    def _use(self, operand: ir_pb2.Operand) -> None:
        constant = operand.WhichOneof("kind") == "constant"
        (self.constants if constant else self._needed).add(operand.constant if constant else operand.var)

    def _prune(self, block: ir_pb2.Block) -> ir_pb2.Block:
        pruned = ir_pb2.Block(results=block.results)
        for operand in block.results:
            self._use(operand)
        kept = []
        for binding in reversed(block.bindings):
            if binding.var not in self._needed and binding.WhichOneof("expr") != "call_packed":
                continue
            copy = ir_pb2.Binding()
            copy.CopyFrom(binding)
            if copy.HasField("if_"):
                copy.if_.then_block.CopyFrom(self._prune(binding.if_.then_block))
                copy.if_.else_block.CopyFrom(self._prune(binding.if_.else_block))
            for operand in copy.args:
                self._use(operand)
            kept.append(copy)
        pruned.bindings.extend(reversed(kept))
        return pruned

    def _collect(self, block: ir_pb2.Block, order: list[int]) -> None:
        for binding in block.bindings:
            order.append(binding.var)
            if binding.HasField("if_"):
                self._collect(binding.if_.then_block, order)
                self._collect(binding.if_.else_block, order)

    def _renumber(self, block: ir_pb2.Block, var_at: dict[int, int], constant_at: dict[int, int]) -> None:
        def renumber(operand):
            if operand.WhichOneof("kind") == "constant":
                operand.constant = constant_at[operand.constant]
            else:
                operand.var = var_at[operand.var]

        for binding in block.bindings:
            binding.var = var_at[binding.var]
            for operand in binding.args:
                renumber(operand)
            if binding.HasField("if_"):
                self._renumber(binding.if_.then_block, var_at, constant_at)
                self._renumber(binding.if_.else_block, var_at, constant_at)
        for operand in block.results:
            renumber(operand)
