"""Compiles small modules with the native backend, runs them through the kernel ABI by ctypes, and compares with the
NumPy evaluator (tests/reference).

    suite = Suite()
    b = FunctionBuilder(); x = b.param("x", "f32", (3, 5)); y = b.op("relu", x)
    suite.add("relu", b.finish([y]), [array])
    failures = suite.run("llvm -mcpu=x86-64-v3", threads=2)      # a list of messages, empty where all is well
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "client/python"))
sys.path.insert(0, str(ROOT / "tests"))

from random_graphs.guarded import guarded as between_guards
from reference.evaluator import DTYPES, evaluate

from inlay._proto import artifact_pb2
from inlay.ir import FunctionBuilder  # noqa: F401

COMPILER = os.environ.get("INLAY_NATIVE_COMPILER", str(ROOT / "bazel-bin/core/backends/native/testing/compile_main"))
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
SET_ERROR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)


def runnable(targets: list) -> list:
    """Those targets (or tuples that begin with one) whose code this machine can run."""
    flags = set(pathlib.Path("/proc/cpuinfo").read_text().split())
    avx512 = {"avx512vl", "avx512dq", "avx512bw"}
    needs = {
        "x86-64-v2": set(),
        "x86-64-v3": {"avx2", "fma"},
        "x86-64-v4": avx512,
        "alderlake": {"avx_vnni"},
        "cascadelake": avx512 | {"avx512_vnni"},
        "icelake-server": avx512 | {"avx512_vnni", "avx512_vbmi"},
        "sapphirerapids": avx512 | {"avx512_vnni", "amx_int8", "avx512_fp16"},
    }

    def fits(target) -> bool:
        cpu = (target if isinstance(target, str) else target[0]).split("-mcpu=")[1].split()[0]
        return needs.get(cpu, needs["x86-64-v4"]) <= flags

    return [t for t in targets if fits(t)]


class Context(ctypes.Structure):
    """InlayCallContext of core/runtime/kernel_abi.h."""

    _fields_ = [
        ("state", ctypes.c_void_p),
        ("workspace", ctypes.c_void_p),
        ("num_threads", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("pool", ctypes.c_void_p),
        ("parallel_for", PARALLEL),
        ("owner", ctypes.c_void_p),
        ("alloc", ALLOC),
        ("set_error", SET_ERROR),
    ]


def aligned(nbytes: int, fill: int = 0xA5) -> np.ndarray:
    """Memory that begins at a multiple of 64, filled with a pattern, so that what is never written shows."""
    raw = np.full(nbytes + 128, fill, dtype=np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


GUARD = 256


def guarded(nbytes: int) -> np.ndarray:
    """Aligned memory of which the last GUARD bytes are a guard."""
    return aligned(nbytes + GUARD)


def slice_extent(extent: int, begin: int, end: int, step: int) -> int:
    return len(range(*slice(begin, end, step).indices(extent)))


def pool_extent(extent: int, window: int, stride: int, pad_begin: int, pad_end: int) -> int:
    """Of a pool in ceil mode (core/base/extents.h)."""
    out = (room := extent + pad_begin + pad_end - window) // stride + 1
    return out + (room % stride != 0 and out * stride < extent + pad_begin)


def evaluate_extent(text: str, values: dict[str, int]) -> int:
    """A polynomial over names, or a name such as "slice(seq,1,5,2)" or "((h-1)/2)", as core/ir/dim_expr.h writes it."""
    return eval(text.replace("/", "//"), {"slice": slice_extent, "pool": pool_extent}, values)


class Kernel:
    """One compiled function: runs on arrays, checks the guards behind every output and behind the workspace. `values`:
    of the names of its open dimensions."""

    def __init__(self, library, manifest, threads: int, values: dict[str, int] | None = None):
        self.function = manifest.functions[0]
        self.values = values or {}
        self.symbols = np.array([evaluate_extent(s, self.values) for s in self.function.symbols], np.int64)
        self.workspace_bytes = self.function.workspace_bytes
        if self.function.workspace_expr:
            self.workspace_bytes = evaluate_extent(self.function.workspace_expr, self.values)
        self.run_c = getattr(library, self.function.symbol + "_run")
        self.init_c = getattr(library, self.function.symbol + "_init") if self.function.has_state else None
        self.threads = threads
        self.loops = 0  # calls of parallel_for
        self.keep: list[np.ndarray] = []
        self.parallel = PARALLEL(self._parallel_for)
        self.alloc = ALLOC(self._alloc)
        self.set_error = SET_ERROR(lambda owner, code, message: None)
        self.workspace = guarded(self.workspace_bytes)
        self.context = Context(
            None,
            self.workspace.ctypes.data,
            threads,
            0,
            None,
            self.parallel,
            None,
            self.alloc,
            self.set_error,
        )

    def _parallel_for(self, pool, n, task, closure):
        run = TASK(task)
        self.loops += 1
        pieces = 3 * self.threads
        bounds = [n * i // pieces for i in range(pieces + 1)]
        for piece in reversed(range(pieces)):  # any order must do, and several pieces a worker
            if bounds[piece] < bounds[piece + 1]:
                run(closure, bounds[piece], bounds[piece + 1], piece % self.threads)

    def _alloc(self, owner, nbytes):
        memory = aligned(nbytes, 0)
        self.keep.append(memory)
        return memory.ctypes.data

    def init(self, inputs) -> None:
        # What is read behind them ends the process.
        self.inputs = [
            between_guards(np.ascontiguousarray(array).reshape(-1).view(np.uint8), at_end=True) for array in inputs
        ]
        self.outputs = []
        for output in self.function.outputs:
            dtype = DTYPES[output.dtype]
            shape = [evaluate_extent(d.symbol, self.values) if d.symbol else d.value for d in output.dims]
            nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
            self.outputs.append((guarded(nbytes), nbytes, dtype, shape))
        pointers = [m.ctypes.data for m in self.inputs] + [m[0].ctypes.data for m in self.outputs]
        if len(self.symbols) > 0:
            pointers.append(self.symbols.ctypes.data)
        self.args = (ctypes.c_void_p * max(len(pointers), 1))(*pointers)
        if self.init_c is None:
            return
        constant = set(self.function.constant_inputs)
        given = [p if i in constant else None for i, p in enumerate(pointers)]
        args = (ctypes.c_void_p * len(given))(*given)
        state = ctypes.c_void_p()
        code = self.init_c(ctypes.byref(self.context), args, ctypes.byref(state))
        if code != 0:
            raise RuntimeError(f"init returned {code}")
        self.context.state = state.value
        for i in self.function.init_only_inputs:  # nothing may read it any more
            self.inputs[i][:] = 0xFF

    def run(self) -> None:
        code = self.run_c(ctypes.byref(self.context), self.args)
        if code != 0:
            raise RuntimeError(f"run returned {code}")

    def results(self) -> list[np.ndarray]:
        for memory, nbytes, _, _ in self.outputs:
            if (memory[nbytes:] != 0xA5).any():
                raise RuntimeError("wrote behind an output")
        if (self.workspace[self.workspace_bytes :] != 0xA5).any():
            raise RuntimeError("wrote behind the workspace")
        return [m[:n].view(dtype).reshape(shape).copy() for m, n, dtype, shape in self.outputs]


TOLERANCE = {
    np.dtype(np.float32): (2e-5, 2e-5),
    np.dtype(np.float64): (1e-10, 1e-10),
    np.dtype(np.float16): (4e-3, 2e-3),
    np.dtype(ml_dtypes.bfloat16): (2e-2, 2e-2),
}


def mismatch(got: np.ndarray, want: np.ndarray, tolerance) -> str:
    """A message, or "" where they agree."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, wanted {want.dtype}{want.shape}"
    if want.size == 0:
        return ""
    rtol, atol = tolerance or TOLERANCE.get(want.dtype, (0, 0))
    if want.dtype in TOLERANCE:
        g, w = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(invalid="ignore"):
            ok = (g == w) | (np.abs(g - w) <= atol + rtol * np.abs(w)) | (np.isnan(g) & np.isnan(w))
            ok &= np.isinf(g) == np.isinf(w)
    else:
        ok = got == want
    if ok.all():
        return ""
    bad = np.argwhere(~ok)
    at = tuple(bad[0])
    return f"{len(bad)} of {want.size} differ, at {at}: got {got[at]!r}, wanted {want[at]!r}"


def with_constants(module, constant):
    """The module as a proto, those parameters of main constant after load."""
    proto = type(module.proto)()
    proto.CopyFrom(module.proto)
    if constant:
        proto.functions["main"].attrs["constant_params"].ints.v.extend(constant)
    return proto


class Suite:
    """Cases that are compiled together."""

    def __init__(self):
        self.cases = {}
        self.open_cases = {}
        self.loops = {}  # of each case's run: how often it used several threads
        self.workspace_bytes = {}  # of each case

    def _unused(self, name) -> str:
        name = "t_" + "".join(c if c.isalnum() else "_" for c in name)
        while name in self.cases or name in self.open_cases:
            name += "_"
        return name

    def add(self, name, module, inputs, tolerance=None, constant=(), expected=None, attrs=()) -> None:
        """`constant`: indices of the parameters that are constant after load. `expected`: instead of the evaluator.
        `attrs`: integers by name, of the function."""
        proto = with_constants(module, constant)
        for attr, value in dict(attrs).items():
            proto.functions["main"].attrs[attr].i = value
        self.cases[self._unused(name)] = (module, proto, [np.asarray(i) for i in inputs], tolerance, expected)

    def add_open(self, name, build, sizes, tolerance=None, constant=()) -> None:
        """One compile, many shapes. build(lookup) -> (module, inputs): `lookup(name)` is a dimension; the inputs are
        used where all are numbers. sizes: values of the names, run after run."""
        module, _ = build(lambda symbol: symbol)
        proto = with_constants(module, constant)
        self.open_cases[self._unused(name)] = (build, proto, list(sizes), tolerance)

    def compile(self, target: str, directory: str):
        for name, (_, proto, *_rest) in {**self.cases, **self.open_cases}.items():
            pathlib.Path(directory, name + ".pb").write_bytes(proto.SerializeToString())
        done = subprocess.run([COMPILER, target, directory], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"compile_main: {done.returncode}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
        objects = sorted(str(p) for p in pathlib.Path(directory).glob("*.o"))
        library = None
        if objects:
            shared = str(pathlib.Path(directory, "all.so"))
            linker = subprocess.run(
                ["ld.lld-19", "-shared", "-o", shared, *objects, "-lc", "-lm", "-L/lib/x86_64-linux-gnu", "-z", "defs"],
                capture_output=True,
                text=True,
            )
            if linker.returncode != 0:
                raise RuntimeError(linker.stderr[-3000:])
            library = ctypes.CDLL(shared)
        return library, done.stdout

    def run(self, target: str, threads: int = 2) -> list[str]:
        failures = []
        with tempfile.TemporaryDirectory() as directory:
            start = time.time()
            library, self.times = self.compile(target, directory)
            self.compile_s = time.time() - start
            for name, (module, _, inputs, tolerance, expected) in self.cases.items():
                manifest = self._manifest(directory, name, failures)
                if manifest is None:
                    continue
                with np.errstate(all="ignore"):
                    want = expected if expected is not None else evaluate(module.proto, module.weights, inputs)
                kernel = Kernel(library, manifest, threads)
                failures += self._compare(name, kernel, inputs, want, tolerance)
                self.loops[name.rstrip("_")] = kernel.loops
                self.workspace_bytes[name.rstrip("_")] = kernel.workspace_bytes
            for name, (build, _, sizes, tolerance) in self.open_cases.items():
                manifest = self._manifest(directory, name, failures)
                for values in sizes if manifest is not None else []:
                    module, inputs = build(values.__getitem__)
                    with np.errstate(all="ignore"):
                        want = evaluate(module.proto, module.weights, inputs)
                    kernel = Kernel(library, manifest, threads, values)
                    failures += self._compare(f"{name}{values}", kernel, inputs, want, tolerance)
        return failures

    @staticmethod
    def _manifest(directory, name, failures):
        error = pathlib.Path(directory, name + ".error")
        if error.exists():
            failures.append(f"{name}: {error.read_text()}")
            return None
        manifest = artifact_pb2.StaticLibraryManifest()
        manifest.ParseFromString(pathlib.Path(directory, name + ".manifest").read_bytes())
        return manifest

    @staticmethod
    def _compare(name, kernel, inputs, want, tolerance) -> list[str]:
        try:
            kernel.init(inputs)
            kernel.loops = 0
            kernel.run()
            got = kernel.results()
        except RuntimeError as problem:
            return [f"{name}: {problem}"]
        messages = [mismatch(g, np.asarray(w), tolerance) for g, w in zip(got, want)]
        return [f"{name} [{i}]: {message}" for i, message in enumerate(messages) if message]
