"""Builds the sources of a Model Library Format for a machine and runs them there, under an emulator where it is another."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import subprocess
import tarfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent / "micro"
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic"]
C_TYPES = {
    "f32": "float",
    "f64": "double",
    "i8": "int8_t",
    "u8": "uint8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "bool": "uint8_t",
}
DTYPES = {"f32": "<f4", "f64": "<f8", "i8": "i1", "u8": "u1", "i16": "<i2", "i32": "<i4", "i64": "<i8", "bool": "?"}


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where a model is built for: its compiler with options, and what runs the program."""

    name: str
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()
    freestanding: bool = False  # no C library but libm; RAM and stack can be told

    @property
    def programs(self) -> list[str]:
        return [self.compiler[0], *self.emulator[:1]]

    @property
    def missing(self) -> list[str]:
        return [program for program in self.programs if shutil.which(program) is None]


HOST = Machine("host", ("gcc", "-O2"))
SANITIZED = Machine("sanitized", ("gcc", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))
CORTEX_M3 = Machine(
    "cortex-m3",
    ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb", "-O2"),
    ("qemu-system-arm", "-M", "mps2-an385", "-nographic", "-semihosting", "-kernel"),
    freestanding=True,
)
AARCH64 = Machine("aarch64", ("aarch64-linux-gnu-gcc", "-O2", "-static"), ("qemu-aarch64",))
RISCV64 = Machine("riscv64", ("riscv64-linux-gnu-gcc", "-O2", "-static"), ("qemu-riscv64",))


@dataclasses.dataclass
class Result:
    code: int  # what the model's run returned
    outputs: list[np.ndarray]
    ram: int = 0  # of the whole program, without its stack: freestanding machines only
    stack: int = 0
    flash: int = 0


class Library:
    """A model's tar, unpacked."""

    def __init__(self, tar: pathlib.Path, folder: pathlib.Path):
        with tarfile.open(tar) as archive:
            # Debian 12's Python (3.11.2) has no filters yet, and takes no notice of this attribute.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(folder)
        self.folder = folder
        self.metadata = json.loads((folder / "metadata.json").read_text())
        self.prefix = self.metadata["entry"].removesuffix("_run")

    @property
    def sources(self) -> list[pathlib.Path]:
        return sorted((self.folder / "codegen/host/src").glob("*.c")) + [self.folder / "runtime/src/inlay_crt.c"]

    @property
    def objects(self) -> list[pathlib.Path]:
        return sorted((self.folder / "codegen/host/lib").glob("*.o"))

    @property
    def include_options(self) -> list[str]:
        return [f"-I{self.folder}/codegen/host/include", f"-I{self.folder}/runtime/include", f"-I{HERE}"]

    def run(self, machine: Machine, inputs: list[np.ndarray], main: str = "") -> Result:
        """Builds the model with a program that runs it once on `inputs`, and runs that."""
        program = self.build(machine, main or self.main(inputs))
        done = subprocess.run(
            [*machine.emulator, str(program)], check=False, capture_output=True, text=True, timeout=300
        )
        lines = (done.stdout + done.stderr).split("\n")  # QEMU: the latter, for semihosting
        assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-500:]} {done.stderr[-500:]}"
        values = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
        outputs = [
            np.frombuffer(bytes.fromhex("".join(values.get(f"output{i}", []))), DTYPES[t["dtype"]]).reshape(t["shape"])
            for i, t in enumerate(self.metadata["outputs"])
            if f"output{i}" in values
        ]
        result = Result(int(values["code"][0], 16), outputs)
        if machine.freestanding:
            sizes = subprocess.run(
                ["arm-none-eabi-size", "-A", str(program)], capture_output=True, text=True, check=True
            )
            sections = {
                w[0]: int(w[1]) for w in map(str.split, sizes.stdout.splitlines()) if len(w) == 3 and w[1].isdigit()
            }
            result.ram = sections.get(".data", 0) + sections.get(".bss", 0)
            result.flash = sections[".text"] + sections.get(".data", 0)
            result.stack = int(values["stack"][0], 16)
        return result

    def build(self, machine: Machine, main: str) -> pathlib.Path:
        main_c = self.folder / "main.c"
        main_c.write_text(main)
        program = self.folder / f"program.{machine.name}"
        command = [*machine.compiler, *STRICT, *self.include_options, "-o", str(program), str(main_c)]
        command += [str(path) for path in (*self.sources, *self.objects)]
        if machine.freestanding:
            memory = self.folder / "runtime/freestanding/inlay_crt_memory.c"
            memory_o = self.folder / "memory.o"
            _call([*machine.compiler, *STRICT, "-fno-builtin", "-c", str(memory), "-o", str(memory_o)])
            command += [str(HERE / "platform_cortex_m.c"), str(memory_o), "-nostartfiles", "-nodefaultlibs"]
            command += ["-T", str(HERE / "mps2_an385.ld"), "-lm", "-lgcc"]
        else:
            command += [str(HERE / "platform_hosted.c"), "-lm"]
        _call(command)
        return program

    def main(self, inputs: list[np.ndarray]) -> str:
        """A program that calls the entry point in the way that the model was compiled for, and prints what it gives."""
        meta, prefix = self.metadata, self.prefix
        lines = [f'#include "{prefix}.h"', "#include <stddef.h>", '#include "platform.h"', ""]
        for i, (tensor, array) in enumerate(zip(meta["inputs"], inputs, strict=True)):
            lines.append(_array(f"static const {C_TYPES[tensor['dtype']]} in{i}", tensor["dtype"], array))
        for i, tensor in enumerate(meta["outputs"]):
            elements = max(1, int(np.prod(tensor["shape"])))
            lines.append(f"static {C_TYPES[tensor['dtype']]} out{i}[{elements}];")
        lines.append(f"static struct {prefix}_workspace workspace;")
        lines.append(PRINTING)
        lines.append("int main(void) {\n  int32_t code;")
        lines += ["  " + line for line in self._call(prefix)]
        lines.append('  print("code", (const unsigned char *)"", 0, (uint32_t)code);')
        for i, tensor in enumerate(meta["outputs"]):
            lines.append(f'  print("output{i}", (const unsigned char *)out{i}, {tensor["size_bytes"]}, 0);')
        return "\n".join([*lines, "  return 0;", "}", ""])

    def _call(self, prefix: str) -> list[str]:
        meta = self.metadata
        members = [t["member"] for t in meta["inputs"]], [t["member"] for t in meta["outputs"]]
        if meta["interface_api"] == "c":
            return [
                f"struct {prefix}_inputs inputs;",
                f"struct {prefix}_outputs outputs;",
                *(f"inputs.{name} = in{i};" for i, name in enumerate(members[0])),
                *(f"outputs.{name} = out{i};" for i, name in enumerate(members[1])),
                f"code = {prefix}_run(&inputs, &outputs, &workspace);",
            ]
        pointers = [f"(void *)in{i}" for i in range(len(members[0]))] + [f"out{i}" for i in range(len(members[1]))]
        lines = [f"void *const args[] = {{{', '.join([*pointers, '&workspace'])}}};"]
        if not meta["system_lib"]:
            return [*lines, f"code = {prefix}_run(args, {len(pointers) + 1});"]
        return [
            *lines,
            "InlayCrtFunction run;",
            f"{prefix}_register();",
            f'run = inlay_crt_lookup("{prefix}_run");',
            f"code = run == NULL ? 77 : run(args, {len(pointers) + 1});",
        ]


PRINTING = r"""
static void print(const char *name, const unsigned char *bytes, int32_t n, uint32_t number) {
  const char *const digits = "0123456789abcdef";
  char text[3] = "00";
  put(name);
  put(" ");
  for (int32_t i = 0; i < n; ++i) {
    text[0] = digits[bytes[i] >> 4];
    text[1] = digits[bytes[i] & 15];
    put(text);
  }
  text[1] = '\0';
  for (int32_t i = 28; n == 0 && i >= 0; i -= 4) {
    text[0] = digits[number >> i & 15];
    put(text);
  }
  put("\n");
}
"""


def _array(declaration: str, dtype: str, array: np.ndarray) -> str:
    values = np.ascontiguousarray(array).reshape(-1)
    if dtype in ("f32", "f64"):
        suffix = "f" if dtype == "f32" else ""
        texts = [float(v).hex() + suffix for v in values]
    else:
        least = -(2**63)  # C has no such literal
        texts = [str(int(v)) if v != least else "INT64_MIN" for v in values]
    return f"{declaration}[{max(1, len(texts))}] = {{{', '.join(texts) or '0'}}};"


def _call(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
