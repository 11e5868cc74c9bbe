"""The commands of `inlay` that are about a server: run one, look at it, end it."""

from __future__ import annotations

import os
import sys

import click

from inlay.cli_command import EXIT_SERVER, command, server_option
from inlay.errors import InlayError


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.option("--listen", multiple=True, metavar="ADDRESS", help="Default: the socket of your own daemon.")
@click.option(
    "--config", "config_file", type=click.Path(exists=True, dir_okay=False), help="proto/server_config.proto."
)
@click.pass_context
def serve(context, listen, config_file):
    """Run a server in the foreground. Other options go to inlayd as they are (inlayd --help)."""
    from inlay import daemon

    try:
        arguments = [str(daemon.find_binary())]
        if config_file:
            arguments.append(f"--config={config_file}")
        if listen or not config_file:
            arguments.append("--listen=" + ",".join(listen or [daemon.default_paths().address]))
    except InlayError as error:
        click.echo(f"inlay: {error}", err=True)
        sys.exit(EXIT_SERVER)
    os.execv(arguments[0], arguments + context.args)


@click.command()
@server_option
@command
def stats(server, as_json):
    """The server's counters and gauges."""
    from inlay.daemon import connect
    from inlay.printing import print_table

    values = connect(server).stats()
    if not as_json:
        print_table(["metric", "value"], [[name, f"{value:g}"] for name, value in sorted(values.items())])
    return values


@click.command()
@server_option
@command
def passes(server, as_json):
    """The passes that a module goes through, in order: what --disable-pass and --opt-level choose from."""
    from inlay.daemon import connect
    from inlay.printing import print_table

    found = [{"name": p.name, "min_opt_level": p.min_opt_level} for p in connect(server).server_info().passes]
    if not as_json:
        rows = [[p["name"], f"{p['min_opt_level']}" if p["min_opt_level"] else "always"] for p in found]
        print_table(["pass", "from --opt-level"], rows)
    return {"passes": found}


@click.command()
@server_option
@command
def info(server, as_json):
    """The server's version, backends, workers and CPU."""
    from inlay.daemon import connect
    from inlay.printing import print_table
    from inlay.target import Target

    client = connect(server)
    answer = client.server_info()
    result = {
        "address": client.address,
        "version": answer.version,
        "pid": answer.pid,
        "workers": answer.num_workers,
        "host": str(Target(answer.host)),
        "max_message_bytes": answer.max_message_bytes,
        "backends": {b.name: b.version for b in answer.backends},
        "on_request": sorted(b.name for b in answer.backends if b.on_request),
        "unusable": {b.name: b.unusable for b in answer.backends if b.unusable},
        # What their codegen targets may have: targets=["llvm ...", "onednn -fpmath=bf16"].
        "attributes": {
            b.name: {a.name: {"type": a.type, "default": a.default_value, "help": a.help} for a in b.attrs}
            for b in answer.backends
        },
    }
    if not as_json:
        own = ("backends", "on_request", "unusable", "attributes")
        rows = [[key, str(value)] for key, value in result.items() if key not in own]
        for name, version in sorted(result["backends"].items()):
            if name in result["unusable"]:
                version = f"not usable: {result['unusable'][name]}"
            elif name in result["on_request"]:
                version += " (where a configuration names it)"
            rows.append([f"backend {name}", version])
            for attr, spec in result["attributes"][name].items():
                rows.append([f"  -{attr}", f"{spec['help']} ({spec['type']}, default {spec['default'] or 'none'})"])
        print_table(["server", ""], rows)
    return result


@click.command()
@click.option("--unload", multiple=True, metavar="HANDLE", help="Unload this one first; may be repeated.")
@server_option
@command
def handles(unload, server, as_json):
    """Modules loaded into the server."""
    from inlay.daemon import connect
    from inlay.printing import print_table

    client = connect(server)
    for handle in unload:
        client.unload(handle)
    fields = ("handle", "executable", "memory_bytes", "runs", "idle_s")
    found = [{field: getattr(h, field) for field in fields} for h in client.handles()]
    if not as_json:
        rows = [
            [
                h["handle"],
                h["executable"][:12],
                f"{h['memory_bytes'] / 2**20:.1f} MiB",
                str(h["runs"]),
                f"{h['idle_s']:.0f} s",
            ]
            for h in found
        ]
        print_table(["handle", "executable", "memory", "runs", "idle"], rows)
    return {"handles": found}


@click.command()
@server_option
@click.option("--timeout", type=float, default=300, show_default=True, metavar="SECONDS")
@command
def drain(server, timeout, as_json):
    """Make the server finish what is under way and exit; does not start one. Over a Unix socket only."""
    from inlay import daemon
    from inlay.client import Client

    address = server or os.environ.get(daemon.SERVER_VARIABLE)
    client = Client(address) if address else daemon.running()
    if client is None:
        if not as_json:
            click.echo("no daemon of yours runs")
        return {"drained": False}
    client.drain(timeout=timeout)
    if not as_json:
        click.echo(f"{client.address} finishes what is under way and exits")
    return {"drained": True, "address": client.address}


COMMANDS = (serve, stats, passes, info, handles, drain)
