"""Every operator that csource claims, all dtypes, odd shapes, NaN and infinities, against the NumPy evaluator.

The cases are those that hold the native backend to OPS.md (core/backends/native/testing), so that both are held to one
contract; what csource's rules refuse is counted and skipped.

    bazel build //core/backends/csource/testing:compile_main
    .venv/bin/python -m pytest core/backends/csource/testing/ops_test.py
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[4]
os.environ.setdefault("INLAY_NATIVE_COMPILER", str(ROOT / "bazel-bin/core/backends/csource/testing/compile_main"))
sys.path.insert(0, str(ROOT / "core/backends/native/testing"))

import harness

# Under a name of its own: this file has the same.
spec = importlib.util.spec_from_file_location("native_ops", ROOT / "core/backends/native/testing/ops_test.py")
assert spec is not None and spec.loader is not None
cases = importlib.util.module_from_spec(spec)
spec.loader.exec_module(cases)

TARGETS = [*harness.runnable([("llvm -mcpu=x86-64-v4", 2), ("llvm -mcpu=x86-64-v3", 1)]), ("c", 1)]
GROUPS = [getattr(cases, name) for name in sorted(dir(cases)) if name.startswith("test_")]
# Operators that csource leaves to native code altogether, and what is native code's alone.
OTHERS = ("test_resize", "test_recurrent", "test_only_what_is_worth_it_goes_to_several_threads")
GROUPS = [group for group in GROUPS if group.__name__ not in OTHERS]


class Claimed(cases.Ops):
    """The cases that csource claims."""

    refused = 0

    def compile(self, target: str, directory: str):
        result = super().compile(target, directory)
        for path in pathlib.Path(directory).glob("*.refused"):
            del self.cases[path.stem]
            Claimed.refused += 1
        return result

    def check(self) -> None:
        messages = []
        for target, threads in TARGETS:
            messages += [f"{target}: {m}" for m in self.run(target, threads)]
        assert not messages, f"{len(messages)} failures of {len(self.cases)}:\n" + "\n".join(messages[:40])


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_group(group) -> None:
    group(Claimed())
