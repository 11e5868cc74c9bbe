"""`inlay bench`: our latency and the peers', in interleaved rounds of one process.

Every round runs each runner once, so that a change of the machine's speed meets all alike; a round's order is shuffled.
Reported are the median and the spread (the 10th and 90th percentiles), the ratio of the medians, and the errors against
onnxruntime's result.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

import inlay
from inlay import daemon, models
from inlay.client import Client
from inlay.config import CompilationConfig
from inlay.errors import InlayError
from inlay.running import random_input
from inlay.runtime import as_numpy

Runner = Callable[[], Sequence[np.ndarray]]
Inputs = dict[str, np.ndarray]
WARM_UP_ROUNDS = 3


def load_model(name: str) -> onnx.ModelProto:
    """A .onnx file, or a built-in name. Raises InlayError, ValueError."""
    if name in models.NAMES:
        return models.build(name)
    if not pathlib.Path(name).exists():
        raise InlayError(f"{name} is neither a file nor a built-in model ({', '.join(models.NAMES)})")
    return onnx.load(name)


def make_inputs(specs: Sequence[tuple[str, str, tuple[int, ...]]], seed: int = 0) -> Inputs:
    """Seeded inputs; masks are ones, and types of tokens zeros, as in a call without padding."""
    generator = np.random.default_rng(seed)
    inputs = {}
    for spec in specs:
        array = random_input(spec, generator)
        if "mask" in spec[0]:
            array[...] = 1
        elif "token_type" in spec[0]:
            array[...] = 0
        inputs[spec[0]] = array
    return inputs


def onnxruntime_runner(model: onnx.ModelProto, inputs: Inputs, threads: int) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(_serialized(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)


def openvino_runner(model: onnx.ModelProto, inputs: Inputs, threads: int) -> Runner:
    import openvino

    core = openvino.Core()
    # f32 like everybody else: its default on recent CPUs is bf16.
    options = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        onnx.save(model, str(path))
        request = core.compile_model(core.read_model(path), "CPU", options).create_infer_request()
    names = list(inputs)
    values = [inputs[name] for name in names]

    def run() -> Sequence[np.ndarray]:
        request.infer(dict(zip(names, values, strict=True)), share_inputs=True, share_outputs=True)
        return [output.data for output in request.output_tensors]

    return run


PEERS: dict[str, Callable[[onnx.ModelProto, Inputs, int], Runner]] = {
    "onnxruntime": onnxruntime_runner,
    "openvino": openvino_runner,
}


def time_rounds(runners: dict[str, Runner], rounds: int) -> dict[str, np.ndarray]:
    """{name: milliseconds of each round}; a few rounds before are not counted."""
    order = list(runners)
    shuffle = random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(WARM_UP_ROUNDS + rounds):
        shuffle.shuffle(order)
        for name in order:
            started = time.perf_counter()
            runners[name]()
            elapsed = (time.perf_counter() - started) * 1e3
            if number >= WARM_UP_ROUNDS:
                times[name].append(elapsed)
    return {name: np.array(values) for name, values in times.items()}


def errors(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, float]:
    """(largest absolute difference, largest difference over the largest magnitude of its output). NaN where ours has
    one that theirs has not."""
    worst_abs = worst_rel = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.size == 0:
            continue
        difference = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
        scale = float(np.max(np.abs(b.astype(np.float64)))) or 1.0
        # np.maximum, unlike max, keeps a NaN.
        worst_abs = float(np.maximum(worst_abs, difference))
        worst_rel = float(np.maximum(worst_rel, difference / scale))
    return worst_abs, worst_rel


@contextlib.contextmanager
def fresh_daemon() -> Iterator[Client]:
    """A daemon of its own, with an empty cache, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="inlay-bench-") as folder:
        root = pathlib.Path(folder)
        client = daemon.ensure(daemon.Paths(root, root / "inlayd.log"), [f"--cache_dir={root / 'cache'}"])
        try:
            yield client
        finally:
            daemon.stop(client, daemon.Paths(root, root / "inlayd.log"))


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """This process on as many cores as threads are used, so that nobody profits from a second core."""
    before = os.sched_getaffinity(0)
    if threads < len(before):
        os.sched_setaffinity(0, set(sorted(before)[-threads:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(
    name: str,
    peers: Sequence[str],
    config: CompilationConfig,
    rounds: int,
    shape: dict[str, Any],
    cold: bool,
    server: str | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """One model's row. Raises InlayError, ValueError, ImportError."""
    model = load_model(name)
    module = inlay.from_onnx(model, shape=shape)
    row: dict[str, Any] = {"model": pathlib.Path(name).stem}
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(fresh_daemon()) if cold else daemon.connect(server)
        say(f"{row['model']}: compiling")
        started = time.perf_counter()
        executable = inlay.build(module, config, server=client)
        if cold:
            row["compile_cold_s"] = time.perf_counter() - started
            row["compile_cold_server_ms"] = executable.report.server_ms
        started = time.perf_counter()
        again = inlay.build(module, config, server=client)
        row["compile_cached_s"] = time.perf_counter() - started
        row["compile_cached_server_ms"] = again.report.server_ms
        row["cached_actions_run"] = again.report.actions_run
        row["backends"] = executable.report.backends()
        inputs = make_inputs(executable.inputs)
        # Threads of the peers' pools are made here, so they inherit the cores.
        stack.enter_context(pinned(config.num_threads))
        ours = executable.jit(num_threads=config.num_threads)["main"]
    arguments = [inputs[spec[0]] for spec in executable.inputs]
    runners: dict[str, Runner] = {"inlay": lambda: _arrays(ours(*arguments))}
    with pinned(config.num_threads):
        fixed = _with_shapes(model, shape)
        for peer in peers:
            if peer not in PEERS:
                raise ValueError(f"no peer {peer!r}; there are {', '.join(PEERS)}")
            say(f"{row['model']}: preparing {peer}")
            runners[peer] = PEERS[peer](fixed, inputs, config.num_threads)
        reference = runners.get("onnxruntime") or onnxruntime_runner(fixed, inputs, config.num_threads)
        row["max_abs_error"], row["max_rel_error"] = errors(runners["inlay"](), reference())
        say(f"{row['model']}: {rounds} rounds")
        times = time_rounds(runners, rounds)
    for runner, values in times.items():
        low, median, high = (float(v) for v in np.percentile(values, [10, 50, 90]))
        row[runner] = {"median_ms": median, "p10_ms": low, "p90_ms": high}
    for peer in peers:
        # Above 1: we are faster.
        row[peer]["ratio"] = row[peer]["median_ms"] / row["inlay"]["median_ms"]
    return row


def run(names, peers, config, rounds, shape, cold, server, quiet) -> list[dict[str, Any]]:
    """Rows of all models; one that fails is a row with "error", and the others go on."""
    from rich.console import Console

    console = Console(stderr=True)
    rows = []
    with console.status("") if console.is_terminal and not quiet else contextlib.nullcontext() as status:
        for name in names:
            say = status.update if status is not None else lambda _: None
            try:
                rows.append(measure(name, peers, config, rounds, shape, cold, server, say))
            except (InlayError, ValueError, RuntimeError, ImportError) as error:
                rows.append({"model": name, "error": " ".join(str(error).split())})
    return rows


def print_rows(rows: list[dict[str, Any]], threads: int, rounds: int) -> None:
    from inlay.printing import print_table

    good = [row for row in rows if "error" not in row]
    peers = [key for key in (good[0] if good else {}) if key in PEERS]
    table = []
    for row in good:
        cells = [row["model"], _time(row["inlay"])]
        for peer in peers:
            cells += [_time(row[peer]), f"{row[peer]['ratio']:.2f}x"]
        cold = f"{row['compile_cold_s']:.2f}" if "compile_cold_s" in row else "-"
        cells += [f"{row['max_abs_error']:.1e}", f"{row['max_rel_error']:.1e}", cold, f"{row['compile_cached_s']:.2f}"]
        table.append([*cells, ", ".join(f"{n} {c}" for n, c in row["backends"].items())])
    columns = ["model", "inlay ms"]
    for peer in peers:
        columns += [f"{peer} ms", "ratio"]
    if table:
        print_table([*columns, "abs err", "rel err", "cold s", "cached s", "calls"], table)
        print(
            f"{threads} thread(s) each, {rounds} interleaved rounds; median ±half of p10..p90; ratio above 1: inlay is faster"
        )
    for row in rows:
        if "error" in row:
            print(f"{row['model']}: {row['error']}")


def _time(value: dict[str, float]) -> str:
    return f"{value['median_ms']:.3f} ±{(value['p90_ms'] - value['p10_ms']) / 2:.3f}"


def _arrays(result: Any) -> Sequence[np.ndarray]:
    return [as_numpy(value) for value in (result if isinstance(result, tuple) else (result,))]


def _serialized(model: onnx.ModelProto) -> bytes:
    if model.ByteSize() >= 2**31 - 1:
        raise ValueError("the model is over 2 GiB; a peer would need it as a file with external data")
    return model.SerializeToString()


def _with_shapes(model: onnx.ModelProto, shape: dict[str, Any]) -> onnx.ModelProto:
    """The model with --shape applied to its inputs, for the peers."""
    if not shape:
        return model
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for info in fixed.graph.input:
        dims = info.type.tensor_type.shape.dim
        for index, dim in enumerate(dims):
            value = shape.get(dim.dim_param) if dim.dim_param else None
            whole = shape.get(info.name)
            if isinstance(whole, list) and len(whole) == len(dims):
                value = whole[index]
            if isinstance(value, int):
                dim.dim_value = value
    return fixed
