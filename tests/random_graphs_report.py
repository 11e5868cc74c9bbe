#!/usr/bin/env python3
"""Compiles random models (random_graphs/) in random ways and compares what they compute with onnxruntime.

    python tests/random_graphs_report.py [--kind integer] [--seeds 0:500] [--steps N] [--sizes large] [--keep DIR]

Each seed draws a model and how it is compiled: executor, threads, instruction set, backends and how these are chosen,
the floats' type, extents that are left open. A model that differs, or that is refused, is cut down node by node to the
smallest part that still does, printed and, with --keep, saved. Exits 1 if there was one. Inputs lie between pages that
nobody may touch: run it with `python -X faulthandler`; the last number printed is the seed of a crash.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "e2e"), str(HERE.parent / "client" / "python")]

import ml_dtypes
import numpy as np
import onnx
from cut_down import cut_down
from micro_build import SANITIZED, Library
from random_graphs import KINDS, LARGE, ONNXRUNTIME_ERRORS, SMALL, TINY, RandomGraph, random_graph, run_nodes
from random_graphs.guarded import guarded

import inlay
from inlay import cpu
from inlay.errors import UnsupportedOperatorError
from inlay.runtime import as_numpy
from inlay.server_errors import CompileError, UnsupportedError

SIZES = {"tiny": TINY, "small": SMALL, "large": LARGE}
TOLERANCE = 1e-3  # of the largest value of an output
NUDGE = 2.0**-22  # of inputs and weights; what that does to a result is its own, and not inlay's
BACKENDS = ("onednn", "xnnpack", "libxsmm", "openblas", "csource")
# Processors whose instructions for integers differ, and what a machine that runs their code has, whatever else.
NEEDED = {"x86-64-v4": "+avx512vl", "cascadelake": "+avx512vnni", "alderlake": "+avxvnni"}


@dataclasses.dataclass(frozen=True)
class Case:
    """How a model is compiled and compared: all floats of `dtype`; `open_axes` of the first input are left open.

    exact: whatever the order of its sums, the model's results are the same.
    """

    config: inlay.CompilationConfig
    dtype: np.dtype
    open_axes: tuple[int, ...]
    exact: bool = False

    @property
    def is_c(self) -> bool:
        return self.config.targets[0].kind == "c"

    @property
    def precision(self) -> str:
        return "bfloat16" if self.config.mixed_precision else self.dtype.name

    @property
    def tolerance(self) -> float:
        return {"float16": 3e-2, "bfloat16": 2e-1}.get(self.precision, TOLERANCE)

    @property
    def amplified(self) -> float:
        """How many nudges all roundings together are worth."""
        return 0 if self.exact else 30 * {"float16": 2**11, "bfloat16": 2**14}.get(self.precision, 1)


def random_case(seed: int, kind: str = "float") -> Case:
    """Every backend alone, too, wherever it may."""
    random = np.random.default_rng((seed, 1))

    def pick(*values):
        return values[random.integers(len(values))]

    backends: list[str] = []
    search = "analytic"
    way = pick("any", "native", "one", "all")
    if way == "native":
        backends = ["native"]
    elif way == "one":
        backends, search = [pick(*BACKENDS), "native"], "none"
    elif way == "all":
        backends, search = [*map(str, random.permutation(BACKENDS)), "native"], "none"
    config = inlay.config.cpu(
        pick("native", "native", "x86-64-v3", "x86-64-v2"),
        executor=pick("graph", "aot", "graph", "aot", "vm"),
        num_threads=pick(1, 1, 2, 3),
        backends=backends,
        search=search,
    )
    dtype = np.dtype(pick(*["float32"] * 9, "float16", ml_dtypes.bfloat16, "float64"))
    open_axes = pick(*[()] * 12, (0,), (1,), (0, 1), (2,))
    if open_axes:
        config = config.replace(executor="vm", backends=[], search="analytic")
    if kind != "float":
        dtype = np.dtype("float32")
    if kind == "quantised images":
        drawn = pick("native", "native", *NEEDED, "x86-64-v3", "x86-64-v2")
        mcpu = "native" if cpu.missing(NEEDED.get(drawn, "")) else drawn
        config = config.replace(targets=inlay.config.cpu(mcpu).targets, opt_level=pick(3, 3, 3, 3, 2, 1, 0))
    return Case(config, dtype, open_axes, exact=kind in ("integer", "quantised", "quantised images"))


def nudged(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        name: (x * (1 + NUDGE * random.choice([-1, 1], x.shape))).astype(x.dtype)
        if x.dtype == np.float32 and x.size > 1
        else x
        for name, x in values.items()
    }


def rounded(values: dict[str, np.ndarray], dtype: np.dtype) -> dict[str, np.ndarray]:
    return {name: x.astype(dtype) if x.dtype == np.float32 else x for name, x in values.items()}


def compared(graph: RandomGraph, case: Case, inputs: dict[str, np.ndarray], run) -> str:
    """Of one run."""
    model = graph.model
    try:
        want = run_nodes(model, inputs)
    except ONNXRUNTIME_ERRORS:  # another size than the model is for
        return ""
    slack = run_nodes(dataclasses.replace(graph, weights=nudged(graph.weights)).model, nudged(inputs))
    got = run(rounded(inputs, case.dtype))
    for name, a, b, c in zip(graph.outputs, got, want, slack, strict=True):
        wanted = case.dtype if b.dtype == np.float32 else b.dtype
        if a.shape != b.shape or a.dtype != wanted:
            return f"{name} is {a.dtype}{list(a.shape)}, not {wanted}{list(b.shape)}"
        if b.dtype == np.float32:
            error = np.abs(a.astype(np.float32) - b)
            nudge = case.amplified * float(np.abs(c - b).max(initial=0))
            limit = case.tolerance * max(float(np.abs(b).max(initial=0)), 1e-3) + nudge
            if not (error <= limit).all():
                where = np.unravel_index(int(np.argmax(np.nan_to_num(error, nan=np.inf))), b.shape)
                count = int((~(error <= limit)).sum())
                where = tuple(map(int, where))
                return f"{name}{list(b.shape)} differs in {count}, at {where} {a[where]} for {b[where]}"
        elif not np.array_equal(a, b):
            where = tuple(map(int, np.argwhere(a != b)[0]))
            return f"{name}{list(b.shape)} differs in {(a != b).sum()}, first at {where} {a[where]} for {b[where]}"
    return ""


def difference(graph: RandomGraph, case: Case, server) -> str:
    """What is wrong with what inlay makes of it, or nothing."""
    model = dataclasses.replace(
        graph,
        inputs=rounded(graph.inputs, case.dtype),
        weights=rounded(graph.weights, case.dtype),
        values=rounded(graph.values, case.dtype),
    ).model
    first = next(iter(graph.inputs), None)
    axes = [axis for axis in case.open_axes if first is not None and axis < graph.inputs[first].ndim]
    for axis in axes:
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    if axes:
        del model.graph.output[:]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in graph.outputs)
    with tempfile.TemporaryDirectory() as folder:
        try:
            module = inlay.from_onnx(model, executor=case.config.executor.kind)
            executable = inlay.build(module, case.config, server=server)
            run = program(executable, pathlib.Path(folder)) if case.is_c else function(executable)
            return compared_at_all_extents(graph, case, axes, run)
        except AssertionError as error:  # of a C compiler, or of a sanitizer
            return str(error)
        except inlay.InlayError as error:
            refused = isinstance(error, UnsupportedError | UnsupportedOperatorError | CompileError)
            expected = axes or case.is_c or "executor vm" in str(error)
            return "" if expected and refused else f"{type(error).__name__}: {error}"


def function(executable: inlay.Executable):
    main = executable.jit()["main"]

    def run(inputs):
        inputs = {name: guarded(value, i % 2 == 0) for i, (name, value) in enumerate(inputs.items())}
        got = main(*[inputs[spec[0]] for spec in executable.inputs])
        return [as_numpy(y) for y in (got if isinstance(got, tuple) else (got,))]

    return run


def program(executable: inlay.Executable, folder: pathlib.Path):
    library = Library(executable.export_library(folder / "model.tar"), folder / "model")
    return lambda inputs: library.run(SANITIZED, [inputs[spec[0]] for spec in executable.inputs]).outputs


def compared_at_all_extents(graph: RandomGraph, case: Case, axes: Sequence[int], run) -> str:
    problem = compared(graph, case, graph.inputs, run)
    if not axes or problem:
        return problem
    first = next(iter(graph.inputs))
    for extent in (1, 2, 7, 18):
        x = graph.inputs[first]
        shape = [extent if axis in axes else d for axis, d in enumerate(x.shape)]
        problem = compared(graph, case, {**graph.inputs, first: np.resize(x, shape)}, run)
        if problem:
            return f"open extents {extent}: {problem}"
    return ""


def minimised(graph: RandomGraph, case: Case, server) -> RandomGraph:
    """The smallest part found that still differs."""
    for name in list(graph.outputs):
        less = dataclasses.replace(graph, outputs=[y for y in graph.outputs if y != name])
        if less.outputs and difference(less, case, server):
            graph = less
    return cut_down(graph, lambda less: bool(difference(less, case, server)))


def listing(graph: RandomGraph) -> str:
    def typed(name: str) -> str:
        value = graph.values.get(name)
        if value is None:
            return "-"
        if value.dtype != np.float32 and value.size < 9:
            return str(value.tolist())
        return f"{name}:{'x'.join(map(str, value.shape))}"

    lines = []
    for node in graph.nodes:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        results, arguments = (", ".join(map(typed, names)) for names in (node.output, node.input))
        lines.append(f"    {results} = {node.op_type}({arguments}) {attributes or ''}")
    return "\n".join([f"    inputs {', '.join(map(typed, graph.inputs))}", *lines, f"    outputs {graph.outputs}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:500", help="FIRST:LAST")
    parser.add_argument("--kind", choices=KINDS, default="float", help="what models are made of")
    parser.add_argument("--server", default=None)
    parser.add_argument("--steps", type=int, default=None, help="of each model; else 1 to 14")
    parser.add_argument("--sizes", choices=SIZES, default="small", help="tiny: many extents of 1; large: up to 112x112")
    parser.add_argument("--search", default=None, help="instead of what a seed draws")
    parser.add_argument("--mcpu", default=None, help="instead of what a seed draws")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], help="instead of what a seed draws")
    parser.add_argument("--mixed-precision", choices=["bf16"], default=None)
    parser.add_argument("--c", action="store_true", help="as C sources, built with gcc's sanitizers")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="a folder for models that differ")
    args = parser.parse_args()
    first, last = map(int, args.seeds.split(":"))
    failures = 0
    start = time.monotonic()
    for seed in range(first, last):
        graph = random_graph(seed, args.steps, SIZES[args.sizes], args.kind)
        case = random_case(seed, args.kind)
        if not graph.outputs:
            continue
        if args.search and case.config.backends != ["native"] and not case.open_axes:
            case = dataclasses.replace(case, config=case.config.replace(search=args.search))
        if args.mcpu:
            targets = inlay.config.cpu(args.mcpu).targets
            case = dataclasses.replace(case, config=case.config.replace(targets=targets))
        if args.dtype:
            case = dataclasses.replace(case, dtype=np.dtype(getattr(ml_dtypes, args.dtype, args.dtype)))
        if args.mixed_precision:
            config = case.config.replace(mixed_precision=args.mixed_precision)
            case = dataclasses.replace(case, config=config, dtype=np.dtype("float32"))
        if args.c:
            config = inlay.config.micro(executor=inlay.Executor("aot", {"interface-api": "c"}))
            case = dataclasses.replace(case, config=config, dtype=np.dtype("float32"), open_axes=())
        print(f"{seed} ", end="", file=sys.stderr, flush=True)
        problem = difference(graph, case, args.server)
        if not problem:
            continue
        failures += 1
        graph = minimised(graph, case, args.server)
        print(f"seed {seed}: {problem}\n  {case}\n  smallest: {difference(graph, case, args.server)}")
        print(listing(graph), flush=True)
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            onnx.save(graph.model, args.keep / f"{seed}.onnx")
    print(f"{last - first} models, {failures} failed, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
