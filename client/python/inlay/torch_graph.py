"""A functional graph of Dynamo's, compiled: how its arguments become main's inputs, and main's results what it returns."""

from __future__ import annotations

import collections
import dataclasses
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from inlay.config import CompilationConfig
from inlay.executable import build
from inlay.ir import dims
from inlay.runtime import LibraryModule
from inlay.tensors import to_tensor
from inlay.torch_import.extents import Extent, Undecided, Unsupported
from inlay.torch_import.importer import GraphImporter
from inlay.torch_import.sizes import evaluate

log = logging.getLogger("inlay.torch")

Symbols = Mapping[Any, tuple[int, int]]  # sympy symbol -> the argument and the axis that have its value


def open_symbols(placeholders: Sequence[fx.Node]) -> Symbols:
    """The sizes that a graph may leave open: those that are an extent of a tensor that it reads. Empty where a tensor
    has sizes that are told neither so nor by an argument."""
    found: dict[Any, tuple[int, int]] = {}
    numbers: set[Any] = set()
    wanted: set[Any] = set()
    for i, node in enumerate(placeholders):
        val = node.meta.get("val")
        if isinstance(val, torch.SymInt):
            numbers.add(val.node.expr)
        for axis, d in enumerate(val.shape if isinstance(val, torch.Tensor) and node.users else ()):
            if isinstance(d, torch.SymInt):
                wanted |= d.node.expr.free_symbols
                if d.node.expr.is_symbol:
                    found.setdefault(d.node.expr, (i, axis))
    return found if wanted <= numbers | set(found) else {}


def fixed_arguments(placeholders: Sequence[fx.Node], symbols: Symbols) -> list[int]:
    """The arguments that are no tensors and whose values the code is made for."""
    fixed = []
    for i, node in enumerate(placeholders):
        val = node.meta.get("val")
        if not isinstance(val, torch.Tensor) and not (isinstance(val, torch.SymInt) and val.node.expr in symbols):
            fixed.append(i)
    return fixed


def alike(symbols: Symbols, args: Sequence[Any]) -> tuple[int, ...]:
    """For each open size of a call the first one that has its value."""
    values = [args[i].shape[axis] for i, axis in symbols.values()]
    return tuple(map(values.index, values))


class _Sizes:
    """The sizes of a graph: numbers of a call, where they are not open."""

    def __init__(self, placeholders: Sequence[fx.Node], args: Sequence[Any], symbols: Symbols, same: Sequence[int]):
        self._numbers = {symbol: args[i].shape[axis] for symbol, (i, axis) in symbols.items()}
        for node, value in zip(placeholders, args, strict=True):
            if isinstance(node.meta.get("val"), torch.SymInt):
                self._numbers[node.meta["val"].node.expr] = value
        names = [Extent(str(symbol)) for symbol in symbols]
        self._values = self._numbers | {symbol: names[at] for symbol, at in zip(symbols, same, strict=True)}

    def __call__(self, dim: Any) -> Any:
        """An int, an Extent, or None where there is no form for it."""
        return evaluate(dim, self._values)

    def number(self, dim: Any) -> Any:
        """In this call; None where that is not known."""
        return evaluate(dim, self._numbers)


class BuiltGraph:
    """A graph compiled for certain weights, and for any sizes or certain ones."""

    def __init__(
        self, aten: fx.GraphModule, placeholders: Sequence[fx.Node], args: Sequence[Any], weights: dict[int, str],
        symbols: Symbols, same: Sequence[int], config: CompilationConfig, server: Any,
    ):  # fmt: skip
        """args: of the first call. symbols: the sizes that stay open; same: for each the one that it is the same as, itself
        where none. Raises what `from_torch` and `build` do."""
        self._symbols = symbols
        self._weights = [(i, args[i], args[i].data_ptr(), _version(args[i])) for i in weights]
        sizes = _Sizes(placeholders, args, symbols, same)
        importer = GraphImporter(sizes)
        self._inputs = []
        for i, (node, value) in enumerate(zip(placeholders, args, strict=True)):
            val = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                importer.number(node, sizes(val) if isinstance(val, torch.SymInt) else value)
            elif i in weights:
                importer.constant(node, weights[i], value)
            elif node.users:
                shape = [sizes(d) for d in node.meta["val"].shape] if symbols else value.shape
                importer.param(node, node.name, value.dtype, shape)
                self._inputs.append(i)
        importer.run(aten)
        results: list[Any] = []
        self._outputs = _outputs(aten, placeholders, importer, sizes, results)
        importer.raise_problems()
        self._sized = any(isinstance(leaf, Extent) for output in self._outputs for leaf in _leaves(output))
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
        executable = build(module, config.replace(executor="vm") if symbols else config, server=server)
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
        sizes = {str(symbol): args[i].shape[axis] for symbol, (i, axis) in self._symbols.items()} if self._sized else {}
        return [
            output.of(args, values, sizes) if isinstance(output, _View) else _at(output, sizes)
            for output in self._outputs
        ]


@dataclasses.dataclass(frozen=True)
class _View:
    """An output of the graph: an argument or a result of the module, seen through the graph's own views: whoever looks for
    the argument's memory behind it (AOTAutograd does) finds that, whatever strides the argument has."""

    of_argument: bool
    index: int
    steps: tuple[tuple[Any, Sequence[Any], Mapping[str, Any]], ...]  # functions, what else they are given

    def of(
        self, args: Sequence[torch.Tensor], results: Sequence[torch.Tensor], sizes: Mapping[str, int]
    ) -> torch.Tensor:
        value = args[self.index].detach() if self.of_argument else results[self.index]
        for function, rest, named in self.steps:
            if sizes:
                rest, named = _at((rest, named), sizes)
            value = function(value, *rest, **named)
        return value


def _leaves(output: Any) -> list[Any]:
    return pytree.tree_leaves([step[1:] for step in output.steps] if isinstance(output, _View) else output)


def _at(value: Any, sizes: Mapping[str, int]) -> Any:
    """With the numbers that extents are in a call."""
    return pytree.tree_map_only(Extent, lambda extent: dims.canonical(extent, sizes), value) if sizes else value


def _outputs(
    aten: fx.GraphModule, placeholders: Sequence[fx.Node], importer: GraphImporter, sizes: _Sizes, results: list[Any]
) -> list[Any]:
    """What the graph returns: _View, or a value that is no tensor (an Extent too). Fills `results`.

    What shares memory in eager PyTorch does here: who writes to one output sees it in the other. A part of what is
    returned nowhere else is a result of its own."""
    items = next(node for node in aten.graph.nodes if node.op == "output").args[0]
    shared = collections.Counter(map(_storage, items))
    made: dict[fx.Node, tuple[int, tuple]] = {}  # root -> its result, and how that is turned

    def output(item: Any) -> Any:
        value = importer.env[item] if isinstance(item, fx.Node) else item
        if isinstance(value, Undecided):
            importer.report(item, Unsupported(f"{value.expression} is returned"))
            return None
        if not isinstance(item, fx.Node) or isinstance(value, (bool, int, float, Extent)):
            return value
        root, views = _root(item)
        if root not in placeholders and shared[_storage(item)] == 1 and _part(root, item, sizes):
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
            order = _memory_order(root.meta.get("val"), sizes)
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


def _part(whole: fx.Node, item: fx.Node, sizes: _Sizes) -> bool:
    """Whether it has fewer elements."""
    counts = [[sizes.number(d) for d in node.meta["val"].shape] for node in (whole, item)]
    return all(None not in shape for shape in counts) and math.prod(counts[1]) < math.prod(counts[0])


def _memory_order(val: Any, sizes: _Sizes) -> list[int] | None:
    """The axes from the outermost in memory on, where PyTorch keeps the tensor dense in another order than row-major
    (channels last); None where it does not. Whoever looks at strides, or takes a view, then finds what eager PyTorch
    would give."""
    if not isinstance(val, torch.Tensor):
        return None
    shape, strides = ([sizes.number(d) for d in given] for given in (val.shape, val.stride()))
    if None in strides or None in shape:
        return None
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1:
            if strides[axis] != expected:
                return None
            expected *= shape[axis]
    real = [axis for axis in order if shape[axis] != 1]
    return None if real == sorted(real) else order


def _version(tensor: torch.Tensor) -> int | None:
    """How often it was written to; None of a tensor made in inference mode, which does not count."""
    return None if tensor.is_inference() else tensor._version


__all__ = ["BuiltGraph", "Symbols", "alike", "fixed_arguments", "open_symbols"]
