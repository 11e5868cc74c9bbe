"""The operators' cases of ops_test.py as code for AArch64 and RISC-V, run under QEMU's user emulation.

bazel build //core/backends/native/testing:compile_main
.venv/bin/python -m pytest core/backends/native/testing/cross_ops_test.py
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
import ops_test
import pytest
from harness import COMPILER, DTYPES, GUARD, ROOT, artifact_pb2, evaluate, mismatch

MACHINES = {
    "aarch64": ("llvm -mtriple=aarch64-linux-gnu", "aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "riscv64": ("llvm -mtriple=riscv64-linux-gnu", "riscv64-linux-gnu-gcc", "qemu-riscv64"),
}
GROUPS = [getattr(ops_test, name) for name in sorted(dir(ops_test)) if name.startswith("test_")]
OF_THREADS = ["test_only_what_is_worth_it_goes_to_several_threads", "test_convolutions_by_any_number_of_threads"]
GROUPS = [group for group in GROUPS if group.__name__ not in OF_THREADS]


class CrossOps(ops_test.Ops):
    def __init__(self, machine: str):
        super().__init__()
        self.machine = machine

    def check(self) -> None:
        target, compiler, emulator = MACHINES[self.machine]
        with tempfile.TemporaryDirectory() as directory:
            messages = self.run_cross(pathlib.Path(directory), target, compiler, emulator)
        assert not messages, f"{len(messages)} failures of {len(self.cases)}:\n" + "\n".join(messages[:40])

    def run_cross(self, folder: pathlib.Path, target: str, compiler: str, emulator: str) -> list[str]:
        for name, (_, proto, *_rest) in self.cases.items():
            (folder / f"{name}.pb").write_bytes(proto.SerializeToString())
        subprocess.run([COMPILER, target, str(folder)], check=True, capture_output=True)
        failures = [f"{error.stem}: {error.read_text()}" for error in folder.glob("*.error")]
        names = sorted(path.stem for path in folder.glob("*.manifest"))
        functions = {}
        for name in names:
            manifest = artifact_pb2.StaticLibraryManifest.FromString((folder / f"{name}.manifest").read_bytes())
            functions[name] = manifest.functions[0]
        (folder / "cross_cases.h").write_text(cases_header(functions))
        (folder / "in").write_bytes(
            b"".join(np.ascontiguousarray(a).tobytes() for name in names for a in self.cases[name][2])
        )
        program = folder / "driver"
        subprocess.run(
            [compiler, "-O1", "-static", f"-I{folder}", f"-I{ROOT}", "-o", str(program)]
            + [str(pathlib.Path(__file__).with_name("cross_driver.c")), *(str(p) for p in folder.glob("*.o")), "-lm"],
            check=True,
        )
        subprocess.run([emulator, str(program), str(folder / "in"), str(folder / "out")], check=True)
        results = (folder / "out").read_bytes()
        at = 0
        for name in names:
            module, _, inputs, tolerance, expected = self.cases[name]
            with np.errstate(all="ignore"):
                want = expected if expected is not None else evaluate(module.proto, module.weights, inputs)
            code = int.from_bytes(results[at : at + 4], "little")
            at += 4
            if code:
                failures.append(f"{name}: returned {code}")
            for output, w in zip(functions[name].outputs, want, strict=True):
                nbytes = size_of(output)
                got = np.frombuffer(results[at : at + nbytes], DTYPES[output.dtype]).reshape(
                    [d.value for d in output.dims]
                )
                if results[at + nbytes : at + nbytes + GUARD] != b"\xa5" * GUARD:
                    failures.append(f"{name}: wrote behind an output")
                at += nbytes + GUARD
                message = mismatch(got, np.asarray(w), tolerance)
                if message:
                    failures.append(f"{name}: {message}")
        return failures


def size_of(tensor) -> int:
    return int(np.prod([d.value for d in tensor.dims], dtype=np.int64)) * DTYPES[tensor.dtype].itemsize


def cases_header(functions: dict) -> str:
    lines = ['#include "core/runtime/kernel_abi.h"']
    rows = []
    for name, function in functions.items():
        lines.append(f"int32_t {name}_run(const InlayCallContext *, void *const *);")
        lines.append(f"int32_t {name}_init(const InlayCallContext *, void *const *, void **);")
        sizes = [size_of(t) for t in (*function.inputs, *function.outputs)]
        constant = [int(i in function.constant_inputs) for i in range(len(function.inputs))]
        init = f"{name}_init" if function.has_state else "0"
        rows.append(
            f"{{{name}_run, {init}, {len(function.inputs)}, {len(function.outputs)}, {function.workspace_bytes}, "
            f"{{{', '.join(map(str, sizes))}}}, {{{', '.join(map(str, constant)) or '0'}}}}}"
        )
    lines.append("typedef struct { InlayRunFunction run; InlayInitFunction init; int num_inputs, num_outputs;")
    lines.append("  int64_t workspace, sizes[64]; int constant[64]; } Case;")
    lines.append("static const Case cases[] = {" + ",\n".join(rows) + "};")
    lines.append(f"#define NUM_CASES {len(functions)}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.__name__)
def test_group(group, machine) -> None:
    missing = [program for program in MACHINES[machine][1:] if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (deploy/setup.sh --dev)")
    group(CrossOps(machine))
