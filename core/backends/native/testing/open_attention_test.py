"""Attention with open dimensions as one kernel: every form of scale, mask and layout, each compiled once and run at many
sizes, against the NumPy evaluator on a module of those sizes.

.venv/bin/python -m pytest core/backends/native/testing/open_attention_test.py
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from open_dims_test import OpenOps

TOLERANCE = {"f32": (1e-4, 2e-5), "f64": (1e-10, 1e-10), "f16": (1e-2, 1e-2), "bf16": (5e-2, 5e-2)}
# Around vectors' and tiles' widths, of one block of rows and of several; no rows, and no keys.
SIZES = [
    (1, 1),
    (1, 5),
    (3, 16),
    (5, 130),
    (8, 3),
    (9, 40),
    (16, 16),
    (17, 7),
    (20, 40),
    (33, 65),
    (64, 64),
    (131, 97),
    (7, 300),
]
NOTHING = [(0, 3), (0, 0), (3, 0)]


@pytest.fixture
def s():
    return OpenOps()


def scaled(b, x, factor, dtype, op="mul"):
    return b.op(op, x, b.literal(factor, dtype))


def attention(mask="", scale="scores", heads_joined=True, dtype="f32"):
    """Of q [batch, n, heads, size], k and v [batch, m, heads, size], and perhaps a mask."""

    def make(b, lookup, q, k, v, *rest):
        q, k, v = (b.op("transpose", x, perm=[0, 2, 1, 3]) for x in (q, k, v))
        if scale in ("q", "both"):
            q = scaled(b, q, 0.3, dtype)
        if scale in ("k", "both"):
            k = scaled(b, k, 0.7, dtype)
        scores = b.op("matmul", q, k, transpose_b=True)
        if scale in ("scores", "div"):
            scores = scaled(b, scores, 0.25 if scale == "scores" else 4.0, dtype, "mul" if scale == "scores" else "div")
        lowest = b.literal(-1e4 if dtype == "f16" else -np.inf if mask == "nan_to_zero" else -3e38, dtype)
        if mask.startswith("add"):
            scores = b.op("add", scores, rest[0])
        if mask in ("where", "nan_to_zero"):
            scores = b.op("where", rest[0], scores, lowest)
        weights = b.op("softmax", scores, axis=3)
        if mask == "nan_to_zero":
            weights = b.op("where", b.op("isnan", weights), b.literal(0, dtype), weights)
        if mask == "at_least":
            weights = b.op("maximum", weights, b.literal(0.02, dtype))
        context = b.op("matmul", weights, v)
        return b.op("transpose", context, perm=[0, 2, 1, 3]) if heads_joined else context

    return make


def shapes(batch, heads, size, value_size=None, mask=None):
    q, k, v = (batch, "n", heads, size), (batch, "m", heads, size), (batch, "m", heads, value_size or size)
    return [q, k, v, *([mask] if mask else [])]


def add(s, label, of, make, pairs=SIZES, dtype="f32", data=None):
    tolerance = TOLERANCE[dtype if isinstance(dtype, str) else dtype[0]]
    s.open(label, of, make, [{"n": n, "m": m} for n, m in pairs], dtype, tolerance, low=-2, high=2, data=data)


def test_scales(s):
    for scale in ("", "scores", "div", "q", "k", "both"):
        for heads in (2, 9):  # few are taken apart for threads
            add(s, f"{scale}_{heads}", shapes(1, heads, 16), attention(scale=scale), SIZES + NOTHING)
    s.check()


def test_masks(s):
    add(s, "add", shapes(2, 3, 16, mask=(1, 1, "n", "m")), attention("add"))
    add(s, "add_keys", shapes(2, 5, 16, mask=(2, 1, 1, "m")), attention("add_keys"))
    add(s, "add_all", shapes(2, 3, 16, mask=(2, 3, "n", "m")), attention("add_all"))
    add(s, "at_least", shapes(2, 3, 16), attention("at_least"))

    def some(lookup, heads):
        """Of the first query no key is seen."""
        q, k, v = (s.data("f32", (1, lookup(e), heads, 16), -2, 2) for e in "nmm")
        seen = s.random.random((1, 1, lookup("n"), lookup("m"))) < 0.7
        seen[:, :, :1] = False
        return [q, k, v, seen]

    types = ["f32", "f32", "f32", "bool"]
    for heads in (2, 8):
        masked = shapes(1, heads, 16, mask=(1, 1, "n", "m"))
        add(s, f"where_{heads}", masked, attention("where"), dtype=types, data=lambda lookup, h=heads: some(lookup, h))
        add(s, f"nan_{heads}", masked, attention("nan_to_zero"), dtype=types, data=lambda lookup, h=heads: some(lookup, h))  # fmt: skip
    s.check()


def test_what_no_row_sees(s):
    """Behind the last key that a mask lets through nothing is computed; causal, as much as a batch element has, and any
    number a row, some rows none."""
    pairs = [(1, 128), (1, 515), (3, 129), (4, 160), (7, 200), (8, 333), (9, 131), (20, 40), (30, 256), (140, 301)]

    def mask(kind, batch, n, m):
        key = np.arange(m)
        if kind == "causal":
            return (key <= np.arange(n)[:, None] + (m - n) // 2)[None, None]
        if kind == "filled":
            return key < s.random.integers(1, m, (batch, 1, 1, 1))
        return (key < s.random.integers(-m // 3, m, (batch, 1, n, 1))) & (s.random.random(m) < 0.7)

    def data(kind, heads, lookup):
        q, k, v = (s.data("f32", (2, lookup(e), heads, 16), -2, 2) for e in "nmm")
        return [q, k, v, mask(kind, 2, lookup("n"), lookup("m"))]

    for kind, of in [("causal", (1, 1, "n", "m")), ("filled", (2, 1, 1, "m")), ("rows", (2, 1, "n", "m"))]:
        for heads, form in [(2, "where"), (5, "where"), (2, "nan_to_zero"), (4, "nan_to_zero")]:
            add(s, f"{kind}_{heads}_{form}", shapes(2, heads, 16, mask=of), attention(form), pairs,
                ["f32", "f32", "f32", "bool"], lambda lookup, k=kind, h=heads: data(k, h, lookup))  # fmt: skip
    s.check()


def test_heads(s):
    for size in (1, 5, 24, 40, 64, 80, 129):
        add(s, f"size_{size}", shapes(1, 8, size), attention())
    add(s, "large", shapes(1, 2, 512), attention(), SIZES[:6])
    add(s, "values", shapes(1, 9, 16, 52), attention())
    add(s, "fewer_values", shapes(1, 2, 52, 16), attention())
    add(s, "not_joined", shapes(2, 3, 24), attention(heads_joined=False))
    add(s, "one_axis", [("n", 40), ("m", 40), ("m", 40)], lambda b, _, q, k, v: b.op("matmul", b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=1), v))  # fmt: skip
    s.check()


def test_open_batches_and_known_rows_or_keys(s):
    pairs = [{"n": n, "m": m, "b": b} for n, m in [(1, 1), (9, 40), (33, 65), (3, 0)] for b in (0, 1, 3)]
    s.open("batch", shapes("b", 2, 16, mask=("b", 1, 1, "m")), attention("add"), pairs, tolerance=TOLERANCE["f32"])
    s.open("only_batch", [("b", 20, 2, 16), ("b", 33, 2, 16), ("b", 33, 2, 16)], attention(), pairs, tolerance=TOLERANCE["f32"])  # fmt: skip
    for rows, heads in ((50, 2), (5, 2), (1, 9), (7, 12), (12, 8)):
        s.open(f"rows_known_{rows}_{heads}", [(1, rows, heads, 16), (1, "m", heads, 16), (1, "m", heads, 16)], attention(), pairs, tolerance=TOLERANCE["f32"])  # fmt: skip
    s.open("keys_known", [(1, "n", 2, 16), (1, 77, 2, 16), (1, 77, 2, 16)], attention(), pairs, tolerance=TOLERANCE["f32"])  # fmt: skip
    s.open("heads_open", [(1, "n", "b", 16), (1, "m", "b", 16), (1, "m", "b", 16)], attention(), pairs, tolerance=TOLERANCE["f32"])  # fmt: skip
    s.check()


def test_heads_that_share_keys(s):
    """Grouped queries: k and v [batch, heads, 1, m, size], of which each serves a group of q's."""

    def grouped(b, _, q, k, v, *mask):
        scores = b.op("matmul", q, k, transpose_b=True)
        if mask:
            scores = b.op("add", scores, mask[0])
        return b.op("matmul", b.op("softmax", scores, axis=4), v)

    for heads, group in ((3, 2), (4, 5), (4, 8), (2, 12)):
        of = [(2, heads, group, "n", 24), (2, heads, 1, "m", 24), (2, heads, 1, "m", 24)]
        add(s, f"group_{group}", of, grouped)
        add(s, f"masked_{group}", [*of, (1, 1, 1, "n", "m")], grouped)
    s.check()


def test_many_keys(s):
    """More than a tile's scores have room for on the stack; and several blocks of what L1 holds."""
    pairs = [(1, 9000), (7, 33000), (9, 5000), (50, 2100)]
    add(s, "far", shapes(1, 1, 4, 8, mask=(1, 1, 1, "m")), attention("add_keys"), pairs)
    add(s, "far_of_many", shapes(1, 8, 4, 8, mask=(1, 1, 1, "m")), attention("add_keys"), pairs)
    s.check()


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_types(s, dtype):
    for mask in ("", "add"):
        of = shapes(2, 3, 24, mask=(1, 1, "n", "m") if mask else None)
        add(s, mask or "plain", of, attention(mask, "both", dtype=dtype), dtype=dtype)
    s.check()


def test_narrow_keys_and_values_of_f32(s):
    """As 16-bit caches are read: k and v are made f32 in front of what moves them."""

    def narrow(b, lookup, q, k, v, mask):
        return attention("add")(b, lookup, q, b.op("cast", k, dtype="f32"), b.op("cast", v, dtype="f32"), mask)

    for dtype in ("bf16", "f16"):
        for heads in (2, 9):
            of = shapes(2, heads, 24, mask=(1, 1, "n", "m"))
            add(s, f"{dtype}_{heads}", of, narrow, dtype=["f32", dtype, dtype, "f32"])
    s.check()


def test_masks_of_other_types(s):
    """As exporters write them: from i64, in f32, for all heads."""

    def make(b, lookup, q, k, v, seen):
        bias = b.op("mul", b.op("sub", b.literal(1, "f32"), b.op("cast", seen, dtype="f32")), b.literal(-1e4, "f32"))
        return attention("add")(b, lookup, q, k, v, b.op("reshape", bias, shape=[2, 1, 1, -1]))

    def data(lookup):
        qkv = [s.data("f32", (2, lookup(e), 3, 16), -2, 2) for e in "nmm"]
        return [*qkv, (s.random.random((2, lookup("m"))) < 0.7).astype(np.int64)]

    add(s, "ids", [*shapes(2, 3, 16), (2, "m")], make, dtype=["f32", "f32", "f32", "i64"], data=data)
    s.check()
