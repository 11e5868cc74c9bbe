"""The options' schema, as proto/config.proto carries it beside the fields: what executors, runtimes and targets have.

Checks, help texts and the command line are made from it, so that an option is written down once.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from inlay._proto import config_pb2, schema_pb2

_SPEC: Any = schema_pb2.spec  # the extension


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of an executor, a runtime or a target kind.

    Attributes:
        name: as people write it, "interface-api".
        field: its field in the proto, "interface_api".
        type: str, int or bool.
        default: what holds where it is absent, as text.
        help: one line.
        choices: of a str; empty: any.
        min, max: of an int; None: any.
        of_kind: the kind that has the option; "": every one.
    """

    name: str
    field: str
    type: type
    default: str
    help: str
    choices: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None
    of_kind: str = ""

    def parse(self, value: Any, whose: str) -> Any:
        """The value in the option's type; raises ValueError saying what it must be."""
        wanted = ""
        if self.type is bool:
            text = str(value).lower()
            if text in ("1", "true", "on", "yes"):
                return True
            if text in ("0", "false", "off", "no"):
                return False
            wanted = "0 or 1"
        elif self.type is int:
            low, high = self.min, self.max
            try:
                number = int(value)
            except (TypeError, ValueError):
                number = None
            if number is not None and (low is None or number >= low) and (high is None or number <= high):
                return number
            wanted = "a number" if high is None else f"a number from {low or 0} to {high}"
        else:
            text = str(value)
            if not self.choices or text in self.choices:
                return text
            wanted = f"one of {', '.join(self.choices)}"
        raise ValueError(f"{whose}: {self.name}={value} must be {wanted}")


def _option(field: FieldDescriptor) -> Option:
    spec = field.GetOptions().Extensions[_SPEC]
    types = {field.CPPTYPE_BOOL: bool, field.CPPTYPE_INT32: int}
    choices = tuple(spec.choices)
    if field.enum_type is not None:
        choices = tuple(v.name.lower() for v in field.enum_type.values if v.number)
    return Option(
        name=field.name.replace("_", "-"),
        field=field.name,
        type=types.get(field.cpp_type, str),
        default=spec.default_value,
        help=spec.help,
        choices=choices,
        min=spec.min if spec.HasField("min") else None,
        max=spec.max if spec.HasField("max") else None,
        of_kind=spec.of_kind,
    )


def _options(message: Any) -> dict[str, Option]:
    found = [_option(f) for f in message.fields if f.GetOptions().HasExtension(_SPEC)]
    return {option.name: option for option in found}


@functools.cache
def executor_options() -> dict[str, Option]:
    return _options(config_pb2.Executor.DESCRIPTOR)


@functools.cache
def runtime_options() -> dict[str, Option]:
    return _options(config_pb2.Runtime.DESCRIPTOR)


@functools.cache
def target_kinds() -> dict[str, dict[str, Option]]:
    """{kind of device: {attribute: Option}}. Other kinds of target are backends' names; what these have is known to the
    server alone (`inlay info`)."""
    return {f.name: _options(f.message_type) for f in config_pb2.TargetKinds.DESCRIPTOR.fields}


def choose(given: dict[str, Any], options: dict[str, Option], kind: str, what: str) -> dict[str, Any]:
    """`given` options ({"interface-api" or "interface_api": value}) of a thing of this kind, by their names, in their
    types. Raises ValueError naming an option that there is not, or one of another kind, and those that there are."""
    known = {name: o for name, o in options.items() if o.of_kind in ("", kind)}
    chosen = {}
    for key, value in given.items():
        name = key.replace("_", "-")
        if name in known:
            chosen[name] = known[name].parse(value, f"{what} {kind}")
        elif name in options:
            raise ValueError(f"{what} {kind} has no option {name!r}: it is one of {what} {options[name].of_kind}")
        else:
            raise ValueError(f"{what} {kind} has no option {name!r}; it has {', '.join(known) or 'none'}")
    return chosen
