"""Models in which every partition's backend is given: a chain of matrix products, each pinned to one."""

from __future__ import annotations

import itertools
import pathlib
import subprocess
from collections.abc import Sequence

import numpy as np

import inlay
from inlay._proto import config_pb2
from inlay.client import Client
from inlay.daemon import find_binary
from inlay.ir import FunctionBuilder, IRModule

ROWS, WIDTH = 4, 32


def backends() -> list[str]:
    """The backends of the worker beside the daemon that tests use, whose libraries this machine has."""
    folder = pathlib.Path(find_binary()).resolve().parent
    worker = next(p for p in (folder / "inlay_worker", folder / "worker" / "inlay_worker") if p.exists())
    listed = subprocess.run([worker, "--backends"], capture_output=True, text=True, check=True).stdout
    return sorted(line.split()[0] for line in listed.splitlines() if line.strip())


def chain(widths: Sequence[int]) -> tuple[IRModule, np.ndarray, np.ndarray]:
    """x[ROWS, widths[0]] times matrices to widths[1], widths[2], ...: (module, x, what NumPy computes in f64)."""
    random = np.random.default_rng(5)
    b = FunctionBuilder()
    y = b.param("x", "f32", (ROWS, widths[0]))
    x = random.uniform(-1, 1, (ROWS, widths[0])).astype(np.float32)
    want = x.astype(np.float64)
    for i, (k, n) in enumerate(itertools.pairwise(widths)):
        w = (random.uniform(-1, 1, (k, n)) * np.sqrt(3 / k)).astype(np.float32)
        y = b.op("matmul", y, b.weight(w, f"w{i}"))
        want = want @ w
    return b.finish([y], ["y"]), x, want


def pinned(
    client: Client, module: IRModule, order: Sequence[str], targets: Sequence[inlay.Target] = (), **options
) -> inlay.Executable:
    """Compiles a chain with its i-th product by backend order[i]."""
    config = inlay.CompilationConfig(
        targets=["llvm -mcpu=x86-64-v3", *targets], backends=sorted({*order, "native"}), search="none", **options
    )
    # Where everything is native, each product is a group of its own: that cover, with other names in it.
    native = inlay.build(module, config.replace(backends=["native"], targets=["llvm -mcpu=x86-64-v3"]), server=client)
    cover = config_pb2.Cover()
    cover.CopyFrom(native.cover)
    main = next(f for f in cover.functions if f.function == "main")
    assert len(main.groups) == len(order), "a group a product"
    for group, backend in zip(main.groups, order, strict=True):
        group.backend = backend
    executable = inlay.build(module, config.replace(pinned=cover), server=client)
    assert {p.backend for p in executable.report.partitions if p.call_sites} >= set(order)
    return executable


def check(got, want: np.ndarray, tolerance: float = 1e-5) -> None:
    got = got if isinstance(got, np.ndarray) else np.from_dlpack(got)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


def pairs_with(backend: str, others: Sequence[str]) -> list[str]:
    """backend, A, backend, B, backend, ...: next to each of the others, before it and after it, and to itself."""
    order = [backend, backend]
    for other in others:
        if other != backend:
            order += [other, backend]
    return order
