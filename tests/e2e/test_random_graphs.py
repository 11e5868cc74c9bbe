"""Random models compute what onnxruntime says, and read nothing beyond their arguments (tests/random_graphs_report.py)."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

REPORT = pathlib.Path(__file__).resolve().parents[1] / "random_graphs_report.py"
MODELS = 40  # of a test


def check(daemon, *arguments: str) -> None:
    """In a process of its own, which a read outside of an input would end."""
    command = [sys.executable, "-X", "faulthandler", REPORT, "--server", daemon.address, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


@pytest.mark.parametrize("first", range(0, 3 * MODELS, MODELS))
@pytest.mark.parametrize("sizes", ["tiny", "small"])
def test_random_graphs(shared_daemon, first, sizes):
    check(shared_daemon, "--sizes", sizes, "--seeds", f"{first}:{first + MODELS}")


@pytest.mark.parametrize("kind", ["integer", "quantised", "quantised images", "control"])
def test_random_graphs_of_a_kind(shared_daemon, kind):
    check(shared_daemon, "--kind", kind, "--sizes", "tiny", "--seeds", "0:12")


def test_large_random_graphs(shared_daemon):
    check(shared_daemon, "--sizes", "large", "--seeds", "0:20")


def test_random_graphs_as_c_sources(shared_daemon):
    """Without warnings, and with nothing for gcc's sanitizers to find."""
    check(shared_daemon, "--c", "--seeds", "0:30")
