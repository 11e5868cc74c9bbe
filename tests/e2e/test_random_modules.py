"""Random PyTorch programs compute what eager PyTorch says, by torch.export and torch.compile (tests/random_modules_report.py)."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

REPORT = pathlib.Path(__file__).resolve().parents[1] / "random_modules_report.py"


@pytest.mark.parametrize("seeds", ["0:10", "10:20", "20:30"])
def test_random_modules(shared_daemon, seeds):
    """In a process of its own, which a crash or a hang would end."""
    command = [sys.executable, "-X", "faulthandler", REPORT, "--server", shared_daemon.address, "--seeds", seeds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
