"""The command `inlay`: compile, run, bench, serve and look at what a server does.

Every command takes --json, which prints one JSON object and nothing else to stdout. Errors are one line on stderr that
says what to do. Exit codes: 0 done; 1 the model, the library or the run is at fault; 2 wrong usage; 3 no server, or a
full one; 4 out of time; 130 interrupted.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from inlay import __version__, cli_server
from inlay.cli_command import EXIT_FAILED, EXIT_INTERRUPTED, command, server_option
from inlay.cli_config import config_options, names, numbers
from inlay.cli_model import (
    bounds_option,
    check_bounds,
    imported,
    refuse_bounds,
    shape_option,
    shapes,
    size_option,
    update_option,
)
from inlay.config import PRECISIONS

if TYPE_CHECKING:
    from inlay.runtime import TensorSpec


bundle_option = click.option(
    "--bundle",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Write a folder here that runs it where there is glibc and nothing else: DIR/run.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="inlay")
def main() -> None:
    """Compile machine-learning models on an inlay server, and run what comes back."""


for _command in cli_server.COMMANDS:
    main.add_command(_command)


@main.command("compile")
@click.argument("model", type=click.Path(dir_okay=False))
@config_options
@shape_option
@update_option
@bounds_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write the shared library here.")
@bundle_option
@click.option("--save-plan", type=click.Path(dir_okay=False), metavar="FILE", help="Write the plan here, for --plan.")
@click.option("--params-beside", is_flag=True, help="Parameters in OUT.safetensors, not in the library.")
@click.option("--dump-ir", type=click.Path(file_okay=False), metavar="DIR", help="Write the module after each pass.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop the work then.")
@server_option
@command
def compile_(
    model, shape, updates, bounds, output, bundle, save_plan, params_beside, dump_ir, timeout, server, as_json, **options
):  # fmt: skip
    """Compile MODEL (.onnx, .pt2 of torch.export.save, or an IRModule that was saved, whose own configuration says what no
    option does); with -o, write a shared library."""
    from inlay import executable
    from inlay.bundle import check_replaceable
    from inlay.config import write_cover
    from inlay.passes import DumpIR, PassContext
    from inlay.printing import CompileProgress, print_report

    dumps = [DumpIR(dump_ir)] if dump_ir else []
    for file in filter(None, (output, save_plan)):
        executable.check_writable(pathlib.Path(file))  # before the work, not after it
    if bundle:
        check_replaceable(pathlib.Path(bundle))
    started = time.perf_counter()
    module, config = imported(model, options, shape, bounds, updates, params_beside)
    read = time.perf_counter()
    with CompileProgress(enabled=not as_json) as progress, PassContext(instruments=dumps):
        ex = executable.build(module, config, server=server, progress=progress, timeout=timeout)
        built = time.perf_counter()
        if output:
            progress("link", 0, 0, output)
            ex.export_library(output)
        if bundle:
            progress("link", 0, 0, bundle)
            ex.export_bundle(bundle)
    done = time.perf_counter()
    if save_plan:
        write_cover(ex.cover, save_plan)
    result = {
        "executable": ex.digest,
        "output": output,
        "bundle": bundle,
        **ex.report,
        "import_ms": (read - started) * 1e3,
        "build_ms": (built - read) * 1e3,
        "export_ms": (done - built) * 1e3,
        "inputs": [_spec(s) for s in ex.inputs],
        "outputs": [_spec(s) for s in ex.outputs],
    }
    if dump_ir:
        result["dumped"] = [str(path) for path in dumps[0].written]
    if not as_json:
        print_report(result)
        if dump_ir:
            click.echo(f"wrote the module after each of {len(dumps[0].written)} passes to {dump_ir}")
    return result


@main.command()
@click.argument("model", type=click.Path(dir_okay=False))
@bundle_option
@config_options
@shape_option
@update_option
@bounds_option
@server_option
@click.option("--timeout", type=float, metavar="SECONDS", help="Stop the work after so long.")
@command
def export(model, bundle, shape, updates, bounds, server, timeout, as_json, **options):
    """Make a bundle of MODEL: an .onnx or .pt2 file, an IRModule that was saved (whose own configuration says what no option
    does), or a library that was exported before (whose configuration is fixed)."""
    from inlay import executable, profiling
    from inlay.bundle import check_replaceable, of_library
    from inlay.daemon import connect
    from inlay.printing import CompileProgress

    if not bundle:
        raise click.UsageError("Missing option '--bundle DIR'; `inlay compile -o` writes a library.")
    check_replaceable(pathlib.Path(bundle))
    if profiling.is_library(model):
        refuse_bounds(model, bounds)
        of_library(model, bundle, connect(server))
    else:
        module, config = imported(model, options, shape, bounds, updates)
        with CompileProgress(enabled=not as_json) as progress:
            ex = executable.build(module, config, server=server, progress=progress, timeout=timeout)
        ex.export_bundle(bundle)
    files = sorted(str(p.relative_to(bundle)) for p in pathlib.Path(bundle).rglob("*") if p.is_file())
    if not as_json:
        click.echo(f"wrote {bundle}: {', '.join(f for f in files if not f.startswith('licenses/'))}")
    return {"bundle": bundle, "files": files}


@main.command()
@click.argument("library", type=click.Path(dir_okay=False))
@click.option("-i", "--input", "inputs", type=click.Path(dir_okay=False), metavar="X.npz", help="Inputs by name.")
@click.option("--random", "seed", type=int, metavar="SEED", help="Seeded random inputs instead.")
@size_option
@click.option("-o", "--output", type=click.Path(dir_okay=False), metavar="Y.npz", help="Write the outputs here.")
@click.option("--threads", type=click.IntRange(min=0), default=0, help="0: what it was compiled for.")
@click.option("--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Runs; the median is shown.")
@command
def run(library, inputs, seed, sizes, output, threads, repeat, as_json):
    """Run an exported LIBRARY on tensors."""
    from inlay import running

    result = running.run_library(library, inputs, seed, numbers("--size", sizes), output, threads, repeat)
    if not as_json:
        running.print_result(result)
    return result


@main.command()
@click.argument("model", type=click.Path(dir_okay=False))
@config_options
@shape_option
@bounds_option
@click.option("--svg", type=click.Path(dir_okay=False), metavar="FILE", help="Draw the graph, coloured by backend.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Partitions to show.")
@server_option
@click.option("--timeout", type=float, metavar="SECONDS", help="Stop the work after so long.")
@command
def explain(model, shape, bounds, svg, limit, server, timeout, as_json, **options):
    """Say why each partition of MODEL goes to its backend: candidates, costs, plans. MODEL is an .onnx or .pt2 file, an
    IRModule that was saved (whose own configuration says what no option does), or a built-in name."""
    from inlay import executable, explain, picture
    from inlay.bench import find_model
    from inlay.printing import CompileProgress

    if svg:
        executable.check_writable(pathlib.Path(svg))
    module, config = imported(find_model(model), options, shape, bounds)
    with CompileProgress(enabled=not as_json) as progress:
        ex = executable.build(module, config, server=server, progress=progress, timeout=timeout, want_plan=bool(svg))
    found = explain.explanation(ex.report)
    if not as_json:
        explain.print_explanation(found, limit)
    if svg:
        unusable = explain.unusable_in_words(found["unusable"])
        picture.write_svg(ex.plan, pathlib.Path(svg), pathlib.Path(model).stem, unusable)
        if not as_json:
            click.echo(f"wrote {svg}")
    return {**found, "svg": svg}


@main.command()
@click.argument("model", type=click.Path(dir_okay=False))
@config_options
@shape_option
@bounds_option
@click.option("-i", "--input", "inputs", type=click.Path(dir_okay=False), metavar="X.npz", help="Default: seeded ones.")
@size_option
@click.option("--runs", type=click.IntRange(min=1), default=30, show_default=True)
@click.option("--limit", type=click.IntRange(min=1), default=40, show_default=True, help="Partitions to show.")
@click.option("--offline", is_flag=True, help="Take the machine's peak from NumPy alone; no server is asked.")
@server_option
@command
def profile(model, shape, bounds, inputs, sizes, runs, limit, offline, server, as_json, **options):
    """Show where the time of MODEL goes, partition by partition, and how far each is from what this machine can do. MODEL
    is an exported library, an .onnx or .pt2 file, an IRModule that was saved (whose own configuration says what no option
    does), or a built-in name. Dimensions that are open (--executor vm) take --size or --input."""
    from inlay import daemon, model_files, open_sizes, profiling, roofline, running
    from inlay.bench import find_model, make_inputs

    sizes = numbers("--size", sizes)
    if profiling.is_library(model):
        refuse_bounds(model, bounds)
        module, plan, threads = profiling.load_library(model, options["threads"] or 0)
    else:
        source, config = imported(find_model(model), options, shape, bounds)
        if not inputs:  # before the work, not after it
            specs = model_files.input_specs(source)
            open_sizes.check_executor(config.executor.kind, specs)
            open_sizes.check(sizes, specs, source.required_extents())
        module, plan, threads = profiling.build(source, config, server)
    if inputs:
        arrays = running.read_inputs(inputs, module.inputs)
    else:
        open_sizes.check(sizes, module.inputs, module.required_extents)
        arrays = make_inputs(module.inputs, sizes=sizes)
    limits = roofline.measure(threads, None if offline else daemon.connect(server))
    result = {"model": model, "threads": threads, **profiling.profile_module(module, plan, arrays, runs, limits)}
    if not as_json:
        profiling.print_profile(result, limit)
    return result


@main.command()
@click.argument("path", type=click.Path())
@command
def inspect(path, as_json):
    """Show what PATH says of itself: an exported library or bundle, and whether this machine can run it (else exit code
    1); a .tar (runtime crt), with the memory that it needs; a module that was saved. Nothing of it is run or loaded."""
    from inlay import bundle, compatibility, inspection, mlf
    from inlay.ir import dims
    from inlay.library import read_manifest
    from inlay.printing import print_manifest, print_table

    file = bundle.library_of(path) if pathlib.Path(path).is_dir() else pathlib.Path(path)
    if mlf.is_model_library(file):
        metadata = mlf.read_metadata(file)
        if not as_json:
            print_table([path, ""], mlf.rows(metadata))
        return metadata
    if (module := inspection.read_module(file)) is not None:
        found = inspection.describe(module)
        if not as_json:
            print_table([path, ""], inspection.rows(found))
        return found
    manifest = read_manifest(file)
    problems = compatibility.problems(manifest.data, file.resolve().parent)
    if as_json:
        required = {"bounds": dims.ranges(manifest.required_extents), "required_extents": manifest.required_extents}
        click.echo(json.dumps({**manifest.data, **required, "runs_here": not problems, "problems": problems}))
    else:
        print_manifest(path, manifest, problems)
    if problems:
        sys.exit(EXIT_FAILED)
    return None


@main.command()
@click.argument("models", nargs=-1)
@click.option("--vs", default="all", show_default=True, metavar="A,B", help="Peers (--list-peers), all, or none.")
@click.option("--list-peers", is_flag=True, help="Say which peers there are, and which are installed.")
@click.option(
    "--random",
    "random_count",
    type=click.IntRange(min=1),
    metavar="N",
    help="N real architectures (transformers, timm), random sizes and batches.",
)
@click.option(
    "--operators",
    "operator_count",
    type=click.IntRange(min=1),
    metavar="N",
    help="N single operators (convolutions, products, pooling, ...), random sizes and batches.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of --random and --operators.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="Of us and of every peer.")
@click.option("--rounds", type=click.IntRange(min=1), default=30, show_default=True, help="Interleaved.")
@click.option("--plans", is_flag=True, help="Also every single-backend plan of ours, beside the mix.")
@click.option("--profile", is_flag=True, help="Also every partition's time and share of this machine's roofline.")
@click.option("--target", help='Default: "llvm -mcpu=native".')
@click.option(
    "--avx2",
    is_flag=True,
    help="AVX2's instructions only, where the CPU has more: native code, and the peers that can be held to it.",
)
@click.option(
    "--mixed-precision",
    type=click.Choice(PRECISIONS),
    help="Of products of f32 with weights; of ours, and of the peers that have it.",
)
@click.option("--search", type=click.Choice(["measured", "analytic", "none"]), help="How backends are chosen.")
@click.option("--search-budget", type=float, default=0, metavar="SECONDS", help="Of measuring. Default 60.")
@click.option("--backends", metavar="A,B", help="Those that may be used.")
@click.option(
    "--executor", type=click.Choice(["graph", "aot", "vm"]), help="Default: graph. vm leaves dimensions open."
)
@shape_option
@bounds_option
@size_option
@click.option(
    "--cold/--no-cold", default=True, help="Also time compiling from nothing, ours (by a fresh daemon) and peers'."
)
@click.option("--limit", type=float, default=600, show_default=True, metavar="SECONDS", help="Of a peer's compiling.")
@click.option("--markdown", is_flag=True, help="Print the tables as Markdown.")
@server_option
@command
def bench(
    models, vs, list_peers, random_count, operator_count, seed, threads, rounds, plans, profile, target, avx2, mixed_precision, search, search_budget, backends,
    executor, shape, bounds, sizes, cold, limit, markdown, server, as_json,
):  # fmt: skip
    """Time MODELs against peers, each in a process of its own, in interleaved rounds. A MODEL is an .onnx file, a built-in
    name, or an IRModule that was saved or a .pt2 file, which no peer takes. A saved module's own configuration says what no
    option does. Dimensions that are open (--executor vm) take --size, and are open to the peers as well."""
    from inlay.bench import measure, peers, report, subjects
    from inlay.config import CompilationConfig
    from inlay.printing import print_table

    if list_peers:
        found = {peer: peers.missing(peer) or peers.version(peer) for peer in peers.OTHERS}
        if not as_json:
            print_table(["peer", "version"], [[*item] for item in found.items()])
        return found
    if not models and not random_count and not operator_count:
        raise click.UsageError("Missing argument 'MODELS...', --random N or --operators N.")
    if avx2 and (target or backends):
        raise click.UsageError("--avx2 chooses target and backends itself: leave out --target and --backends.")
    if avx2:  # the libraries choose instructions by the CPU that they run on
        target, backends = "llvm -mcpu=x86-64-v3", "native"
    check_bounds(bounds)
    chosen = peers.OTHERS if vs == "all" else () if vs == "none" else names(vs)
    options = {
        "targets": [target] if target else None,
        "search": search,
        "search_budget_s": search_budget or None,
        "backends": names(backends) or None,
        "mixed_precision": mixed_precision,
        "executor": executor,
    }
    given = {name: value for name, value in options.items() if value is not None} | {"num_threads": threads}
    settings = measure.Settings(
        chosen, CompilationConfig(**{"targets": ["llvm -mcpu=native"], **given}), rounds, shapes(shape), cold, plans, profile,
        limit, server, avx2, bounds, numbers("--size", sizes), given,
    )  # fmt: skip
    found = subjects.named(models) + subjects.random(random_count or 0, seed)
    found += subjects.random(operator_count or 0, seed, operators=True)
    result = report.summary(measure.run(found, settings, quiet=as_json), chosen, settings)
    if not as_json:
        report.render(result, report.print_markdown_table if markdown else print_table)
    errors = [row["error"] for row in result["models"] if "error" in row]
    if errors:
        if as_json:
            click.echo(json.dumps(result))
        sys.exit(EXIT_INTERRUPTED if measure.INTERRUPTED in errors else EXIT_FAILED)
    return result


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec[0], "dtype": spec[1], "shape": list(spec[2])}


if __name__ == "__main__":
    sys.argv[0] = str(pathlib.Path(sys.argv[0]).name)
    main()
