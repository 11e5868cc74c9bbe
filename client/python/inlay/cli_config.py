"""The command line's options that make a CompilationConfig. Those of executors, runtimes and targets are generated from
the schema (`inlay.schema`): `--executor-aot-interface-api=c`, `--runtime-crt-system-lib=1`, `--target-llvm-mcpu=znver4`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from inlay import schema
from inlay.config import PRECISIONS, CompilationConfig, read_cover
from inlay.target import Target


def names(value: str | None) -> tuple[str, ...]:
    """A list that is separated by commas."""
    return tuple(word.strip() for word in value.split(",") if word.strip()) if value else ()


def numbers(option: str, texts: Iterable[str]) -> dict[str, int]:
    """{NAME: N} of an option that may be repeated."""
    found = {}
    for text in texts:
        name, equals, number = text.rpartition("=")
        if not equals or not name or not number.isdecimal():
            raise click.UsageError(f"{option} {text}: it is NAME=N, such as seq=128")
        found[name] = int(number)
    return found


def _generated(prefix: str, options: dict[str, schema.Option], kind: str = "") -> list[Callable]:
    """One click option for each of the schema: --PREFIX-KIND-NAME."""
    made = []
    for option in options.values():
        of = kind or option.of_kind
        flag = "-".join(filter(None, (f"--{prefix}", of, option.name)))
        metavar = "0|1" if option.type is bool else "|".join(option.choices) or ("N" if option.type is int else "TEXT")
        help_text = f"{option.help}. Default: {option.default}." if option.default else f"{option.help}."
        help_text = help_text[0].upper() + help_text[1:]
        made.append(click.option(flag, f"{prefix}__{of}__{option.field}", metavar=metavar, help=help_text))
    return made


def config_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options from which `make_config` makes a CompilationConfig."""
    kinds = schema.target_kinds()
    options: list[Callable] = [
        click.option(
            "--target",
            "targets",
            multiple=True,
            metavar="TARGET",
            help='The device: "llvm -mcpu=native" (this machine), "llvm -mcpu=x86-64-v3", "c", or JSON; then codegen targets '
            'of backends: "native -winograd=0". May be repeated.',
        ),
        *(option for kind, attrs in kinds.items() for option in _generated("target", attrs, kind)),
        click.option("--target-host", metavar="TARGET", help="Of the code around the partitions. Default: the device."),
        click.option("--threads", type=click.IntRange(min=0), help="Of the artifact; 0, the default: all cores."),
        click.option("--search", type=click.Choice(["measured", "analytic", "none"]), help="How backends are chosen."),
        click.option(
            "--search-budget", type=float, metavar="SECONDS", help="Of measuring; the rest is estimated. Default 60."
        ),
        click.option(
            "--dim-hint",
            multiple=True,
            metavar="NAME=N",
            help="--executor vm: what estimates take a dimension for that is left open. Default 64. May be repeated.",
        ),
        click.option("--replan", is_flag=True, help="Search again, though the server knows a plan for the model."),
        click.option(
            "--plan",
            type=click.Path(exists=True, dir_okay=False),
            metavar="FILE",
            help="Use this plan (--save-plan wrote it); no search is made.",
        ),
        click.option("--backends", metavar="A,B", help="Those that may be used; native is always possible."),
        click.option("--executor", type=click.Choice(["graph", "aot", "vm"]), help="Default: graph."),
        *_generated("executor", schema.executor_options()),
        click.option("--runtime", type=click.Choice(["cpp", "crt"]), help="Default: cpp."),
        *_generated("runtime", schema.runtime_options()),
        click.option(
            "--mixed-precision",
            type=click.Choice(PRECISIONS),
            help="Of products of f32: several times as fast with AMX or AVX512-BF16, rounded to 8 bits.",
        ),
        click.option("--opt-level", type=click.IntRange(0, 3), help="Default 3."),
        click.option(
            "--disable-pass", multiple=True, metavar="NAME", help="`inlay passes` lists them. May be repeated."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def make_config(
    options: dict[str, Any], params_beside: bool = False, own: CompilationConfig | None = None
) -> CompilationConfig:
    """Takes what `config_options` added out of `options`, and makes a CompilationConfig of it.

    Args:
        params_beside: parameters are not in the library.
        own: the model's own configuration, which says what no option does.

    Raises click.UsageError where two options disagree.
    """
    own = own or CompilationConfig()
    generated = {key: options.pop(key) for key in list(options) if "__" in key}
    plan = options.pop("plan")

    def chosen(prefix: str, before: Any) -> Any:
        kind = options.pop(prefix) or before.kind
        return type(before)(before if before.kind == kind else kind, _given(prefix, kind, generated))

    given = {
        "target_host": options.pop("target_host"),
        "num_threads": options.pop("threads"),
        "search": options.pop("search"),
        "search_budget_s": options.pop("search_budget"),
        "dim_hints": numbers("--dim-hint", options.pop("dim_hint")) or None,
        "replan": options.pop("replan") or None,
        "pinned": read_cover(plan) if plan else None,
        "backends": names(options.pop("backends")) or None,
        "opt_level": options.pop("opt_level"),
        "disabled_passes": options.pop("disable_pass") or None,
        "mixed_precision": options.pop("mixed_precision"),
        "link_params": False if params_beside else None,
    }
    return own.replace(
        targets=_targets(options.pop("targets") or own.targets, generated),
        executor=chosen("executor", own.executor),
        runtime=chosen("runtime", own.runtime),
        **{name: value for name, value in given.items() if value is not None},
    )


def _given(prefix: str, kind: str, generated: dict[str, Any]) -> dict[str, Any]:
    """{field: value} of the generated options that were given; those of another kind are a mistake."""
    found = {}
    for key, value in generated.items():
        own, of, field = key.split("__")
        if own != prefix or value is None:
            continue
        if of not in ("", kind):
            flag = f"--{prefix}-{of}-{field.replace('_', '-')}"
            raise click.UsageError(f"{flag} is an option of {prefix} {of}, and --{prefix} is {kind}")
        found[field] = value
    return found


def _targets(given: Iterable[str | Target], generated: dict[str, Any]) -> list[Target]:
    targets = [Target(target) for target in given]
    kind = targets[0].kind if targets else "llvm"
    attrs = {field.replace("_", "-"): str(value) for field, value in _given("target", kind, generated).items()}
    if not attrs:
        return targets
    device = Target(targets[0] if targets else kind, attrs)
    return [device, *targets[1:]]
