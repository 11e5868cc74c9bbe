"""Random PyTorch programs: layers, functions and methods of tensors in any order, as networks are written.

    from random_modules import random_program
    program = random_program(seed)     # .module() (an nn.Module), .inputs (seeded), .source() (as Python)

Every line is run by eager PyTorch as it is added, and one that fails, or whose values leave [-1e3, 1e3], is dropped.
Lines whose results jump (floor, a comparison) take their arguments from f32 and f64 programs alone, or integers.
"""

from __future__ import annotations

import numpy as np
import torch

from . import functions, layers, movement  # noqa: F401  they register their steps
from .builder import EXTENTS, STEPS, Builder, Program

__all__ = ["Program", "random_program"]


def random_program(seed: int, steps: int | None = None) -> Program:
    """Of 1 to 10 steps, a step being a line or a few."""
    first = np.random.default_rng((seed, 2))
    dtype = [*[torch.float32] * 7, torch.float64, torch.float16, torch.bfloat16][first.integers(10)]
    b = Builder(seed, dtype)
    rank = b.pick((1, 2, 2, 3, 3, 3, 4, 4, 4, 5))
    b.input([b.pick(EXTENTS[: 9 if rank < 4 else 7]) for _ in range(rank)])
    if b.chance(0.3):
        b.input(
            [b.pick(EXTENTS[:8]) for _ in range(b.pick((1, 2, 2, 3)))],
            b.pick((torch.int64, torch.int64, torch.int32, torch.uint8)),
        )
    wanted = steps or int(b.random.integers(1, 11))
    for _ in range(30 * wanted):
        if wanted == 0:
            break
        # Mostly a chain; sometimes from further back.
        x = b.live[-1] if b.chance(0.7) else b.pick(b.live)
        names = [name for name, one in STEPS.items() if one.takes(b.program.values[x], dtype)]
        if not names:
            continue
        weights = np.array([STEPS[name].weight for name in names])
        one = STEPS[names[int(b.random.choice(len(names), p=weights / weights.sum()))]]
        wanted -= bool(b.attempt(one, x))
    return b.finished()
