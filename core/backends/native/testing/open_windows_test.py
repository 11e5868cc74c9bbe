"""Depthwise convolutions by a stride of 1 and pools, of open images of many widths: each compiled once and run at many
sizes, compared with the NumPy evaluator on a module of those sizes."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from open_dims_test import OpenOps, conv, of_n

# Narrower than a vector, vectors that see one edge, both or none, parts of rows; bands of rows.
WIDTHS = [1, 2, 5, 7, 8, 9, 13, 16, 17, 24, 31, 40, 127, 128, 129, 300]
IMAGES = [{"n": n, "h": h, "w": w} for n, h in ((0, 3), (1, 1), (2, 37)) for w in WIDTHS]
SOME = IMAGES[1::3]


@pytest.fixture
def s():
    return OpenOps()


def convolution(s, label, c, kernel, sizes=IMAGES, multiplier=1, dtype="f32", constant=(1, 2), **attrs):
    m = c * multiplier
    s.open(label, [("n", c, "h", "w"), (m, 1, *kernel), (m,)], lambda b, d, *t: conv(b, d, *t, groups=c, **attrs), sizes, dtype,
           constant=constant, low=-1, high=1, tolerance=(2e-2, 2e-2) if dtype == "f16" else (2e-3, 2e-3))  # fmt: skip


def test_depthwise(s):
    convolution(s, "square", 3, (3, 3))
    convolution(s, "given", 3, (3, 3), SOME, constant=())
    convolution(s, "five", 2, (5, 5), pads=[2, 2, 2, 2])
    convolution(s, "unpadded", 2, (3, 3), [i for i in IMAGES if i["h"] > 2 and i["w"] > 2], pads=[0, 0, 0, 0])
    convolution(s, "uneven", 2, (4, 6), [i for i in IMAGES if i["h"] > 2], pads=[0, 5, 3, 1])
    convolution(s, "far_below", 2, (3, 3), SOME, pads=[7, 9, 8, 6])
    convolution(s, "far_beside", 2, (3, 3), SOME, pads=[1, 40, 1, 33])
    convolution(s, "reaching_far", 2, (3, 23), SOME, pads=[1, 11, 1, 11])
    convolution(s, "large", 2, (9, 9), SOME, pads=[4, 4, 4, 4])
    convolution(s, "dilated", 2, (3, 3), SOME, dilations=[2, 9], pads=[2, 9, 2, 9])
    convolution(s, "rows_apart", 2, (3, 3), SOME, strides=[2, 1])
    convolution(s, "multiplied", 3, (3, 3), SOME, multiplier=2)
    convolution(s, "half", 3, (3, 3), SOME, dtype="f16")
    convolution(s, "double", 3, (3, 3), SOME, dtype="f64")
    s.check()


def test_lines_and_volumes(s):
    lines = [{"n": n, "w": w} for n in (1, 2) for w in [*WIDTHS, 31, 32, 33, 513, 1111]]
    one = {"strides": [1], "dilations": [1], "groups": 3}
    for taps, pads in ((3, [1, 1]), (15, [14, 0]), (4, [0, 0])):
        enough = [i for i in lines if i["w"] + sum(pads) >= taps]
        s.open(f"line_{taps}", [("n", 3, "w"), (3, 1, taps)], lambda b, _, *t, pads=pads: b.op("conv", *t, pads=pads, **one),
               enough, constant=(1,), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip
    volumes = [{"n": n, "h": h, "w": w} for n, h in ((1, 1), (4, 5), (2, 17)) for w in (1, 9, 17, 40)]
    full = {"strides": [1] * 3, "dilations": [1] * 3, "pads": [1] * 6, "groups": 2}
    s.open("volume", [(2, 2, "n", "h", "w"), (2, 1, 3, 3, 3)], lambda b, _, *t: b.op("conv", *t, **full),
           volumes, constant=(1,), low=-1, high=1, tolerance=(2e-3, 2e-3))  # fmt: skip
    s.check()


def pool(
    s,
    label,
    sizes,
    dtypes=("f32",),
    tail=lambda b, y: y,
    shape=("n", 2, "h", "w"),
    ops=("max_pool", "avg_pool"),
    **attrs,
):
    rank = len(attrs["kernel"])
    full = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * rank * 2, **attrs}
    for op in ops:
        for dtype in dtypes:
            s.open(f"{op}_{label}_{dtype}", [shape], lambda b, _, x, op=op: tail(b, b.op(op, x, **full)), sizes, dtype,
                   tolerance=(1e-2, 1e-2) if dtype in ("f16", "bf16") else (1e-4, 1e-4))  # fmt: skip


# Rows in one part, and in several; vectors of results, halves of one, and fewer.
POOL_WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 15, 16, 17, 18, 31, 33, 34, 65]
POOLED = [{"n": n, "h": h, "w": w} for n, h in ((0, 3), (1, 1), (2, 7)) for w in POOL_WIDTHS]
POOLED_WIDE = [{"n": 1, "h": 2, "w": w} for w in (511, 512, 513, 1023, 1024, 1026, 1537, 2051)]
POOLED_LARGE = [{"h": h, "w": w} for h, w in ((4, 4), (5, 19), (9, 40))]


def test_pools(s):
    one = {"pads": [1, 1, 1, 1]}
    pool(s, "three", POOLED + POOLED_WIDE[::3], kernel=[3, 3], **one)
    pool(s, "three", POOLED[::5], ("f64", "f16"), kernel=[3, 3], **one)
    pool(s, "strided", POOLED + POOLED_WIDE, kernel=[3, 3], strides=[2, 2], **one)
    pool(s, "strided", POOLED[::5], ("f64", "bf16"), kernel=[3, 3], strides=[2, 2], **one)
    pool(s, "halves", [i for i in POOLED if i["h"] > 1 and i["w"] > 1], kernel=[2, 2], strides=[2, 2])
    pool(s, "before", POOLED, kernel=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0])
    pool(s, "after", POOLED[1::2], kernel=[4, 4], pads=[0, 0, 3, 3])
    pool(s, "by_three", POOLED[1::2] + POOLED_WIDE[::4], kernel=[3, 3], strides=[3, 3], **one)
    pool(
        s,
        "ceiled",
        [i for i in POOLED[::2] + POOLED_WIDE[1::2] if i["h"] > 1 and i["w"] > 1],
        kernel=[3, 3],
        strides=[2, 2],
        pads=[0, 0, 1, 1],
        ceil_mode=True,
    )
    pool(s, "wide", POOLED[1::3], kernel=[1, 13], pads=[0, 6, 0, 6])
    pool(
        s,
        "counted",
        POOLED + POOLED_WIDE,
        ops=("avg_pool",),
        kernel=[3, 3],
        strides=[2, 2],
        count_include_pad=True,
        **one,
    )
    pool(s, "tail", POOLED, tail=lambda b, y: b.op("mul", b.op("sigmoid", y), y), kernel=[3, 3], strides=[2, 2], **one)
    pool(s, "dilated_columns", POOLED[::2], kernel=[2, 3], dilations=[1, 3], pads=[1, 3, 0, 3])
    # Window by window: too many taps, windows that may meet nothing, dilated rows that are padded.
    pool(s, "many_taps", POOLED_LARGE, shape=(1, 2, "h", "w"), kernel=[2, 17], pads=[0, 8, 0, 8])
    pool(s, "far_beyond", POOLED_LARGE, shape=(1, 2, "h", "w"), ops=("max_pool",), kernel=[3, 3], pads=[2, 2, 2, 2])
    pool(s, "dilated_rows", POOLED_LARGE, shape=(1, 2, "h", "w"), kernel=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 0])
    lines = [{"n": 1, "w": w} for w in [*POOL_WIDTHS, 512, 513, 1300]]
    pool(s, "line", lines, shape=("n", 3, "w"), kernel=[3], strides=[2], pads=[1, 1])
    volumes = [{"n": n, "h": h, "w": w} for n, h in ((1, 1), (3, 4)) for w in (1, 9, 17, 40)]
    pool(
        s, "volume", volumes, shape=(1, 2, "n", "h", "w"), kernel=[2, 3, 3], strides=[1, 2, 2], pads=[1, 1, 1, 0, 1, 1]
    )
    s.check()


def test_pools_of_what_is_no_number(s):
    special = np.float32([np.nan, -np.inf, -3, np.inf, -1, -np.inf, 0.5])
    for strides in ([1, 1], [2, 2]):
        s.open(f"special_{strides[0]}", [(1, 2, "h", "w")], lambda b, _, x, strides=strides: b.op("max_pool", x, kernel=[3, 3], strides=strides, dilations=[1, 1], pads=[1, 1, 1, 1]),
               [{"h": 5, "w": w} for w in (3, 8, 40)], data=lambda size: [np.resize(special, (1, 2, size("h"), size("w")))])  # fmt: skip
    s.check()


def test_pools_of_any_size(s):
    both = [{"n": n, "h": h, "w": w} for n in (0, 1, 3) for h in (3, 7, 18) for w in (3, 17, 40)]
    for op in ("max_pool", "avg_pool"):
        for attrs in [
            {"kernel": [3, 3], "strides": [2, 2], "dilations": [1, 1], "pads": [1, 1, 1, 1]},
            {"kernel": [2, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0]},
        ]:
            s.open(f"{op}_batch", [("n", 5, 16, 33)], lambda b, _, x, op=op, attrs=attrs: b.op(op, x, **attrs), of_n([0, 1, 3, 7]), tolerance=(1e-4, 1e-4))  # fmt: skip
            s.open(f"{op}_size", [("n", 5, "h", "w")], lambda b, _, x, op=op, attrs=attrs: b.op(op, x, **attrs), both, tolerance=(1e-4, 1e-4))  # fmt: skip
        attrs = {"kernel": [2, 2], "strides": [2, 2], "dilations": [1, 1], "pads": [0, 0, 1, 1]}
        s.open(f"{op}_i", [("n", 5, "h", "w")], lambda b, _, x, op=op, attrs=attrs: b.op(op, x, **attrs), both, tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("counted", [("n", 5, "h", "w")], lambda b, _, x: b.op("avg_pool", x, kernel=[3, 3], strides=[1, 1], dilations=[1, 1], pads=[1, 1, 1, 1], count_include_pad=True), both, tolerance=(1e-4, 1e-4))  # fmt: skip

    # Blocks of several bands and parts of rows; windows that overlap, skip, are dilated, or reach beyond the end.
    large = [{"h": h, "w": w} for h in (1, 17, 40) for w in (1, 9, 130, 300)]
    for op in ("max_pool", "avg_pool"):
        for label, attrs in {
            "five": {"kernel": [5, 5], "pads": [2, 2, 2, 2]},
            "ceiled": {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": True},
            "apart": {"kernel": [2, 1], "strides": [3, 3], "pads": [1, 0, 1, 0]},
            "dilated": {"kernel": [3, 2], "dilations": [2, 3], "pads": [2, 1, 2, 2]},
        }.items():
            full = {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4, **attrs}
            if op == "avg_pool" and label == "dilated":
                full["count_include_pad"] = True
            s.open(f"{op}_{label}", [(2, 3, "h", "w")], lambda b, _, x, op=op, full=full: b.op("neg", b.op(op, x, **full)), large, tolerance=(1e-4, 1e-4))  # fmt: skip
        line = {"kernel": [3], "strides": [2], "dilations": [1], "pads": [1, 1]}
        for dtype in ("f16", "f64"):
            s.open(f"{op}_line_{dtype}", [(2, 3, "w")], lambda b, _, x, op=op: b.op(op, x, **line), [{"w": w} for w in (1, 7, 700, 1300)], dtype, tolerance=(1e-2, 1e-2))  # fmt: skip
        apart = {"kernel": [2], "strides": [9], "dilations": [1], "pads": [0, 1]}
        s.open(f"{op}_far_apart", [(2, 3, "w")], lambda b, _, x, op=op: b.op(op, x, **apart), [{"w": w} for w in (1, 9, 700)], tolerance=(1e-4, 1e-4))  # fmt: skip
        deep = {"kernel": [2, 2, 3], "strides": [1, 2, 1], "dilations": [1] * 3, "pads": [1, 0, 1, 0, 1, 1]}
        s.open(f"{op}_deep", [(1, 2, "n", "h", "w")], lambda b, _, x, op=op: b.op(op, x, **deep), [{"n": n, "h": h, "w": 21} for n in (1, 4) for h in (2, 19)], tolerance=(1e-4, 1e-4))  # fmt: skip
    s.open("max_pool_special", [(1, 1, "h", "w")], lambda b, _, x: b.op("max_pool", x, kernel=[2, 2], strides=[1, 1], dilations=[1, 1], pads=[1, 1, 0, 0]),
           [{"h": 4, "w": 40}], data=lambda _: [np.resize(np.float32([np.nan, -np.inf, -3, np.inf, -1, -np.inf, 0.5]), (1, 1, 4, 40))])  # fmt: skip
    s.check()
