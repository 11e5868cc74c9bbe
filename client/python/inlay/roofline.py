"""What this machine can do at most: measured in a second or two, for `inlay profile`.

- Arithmetic: the fastest of several products of two f32 matrices of 768 x 768, by NumPy's BLAS and, where a server can be
  asked, by every backend of it alone. No other kernel is faster, so it is a peak that was seen, and a little less than the
  one on paper.
- Bandwidth: of a working set of each size from 32 KiB to 256 MiB, the faster of copying half of it to the other half
  (counted as a read and a write) and finding its maximum (a read). With several threads, each has its own share.
"""

from __future__ import annotations

import bisect
import concurrent.futures
import contextlib
import dataclasses
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from inlay.client import Client
from inlay.config import CompilationConfig
from inlay.errors import InlayError
from inlay.ir import FunctionBuilder
from inlay.target import Target

N = 768
SIZES = [1 << n for n in range(15, 29, 1)]
MIN_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Attributes:
    gflops: f32, of all threads used; by: who reached it.
    bandwidth: {bytes of the working set: GB/s}.
    """

    gflops: float
    by: str
    bandwidth: dict[int, float]

    def gbs(self, working_set: float) -> float:
        """GB/s of a working set of so many bytes: log-linear between the measured sizes."""
        sizes = sorted(self.bandwidth)
        at = bisect.bisect_left(sizes, working_set)
        if at == 0 or at == len(sizes):
            return self.bandwidth[sizes[min(at, len(sizes) - 1)]]
        low, high = sizes[at - 1], sizes[at]
        part = math.log(working_set / low) / math.log(high / low)
        return self.bandwidth[low] ** (1 - part) * self.bandwidth[high] ** part

    def floor_us(self, flops: float, bytes_moved: float, constant_bytes: float, total_constant_bytes: float) -> float:
        """The least microseconds of a call: arithmetic and moving overlap. Weights come from where all weights of the
        model fit; everything else from where the call's own tensors fit, as if the call before had left them there."""
        own = bytes_moved - constant_bytes
        moving = constant_bytes / self.gbs(total_constant_bytes) + own / self.gbs(max(own, 1.0))
        return max(flops / self.gflops, moving) / 1e3


def measure(threads: int, client: Client | None = None) -> Roofline:
    """Takes a second or two. Without a client, NumPy alone says what the peak is."""
    with _pinned(threads):
        gflops, by = _peak(threads, client)
        bandwidth, fastest = {}, 0.0
        # What is smaller is no slower, whatever a call of NumPy costs.
        for size in reversed(SIZES):
            bandwidth[size] = fastest = max(fastest, _bandwidth(size, threads))
        return Roofline(gflops, by, bandwidth)


@contextlib.contextmanager
def _pinned(threads: int) -> Iterator[None]:
    """On as many cores as threads: BLAS libraries take as many threads as cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-threads:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _best_seconds(call: Callable[[], object]) -> float:
    """Of a call, the fastest of some that fill MIN_SECONDS."""
    best, spent = math.inf, 0.0
    while spent < 5 * MIN_SECONDS:
        started = time.perf_counter()
        call()
        seconds = time.perf_counter() - started
        best, spent = min(best, seconds), spent + seconds
    return best


# In a process of its own: NumPy's pool is made when it is imported, of as many threads as the process has cores.
_MATMUL = """
import sys
sys.path[:0] = {path!r}
from inlay import roofline
print(roofline.matmul_seconds())
"""


def matmul_seconds() -> float:
    """Of a product of two matrices of N x N by NumPy's BLAS, on all cores that this process may use."""
    a, b = _operands()
    out = np.empty_like(a)
    return _best_seconds(lambda: np.matmul(a, b, out=out))


def _operands() -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32) for seed in (0, 1))
    return first, second


def _peak(threads: int, client: Client | None) -> tuple[float, str]:
    """By this process's cores (_pinned)."""
    flops = 2.0 * N**3
    child = [sys.executable, "-c", _MATMUL.format(path=sys.path)]
    seconds = float(subprocess.run(child, check=True, stdout=subprocess.PIPE, text=True).stdout)
    found = [(flops / seconds / 1e9, "NumPy's BLAS")]
    a, b = _operands()
    for backend in client.usable_backends() if client is not None else ():
        with contextlib.suppress(InlayError):
            seconds = _best_seconds(_product(client, backend, threads, a, b))
            found.append((flops / seconds / 1e9, f"{backend}'s matmul"))
    return max(found)


def _product(client, backend: str, threads: int, a: np.ndarray, b: np.ndarray) -> Callable[[], object]:
    from inlay.executable import build

    builder = FunctionBuilder()
    x = builder.param("x", "f32", a.shape)
    module = builder.finish([builder.op("matmul", x, builder.weight(b, "w"))], ["y"])
    config = CompilationConfig(
        targets=[Target("llvm -mcpu=native")], num_threads=threads, backends=sorted({backend, "native"})
    )
    main = build(module, config, server=client).jit(num_threads=threads)["main"]
    return lambda: main(a)


def _bandwidth(size: int, threads: int) -> float:
    """GB/s of all threads together, a working set of `size` bytes shared out to them."""
    share = max(size // threads, 4096) // 8
    halves = [(np.ones(share, np.float32), np.ones(share, np.float32)) for _ in range(threads)]
    bytes_of_all = 8 * share * threads
    repeats = max(1, (1 << 22) // (8 * share))  # several, so that calling NumPy does not count

    def copy(pair) -> None:
        for _ in range(repeats):
            np.copyto(pair[0], pair[1])

    def read(pair) -> None:
        for _ in range(repeats):
            pair[0].max()
            pair[1].max()

    def seconds(work) -> float:
        if threads == 1:
            return _best_seconds(lambda: work(halves[0]))
        return _best_seconds(lambda: list(pool.map(work, halves)))

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return repeats * bytes_of_all / min(seconds(copy), seconds(read)) / 1e9
