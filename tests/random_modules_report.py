#!/usr/bin/env python3
"""Compiles random PyTorch programs (random_modules/) in random ways and compares what they compute with eager PyTorch.

    python tests/random_modules_report.py [--seeds 0:500] [--steps N] [--way export] [--keep DIR]

Each seed draws a program and how it is compiled: by torch.export (in part with open sizes) or torch.compile, and with
which executor. A program that differs, or that is refused, is cut down line by line to the smallest part that still
does, and printed; with --keep saved. Exits 1 if there was one. "reference" says what the reference evaluator makes of the
imported module: "agrees" with eager PyTorch if the compiler is at fault, and not the importer.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import pathlib
import sys
import time
import warnings
from collections.abc import Callable

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "client" / "python")]

import numpy as np
import torch
from cut_down import cut_down
from random_modules import Program, random_program
from reference.evaluator import evaluate
from torch.utils import _pytree as pytree

import inlay
from inlay.torch_backend import compile_graph
from inlay.torch_import.weights import as_array

TOLERANCE = {
    torch.float64: 1e-6,
    torch.float32: 1e-3,
    torch.float16: 3e-2,
    torch.bfloat16: 2e-1,
}  # of the largest value
NUDGE = 2.0**-22  # of inputs and weights; what that does to a result is its own, and not inlay's
AMPLIFIED = {torch.float16: 30 * 2**11, torch.bfloat16: 30 * 2**14}  # how many nudges all roundings together are worth
HANGS = 300  # seconds

Tensors = list[torch.Tensor]
Run = Callable[[Tensors], Tensors]


@dataclasses.dataclass(frozen=True)
class Case:
    """way: "export" or "compile"; open_sizes: exported (compiled) with the first axis of each input left open."""

    way: str
    config: inlay.CompilationConfig
    open_sizes: bool


def random_case(seed: int) -> Case:
    random = np.random.default_rng((seed, 1))

    def pick(*values):
        return values[random.integers(len(values))]

    config = inlay.config.cpu(
        executor=pick("graph", "aot", "vm"), num_threads=1, search=pick("none", "none", "analytic")
    )
    return Case(pick("export", "export", "compile"), config, bool(random.random() < 0.2))


def evaluated(module: torch.nn.Module, inputs: Tensors) -> Tensors:
    """By eager PyTorch."""
    with torch.no_grad():
        return pytree.tree_leaves(module(*(x.clone() for x in inputs)))


def nudged(x: torch.Tensor) -> torch.Tensor:
    """At the precision of f32 and more; 16 bits have none to nudge."""
    if x.dtype not in (torch.float32, torch.float64) or x.numel() < 2:
        return x
    signs = torch.randint(0, 2, x.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return x * (1 + NUDGE * signs)


def nudged_module(program: Program, dtype: torch.dtype | None = None) -> torch.nn.Module:
    module = program.module().to(dtype or program.dtype)
    for x in [*module.parameters(), *module.buffers()]:
        x.data = nudged(x.data)
    return module


def compared(program: Program, inputs: Tensors, run: Run) -> str:
    """What is wrong with one run's results, or nothing. Of 16-bit programs the slack is that of the same ones in f32."""
    want = evaluated(program.module(), inputs)
    half = program.dtype in AMPLIFIED
    wide = [x.float() if half and x.dtype == program.dtype else x for x in inputs]
    try:
        exact = evaluated(program.module().float() if half else program.module(), wide)
        slack = evaluated(nudged_module(program, torch.float32 if half else None), [nudged(x) for x in wide])
    except RuntimeError:  # it mixes dtypes that it names itself with the program's
        exact = slack = want
    got = run([x.clone() for x in inputs])
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for name, a, b, c, d in zip(program.outputs, got, want, exact, slack, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{name} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}"
        problem = differs(program.dtype, a, b, c, d)
        if problem:
            return f"{name}{list(b.shape)} {problem}"
    return ""


def differs(dtype: torch.dtype, a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor) -> str:
    if not b.is_floating_point():
        jumps = not torch.equal(exact, slack) or not torch.equal(exact, b)
        return (
            "" if jumps or torch.equal(a, b) else f"differs: {a.flatten()[:8].tolist()} for {b.flatten()[:8].tolist()}"
        )
    coarsest = max((dtype, b.dtype, exact.dtype), key=lambda d: TOLERANCE[d])
    tolerance = max(TOLERANCE[coarsest], 0 if coarsest == torch.float64 else 1e-3)
    a, b, exact, slack = (x.double() for x in (a, b, exact, slack))
    moved = 30 * float((slack - exact).abs().nan_to_num(0).max()) * AMPLIFIED.get(dtype, 30) / 30
    limit = tolerance * max(float(exact.abs().nan_to_num(0, 0, 0).max()), 1e-3) + moved
    error = torch.where(a.isnan() & b.isnan() | (a == b), 0, torch.minimum((a - b).abs(), (a - exact).abs()))
    if bool((error <= limit).all()):
        return ""
    at = int(error.nan_to_num(torch.inf).argmax())
    count = int((~(error <= limit)).sum())
    return f"differs in {count}, at {at} {a.flatten()[at]:.7g} for {b.flatten()[at]:.7g}"


def difference(program: Program, case: Case, server: str | None) -> str:
    """What is wrong with what inlay makes of it, or nothing."""
    if not program.inputs or not program.outputs:
        return ""
    inputs = list(program.inputs.values())
    torch.compiler.reset()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = (exported if case.way == "export" else compiled)(program, case, server)
            problem = compared(program, inputs, run) if run else ""
            if problem or not case.open_sizes or case.way == "export":
                return problem
            return at_other_sizes(program, inputs, run)
    except Exception as error:  # noqa: BLE001  whatever it is, it is a finding
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {' | '.join(lines[:3])}"[:600]


def exported(program: Program, case: Case, server: str | None) -> Run | None:
    module, inputs = program.module(), tuple(program.inputs.values())
    shape = None
    source = module
    if case.open_sizes:
        try:
            sizes = tuple({0: torch.export.Dim.AUTO} if x.dim() else {} for x in inputs)
            source = torch.export.export(module, inputs, dynamic_shapes=sizes)
        except Exception:  # noqa: BLE001  PyTorch's own
            return None
        shape = {name: list(x.shape) for name, x in program.inputs.items() if x.dim()}
    made = inlay.from_torch(source, *(() if case.open_sizes else (inputs,)), shape=shape)
    executable = inlay.build(made, case.config, server=server)
    main = executable.jit()["main"]
    names = [spec[0] for spec in executable.inputs]

    def run(values: Tensors) -> Tensors:
        given = dict(zip(program.inputs, values, strict=True))
        got = main(*(given[name].contiguous() for name in names))
        return [torch.from_dlpack(y) for y in (got if isinstance(got, tuple) else (got,))]

    return run


def compiled(program: Program, case: Case, server: str | None) -> Run:
    options = {"server": server, "target": case.config}
    module = torch.compile(
        program.module(), backend=compile_graph, options=options, dynamic=case.open_sizes, fullgraph=True
    )
    return lambda values: pytree.tree_leaves(module(*values))


def at_other_sizes(program: Program, inputs: Tensors, run: Run) -> str:
    for extent in (1, 2, 7):
        other = [torch.cat([x] * extent)[:extent] if x.dim() else x for x in inputs]
        try:
            evaluated(program.module(), other)
        except (RuntimeError, IndexError, ValueError):  # another size than the program is for
            continue
        problem = compared(program, other, run)
        if problem:
            return f"first extents {extent}: {problem}"
    return ""


def by_reference(program: Program) -> str:
    """What the reference evaluator makes of the imported module."""
    try:
        inputs = tuple(program.inputs.values())
        module = inlay.from_torch(program.module(), inputs)

        def run(values: Tensors) -> Tensors:
            given = dict(zip(program.inputs, values, strict=True))
            got = evaluate(module.proto, module.weights, [as_array(given[n].contiguous()) for n in program.inputs])
            made = evaluated(program.module(), values)
            return [
                torch.as_tensor(a.astype(np.float64)).to(b.dtype) if b.is_floating_point() else torch.as_tensor(a)
                for a, b in zip(got, made, strict=True)
            ]

        return compared(program, list(inputs), run) or "agrees"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}"[:200]


def minimised(program: Program, case: Case, server: str | None) -> Program:
    """The smallest part found that still differs."""
    for name in list(program.outputs):
        less = dataclasses.replace(program, outputs=[y for y in program.outputs if y != name])
        if less.outputs and difference(less, case, server):
            program = less
    return cut_down(program, lambda less: bool(difference(less, case, server)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="0:500", help="FIRST:LAST")
    parser.add_argument("--server", default=None)
    parser.add_argument("--steps", type=int, default=None, help="of each program; else 1 to 10")
    parser.add_argument("--way", choices=("export", "compile"), default=None, help="instead of what a seed draws")
    parser.add_argument("--keep", type=pathlib.Path, default=None, help="a folder for programs that differ")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch._dynamo.config.allow_rnn = True
    first, last = map(int, args.seeds.split(":"))
    failures = 0
    start = time.monotonic()
    for seed in range(first, last):
        faulthandler.dump_traceback_later(HANGS, exit=True)
        program, case = random_program(seed, args.steps), random_case(seed)
        if args.way:
            case = dataclasses.replace(case, way=args.way)
        print(f"{seed} ", end="", file=sys.stderr, flush=True)
        problem = difference(program, case, args.server)
        if not problem:
            continue
        failures += 1
        faulthandler.dump_traceback_later(HANGS, exit=True)
        program = minimised(program, case, args.server)
        shapes = ", ".join(f"{name}: {str(x.dtype)[6:]}{list(x.shape)}" for name, x in program.inputs.items())
        how = f"{case.way}{' with open sizes' if case.open_sizes else ''}, {case.config.executor}"
        print(f"seed {seed} ({how}): {problem}\n  smallest: {difference(program, case, args.server)}")
        print(f"  reference: {by_reference(program)}\n  {shapes}\n{program.source()}\n", flush=True)
        if args.keep:
            args.keep.mkdir(parents=True, exist_ok=True)
            torch.save((program.source(), program.layers, program.inputs), args.keep / f"{seed}.pt")
    print(f"{last - first} programs, {failures} failed, {time.monotonic() - start:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
