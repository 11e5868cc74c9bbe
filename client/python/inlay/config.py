"""CompilationConfig: the whole configuration of one compilation (proto/config.proto is the catalogue of options)."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from inlay import schema
from inlay._proto import config_pb2
from inlay.target import Target

SEARCHES = {
    "none": config_pb2.SearchOptions.NONE,
    "analytic": config_pb2.SearchOptions.ANALYTIC,
    "measured": config_pb2.SearchOptions.MEASURED,
}
PRECISIONS = ("bf16",)


class _Chosen:
    """A kind and its options: an executor or a runtime. A value; options that are not given have their defaults."""

    kind: str
    options: dict[str, Any]
    _proto: Any
    _what: str
    _default: str

    def __init__(self, kind: str | _Chosen, options: Mapping[str, Any] | None = None, **more: Any):
        if isinstance(kind, _Chosen):
            options = {**kind.options, **(options or {})}
            kind = kind.kind
        kinds = [v.name.lower() for v in self._proto.Kind.DESCRIPTOR.values if v.number]
        if kind not in kinds:
            raise ValueError(f"{self._what} is {kind!r}; there are {', '.join(kinds)}")
        self.kind = kind
        self.options = schema.choose({**(options or {}), **more}, self._schema(), kind, self._what)

    @classmethod
    def _schema(cls) -> dict[str, schema.Option]:
        raise NotImplementedError

    def __getitem__(self, name: str) -> Any:
        """The value of an option, its default where it was not given. Raises KeyError for one that the kind lacks."""
        option = self._schema().get(name)
        if option is None or option.of_kind not in ("", self.kind):
            raise KeyError(f"{self._what} {self.kind} has no option {name!r}")
        return self.options.get(name, option.parse(option.default, self._what))

    def to_proto(self) -> Any:
        proto = self._proto(kind=self._proto.Kind.Value(self.kind.upper()))
        for name, value in self.options.items():
            field = self._schema()[name].field
            enum = self._proto.DESCRIPTOR.fields_by_name[field].enum_type
            setattr(proto, field, enum.values_by_name[value.upper()].number if enum else value)
        return proto

    @classmethod
    def from_proto(cls, proto: Any) -> Any:
        kind = proto.Kind.Name(proto.kind).lower() if proto.kind else cls._default
        options = {}
        for name, option in cls._schema().items():
            value, field = getattr(proto, option.field), proto.DESCRIPTOR.fields_by_name[option.field]
            if value and option.of_kind in ("", kind):
                options[name] = field.enum_type.values_by_number[value].name.lower() if field.enum_type else value
        return cls(kind, options)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        words = (f"-{name}={int(v) if isinstance(v, bool) else v}" for name, v in sorted(self.options.items()))
        return " ".join([self.kind, *words])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kind!r}{f', {self.options}' if self.options else ''})"


class Executor(_Chosen):
    """What calls the compiled partitions: "graph", "aot" or "vm", and its options (`inlay.schema.executor_options`).

    >>> Executor("aot", {"interface-api": "c", "unpacked-api": True})["workspace-byte-alignment"]
    64

    Raises ValueError for a kind or an option that there is not, saying which there are.
    """

    _proto, _what, _default = config_pb2.Executor, "executor", "graph"

    @classmethod
    def _schema(cls) -> dict[str, schema.Option]:
        return schema.executor_options()


class Runtime(_Chosen):
    """What compiled code is linked with: "cpp" or "crt", and its options (`inlay.schema.runtime_options`).

    >>> Runtime("crt", {"system-lib": True})
    Runtime('crt', {'system-lib': True})
    """

    _proto, _what, _default = config_pb2.Runtime, "runtime", "cpp"

    @classmethod
    def _schema(cls) -> dict[str, schema.Option]:
        return schema.runtime_options()


@dataclasses.dataclass(frozen=True)
class CompilationConfig:
    """Configuration of one compilation; a value. The server completes and checks it.

    Attributes:
        targets: the device's Target first, then any external codegen targets by backend name; two of one kind are two
            variants of that backend, which compete. Empty: the host for a daemon on this machine, else the server's
            default (x86-64-v3).
        target_host: of the code around the partitions; None: the first target.
        executor: an `Executor`, or its kind.
        runtime: a `Runtime`, or its kind.
        search: "none" (the backends' order of preference decides), "analytic" (a cost model does), "measured"; None:
            the server's default, analytic.
        search_budget_s: "measured": seconds that may be spent measuring; 0: the server's default.
        dim_hints: {name: extent} of dimensions that the model leaves open (executor vm): what the cost model counts with;
            one that is not named: 64. The code is right for every size all the same.
        replan: search again though the server has a plan for the model.
        pinned: a cover to use, without a search (`Executable.cover`, or `read_cover`).
        backends: those that may be used, by name; empty: all that the server has. "native" is always possible.
        link_params: parameters inside the exported library (True) or beside it as safetensors (False).
        num_threads: of the artifact, unless its caller says otherwise; 0: as many as cores where it runs.
        opt_level: 0 to 3; None: 3.
        disabled_passes: names of passes to leave out.
        mixed_precision: "bf16": products of f32 are computed of that, rounded to 8 bits, and so are residuals of
            convolutions; what else is between them, and products of values that are not weights with less than 16
            rows, columns or inner elements, stay f32. Several times as fast where the processor multiplies bf16 (AMX,
            AVX512-BF16), half the weights' memory; elsewhere it saves memory only. None: as the model says.
    """

    targets: Sequence[Target] = ()
    target_host: Target | None = None
    executor: Executor | str = "graph"
    runtime: Runtime | str = "cpp"
    search: str | None = None
    search_budget_s: float = 0
    dim_hints: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    replan: bool = False
    pinned: config_pb2.Cover | None = None
    backends: Sequence[str] = ()
    link_params: bool = True
    num_threads: int = 0
    opt_level: int | None = None
    disabled_passes: Sequence[str] = ()
    mixed_precision: str | None = None

    def __post_init__(self):
        targets = [self.targets] if isinstance(self.targets, str | Mapping | Target) else self.targets
        object.__setattr__(self, "targets", tuple(Target(t) for t in targets))
        object.__setattr__(self, "target_host", None if self.target_host is None else Target(self.target_host))
        object.__setattr__(self, "backends", tuple(self.backends))
        object.__setattr__(self, "dim_hints", dict(self.dim_hints))
        object.__setattr__(self, "disabled_passes", tuple(self.disabled_passes))
        object.__setattr__(self, "executor", Executor(self.executor))
        object.__setattr__(self, "runtime", Runtime(self.runtime))
        if self.search is not None:
            _one_of("search", self.search, SEARCHES)
        if self.mixed_precision is not None:
            _one_of("mixed_precision", self.mixed_precision, PRECISIONS)
        if self.num_threads < 0:
            raise ValueError(f"num_threads is {self.num_threads}; it is 0 (all cores) or a number of threads")

    @staticmethod
    def from_target(target: str | Target, target_host: str | Target | None = None, **options: Any) -> CompilationConfig:
        """The configuration that a Target alone stands for; `options` are further attributes."""
        return CompilationConfig(
            targets=[Target(target)], target_host=None if target_host is None else Target(target_host), **options
        )

    @property
    def target(self) -> Target | None:
        """The device's."""
        return self.targets[0] if self.targets else None

    def should_link_params(self) -> bool:
        """Whether the parameters are inside the exported library."""
        return self.link_params

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
            executor=Executor(self.executor).to_proto(),
            runtime=Runtime(self.runtime).to_proto(),
            link_params=self.link_params,
            search=config_pb2.SearchOptions(
                backends=self.backends,
                budget_s=self.search_budget_s,
                replan=self.replan,
                pinned=self.pinned,
                dim_hints=self.dim_hints,
            ),
            passes=config_pb2.PassOptions(
                disabled_passes=self.disabled_passes, mixed_precision=self.mixed_precision or ""
            ),
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
            executor=Executor.from_proto(proto.executor),
            runtime=Runtime.from_proto(proto.runtime),
            search=name(SEARCHES, proto.search.mode, None),
            search_budget_s=proto.search.budget_s,
            dim_hints=dict(proto.search.dim_hints),
            replan=proto.search.replan,
            pinned=proto.search.pinned if proto.search.HasField("pinned") else None,
            backends=proto.search.backends,
            link_params=proto.link_params if proto.HasField("link_params") else True,
            num_threads=proto.num_threads,
            opt_level=proto.passes.opt_level if proto.passes.HasField("opt_level") else None,
            disabled_passes=proto.passes.disabled_passes,
            mixed_precision=proto.passes.mixed_precision or None,
        )


def cpu(mcpu: str = "native", **options) -> CompilationConfig:
    """A configuration for the CPU: `cpu()` for this machine's, `cpu("x86-64-v3", num_threads=1)` for another."""
    return CompilationConfig(targets=[Target("llvm", {"mcpu": mcpu})], **options)


def cross(triple: str, mcpu: str | None = None, **options: Any) -> CompilationConfig:
    """A configuration for another machine's CPU: `cross("aarch64-linux-gnu")`, `cross("riscv64-linux-gnu", "sifive-u74")`.
    An architecture other than the server's own yields sources and objects to link there (Model Library Format)."""
    attrs = {"mtriple": triple} if mcpu is None else {"mtriple": triple, "mcpu": mcpu}
    if triple.partition("-")[0] not in ("x86_64", "amd64"):
        options = {"executor": "aot", "runtime": "crt", **options}
    return CompilationConfig(targets=[Target("llvm", attrs)], **options)


def cuda(arch: str = "sm_90", **options: Any) -> CompilationConfig:
    """A configuration for an NVIDIA GPU. This version's server has no backend for it, and says so."""
    return CompilationConfig(targets=[Target("cuda", {"arch": arch})], **options)


# Boards by their usual names: what their compiler calls the CPU.
MICRO_MODELS = {
    "unknown": None,
    "host": None,
    "mps2_an385": "cortex-m3",
    "mps2_an386": "cortex-m4",
    "mps2_an500": "cortex-m7",
    "mps2_an521": "cortex-m33",
    "mps3_an547": "cortex-m55",
    "nrf52840": "cortex-m4",
    "nrf5340dk": "cortex-m33",
    "rp2040": "cortex-m0plus",
    "stm32f4xx": "cortex-m4",
    "stm32f746xx": "cortex-m7",
    "stm32h7xx": "cortex-m7",
    "stm32l4r5zi": "cortex-m4",
    "zynq_mp_r5": "cortex-r5",
}


def micro(
    model: str = "unknown",
    options: Mapping[str, str] | None = None,
    executor: Executor | str = "aot",
    **more: Any,
) -> CompilationConfig:
    """A configuration for a microcontroller: C sources, no heap, no system (runtime "crt").

    Args:
        model: a board (`inlay.config.MICRO_MODELS`), or "unknown".
        options: further attributes of the target, {"mcpu": "cortex-m4"}.
        executor: "aot", or an Executor with options. "graph" and "vm" are refused: crt has no parser and no heap.
        more: attributes of CompilationConfig.

    Raises ValueError for a model that is not known, saying which are.
    """
    if model not in MICRO_MODELS:
        raise ValueError(f"micro model {model!r} is not known; there are {', '.join(MICRO_MODELS)}")
    mcpu = MICRO_MODELS[model]
    attrs = {"model": model, **({"mcpu": mcpu} if mcpu else {}), **(options or {})}
    executor = Executor(executor)
    by_name = executor.options.get("interface-api") != "c"  # then the entry is found in the system library
    runtime = more.pop("runtime", Runtime("crt", {"system-lib": by_name}))
    return CompilationConfig(targets=[Target("c", attrs)], executor=executor, runtime=runtime, **more)


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


def _one_of(what: str, value: str, table: Iterable[str]) -> None:
    if value not in table:
        raise ValueError(f"{what} {value!r} is not one of {', '.join(table)}")
