"""The README's table of the seeds' statements names tests that there are."""

from __future__ import annotations

import fnmatch
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def section() -> str:
    return (ROOT / "README.md").read_text().partition("## The seed documents")[2].partition("\n## ")[0]


def test_python_tests_exist():
    defined = set()
    for file in (ROOT / "tests").rglob("test_*.py"):
        defined |= set(re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE))
    named = re.findall(r"`(test_[a-z_0-9*]+)`", section())
    assert len(named) > 30
    assert [name for name in named if not fnmatch.filter(defined, name)] == []


def test_files_exist():
    named = re.findall(r"`(tests/[\w/]+\.py)`", section())
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_targets_exist():
    named = re.findall(r"`//([\w/]+):(\w+)`", section())
    assert named
    macros = {"conformance_test"}  # made by the backends' macro
    for package, target in named:
        text = (ROOT / package / "BUILD.bazel").read_text()
        assert f'"{target}"' in text or target in macros, f"//{package}:{target}"


def test_every_statement_has_a_test():
    rows = [line for line in section().splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| *"))]
    assert len(rows) > 35
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert len(cells) == 3, row
        assert "test" in cells[2], row
