"""What the commands of `inlay` share: --json, --server, errors of one line and exit codes."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from typing import Any

import click

from inlay.errors import InlayError

EXIT_FAILED, EXIT_USAGE, EXIT_SERVER, EXIT_TIMEOUT, EXIT_INTERRUPTED = 1, 2, 3, 4, 130


def _exit_code(error: BaseException) -> int:
    from inlay import server_errors as errors

    if isinstance(error, errors.ServerUnavailableError | errors.ServerBusyError | errors.DaemonError):
        return EXIT_SERVER
    return EXIT_TIMEOUT if isinstance(error, errors.DeadlineExceededError) else EXIT_FAILED


def command(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --json, and turns the package's errors into one line and an exit code. The function returns what --json
    prints, or None where it has printed everything itself."""

    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout, nothing else.")
    @functools.wraps(function)
    def wrapped(as_json: bool, **options: Any) -> None:
        try:
            result = function(as_json=as_json, **options)
        except (InlayError, ValueError, TypeError, OSError) as error:
            message = str(error)
            if as_json:
                click.echo(json.dumps({"error": message, "kind": type(error).__name__}))
            click.echo(f"inlay: {message}", err=True)
            sys.exit(_exit_code(error))
        except KeyboardInterrupt:
            click.echo("inlay: interrupted", err=True)
            sys.exit(EXIT_INTERRUPTED)
        if as_json and result is not None:
            click.echo(json.dumps(result))

    return wrapped


server_option = click.option(
    "--server",
    metavar="ADDRESS",
    help="unix:/path or host:port. Default: $INLAY_SERVER, else your own daemon, started if none runs.",
)
