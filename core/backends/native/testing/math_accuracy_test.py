"""The bounds that math.h states for the vector expansions, measured over all of f32's range against f64.

.venv/bin/python -m pytest core/backends/native/testing/math_accuracy_test.py
"""

from __future__ import annotations

import math
import pathlib
import sys
import tempfile

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import FunctionBuilder, Kernel, Suite, artifact_pb2, runnable

# What math.h promises: (function in f64, largest error in units of the last place).
LIMITS = {
    "exp": (np.exp, 1.0),
    "log": (np.log, 1.0),
    "tanh": (np.tanh, 2.5),
    "sin": (np.sin, 1.75),
    "cos": (np.cos, 1.75),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 2.5),
    "softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 3.0),
    "erf": (np.vectorize(math.erf, otypes=[np.float64]), 2.0),
}


def normal_integral(x: np.ndarray) -> np.ndarray:
    return 0.5 * np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def inputs() -> np.ndarray:
    """Every exponent with many mantissas, both signs; the ranges where results vary, densely; the special values."""
    random = np.random.default_rng(5)
    bits = random.integers(0, 2**32, 200_000, dtype=np.uint64).astype(np.uint32)
    dense = [random.uniform(-b, b, 60_000) for b in (0.7, 4.5, 20, 105, 70_000)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72283, 88.72284, -87.336, -103.97, -104.1, 1e-45, 3.4e38, 1.0]
    quarters = np.arange(-45_000, 45_000) * (np.pi / 2)  # where sine and cosine vanish
    return np.concatenate([bits.view(np.float32)] + [np.asarray(v, np.float32) for v in (*dense, quarters, special)])


def errors(got: np.ndarray, want: np.ndarray) -> float:
    """Largest error in ulps of the correctly rounded f32; infinite where NaN or infinity is missing or wrong."""
    rounded = want.astype(np.float32)
    finite = np.isfinite(rounded)
    if not (np.isnan(got) == np.isnan(rounded)).all() or not (got == rounded)[np.isinf(rounded)].all():
        return math.inf
    step = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    return float(np.max(np.abs(got[finite].astype(np.float64) - want[finite]) / step))


@pytest.mark.parametrize("target", runnable([f"llvm -mcpu=x86-64-v{level}" for level in (4, 3, 2)]))
def test_bounds(target):
    x = inputs()
    suite = Suite()
    for op in LIMITS:
        b = FunctionBuilder()
        suite.add(op, b.finish([b.op(op, b.param("x", "f32", x.shape))]), [x])
    found = {}
    with tempfile.TemporaryDirectory() as directory, np.errstate(all="ignore"):
        library, _ = suite.compile(target, directory)
        for op, (reference, _) in LIMITS.items():
            manifest = artifact_pb2.StaticLibraryManifest()
            manifest.ParseFromString(pathlib.Path(directory, f"t_{op}.manifest").read_bytes())
            kernel = Kernel(library, manifest, 1)
            kernel.init([x])
            kernel.run()
            got, want = kernel.results()[0], reference(x.astype(np.float64))
            if op == "sigmoid":  # below -87 exp(-x) overflows: 0, where the value is at most 1.7e-38
                far = x < -87
                assert np.all(got[far] < 1.8e-38)
                got, want = got[~far], want[~far]
            found[op] = errors(got, want)
            print(f"{op}: {found[op]:.2f} ulp")
    limits = {op: limit for op, (_, limit) in LIMITS.items()}
    if target.endswith("v2"):  # no fused multiply-adds
        limits["erf"] = 2.5
    assert all(found[op] <= limits[op] for op in limits), found


@pytest.mark.parametrize("target", runnable([f"llvm -mcpu=x86-64-v{level}" for level in (4, 3, 2)]))
def test_gelu(target):
    """2 ulp down to -1; below, where x * Phi(x) goes to 0 and nobody divides by it, an absolute bound."""
    x = inputs()
    x = np.concatenate([x, np.linspace(-8, 8, 400_001, dtype=np.float32), np.linspace(5, 6, 20_001, dtype=np.float32)])
    functions = {
        "none": lambda v: v * normal_integral(v),
        "tanh": gelu_tanh,
        "silu": lambda v: v / (1 + np.exp(-v)),
    }
    suite = Suite()
    for name in functions:
        b = FunctionBuilder()
        p = b.param("x", "f32", x.shape)
        y = b.op("silu", p) if name == "silu" else b.op("gelu", p, approximate=name)
        suite.add(name, b.finish([y]), [x])
    b = FunctionBuilder()  # a row of one, and with AVX-512 shorter vectors: the same bits
    short = x[:9].reshape(3, 3)
    suite.add("short", b.finish([b.op("gelu", b.op("transpose", b.param("x", "f32", (3, 3)), perm=[1, 0]))]), [short])
    found = {}
    with tempfile.TemporaryDirectory() as directory, np.errstate(all="ignore"):
        library, _ = suite.compile(target, directory)

        def run(name, values):
            manifest = artifact_pb2.StaticLibraryManifest()
            manifest.ParseFromString(pathlib.Path(directory, f"t_{name}.manifest").read_bytes())
            kernel = Kernel(library, manifest, 1)
            kernel.init([values])
            kernel.run()
            return kernel.results()[0]

        for name, reference in functions.items():
            got, want = run(name, x), reference(x.astype(np.float64))
            assert np.isnan(got[np.isnan(x)]).all() and (got[x == np.inf] == np.inf).all()
            zeros = x == 0
            assert (got[zeros] == 0).all() and (np.signbit(got[zeros]) == np.signbit(x[zeros])).all()
            high, low = x >= -1, (x < -1) & np.isfinite(x)
            if name == "silu":
                high, low = x > -87, (x <= -87) & np.isfinite(x)
            found[name] = errors(got[high], want[high]), np.abs(got[low] - np.nan_to_num(want[low])).max()
        np.testing.assert_array_equal(run("short", short), run("none", x)[:9].reshape(3, 3).T)
    print(found)
    no_table = target.endswith("v2")
    assert found["none"][0] <= (3.0 if no_table else 2.0) and found["none"][1] <= (2e-7 if no_table else 3e-8), found
    assert found["tanh"][0] <= 2.5 and found["tanh"][1] <= 5e-8, found
    assert found["silu"][0] <= 2.5 and found["silu"][1] <= 2e-36, found


@pytest.mark.parametrize("target", runnable([f"llvm -mcpu=x86-64-v{level}" for level in (4, 3, 2)]))
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(target, axis):
    """Its exponentials are of differences to the maximum: as accurate down to the least normal number, then 0."""
    x = np.random.default_rng(3).uniform(-87, 0, (500, 37)).astype(np.float32)
    x[:, 0] = 0
    x[0, 1:], x[1, 1:9] = -1e5, -np.inf
    alone = slice(100, 500)  # beside these 1, the others do not count: the results are the exponentials
    x[alone, 1:] = np.random.default_rng(4).uniform(-87.3, -25, (400, 36))
    x[2, 5], x[3, 5], x[4, :] = np.nan, np.inf, -np.inf
    x = x if axis == 1 else np.ascontiguousarray(x.T)
    suite = Suite()
    b = FunctionBuilder()
    suite.add("softmax", b.finish([b.op("softmax", b.param("x", "f32", x.shape), axis=axis)]), [x])
    with tempfile.TemporaryDirectory() as directory:
        library, _ = suite.compile(target, directory)
        manifest = artifact_pb2.StaticLibraryManifest()
        manifest.ParseFromString(pathlib.Path(directory, "t_softmax.manifest").read_bytes())
        kernel = Kernel(library, manifest, 1)
        kernel.init([x])
        kernel.run()
        got = kernel.results()[0]
    x, got = (x, got) if axis == 1 else (x.T, got.T)
    assert np.isnan(got[2:5]).all()
    x, got = np.delete(x, [2, 3, 4], 0), np.delete(got, [2, 3, 4], 0)
    want = np.exp(x.astype(np.float64))
    assert errors(got[97:, 1:], want[97:, 1:]) <= 1.0
    want /= want.sum(axis=1, keepdims=True)
    assert np.all(got[0, 1:] == 0) and np.all(got[1, 1:9] == 0)
    assert np.all(np.abs(got - want) <= 5e-7 * want + 1.2e-38)
