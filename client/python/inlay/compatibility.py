"""Whether this machine can run an exported library, found out without loading it: `problems`.

It compares what the manifest says (core/artifact/FORMAT.md) with the CPU, the C library, and the files that the dynamic
linker would take. core/runtime/exported/compatibility.cc checks the same when the library is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import platform
import site
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.hash import GNUHashSection
from elftools.elf.sections import SymbolTableSection

from inlay import cpu

FORMAT = 1
# glibc's own, which every Linux machine that it runs on has.
_GLIBC = ("ld-linux", "libc.so", "libm.so", "libmvec.so", "libdl.so", "libpthread.so", "librt.so", "libutil.so")
_SYSTEM_FOLDERS = ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")


@dataclasses.dataclass(frozen=True)
class Dependency:
    """A shared library that an exported library loads.

    Attributes:
        package: where to get it; version: of the one that the code was generated for, "" where it has none.
        backends: whose code needs it; functions: what it must have.
    """

    soname: str
    package: str = ""
    version: str = ""
    backends: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()

    @staticmethod
    def parse(data: dict[str, Any]) -> Dependency:
        return Dependency(
            data["soname"],
            data.get("package", ""),
            data.get("version", ""),
            tuple(data.get("backends", ())),
            tuple(data.get("functions", ())),
        )

    @property
    def who(self) -> str:
        return f"{self.soname} (for {', '.join(self.backends)})" if self.backends else self.soname

    def remedy(self) -> str:
        return (
            f"it comes with {self.package or 'an unknown package'}: install it, put it beside the model, "
            "or export a bundle (--bundle), which has it inside"
        )


def problems(data: dict[str, Any], folder: pathlib.Path | None) -> list[str]:
    """What hinders this machine from running a library with this manifest; nothing is loaded.

    Args:
        data: the manifest.
        folder: where the library lies; None: in memory.
    """
    found = [*_machine_problems(data)]
    for dependency in map(Dependency.parse, data.get("required_libraries", [])):
        path = locate(dependency.soname, folder)
        if path is None:
            found.append(f"needs {dependency.who}, which is not on this machine; {dependency.remedy()}")
            continue
        lacking = _lacking(path, dependency.functions)
        if lacking:
            found.append(
                f"needs {lacking[0]} of {dependency.who}; {path} is another version without it; {dependency.remedy()}"
            )
        for soname in _missing_below(path, folder, set()):
            found.append(f"needs {soname} for {path}, which is not on this machine")
    return found


def _machine_problems(data: dict[str, Any]) -> Iterator[str]:
    if data.get("inlay_library") != FORMAT:
        yield f"is of format {data.get('inlay_library')}, this package reads {FORMAT}; export it again"
    target = data.get("target", {})
    machine = "x86_64" if platform.machine() == "AMD64" else platform.machine()
    architecture = target.get("triple", "").partition("-")[0]
    if architecture and architecture != machine:
        yield f"is for {architecture}, this machine is {machine}; compile it for this one (--target)"
        return
    lacking = cpu.missing(target.get("features", ""))
    if lacking:
        yield (
            f"is for {target.get('cpu') or 'a CPU'} with {', '.join(lacking)}, which this CPU lacks; "
            'compile it for this machine (--target "llvm -mcpu=native") or for any (--target "llvm -mcpu=x86-64-v2")'
        )
    wanted, (kind, have) = data.get("glibc", ""), platform.libc_ver()
    if wanted and kind == "glibc" and _numbers(have) < _numbers(wanted):
        yield f"needs glibc {wanted}, this machine has {have}"


def locate(soname: str, folder: pathlib.Path | None) -> pathlib.Path | None:
    """The file that loading takes for a soname: this environment's, beside the library, or the dynamic linker's."""
    folders = [*environment_folders()]
    folders += [pathlib.Path(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    if folder is not None:
        folders += [folder, folder / "lib"]
    for candidate in folders:
        if (candidate / soname).is_file():
            return candidate / soname
    cached = _linker_cache().get(soname)
    if cached is not None and cached.is_file():
        return cached
    return next((pathlib.Path(f, soname) for f in _SYSTEM_FOLDERS if pathlib.Path(f, soname).is_file()), None)


def environment_folders() -> Iterator[pathlib.Path]:
    """Where this Python environment has shared libraries."""
    yield pathlib.Path(sys.prefix) / "lib"
    yield pathlib.Path(sys.prefix) / "libexec" / "inlay" / "lib"
    for packages in site.getsitepackages():
        yield pathlib.Path(packages).parent.parent


@functools.lru_cache(maxsize=1)
def _linker_cache() -> dict[str, pathlib.Path]:
    """/etc/ld.so.cache, of the first file of each soname."""
    try:
        result = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    found: dict[str, pathlib.Path] = {}
    for line in result.stdout.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "x86-64" in name:
            found.setdefault(name.split()[0], pathlib.Path(path))
    return found


def _lacking(path: pathlib.Path, functions: tuple[str, ...]) -> list[str]:
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            table = elf.get_section_by_name(".gnu.hash")
            if isinstance(table, GNUHashSection):
                return [name for name in functions if table.get_symbol(name) is None]
            symbols = elf.get_section_by_name(".dynsym")
            names = {s.name for s in symbols.iter_symbols()} if isinstance(symbols, SymbolTableSection) else set()
            return [name for name in functions if name not in names]
    except (OSError, ELFError):
        return list(functions)


def _missing_below(path: pathlib.Path, folder: pathlib.Path | None, seen: set[str]) -> Iterator[str]:
    """Sonames that a library needs, directly or not, and that are nowhere."""
    for soname in needed_by(path):
        if soname in seen or soname.startswith(_GLIBC):
            continue
        seen.add(soname)
        # Its own folder counts where its RUNPATH says so; a bundle's do.
        below = locate(soname, folder) or next((p for p in [path.parent / soname] if p.is_file()), None)
        if below is None:
            yield soname
        else:
            yield from _missing_below(below, folder, seen)


def needed_by(path: pathlib.Path) -> list[str]:
    """DT_NEEDED of a shared library or program; [] where it can't be read."""
    try:
        with path.open("rb") as file:
            dynamic = ELFFile(file).get_section_by_name(".dynamic")
            tags = dynamic.iter_tags("DT_NEEDED") if isinstance(dynamic, DynamicSection) else ()
            return [str(getattr(tag, "needed", "")) for tag in tags]
    except (OSError, ELFError):
        return []


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(word) for word in version.split(".") if word.isdigit())
