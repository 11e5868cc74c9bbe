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
    specialise: a graph with dynamic sizes is compiled for each size that occurs. Default False: it is compiled once, for all
        sizes (by native code); where an operator is not supported of open sizes, for each after all.

Parameters and buffers are weights of the compiled graph, not inputs: what depends on them alone is computed once. Each
call compares their identity, address and version; where one changed (load_state_dict, an optimizer), the graph is built
again with the new values, which compiles nothing, since no weight's value is in a cache key. A change through
`parameter.data` in place is not seen (PyTorch keeps no version of it): call torch.compiler.reset().
What a graph writes to (the static cache of a language model) is written to in place by the compiled code. Calls are
thread-safe.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
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
from inlay.errors import InlayError, InvalidModelError, UnsupportedOperatorError
from inlay.server_errors import CompileError, UnsupportedError
from inlay.torch_graph import BuiltGraph, alike, fixed_arguments, open_symbols
from inlay.torch_import import decompose
from inlay.torch_import.importer import is_write

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
    specialise: bool = False

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
    """One functional graph, built for the weights, and where they can't stay open the sizes, of its calls as they come."""

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
        self._symbols = {} if options.specialise else open_symbols(self._placeholders)
        self._fixed = fixed_arguments(self._placeholders, self._symbols)
        self._told_apart = True  # sizes of different names; else those that are equal in a call are one
        self._built: dict[Any, BuiltGraph] = {}
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
        """What it is to be built for: the sizes, where they may differ from call to call and do not stay open."""
        if not self._dynamic:
            return None
        if self._symbols:
            fixed = tuple(args[i] for i in self._fixed)
            return fixed if self._told_apart else (fixed, alike(self._symbols, args))
        return tuple(tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args)

    def _build(self, key: Any, args: Sequence[Any]) -> BuiltGraph | None:
        with self._lock:
            built = self._built.get(key)
            if self._eager or (built is not None and built.current(args)):  # another thread's
                return built
            same = range(len(self._symbols)) if self._told_apart else alike(self._symbols, args)
            try:
                built = BuiltGraph(
                    self._aten, self._placeholders, args, self._weights(args), self._symbols, same,
                    self._options.config(), self._options.server,
                )  # fmt: skip
            except (UnsupportedOperatorError, InvalidModelError, CompileError) as error:
                if self._symbols and self._told_apart:
                    # PyTorch does not know of all sizes that they are the same (a cache's keys and values).
                    self._told_apart = False
                elif self._symbols:
                    log.info("a graph is compiled for each size that occurs: %s", error)
                    self._symbols = {}
                elif self._options.fallback and isinstance(error, (UnsupportedOperatorError, UnsupportedError)):
                    warnings.warn(f"inlay: a graph runs in eager PyTorch: {error}", stacklevel=2)
                    self._eager = True
                    return None
                else:
                    raise
            else:
                self._built[key] = built
                return built
        return self._build(self._key(args), args)

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


def _is_dynamic(val: Any) -> bool:
    if isinstance(val, torch.Tensor):
        return any(isinstance(d, torch.SymInt) for d in val.shape)
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool))


__all__ = ["CompiledGraph", "GradientsError", "Options", "compile_graph"]
