"""The backend of torch.compile: `torch.compile(model, backend="inlay", options={...})`, for inference.

PyTorch finds it by its entry point, without `import inlay`. Dynamo gives it a graph (several, where it breaks one), AOTAutograd
makes that functional and takes care of what aliases or writes to inputs, the importer of `from_torch` reads it.

Options:
    target: "llvm -mcpu=x86-64-v3", a Target, or a CompilationConfig; default: this machine.
    server: address of a server; default: $INLAY_SERVER, else this user's own daemon.
    search: "none", "analytic", "measured"; default: the server's.
    threads: default: torch.get_num_threads() at the compile.
    fallback: what inlay can't compile (an unsupported operator, a graph that needs gradients) runs in eager PyTorch, with
        a warning. Default False, an error: who names a backend wants to know when it is not used.

Parameters and buffers are weights of the compiled graph, not inputs: what depends on them alone is computed once. Each
call compares their identity, address and version; where one changed (load_state_dict, an optimizer), the graph is built
again with the new values, which compiles nothing, since no weight's value is in a cache key. A change through
`parameter.data` in place is not seen (PyTorch keeps no version of it): call torch.compiler.reset().
What a graph writes to (the static cache of a language model) is written to in place by the compiled code.
Graphs with dynamic sizes are compiled for each size that occurs. Calls are thread-safe.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import logging
import math
import re
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd

from inlay.config import CompilationConfig, make
from inlay.errors import InlayError, UnsupportedOperatorError
from inlay.executable import build
from inlay.runtime import LibraryModule
from inlay.server_errors import UnsupportedError
from inlay.tensors import to_tensor
from inlay.torch_import import decompose
from inlay.torch_import.importer import GraphImporter, is_write
from inlay.torch_import.registry import Var

log = logging.getLogger("inlay.torch")


class GradientsError(InlayError):
    """The graph is one of training."""


@dataclasses.dataclass(frozen=True)
class Options:
    target: Any = None
    server: Any = None
    search: str | None = None
    threads: int | None = None
    fallback: bool = False

    @staticmethod
    def of(given: Mapping[str, Any] | None) -> Options:
        known = [field.name for field in dataclasses.fields(Options)]
        unknown = sorted(set(given or {}) - set(known))
        if unknown:
            raise ValueError(f"backend 'inlay' has no option {', '.join(unknown)}; it has {', '.join(known)}")
        return Options(**dict(given or {}))

    def config(self) -> CompilationConfig:
        config = make(self.target)
        if not isinstance(self.target, CompilationConfig) or self.threads is not None:
            config = config.replace(num_threads=torch.get_num_threads() if self.threads is None else self.threads)
        return config if self.search is None else config.replace(search=self.search)


def compile_graph(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """The backend itself, as Dynamo calls it. Compiling proper waits for the first call, which has the sizes and weights.

    Raises ValueError (an unknown option, a mode), InlayError (tensors that are not on the CPU), GradientsError; the first
    call raises what `from_torch` and `build` do.
    """
    if mode is not None:
        raise ValueError(
            f"backend 'inlay' has no modes such as {mode!r}; give options, such as {{'search': 'measured'}}"
        )
    chosen = Options.of(options)
    chosen.config()  # refuses nonsense now
    devices = {str(x.device) for x in example_inputs if isinstance(x, torch.Tensor)} - {"cpu"}
    if devices:
        raise InlayError(
            f"inlay's code runs on the CPU, and the model or its inputs are on {', '.join(sorted(devices))}"
        )
    static = _static_inputs(graph, example_inputs)

    def inference(aten: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return _boxed(CompiledGraph(aten, static, _written(example_inputs), chosen))

    def training(aten: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        raise GradientsError(
            "the graph needs gradients, and inlay compiles for inference; call the model under torch.inference_mode() or "
            "torch.no_grad(), or after model.requires_grad_(False); options={'fallback': True} runs it in eager PyTorch"
        )

    may_train = torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs)
    backend = aot_autograd(
        fw_compiler=training,
        inference_compiler=inference,
        decompositions=decompose.below_autograd(),
        keep_inference_input_mutations=True,
    )
    try:
        with contextlib.nullcontext() if may_train else decompose.composites_kept():
            return backend(graph, example_inputs)
    except GradientsError as error:
        if not chosen.fallback:
            raise
        warnings.warn(f"inlay: runs in eager PyTorch: {error}", stacklevel=2)
        return graph.forward


def _static_inputs(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> dict[int, tuple[Any, str]]:
    """{id: (weak reference, name)} of the parameters and buffers among the inputs."""
    found = {}
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, example_inputs, strict=True):
        if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type") and isinstance(value, torch.Tensor):
            source = getattr(getattr(node, "_dynamo_source", None), "name", None) or node.name
            source = source() if callable(source) else source
            name = ".".join(re.findall(r"\['(\w+)'\]", re.sub(r"^L\['\w+'\]", "", source))) or node.name
            found[id(value)] = (weakref.ref(value), name)
    return found


def _written(example_inputs: Sequence[Any]) -> frozenset[int]:
    """ids of the inputs that are written to outside the graph: these are no weights."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    indices = metadata.mutated_inp_runtime_indices if metadata is not None else []
    return frozenset(id(example_inputs[i]) for i in indices if i < len(example_inputs))


def _boxed(function: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    function._boxed_call = True  # type: ignore[attr-defined]  # takes its arguments as one list
    return function


class CompiledGraph:
    """One functional graph, built for the sizes and weights of its calls as they come."""

    def __init__(
        self, aten: fx.GraphModule, static: dict[int, tuple[Any, str]], written: frozenset[int], options: Options
    ):
        self._aten = aten
        self._static = static
        self._written = written
        self._options = options
        self._placeholders = [node for node in aten.graph.nodes if node.op == "placeholder"]
        self._writes = {self._placeholders.index(node.args[0]) for node in aten.graph.nodes if is_write(node)}
        self._dynamic = any(_is_dynamic(node.meta.get("val")) for node in self._placeholders)
        self._built: dict[Any, Specialised] = {}
        self._weight_at: dict[int, str] | None = None
        self._eager = False
        self._lock = threading.Lock()

    def __call__(self, args: list[Any]) -> list[Any]:
        key = self._key(args)
        built = self._built.get(key)
        if built is None or not built.current(args):
            built = self._build(key, args)
        if built is None:
            return self._aten(*args)
        return built(args)

    def _key(self, args: Sequence[Any]) -> Any:
        """The sizes, where they may differ from call to call."""
        if not self._dynamic:
            return None
        return tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args)

    def _build(self, key: Any, args: Sequence[Any]) -> Specialised | None:
        with self._lock:
            built = self._built.get(key)
            if self._eager or (built is not None and built.current(args)):  # another thread's
                return built
            try:
                built = Specialised(self._aten, self._placeholders, args, self._weights(args), self._options)
            except (UnsupportedOperatorError, UnsupportedError) as error:
                if not self._options.fallback:
                    raise
                warnings.warn(f"inlay: a graph runs in eager PyTorch: {error}", stacklevel=2)
                self._eager = True
                return None
            self._built[key] = built
            return built

    def _weights(self, args: Sequence[Any]) -> dict[int, str]:
        """{position: name} of the arguments that are parameters or buffers and are only read. Found by the objects of the
        first call: later ones may have others in their places."""
        if self._weight_at is None:
            self._weight_at = {}
            for i, value in enumerate(args):
                if id(value) in self._static and id(value) not in self._written and i not in self._writes:
                    reference, name = self._static[id(value)]
                    if reference() is value:
                        self._weight_at[i] = name
        return self._weight_at


class Specialised:
    """A graph compiled for certain sizes and weights."""

    def __init__(
        self, aten: fx.GraphModule, placeholders: Sequence[fx.Node], args: Sequence[Any], weights: dict[int, str],
        options: Options,
    ):  # fmt: skip
        self._weights = [(i, args[i], args[i].data_ptr(), _version(args[i])) for i in weights]
        importer = GraphImporter()
        self._inputs = []
        for i, (node, value) in enumerate(zip(placeholders, args, strict=True)):
            if not isinstance(value, torch.Tensor):
                importer.number(node, value)
            elif i in weights:
                importer.constant(node, weights[i], value)
            elif node.users:
                importer.param(node, node.name, value.dtype, value.shape)
                self._inputs.append(i)
        importer.run(aten)
        results: list[Any] = []
        self._outputs = _outputs(aten, placeholders, importer, results)
        importer.raise_problems()
        self._num_results = len(results)
        written_at = [placeholders.index(node) for node in importer.writes]
        self._written = [(i, self._inputs.index(i)) for i in written_at]  # among the arguments, among main's inputs
        results += importer.writes.values()
        self._main: Callable[..., Any] | None = None
        if not results:
            return
        names = [f"output_{i}" for i in range(len(results))]
        written = [node.name for node in importer.writes]
        module = importer.finish(results, names)
        module = module.with_updates(dict(zip(names[self._num_results :], written, strict=True)))
        executable = build(module, options.config(), server=options.server)
        self._module: LibraryModule = executable.jit()  # type: ignore[assignment]
        self._main = self._module.ffi.get_function("main")
        report = executable.report
        log.info(
            "a graph of %d nodes, %d weights: compiled in %.1f ms, %d of %d partitions from the cache",
            len(aten.graph.nodes), len(weights), report.server_ms,
            sum(p["cache"] == "hit" for p in report["partitions"]), len(report["partitions"]),
        )  # fmt: skip

    def current(self, args: Sequence[Any]) -> bool:
        """Whether the weights are those that it was built with."""
        for i, tensor, address, version in self._weights:  # of each call: 0.2 us a weight
            if args[i] is not tensor or tensor.data_ptr() != address:
                return False
            if version is not None and tensor._version != version:
                return False
        return True

    def __call__(self, args: list[Any]) -> list[Any]:
        made: Sequence[Any] = ()
        if self._main is not None:
            pairs = [to_tensor(args[i].detach(), "input") for i in self._inputs]
            result = self._main(*(tensor for tensor, _ in pairs))
            made = (result,) if hasattr(result, "__dlpack__") else result
            for i, at in self._written:
                dense = pairs[at][1]
                if dense.data_ptr() != args[i].data_ptr():
                    args[i].copy_(dense)
                elif not args[i].is_inference():
                    torch.autograd.graph.increment_version(args[i])  # other graphs may have it as a weight
        values = [torch.from_dlpack(tensor) for tensor in made[: self._num_results]]
        return [output.of(args, values) if isinstance(output, _View) else output for output in self._outputs]


@dataclasses.dataclass(frozen=True)
class _View:
    """An output of the graph: an argument or a result of the module, seen through the graph's own views: whoever looks for
    the argument's memory behind it (AOTAutograd does) finds that, whatever strides the argument has."""

    of_argument: bool
    index: int
    steps: tuple[tuple[Any, Sequence[Any], Mapping[str, Any]], ...]  # functions, what else they are given

    def of(self, args: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> torch.Tensor:
        value = args[self.index].detach() if self.of_argument else results[self.index]
        for function, rest, named in self.steps:
            value = function(value, *rest, **named)
        return value


def _outputs(
    aten: fx.GraphModule, placeholders: Sequence[fx.Node], importer: GraphImporter, results: list[Any]
) -> list[Any]:
    """What the graph returns: _View, or a value that is no tensor. Fills `results`.

    What shares memory in eager PyTorch does here: who writes to one output sees it in the other. A part of what is
    returned nowhere else is a result of its own."""
    symbols = {
        node.meta["val"].node.expr: importer.env[node]
        for node in placeholders
        if isinstance(node.meta.get("val"), torch.SymInt)
    }
    items = next(node for node in aten.graph.nodes if node.op == "output").args[0]
    shared = collections.Counter(map(_storage, items))
    made: dict[fx.Node, tuple[int, tuple]] = {}  # root -> its result, and how that is turned

    def output(item: Any) -> Any:
        value = importer.env[item] if isinstance(item, fx.Node) else item
        if not isinstance(item, fx.Node) or isinstance(value, (bool, int, float)):
            return value
        root, views = _root(item)
        if root not in placeholders and shared[_storage(item)] == 1 and _part(importer.env[root], value):
            root, views = item, []
        steps: Any = tuple(
            (view.target, *fx.node.map_arg((view.args[1:], view.kwargs), lambda n: importer.env[n])) for view in views
        )
        if root in placeholders:
            return _View(True, placeholders.index(root), steps)
        if root not in made:
            result = importer.output(root, importer.env[root])
            if result is None:
                return None
            order = _memory_order(root.meta.get("val"), result.shape, symbols)
            results.append(importer.builder.op("transpose", result, perm=order) if order else result)
            turns: tuple = ((torch.permute, ([order.index(i) for i in range(len(order))],), {}),) if order else ()
            made[root] = len(results) - 1, turns
        index, turns = made[root]
        return _View(False, index, turns + steps)

    return [output(item) for item in items]


def _root(item: fx.Node) -> tuple[fx.Node, list[fx.Node]]:
    """The tensor whose memory an output shows, and the views that lead from it to the output."""
    root, storage = item, _storage(item)
    views: list[fx.Node] = []
    between: list[fx.Node] = []
    while storage is not None and item.op == "call_function" and item.args and _storage(item.args[0]) == storage:
        between.insert(0, item)
        item = item.args[0]  # type: ignore[assignment]
        if isinstance(item.meta["val"], torch.Tensor):  # else a list of views, or the results of an operator
            root, views = item, between + views
            between = []
    return root, views


def _storage(item: Any) -> Any:
    """What is the same of nodes that share memory (all in a list of views do)."""
    val = item.meta.get("val") if isinstance(item, fx.Node) else None
    if isinstance(val, (list, tuple)) and val:
        val = val[0]
    return val.untyped_storage()._cdata if isinstance(val, torch.Tensor) else None


def _part(whole: Any, value: Any) -> bool:
    """Whether it has fewer elements."""
    return isinstance(whole, Var) and isinstance(value, Var) and math.prod(value.shape) < math.prod(whole.shape)


def _memory_order(val: Any, sizes: Sequence[Any], symbols: Mapping[Any, int]) -> list[int] | None:
    """The axes from the outermost in memory on, where PyTorch keeps the tensor dense in another order than row-major
    (channels last); None where it does not. Whoever looks at strides, or takes a view, then finds what eager PyTorch
    would give."""
    if not isinstance(val, torch.Tensor):
        return None
    try:
        strides = [int(s.node.expr.xreplace(symbols) if isinstance(s, torch.SymInt) else s) for s in val.stride()]
    except TypeError:  # a symbol that no argument is
        return None
    order = sorted(range(len(sizes)), key=lambda i: (-strides[i], i))
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1:
            if strides[axis] != expected:
                return None
            expected *= sizes[axis]
    real = [axis for axis in order if sizes[axis] != 1]
    return None if real == sorted(real) else order


def _version(tensor: torch.Tensor) -> int | None:
    """How often it was written to; None of a tensor made in inference mode, which does not count."""
    return None if tensor.is_inference() else tensor._version


def _is_dynamic(val: Any) -> bool:
    if isinstance(val, torch.Tensor):
        return any(isinstance(d, torch.SymInt) for d in val.shape)
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool))


__all__ = ["CompiledGraph", "GradientsError", "Options", "compile_graph"]
