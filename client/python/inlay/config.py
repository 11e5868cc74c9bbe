"""CompilationConfig: the whole configuration of one compilation (proto/config.proto is the catalogue of options)."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from inlay._proto import config_pb2
from inlay.target import Target

EXECUTORS = {"graph": config_pb2.Executor.GRAPH, "aot": config_pb2.Executor.AOT, "vm": config_pb2.Executor.VM}
RUNTIMES = {"cpp": config_pb2.Runtime.CPP, "crt": config_pb2.Runtime.CRT}
SEARCHES = {
    "none": config_pb2.SearchOptions.NONE,
    "analytic": config_pb2.SearchOptions.ANALYTIC,
    "measured": config_pb2.SearchOptions.MEASURED,
}


@dataclasses.dataclass(frozen=True)
class CompilationConfig:
    """Configuration of one compilation; a value. The server completes and checks it.

    Attributes:
        targets: the device's Target first, then any external codegen targets by backend name. Empty: the host for a
            daemon on this machine, else the server's default (x86-64-v3).
        target_host: of the code around the partitions; None: the first target.
        executor: "graph", "aot" ("vm" is refused by this version's server).
        runtime: "cpp" ("crt" is refused likewise).
        search: "none" (the backends' order of preference decides), "analytic" (a cost model does), "measured"; None:
            the server's default, analytic.
        search_budget_s: "measured": seconds that may be spent measuring; 0: the server's default.
        replan: search again though the server has a plan for the model.
        pinned: a cover to use, without a search (`Executable.cover`, or `read_cover`).
        backends: those that may be used, by name; empty: all that the server has. "native" is always possible.
        link_params: parameters inside the exported library (True) or beside it as safetensors (False).
        num_threads: of the artifact, unless its caller says otherwise; 0: as many as cores where it runs.
        opt_level: 0 to 3; None: 3.
        disabled_passes: names of passes to leave out.
    """

    targets: Sequence[Target] = ()
    target_host: Target | None = None
    executor: str = "graph"
    runtime: str = "cpp"
    search: str | None = None
    search_budget_s: float = 0
    replan: bool = False
    pinned: config_pb2.Cover | None = None
    backends: Sequence[str] = ()
    link_params: bool = True
    num_threads: int = 0
    opt_level: int | None = None
    disabled_passes: Sequence[str] = ()

    def __post_init__(self):
        targets = [self.targets] if isinstance(self.targets, str | Target) else self.targets
        object.__setattr__(self, "targets", tuple(Target(t) for t in targets))
        object.__setattr__(self, "target_host", None if self.target_host is None else Target(self.target_host))
        object.__setattr__(self, "backends", tuple(self.backends))
        object.__setattr__(self, "disabled_passes", tuple(self.disabled_passes))
        _one_of("executor", self.executor, EXECUTORS)
        _one_of("runtime", self.runtime, RUNTIMES)
        if self.search is not None:
            _one_of("search", self.search, SEARCHES)
        if self.num_threads < 0:
            raise ValueError(f"num_threads is {self.num_threads}; it is 0 (all cores) or a number of threads")

    def replace(self, **changes) -> CompilationConfig:
        return dataclasses.replace(self, **changes)

    def resolved(self, host: config_pb2.Target | None = None, default: Target | None = None) -> CompilationConfig:
        """With "native" resolved (see Target.resolved), and with `default` where no target is given."""
        targets = self.targets or ((default,) if default is not None else ())
        fixed = self.target_host.resolved(host) if self.target_host is not None else None
        return self.replace(targets=tuple(t.resolved(host) for t in targets), target_host=fixed)

    def to_proto(self) -> config_pb2.CompilationConfig:
        proto = config_pb2.CompilationConfig(
            targets=[t.to_proto() for t in self.targets],
            executor=config_pb2.Executor(kind=EXECUTORS[self.executor]),
            runtime=config_pb2.Runtime(kind=RUNTIMES[self.runtime]),
            link_params=self.link_params,
            search=config_pb2.SearchOptions(
                backends=self.backends, budget_s=self.search_budget_s, replan=self.replan, pinned=self.pinned
            ),
            passes=config_pb2.PassOptions(disabled_passes=self.disabled_passes),
            num_threads=self.num_threads,
        )
        if self.target_host is not None:
            proto.target_host.CopyFrom(self.target_host.to_proto())
        if self.search is not None:
            proto.search.mode = SEARCHES[self.search]
        if self.opt_level is not None:
            proto.passes.opt_level = self.opt_level
        return proto

    @staticmethod
    def from_proto(proto: config_pb2.CompilationConfig) -> CompilationConfig:
        def name(table: Mapping[str, int], value: int, default: Any) -> Any:
            return next((key for key, number in table.items() if number == value), default)

        return CompilationConfig(
            targets=[Target(t) for t in proto.targets],
            target_host=Target(proto.target_host) if proto.HasField("target_host") else None,
            executor=name(EXECUTORS, proto.executor.kind, "graph"),
            runtime=name(RUNTIMES, proto.runtime.kind, "cpp"),
            search=name(SEARCHES, proto.search.mode, None),
            search_budget_s=proto.search.budget_s,
            replan=proto.search.replan,
            pinned=proto.search.pinned if proto.search.HasField("pinned") else None,
            backends=proto.search.backends,
            link_params=proto.link_params if proto.HasField("link_params") else True,
            num_threads=proto.num_threads,
            opt_level=proto.passes.opt_level if proto.passes.HasField("opt_level") else None,
            disabled_passes=proto.passes.disabled_passes,
        )


def cpu(mcpu: str = "native", **options) -> CompilationConfig:
    """A configuration for the CPU: `cpu()` for this machine's, `cpu("x86-64-v3", num_threads=1)` for another."""
    return CompilationConfig(targets=[Target("llvm", {"mcpu": mcpu})], **options)


def make(value: str | Target | CompilationConfig | config_pb2.CompilationConfig | None) -> CompilationConfig:
    """What users may give where a configuration is wanted: a target string, a Target, a configuration, or None."""
    if value is None:
        return CompilationConfig()
    if isinstance(value, CompilationConfig):
        return value
    if isinstance(value, config_pb2.CompilationConfig):
        return CompilationConfig.from_proto(value)
    return CompilationConfig(targets=[Target(value)])


def write_cover(cover: config_pb2.Cover, path: str | os.PathLike) -> None:
    """Writes which backend took what (`Executable.cover`) as JSON, to be pinned by another compile."""
    pathlib.Path(path).write_text(json_format.MessageToJson(cover, indent=1) + "\n")


def read_cover(path: str | os.PathLike) -> config_pb2.Cover:
    """What `write_cover` wrote. Raises ValueError where it is something else."""
    try:
        return json_format.Parse(pathlib.Path(path).read_text(), config_pb2.Cover())
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no plan that inlay wrote: {' '.join(str(error).split())}") from None


def _one_of(what: str, value: str, table: Mapping[str, int]) -> None:
    if value not in table:
        raise ValueError(f"{what} {value!r} is not one of {', '.join(table)}")
