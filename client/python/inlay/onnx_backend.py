"""The standard ONNX Backend API (onnx.backend.base) over inlay.

    import inlay.onnx_backend as backend
    outputs = backend.prepare(model).run([x0, x1])

`prepare` imports the model. A graph input whose *value* decides a shape (the target of a Reshape that arrives as an
input) is known only when `run` is called: the model is then specialised to those values, and kept for further calls with
the same ones. So are symbolic extents, to the inputs' shapes. What depends on more than small inputs is refused.

How a module is executed is pluggable: `executor(module)` gives a function from the list of inputs to the list of outputs.
The default builds through an inlay daemon; the tests also use a NumPy evaluator.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from inlay.errors import UnsupportedOperatorError
from inlay.ir import IRModule
from inlay.onnx_import import from_onnx

Runner = Callable[[list[np.ndarray]], Sequence[np.ndarray]]
Executor = Callable[[IRModule], Runner]

SPECIALIZE_LIMIT = 1024  # elements of an input that a model may be specialised to
_CACHED = 8  # specialisations kept by one InlayRep


def build_executor(target: Any = None, server: Any = None, remote: bool = False) -> Executor:
    """Compiles through the daemon (one of this user is started where none is named).

    target, server: as for `inlay.build`. remote: run by the daemon's JIT instead of loading the library here.
    """

    def executor(module: IRModule) -> Runner:
        import inlay
        from inlay.runtime import as_numpy

        main = inlay.build(module, target, server=server).jit(remote=remote)["main"]

        def run(inputs: list[np.ndarray]) -> list[np.ndarray]:
            results = main(*inputs)
            listed = results if isinstance(results, (tuple, list)) else [results]
            return [as_numpy(r) for r in listed]

        return run

    return executor


class InlayRep(BackendRep):
    """A prepared model. `specialized` tells after a run which inputs it was specialised to."""

    def __init__(self, model: onnx.ModelProto, executor: Executor):
        self._model = model
        self._executor = executor
        self._cache: collections.OrderedDict[tuple, tuple[Runner, list[str]]] = collections.OrderedDict()
        self._needed: tuple[str, ...] = ()
        self.specialized: tuple[str, ...] = ()
        initialized = {t.name for t in model.graph.initializer}
        self.inputs = [i for i in model.graph.input if i.name not in initialized]
        try:
            module = from_onnx(model)
            if all(t.static for _, t in module.inputs()):
                key = tuple(t.shape for _, t in module.inputs()), ()
                self._cache[key] = (executor(module), [n for n, _ in module.inputs()])
        except UnsupportedOperatorError as error:
            if not error.needed_constants and not _shapes_open(self.inputs):
                raise
            self._needed = error.needed_constants

    def run(self, inputs: Any, **kwargs: Any) -> tuple:
        """inputs: a sequence in the order of the graph's inputs, or {name: array}. Returns a named tuple of arrays."""
        del kwargs
        names = [i.name for i in self.inputs]
        if isinstance(inputs, dict):
            arrays = dict(inputs)
        else:
            if len(inputs) != len(names):
                raise ValueError(f"{len(inputs)} inputs, the model has {len(names)}: {names}")
            arrays = dict(zip(names, inputs))
        runner, params = self._runner(arrays)
        results = runner([np.ascontiguousarray(arrays[name]).reshape(arrays[name].shape) for name in params])
        return namedtupledict("Outputs", [o.name for o in self._model.graph.output])(*results)

    def _runner(self, arrays: dict[str, Any]) -> tuple[Runner, list[str]]:
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise TypeError(f"input {name!r} is a {type(array).__name__}; only tensors are supported")
        needed = self._needed
        while True:
            shapes = tuple(tuple(arrays[i.name].shape) for i in self.inputs if i.name not in needed)
            values = tuple((n, arrays[n].dtype.str, arrays[n].shape, arrays[n].tobytes()) for n in needed)
            if (shapes, values) in self._cache:
                self._cache.move_to_end((shapes, values))
                return self._cache[(shapes, values)]
            shape = {i.name: list(arrays[i.name].shape) for i in self.inputs if i.name not in needed}
            try:
                module = from_onnx(self._model, shape, {name: arrays[name] for name in needed})
            except UnsupportedOperatorError as error:
                more = tuple(n for n in error.needed_constants if n not in needed)
                if not more or any(arrays[n].size > SPECIALIZE_LIMIT for n in more):
                    raise
                needed = (*needed, *more)
                continue
            self._needed = self.specialized = needed
            entry = (self._executor(module), [name for name, _ in module.inputs()])
            self._cache[(shapes, values)] = entry
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
            return entry


def _shapes_open(inputs: Sequence[onnx.ValueInfoProto]) -> bool:
    return any(
        not i.type.tensor_type.HasField("shape")
        or any(d.WhichOneof("value") != "dim_value" for d in i.type.tensor_type.shape.dim)
        for i in inputs
    )


class InlayBackend(Backend):
    """prepare, run_model, run_node, supports_device, is_compatible."""

    executor: Executor = staticmethod(build_executor())

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `prepare` would take the model."""
        try:
            from_onnx(model)
        except UnsupportedOperatorError as error:
            return bool(error.needed_constants)
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> InlayRep:
        """Raises UnsupportedOperatorError listing every unsupported node."""
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r} is not supported; use CPU")
        return InlayRep(model, kwargs.get("executor", cls.executor))

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple:
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return Device(device).type == DeviceType.CPU


prepare = InlayBackend.prepare
run_model = InlayBackend.run_model
run_node = InlayBackend.run_node
supports_device = InlayBackend.supports_device
is_compatible = InlayBackend.is_compatible
