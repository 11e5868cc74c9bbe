"""What the commands that compile a model take: the model, its shapes, bounds and updates, sizes to run it at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from inlay.cli_config import make_config

if TYPE_CHECKING:
    import onnx

    from inlay.config import CompilationConfig
    from inlay.ir import IRModule


def shapes(values: tuple[str, ...]) -> dict[str, Any]:
    """--shape batch=1, --shape input=1,3,224,224 (or 1x3x224x224), --shape height=8*h: an extent may be an expression."""
    result: dict[str, Any] = {}
    for value in values:
        name, equals, dims = value.partition("=")
        if not equals or not name or not dims:
            raise click.BadParameter(f"{value!r} is not NAME=DIMS, such as batch=1 or input=1,3,224,224")
        listed = dims.strip("[]")
        words = [word.strip() for word in listed.split("x" if re.match(r"\d+x", listed) else ",")]
        if not all(words):
            raise click.BadParameter(f"{value!r} has an empty dimension")
        parsed = [int(word) if word.lstrip("-").isdigit() else word for word in words]
        result[name] = parsed[0] if len(parsed) == 1 and not dims.startswith("[") else parsed
    return result


shape_option = click.option(
    "--shape", multiple=True, metavar="NAME=DIMS", help="A symbolic dimension's value (or 8*h), or an input's shape."
)
size_option = click.option(
    "--size", "sizes", multiple=True, metavar="NAME=N", help="Of seeded inputs: what a dimension that is open shall be."
)
update_option = click.option(
    "--update",
    "updates",
    multiple=True,
    metavar="OUTPUT=INPUT",
    help="The output is the input's new value: a run writes it to the input's own memory. present.*=past.* for all such.",
)
bounds_option = click.option(
    "--bounds",
    multiple=True,
    metavar="NAME=LEAST:MOST",
    help="What a dimension that is open may be, both included (8:512, 8:, :512): a run with another is refused. "
    "Lists (seq=8:512,h=:100), or repeat it.",
)


def imported(
    model: str | onnx.ModelProto,
    options: dict[str, Any],
    shape: tuple[str, ...],
    bounds: tuple[str, ...],
    updates: tuple[str, ...] = (),
    params_beside: bool = False,
) -> tuple[IRModule, CompilationConfig]:
    """The module of an .onnx or .pt2 file, of one that was saved, or of an ONNX model in memory, and its configuration:
    what `options` say (`make_config` takes them out), else a saved module's own."""
    from inlay import model_files

    try:
        module, config = model_files.load(model, shapes(shape), lambda own: make_config(options, params_beside, own))
    except model_files.FixedShapesError as error:
        raise click.UsageError(str(error)) from None
    return _with_bounds(_with_updates(module, updates), bounds), config


def check_bounds(values: tuple[str, ...]) -> None:
    """As texts, before there is a model."""
    from inlay import bounds

    try:
        bounds.parse(values)
    except ValueError as error:
        raise click.BadParameter(f"--bounds: {error}") from None


def refuse_bounds(library: str, bounds: tuple[str, ...]) -> None:
    if bounds:
        raise click.UsageError(f"--bounds: those of a library are fixed, as `inlay inspect {library}` shows them.")


def _with_bounds(module, values: tuple[str, ...]):
    from inlay import bounds

    try:
        return bounds.added(module, values)
    except ValueError as error:
        raise click.BadParameter(f"--bounds: {error}") from None


def _with_updates(module, values: tuple[str, ...]):
    """--update present.0.key=past.0.key, or with one * on each side for all outputs that fit."""
    updates = module.updates()
    for value in values:
        output, equals, source = value.partition("=")
        if not equals or not output or not source or not output.count("*") == source.count("*") < 2:
            raise click.BadParameter(f"{value!r} is not OUTPUT=INPUT, each with one * or none")
        pattern = re.compile(re.escape(output).replace(r"\*", "(.*)"))
        found = {name: match for name in module.outputs() if (match := pattern.fullmatch(name))}
        if not found:
            raise click.BadParameter(f"{value!r}: no output is called so; there are {', '.join(module.outputs())}")
        updates |= {name: source.replace("*", match[1]) if "*" in output else source for name, match in found.items()}
    try:
        return module.with_updates(updates)
    except ValueError as error:
        raise click.BadParameter(f"--update: {error}") from None
