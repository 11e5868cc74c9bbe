"""Target: what code is generated for. The string form is "llvm -mcpu=znver4 -mattr=+avx512f -num-cores=2"."""

from __future__ import annotations

import dataclasses
import shlex

from inlay import cpu
from inlay._proto import config_pb2


@dataclasses.dataclass(frozen=True)
class Target:
    """A kind ("llvm", "c", or a backend's name) and its attributes, as text.

    >>> Target("llvm -mcpu=x86-64-v3").attrs
    {'mcpu': 'x86-64-v3'}

    `-mcpu=native` means the machine that the client runs on and is resolved by it (`resolved`), never by a server.
    Without a `-mcpu`, a server generates for x86-64-v3. The server checks kinds and attributes.
    """

    kind: str
    attrs: dict[str, str] = dataclasses.field(default_factory=dict)

    def __init__(self, text: str | Target | config_pb2.Target, attrs: dict[str, str] | None = None):
        """Parses a target string; raises ValueError naming the word that can't be read."""
        if isinstance(text, Target | config_pb2.Target):
            kind, parsed = text.kind, dict(text.attrs)
        else:
            kind, parsed = _parse(text)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "attrs", {**parsed, **(attrs or {})})

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

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{name}={value}" for name, value in sorted(self.attrs.items()))])

    def __hash__(self) -> int:
        return hash(str(self))


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
