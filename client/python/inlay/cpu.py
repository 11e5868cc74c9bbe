"""This machine's CPU in LLVM's words: what "native" means on the client, and whether a library can run here.

Only x86-64 under Linux is known; elsewhere `features()` is empty and "native" is refused.
"""

from __future__ import annotations

import functools
import pathlib
import platform

# /proc/cpuinfo's flag -> LLVM's feature name, where code generation cares about it. Flags not listed are not passed on.
_FEATURES = {
    "cx16": "cx16", "lahf_lm": "sahf", "popcnt": "popcnt", "pni": "sse3", "ssse3": "ssse3", "sse4_1": "sse4.1",
    "sse4_2": "sse4.2", "sse4a": "sse4a", "avx": "avx", "avx2": "avx2", "bmi1": "bmi", "bmi2": "bmi2", "f16c": "f16c",
    "fma": "fma", "abm": "lzcnt", "movbe": "movbe", "xsave": "xsave", "xsaveopt": "xsaveopt", "xsavec": "xsavec",
    "xsaves": "xsaves", "aes": "aes", "pclmulqdq": "pclmul", "vaes": "vaes", "vpclmulqdq": "vpclmulqdq",
    "sha_ni": "sha", "gfni": "gfni", "rdrand": "rdrnd", "rdseed": "rdseed", "adx": "adx", "fsgsbase": "fsgsbase",
    "clflushopt": "clflushopt", "clwb": "clwb", "avx512f": "avx512f", "avx512cd": "avx512cd", "avx512bw": "avx512bw",
    "avx512dq": "avx512dq", "avx512vl": "avx512vl", "avx512ifma": "avx512ifma", "avx512vbmi": "avx512vbmi",
    "avx512_vbmi2": "avx512vbmi2", "avx512_vnni": "avx512vnni", "avx512_bitalg": "avx512bitalg",
    "avx512_vpopcntdq": "avx512vpopcntdq", "avx512_bf16": "avx512bf16", "avx512_fp16": "avx512fp16",
    "xop": "xop", "fma4": "fma4", "tbm": "tbm", "avx_vnni": "avxvnni", "amx_tile": "amx-tile", "amx_int8": "amx-int8", "amx_bf16": "amx-bf16",
}  # fmt: skip

_V2 = {"cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"}
_V3 = _V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
# Microarchitecture levels of the x86-64 psABI, best first.
_LEVELS = (("x86-64-v4", _V4), ("x86-64-v3", _V3), ("x86-64-v2", _V2))
# Features that the level of the psABI names: what `missing` can judge, whatever else a library's list has.
KNOWN = frozenset(_FEATURES.values())


@functools.lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """LLVM names of the features that this CPU (and its kernel) offers; empty where they can't be read."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return frozenset()
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    for line in text.splitlines():
        if line.startswith("flags"):
            flags = line.partition(":")[2].split()
            return frozenset(_FEATURES[flag] for flag in flags if flag in _FEATURES)
    return frozenset()


def native_attrs() -> dict[str, str]:
    """The attributes of Target("llvm") for this machine: the psABI level as mcpu, what it has beyond it as mattr.

    Raises ValueError where the CPU can't be read.
    """
    have = features()
    if not have:
        raise ValueError('"native" needs an x86-64 Linux machine to look at; name the CPU: -mcpu=x86-64-v3')
    level, base = next(((name, want) for name, want in _LEVELS if want <= have), ("x86-64", set()))
    extra = sorted(have - base)
    attrs = {"mtriple": "x86_64-unknown-linux-gnu", "mcpu": level}
    if extra:
        attrs["mattr"] = ",".join(f"+{name}" for name in extra)
    return attrs


def missing(required: str) -> list[str]:
    """The features of a list like "+avx2,+avx512f,-avx512bf16" that this CPU lacks. Unknown names are not judged."""
    have = features()
    if not have:
        return []
    wanted = {name[1:] for name in required.split(",") if name.startswith("+")}
    return sorted((wanted & KNOWN) - have)
