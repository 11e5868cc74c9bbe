"""`inlay run`: an exported library on tensors from a file, or on seeded random ones."""

from __future__ import annotations

import pathlib
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from inlay import open_sizes
from inlay.ir.types import numpy_dtype
from inlay.library import load_library
from inlay.runtime import LibraryModule, TensorSpec, as_numpy


def random_input(
    spec: TensorSpec, generator: np.random.Generator, sizes: Mapping[str, int] | None = None
) -> np.ndarray:
    """Normal for floats, small non-negative numbers for integers (valid as indices of most models), booleans alike.

    `sizes`: of the dimensions that are open. Raises ValueError as `open_sizes.extents` does.
    """
    extents = open_sizes.extents(spec, sizes or {})
    dtype = numpy_dtype(spec[1])
    if dtype.kind in "iu":
        return generator.integers(0, 100, extents).astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, extents).astype(dtype)
    return generator.standard_normal(extents).astype(dtype)


def read_inputs(path: str, specs: list[TensorSpec]) -> dict[str, np.ndarray]:
    """{input: array} from a .npz (by name; a single unnamed array may stand for a single input) or a .npy.

    Raises ValueError naming what is missing or does not fit.
    """
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        arrays = {"arr_0": loaded}
    else:
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    names = [spec[0] for spec in specs]
    if set(arrays) == {f"arr_{i}" for i in range(len(names))} and set(arrays) != set(names):
        arrays = {name: arrays[f"arr_{i}"] for i, name in enumerate(names)}
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"{path} lacks {', '.join(missing)}; it has {', '.join(arrays) or 'nothing'}")
    for name, dtype, shape in specs:
        found = arrays[name]
        fits = found.dtype == numpy_dtype(dtype) and found.ndim == len(shape)
        # What is open is checked by the model, which knows what belongs together.
        if not fits or any(isinstance(want, int) and want != got for want, got in zip(shape, found.shape, strict=True)):
            raise ValueError(
                f"{path}: {name} is {found.dtype}{list(found.shape)}, the model takes {dtype}[{', '.join(map(str, shape))}]"
            )
    return {name: arrays[name] for name in names}


def run_library(
    path: str,
    inputs: str | None,
    seed: int | None,
    sizes: Mapping[str, int],
    output: str | None,
    threads: int,
    repeat: int,
) -> dict[str, Any]:
    """Runs a library and returns what `inlay run --json` prints. Raises ValueError, OSError, LoadError, RunError."""
    started = time.perf_counter()
    module: LibraryModule = load_library(path, threads)
    load_ms = (time.perf_counter() - started) * 1e3
    if inputs is not None:
        arrays = read_inputs(inputs, module.inputs)
    elif seed is not None or not module.inputs:
        open_sizes.check_symbols(sizes, module.inputs, module.required_extents)
        generator = np.random.default_rng(seed)
        arrays = {spec[0]: random_input(spec, generator, sizes) for spec in module.inputs}
    else:
        names = ", ".join(f"{n} ({d}[{', '.join(map(str, s))}])" for n, d, s in module.inputs)
        raise ValueError(f"inputs are needed: --input X.npz with {names}; or --random SEED")
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        result = module["main"](**arrays)
        times.append((time.perf_counter() - started) * 1e3)
    results = result if isinstance(result, tuple) else (result,)
    outputs = {spec[0]: as_numpy(value) for spec, value in zip(module.outputs, results, strict=True)}
    if output:
        np.savez(output, **outputs)  # type: ignore[arg-type]
    return {
        "library": str(pathlib.Path(path)),
        "load_ms": load_ms,
        "run_ms": statistics.median(times),
        "runs": repeat,
        "written": output,
        "outputs": [_summary(name, array) for name, array in outputs.items()],
    }


def _summary(name: str, array: np.ndarray) -> dict[str, Any]:
    values = array.astype(np.float64).reshape(-1)
    finite = values[np.isfinite(values)]
    return {
        "name": name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "min": float(finite.min()) if finite.size else None,
        "max": float(finite.max()) if finite.size else None,
        "mean": float(finite.mean()) if finite.size else None,
        "not_finite": int(values.size - finite.size),
        "first": [v if np.isfinite(v) else None for v in values[:8].tolist()],
    }


def print_result(result: dict[str, Any]) -> None:
    from inlay.printing import print_table

    rows = []
    for out in result["outputs"]:
        first = " ".join("nan" if v is None else f"{v:.5g}" for v in out["first"])
        rows.append(
            [out["name"], f"{out['dtype']}{out['shape']}", first + (" ..." if np.prod(out["shape"]) > 8 else "")]
        )
    print_table(["output", "type", "values"], rows)
    print(f"loaded in {result['load_ms']:.1f} ms, ran in {result['run_ms']:.3f} ms (median of {result['runs']})")
    if result["written"]:
        print(f"wrote {result['written']}")
