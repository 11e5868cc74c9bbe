"""Target: what code is generated for.

Three forms that read back to an equal Target: text ("llvm -mcpu=znver4 -num-cores=2"), JSON
('{"kind": "llvm", "mcpu": "znver4"}'), and the object.
"""

from __future__ import annotations

import contextvars
import dataclasses
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from inlay import cpu, schema
from inlay._proto import config_pb2


@dataclasses.dataclass(frozen=True)
class CKernel:
    """A C function of your own for an operator, for the backend csource.

    >>> relu = CKernel("relu", "my_relu", source='''
    ... void my_relu(const float *x, const int64_t *x_dims, int32_t x_rank, float *y, const int64_t *y_dims, int32_t y_rank) {
    ...   int64_t n = 1;
    ...   for (int32_t i = 0; i < x_rank; ++i) n *= x_dims[i];
    ...   for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : 0;
    ... }''')
    >>> str(Target("csource", kernels=[relu]))[:15]
    "csource '-kerne"

    The function gets, for each input and then each output, a pointer to dense row-major data, the extents, the rank. It
    may be called from several threads at once, keeps no state, and calls nothing but libm and memcpy and the like.

    Attributes:
        op: the operator, by its name in core/ir/OPS.md ("relu", "layer_norm").
        symbol: the function's name. What else the source defines must be static.
        source: C11; it may include math.h, stdint.h, string.h, immintrin.h and a few more of the standard's headers.
        dtypes: of the inputs, one for all ("f32") or one each; f16 and bf16 come as uint16_t, bool as uint8_t.
        attrs: attributes of the operator that the function implements, such as {"axis": -1}; those not named must have
            their defaults.
        shapes: of the inputs, None or -1 for any extent; None: any shapes.
    """

    op: str
    symbol: str
    source: str
    dtypes: str | Sequence[str] = "f32"
    attrs: Mapping[str, bool | int | float | str | Sequence[int] | Sequence[float]] = dataclasses.field(
        default_factory=dict
    )
    shapes: Sequence[Sequence[int | None]] | None = None

    def to_json(self) -> dict:
        """As the attribute `kernels` of a csource target has it."""
        fields: dict = {"op": self.op, "symbol": self.symbol, "source": self.source}
        fields["dtypes"] = [self.dtypes] if isinstance(self.dtypes, str) else list(self.dtypes)
        if self.attrs:
            fields["attrs"] = {
                k: v if isinstance(v, bool | int | float | str) else list(v) for k, v in self.attrs.items()
            }
        if self.shapes is not None:
            fields["shapes"] = [[-1 if d is None else d for d in shape] for shape in self.shapes]
        return fields


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind (a device: "llvm", "c", "cuda"; or a backend's name) and its attributes, as text.

    >>> Target("llvm -mcpu=x86-64-v3").attrs
    {'mcpu': 'x86-64-v3'}
    >>> Target({"kind": "llvm", "num-cores": 2}).to_json()
    '{"kind": "llvm", "num-cores": "2"}'

    `-mcpu=native` means the machine that the client runs on and is resolved by it (`resolved`), never by a server.
    Without a `-mcpu`, a server generates for x86-64-v3. Attributes of devices are checked here (`inlay.schema`), those
    of backends by the server.

    `with Target("llvm -mcpu=znver4"):` makes it current: `inlay.build` without a target takes it.
    """

    kind: str
    attrs: dict[str, str] = dataclasses.field(default_factory=dict)

    _scopes: ClassVar[contextvars.ContextVar[tuple[Target, ...]]] = contextvars.ContextVar("inlay_targets", default=())

    def __init__(
        self,
        text: str | Mapping[str, Any] | Target | config_pb2.Target,
        attrs: dict[str, str] | None = None,
        *,
        kernels: Sequence[CKernel] = (),
    ):
        """Reads any form. An attribute with blanks is quoted in text: `csource -cc=gcc '-cflags=-O3 -ffast-math'`.

        Args:
            text: text, JSON, a mapping like the JSON, another Target.
            attrs: more attributes.
            kernels: C functions of your own, for "csource".

        Raises ValueError naming the word that can't be read, or the attribute that the kind does not have.
        """
        if isinstance(text, Target | config_pb2.Target):
            kind, parsed = text.kind, dict(text.attrs)
        elif isinstance(text, Mapping):
            kind, parsed = _from_json(text)
        elif text.lstrip().startswith("{"):
            kind, parsed = _from_json(_load_json(text))
        else:
            kind, parsed = _parse(text)
        object.__setattr__(self, "kind", kind)
        more = dict(attrs or {})
        if kernels:
            if kind != "csource":
                raise ValueError(f"kernels are for the target csource, not {kind}")
            more["kernels"] = json.dumps([kernel.to_json() for kernel in kernels], sort_keys=True)
        object.__setattr__(self, "attrs", {**parsed, **more})
        known = schema.target_kinds().get(kind)
        if known is not None:
            schema.choose(self.attrs, known, kind, "target")

    @classmethod
    def current(cls) -> Target | None:
        """The target of the innermost `with` around this, in this thread or task; None outside of any."""
        scopes = cls._scopes.get()
        return scopes[-1] if scopes else None

    def __enter__(self) -> Self:
        self._scopes.set((*self._scopes.get(), self))
        return self

    def __exit__(self, *_) -> None:
        self._scopes.set(self._scopes.get()[:-1])

    @property
    def is_native(self) -> bool:
        return self.attrs.get("mcpu") == "native"

    def resolved(self, host: config_pb2.Target | None = None) -> Target:
        """With "native" replaced by a CPU and features: of `host` (what a daemon on this machine says that it is), or
        read from /proc/cpuinfo. Other attributes are kept. Raises ValueError where the CPU can't be read."""
        if not self.is_native:
            return self
        own = {name: value for name, value in self.attrs.items() if name != "mcpu"}
        found = dict(host.attrs) if host is not None and host.attrs.get("mcpu") else cpu.native_attrs()
        found.pop("num-cores", None)
        return Target(self.kind, {**found, **own})

    def to_proto(self) -> config_pb2.Target:
        return config_pb2.Target(kind=self.kind, attrs=self.attrs)

    def to_json(self) -> str:
        return json.dumps({"kind": self.kind, **dict(sorted(self.attrs.items()))})

    def __str__(self) -> str:
        return " ".join([self.kind, *(shlex.quote(f"-{name}={value}") for name, value in sorted(self.attrs.items()))])

    def __hash__(self) -> int:
        return hash(str(self))


def _load_json(text: str) -> Mapping[str, Any]:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"target {text!r} begins as JSON but is none: {error}") from None


def _from_json(json: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    kind = json.get("kind") if isinstance(json, Mapping) else None
    if not kind or str(kind) != kind:
        raise ValueError('a target in JSON is an object with "kind", such as {"kind": "llvm", "mcpu": "znver4"}')
    attrs = {}
    for name, value in json.items():
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            value = ",".join(value)
        elif isinstance(value, bool):
            value = str(int(value))
        elif not isinstance(value, str | int):
            raise ValueError(f"target: {name!r} is {value!r}; it must be a text, a number, or a list of texts")
        attrs[name] = str(value)
    return attrs.pop("kind"), attrs


def _parse(text: str) -> tuple[str, dict[str, str]]:
    words = shlex.split(text)
    if not words or words[0].startswith("-"):
        raise ValueError(f"target {text!r} does not begin with its kind, such as llvm")
    attrs = {}
    for word in words[1:]:
        name, equals, value = word.lstrip("-").partition("=")
        if not word.startswith("-") or not name or not equals:
            raise ValueError(f"in target {text!r}: {word!r} is not of the form -name=value")
        attrs[name] = value
    return words[0], attrs
