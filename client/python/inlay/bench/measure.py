"""`inlay bench`: our latency and the peers', in interleaved rounds, each in a process of its own.

A round has each peer run one burst (peer_process.py), in an order that is shuffled anew, while the processes of the others
stand still; so that a change of the machine's speed meets all alike. A round's figure is its burst's median. Reported are
the median over rounds and the spread (10th and 90th percentiles), the ratio of the medians (above 1: inlay is faster), and
the largest errors against onnxruntime.
"""

from __future__ import annotations

import contextlib
import dataclasses
import filecmp
import functools
import math
import os
import pathlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

import inlay
from inlay import bounds, daemon, library, model_files, open_sizes, profiling, roofline
from inlay.bench import peers as peer_list
from inlay.bench import report
from inlay.bench.peers import Job
from inlay.bench.processes import PeerError, PeerProcess
from inlay.bench.subjects import Subject, make_inputs, with_shapes
from inlay.client import Client
from inlay.config import CompilationConfig, Executor
from inlay.errors import InlayError

REFERENCE = "onnxruntime"
INTERRUPTED = "interrupted"  # the error of a model that Ctrl-C came before or into


@dataclasses.dataclass(frozen=True)
class Settings:
    """Of a run: peers by name; cold: also compile from nothing; plans: also every single-backend plan of ours; profile:
    also where our time goes; avx2: the peers that can be are held to AVX2 (config says it of us); bounds: as `--bounds` has
    them; sizes: at which open dimensions are run; given: what a saved module's own configuration does not decide."""

    peers: Sequence[str]
    config: CompilationConfig
    rounds: int = 30
    shape: dict[str, Any] = dataclasses.field(default_factory=dict)
    cold: bool = True
    plans: bool = False
    profile: bool = False
    prepare_limit_s: float = 600
    server: str | None = None
    avx2: bool = False
    bounds: Sequence[str] = ()
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def config_of(self, own: CompilationConfig | None) -> CompilationConfig:
        """Of a model whose own configuration is this one; None: it has none."""
        return self.config if own is None else own.replace(**self.given)

    def __post_init__(self):
        for peer in self.peers:
            if peer not in peer_list.OTHERS:
                raise ValueError(f"no peer {peer!r}; there are {', '.join(peer_list.OTHERS)}")

    @property
    def cores(self) -> list[int]:
        """As many as threads are used, so that nobody profits from another one."""
        available = sorted(os.sched_getaffinity(0))
        return available[-self.config.num_threads :] if self.config.num_threads else available


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


def errors(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> tuple[float, float]:
    """(largest absolute difference, largest difference over the largest magnitude of its output). NaN where ours has
    one that theirs has not."""
    worst_abs = worst_rel = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            raise PeerError(f"an output is {list(a.shape)}, not {list(b.shape)}")
        if a.size == 0:
            continue
        difference = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
        scale = float(np.max(np.abs(b.astype(np.float64)))) or 1.0
        # np.maximum, unlike max, keeps a NaN.
        worst_abs = float(np.maximum(worst_abs, difference))
        worst_rel = float(np.maximum(worst_rel, difference / scale))
    return worst_abs, worst_rel


class ModelRun:
    """One model: compiles ours, starts the peers, times the rounds. `row` is what it found."""

    def __init__(
        self,
        subject: Subject,
        settings: Settings,
        folder: pathlib.Path,
        say: Callable[[str], None],
        limits: roofline.Roofline | None = None,
    ):
        self._subject, self._settings, self._folder, self._say = subject, settings, folder, say
        self._limits = limits
        self._config = settings.config  # until the model is read
        self._libraries: dict[str, pathlib.Path] = {}
        self._running: dict[str, PeerProcess] = {}
        self._cells: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, str] = {}
        self.row: dict[str, Any] = {"model": subject.title, "runners": self._cells, "versions": self._versions}
        self._tell(subject.detail)

    def _tell(self, detail: str) -> None:
        if detail:
            self.row["detail"] = "; ".join(filter(None, [self.row.get("detail"), detail]))

    def run(self) -> dict[str, Any]:
        """The row. Raises InlayError, ValueError where inlay itself fails."""
        self._say("importing")
        model = self._subject.onnx_model()
        self._compile(self._import(model))
        self._write_job(model)
        with contextlib.ExitStack() as stack:
            reference = self._reference() if model is not None else None
            for name in ("inlay", *self._libraries, *self._settings.peers):
                if name not in self._running and name not in self._cells:
                    self._start(name, stack)
            if reference is not None:
                for name, process in list(self._running.items()):
                    self._guarded(name, functools.partial(self._check, name, process, reference))
            self._time_rounds()
        self._finish()
        if self._limits is not None:
            self._profile(self._limits)
        return self.row

    def _import(self, model: onnx.ModelProto | None) -> inlay.IRModule:
        """Refuses sizes that can't be run before anything is compiled."""
        settings = self._settings
        source = self._subject.name if model is None else model
        module, self._config = model_files.load(source, settings.shape, settings.config_of)
        module = bounds.added(module, settings.bounds)
        inputs = model_files.input_specs(module)
        executor = Executor(self._config.executor).kind
        open_sizes.check_executor(executor, inputs)
        open_sizes.check(settings.sizes, inputs, module.required_extents())
        if self._config != settings.config:
            self._tell(f"as configured: {', '.join(map(str, self._config.targets))}, executor {executor}")
        self._tell(", ".join(f"{name} = {size}" for name, size in settings.sizes.items()))
        return module

    def _compile(self, module: inlay.IRModule) -> None:
        settings, row = self._settings, self.row
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(fresh_daemon()) if settings.cold else daemon.connect(settings.server)
            self._say("compiling")
            started = time.perf_counter()
            executable = inlay.build(module, self._config, server=client)
            if settings.cold:
                row["compile_cold_s"] = time.perf_counter() - started
                row["compile_cold_server_ms"] = executable.report.server_ms
            started = time.perf_counter()
            again = inlay.build(module, self._config, server=client)
            row["compile_cached_s"] = time.perf_counter() - started
            row["compile_cached_server_ms"] = again.report.server_ms
            row["cached_actions_run"] = again.report.actions_run
            row["backends"] = executable.report.backends()
            self._specs = executable.inputs
            self._export("inlay", executable)
            needs = library.read_manifest(self._libraries["inlay"]).required_extents  # of its operators too
            open_sizes.check(settings.sizes, self._specs, needs)
            if settings.plans:
                self._compile_plans(module, client)

    def _compile_plans(self, module: inlay.IRModule, client: Client) -> None:
        """Every backend that the server uses unasked, alone: wherever it may (no search), native elsewhere. One whose
        library is the mix's byte for byte is not timed: two processes with one library show the machine's noise."""
        for backend in client.usable_backends():
            name = "native alone" if backend == "native" else f"{backend} where it may"
            self._say(f"compiling: {name}")
            config = self._config.replace(backends=sorted({backend, "native"}), search="none")
            try:
                self._export(name, inlay.build(module, config, server=client))
            except InlayError as error:
                self._cells[name] = {"error": str(error)}
                continue
            if filecmp.cmp(self._libraries[name], self._libraries["inlay"], shallow=False):
                self._cells[name] = {"is_mix": True}

    def _export(self, name: str, executable: inlay.Executable) -> None:
        self._libraries[name] = executable.export_library(self._folder / f"{name.replace(' ', '_')}.so")

    def _write_job(self, model: onnx.ModelProto | None) -> None:
        if model is not None:
            fixed = with_shapes(model, self._settings.shape)
            large = fixed.ByteSize() >= 2**31 - 1
            onnx.save(fixed, str(self._folder / "model.onnx"), save_as_external_data=large)
        np.savez(self._folder / "inputs.npz", **self._inputs())  # type: ignore[arg-type]

    def _inputs(self) -> dict[str, np.ndarray]:
        return make_inputs(self._specs, sizes=self._settings.sizes)

    def _job(self, name: str) -> Job:
        return Job(
            model=str(self._folder / "model.onnx"),
            inputs=str(self._folder / "inputs.npz"),
            threads=self._settings.config.num_threads,
            cores=self._settings.cores,
            scratch=str(self._folder / name.replace(" ", "_")),
            subject=self._subject.torch,
            library=str(self._libraries.get(name, "")),
            avx2=self._settings.avx2 and name != REFERENCE,
            mixed_precision=self._config.mixed_precision or "",
        )

    def _reference(self) -> list[np.ndarray]:
        """onnxruntime's outputs, whether it is among the peers or not."""
        self._say(f"preparing {REFERENCE}")
        with PeerProcess(REFERENCE, self._job(REFERENCE), self._settings.prepare_limit_s) as process:
            return process.outputs()

    def _start(self, name: str, stack: contextlib.ExitStack) -> None:
        """Starts a peer for the rounds. With `cold`, once before: what it then finds in its cache shows in the second
        start's seconds."""
        peer = "inlay" if name in self._libraries else name
        if text := self._unable(peer):
            self._cells[name] = {"error": text}
            return
        limit = self._settings.prepare_limit_s
        cell: dict[str, Any] = {}

        def start() -> None:
            self._say(f"preparing {name}")
            if self._settings.cold and peer != "inlay":
                with PeerProcess(peer, self._job(name), limit) as first:
                    cell["prepare_cold_s"] = first.prepare_s
            process = stack.enter_context(PeerProcess(peer, self._job(name), limit))
            cell["load_s" if peer == "inlay" else "prepare_cached_s"] = process.prepare_s
            self._running[name] = process
            self._versions[peer] = process.version

        self._cells[name] = cell
        self._guarded(name, start)

    def _unable(self, peer: str) -> str:
        """Why a peer has nothing to do with this model; "" of those that may try."""
        if peer == "inlay":
            return ""
        text = peer_list.not_held_to_avx2(peer) if self._settings.avx2 else ""
        if self._config.mixed_precision:
            text = text or peer_list.without_mixed_precision(peer)
        if what := self._subject.only_inlays:
            text = text or f"takes no such model: {what}"
        return text or peer_list.missing(peer)

    def _check(self, name: str, process: PeerProcess, reference: list[np.ndarray]) -> None:
        cell = self._cells[name]
        cell["max_abs_error"], cell["max_rel_error"] = errors(process.outputs(), reference)

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        """`call`; what a peer can't do is its cell. inlay's own failure ends the model."""
        try:
            call()
        except (PeerError, ValueError) as error:
            if name == "inlay":
                raise
            self._running.pop(name, None)
            self._cells[name] = {"error": str(error)}

    def _burst(self, name: str, times: list[float]) -> None:
        times.append(self._running[name].burst())

    def _time_rounds(self) -> None:
        shuffle = random.Random(0)
        times: dict[str, list[float]] = {name: [] for name in self._running}
        for number in range(1 + self._settings.rounds):  # the first one is not counted
            self._say(f"round {number} of {self._settings.rounds}")
            order = list(self._running)
            shuffle.shuffle(order)
            for name in order:
                self._guarded(name, functools.partial(self._burst, name, times[name]))
        for name in self._running:
            low, median, high = (float(v) for v in np.percentile(times[name][1:], [10, 50, 90]))
            self._cells[name].update(median_ms=median, p10_ms=low, p90_ms=high)

    def _profile(self, limits: roofline.Roofline) -> None:
        self._say("profiling")
        module, plan, _ = profiling.load_library(str(self._libraries["inlay"]), self._settings.config.num_threads)
        self.row["profile"] = profiling.profile_module(module, plan, self._inputs(), self._settings.rounds, limits)

    def _finish(self) -> None:
        ours = self._cells["inlay"]["median_ms"]
        best: tuple[float, str] = (math.inf, "")
        for name, cell in self._cells.items():
            if name == "inlay" or "median_ms" not in cell:
                continue
            cell["ratio"] = cell["median_ms"] / ours
            if name not in self._libraries:
                best = min(best, (cell["median_ms"], name))
        if best[1]:
            self.row["best_peer"], self.row["best_ratio"] = best[1], best[0] / ours


def run(subjects: Sequence[Subject], settings: Settings, quiet: bool) -> list[dict[str, Any]]:
    """Rows of all models; one that fails is a row with "error", and the others go on. Ctrl-C ends with what is done."""
    from rich.console import Console

    console = Console(stderr=True)
    rows = []
    limits = None
    if settings.profile:
        limits = roofline.measure(len(settings.cores), daemon.connect(settings.server))
    with console.status("") if console.is_terminal and not quiet else contextlib.nullcontext() as status:

        def measure(subject: Subject) -> dict[str, Any]:
            def say(text: str) -> None:
                if status is not None:
                    status.update(f"{subject.title}: {text}")

            try:
                with tempfile.TemporaryDirectory(prefix="inlay-bench-") as folder:
                    return ModelRun(subject, settings, pathlib.Path(folder), say, limits).run()
            except (InlayError, ValueError, RuntimeError, ImportError, OSError) as error:
                row = {"model": subject.title, "error": " ".join(str(error).split())}
                return row | ({"detail": subject.detail} if subject.detail else {})

        try:
            for subject in subjects:
                rows.append(measure(subject))
                if not quiet and len(subjects) > 1:
                    console.print(report.progress(rows[-1], len(rows), len(subjects)), highlight=False, soft_wrap=True)
        except KeyboardInterrupt:  # also between two models; what is done is told
            rows += [{"model": subject.title, "error": INTERRUPTED} for subject in subjects[len(rows) :]]
    return rows
