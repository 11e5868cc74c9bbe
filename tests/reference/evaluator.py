"""A reference evaluator of inlay's IR in NumPy: slow, simple, and independent of the compiler and of the importers.

    from reference.evaluator import evaluate
    outputs = evaluate(module.proto, module.weights, [x0, x1])      # a list of arrays

It follows core/ir/OPS.md to the letter and checks each declared type against what it computed, so it also tests who
wrote the module. Symbolic extents take their values from the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np

DTYPES = {
    1: np.dtype(np.float32), 2: np.dtype(np.float64), 3: np.dtype(np.float16), 4: np.dtype(ml_dtypes.bfloat16),
    5: np.dtype(np.int8), 6: np.dtype(np.uint8), 7: np.dtype(np.int16), 8: np.dtype(np.int32), 9: np.dtype(np.int64),
    10: np.dtype(np.bool_),
}  # fmt: skip

OPS: dict[str, Callable] = {}


class EvaluationError(Exception):
    """The module does not follow OPS.md, or the inputs do not fit it; names the binding."""


def op(*names: str):
    """Registers the implementation of ops: f(arrays, attrs) -> array or tuple of arrays."""

    def register(function):
        for name in names:
            OPS[name] = function
        return function

    return register


def _attr(value):
    kind = value.WhichOneof("kind")
    if kind in ("ints", "floats", "strings"):
        return list(getattr(value, kind).v)
    if kind == "dtype":
        return DTYPES[value.dtype]
    return getattr(value, kind)


def _constant(constant, weights: Mapping[bytes, np.ndarray]) -> np.ndarray:
    dtype = DTYPES[constant.type.dtype]
    shape = tuple(d.value for d in constant.type.dims)
    if constant.WhichOneof("value") == "digest":
        # A digest names bytes: constants of different shapes (zeros, say) may share them.
        return np.ascontiguousarray(weights[constant.digest]).reshape(-1).view(np.uint8).view(dtype).reshape(shape)
    return np.frombuffer(constant.literal, dtype=dtype).reshape(shape)


def _check_type(what: str, type_, array, symbols: dict[str, int]) -> None:
    if type_.WhichOneof("kind") == "tuple":
        for i, field in enumerate(type_.tuple.fields):
            _check_type(f"{what}[{i}]", field, array[i], symbols)
        return
    if type_.WhichOneof("kind") is None:
        return
    tensor = type_.tensor
    if array.dtype != DTYPES[tensor.dtype]:
        raise EvaluationError(f"{what}: dtype {array.dtype}, declared {DTYPES[tensor.dtype]}")
    if array.ndim != len(tensor.dims):
        raise EvaluationError(f"{what}: shape {array.shape}, declared rank {len(tensor.dims)}")
    for extent, dim in zip(array.shape, tensor.dims):
        wanted = dim.value if dim.WhichOneof("kind") == "value" else symbols.setdefault(dim.symbol, extent)
        if extent != wanted:
            raise EvaluationError(f"{what}: shape {array.shape}, where an extent is declared {wanted}")


def evaluate(
    module,
    weights: Mapping[bytes, np.ndarray],
    inputs: Sequence[np.ndarray],
    function: str = "main",
) -> list[np.ndarray]:
    """Runs a function of an inlay.proto.IRModule. inputs: in the order of its parameters, of exactly their dtypes."""
    constants = [_constant(c, weights) for c in module.constants]
    return _call(module, constants, function, list(inputs))


def _call(module, constants, name: str, inputs: list) -> list:
    from reference import ops_core, ops_data, ops_nn  # noqa: F401  (they register themselves)

    body = module.functions[name]
    if len(inputs) != len(body.params):
        raise EvaluationError(f"@{name} takes {len(body.params)} inputs, got {len(inputs)}")
    env: dict[int, object] = {}
    symbols: dict[str, int] = {}
    for index, array in zip(body.params, inputs):
        array = np.asarray(array)
        _check_type(
            f"@{name}, parameter {body.vars[index].name!r}",
            body.vars[index].type,
            array,
            symbols,
        )
        env[index] = array
    return _block(module, constants, body, body.body, env, symbols)


def _block(module, constants, body, block, env: dict[int, object], symbols: dict[str, int]) -> list:
    def value(operand):
        return constants[operand.constant] if operand.WhichOneof("kind") == "constant" else env[operand.var]

    for binding in block.bindings:
        args = [value(a) for a in binding.args]
        where = f"%{binding.var} {binding.WhichOneof('expr')} {binding.call.op} at {binding.location!r}"
        try:
            result = _expression(module, constants, body, binding, args, env, symbols)
        except EvaluationError:
            raise
        except Exception as error:
            raise EvaluationError(f"{where}: {type(error).__name__}: {error}") from error
        if binding.var in env:
            raise EvaluationError(f"{where}: defined twice")
        _check_type(where, body.vars[binding.var].type, result, symbols)
        env[binding.var] = result
    return [value(r) for r in block.results]


def _expression(module, constants, body, binding, args: list, env, symbols):
    kind = binding.WhichOneof("expr")
    if kind == "call":
        if binding.call.op not in OPS:
            raise EvaluationError(f"no operator {binding.call.op!r}")
        with np.errstate(all="ignore"):
            return OPS[binding.call.op](args, {k: _attr(v) for k, v in binding.attrs.items()})
    if kind == "call_function":
        results = _call(module, constants, binding.call_function.function, args)
        return results[0] if len(results) == 1 else tuple(results)
    if kind == "tuple":
        return tuple(args)
    if kind == "tuple_get_item":
        return args[0][binding.tuple_get_item.index]
    if kind == "if_":
        block = binding.if_.then_block if args[0].reshape(-1)[0] else binding.if_.else_block
        results = _block(module, constants, body, block, dict(env), symbols)
        return results[0] if len(results) == 1 else tuple(results)
    raise EvaluationError(f"cannot evaluate {kind}")
