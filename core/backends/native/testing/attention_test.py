"""Attention as one kernel: every form of scale, mask and layout, odd sizes, against the NumPy evaluator.

.venv/bin/python -m pytest core/backends/native/testing/attention_test.py
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import runnable
from ops_test import NUMPY, TARGETS, Ops

BRAINS = runnable([("llvm -mcpu=sapphirerapids", 2), ("llvm -mcpu=cooperlake", 1)])  # which multiply bf16
TOLERANCE = {"f32": (1e-4, 2e-5), "f64": (1e-10, 1e-10), "f16": (1e-2, 1e-2), "bf16": (5e-2, 5e-2)}


@dataclasses.dataclass
class Form:
    """What exporters vary. mask: "" | add | add_keys | where | where_scores | at_least | add_nan_to_zero."""

    batch: int = 1
    heads: int = 2
    rows: int = 9
    keys: int = 9
    size: int = 16
    value_size: int = 0  # 0: size
    scale: str = "scores"  # "" | scores | div | q | k | both
    mask: str = ""
    join: bool = True  # heads joined behind the context
    joint: str = ""  # q, k, v of one product: "" | split | slice
    dtype: str = ""  # that of the test


class Attentions(Ops):
    def __init__(self, dtype: str):
        super().__init__()
        self.dtype = dtype
        self.tolerance = TOLERANCE[dtype]

    def check(self):
        super().check(BRAINS if self.dtype == "bf16" and BRAINS else TARGETS)

    def floats(self, shape, low=-2, high=2):
        return self.data(self.dtype, shape, low, high)


@pytest.fixture(params=["f32", "bf16"])
def s(request):
    return Attentions(request.param)


def inputs_of(s, form: Form) -> list[np.ndarray]:
    value_size = form.value_size or form.size
    if form.joint:
        return [s.data(form.dtype, (form.batch, form.rows, 3 * form.heads * form.size), -2, 2)]
    lengths = [(form.rows, form.size), (form.keys, form.size), (form.keys, value_size)]
    return [s.data(form.dtype, (form.batch, n, form.heads * d), -2, 2) for n, d in lengths]


def mask_of(s, form: Form) -> list[np.ndarray]:
    if form.mask.startswith("seen"):
        return [seen_keys(s, form)]
    shape = (form.batch, 1, 1, form.keys) if form.mask == "add_keys" else (1, 1, form.rows, form.keys)
    if form.mask.startswith("add"):
        return [np.where(s.random.random(shape) < 0.3, -1e4, s.random.random(shape)).astype(NUMPY[form.dtype])]
    if form.mask.startswith("where"):
        return [np.tril(np.ones(shape, np.bool_))]
    return []


def seen_keys(s, form: Form) -> np.ndarray:
    """Masks whose rows see few keys. seen_causal: each one more; seen_filled: all those of a batch element the same,
    less than there are; seen_rows: any number, some rows none."""
    key = np.arange(form.keys)
    if form.mask.startswith("seen_causal"):
        seen = key <= np.arange(form.rows)[:, None] + (form.keys - form.rows) // 2
    elif form.mask.startswith("seen_filled"):
        seen = key < s.random.integers(1, form.keys, (form.batch, 1, 1, 1))
    else:
        seen = key < s.random.integers(-form.keys // 3, form.keys, (form.batch, 1, form.rows, 1))
        seen = seen & (s.random.random(form.keys) < 0.7)
    seen = seen[(None,) * (4 - seen.ndim)]
    lowest = -np.inf if "inf" in form.mask else -3e38
    return seen if "where" in form.mask else np.where(seen, 0, lowest).astype(NUMPY[form.dtype])


def heads(b, form: Form, x, length: int, size: int):
    split = b.op("reshape", x, shape=[form.batch, length, form.heads, size])
    return b.op("transpose", split, perm=[0, 2, 1, 3])


def qkv(b, form: Form, params):
    n, d = form.rows, form.size
    if form.joint == "split":
        pieces = b.op("split", params[0], axis=2, sizes=[form.heads * d] * 3)
        return [heads(b, form, p, n, d) for p in pieces]
    if form.joint == "slice":
        joint = b.op("reshape", params[0], shape=[form.batch, n, 3, form.heads, d])
        joint = b.op("transpose", joint, perm=[2, 0, 3, 1, 4])
        rest = [form.batch, form.heads, n, d]
        pieces = [b.op("slice", joint, begins=[i, 0, 0, 0, 0], ends=[i + 1, *rest], steps=[1] * 5) for i in range(3)]
        return [b.op("reshape", p, shape=rest) for p in pieces]
    sizes = (d, d, form.value_size or d)
    return [heads(b, form, p, n, w) for p, n, w in zip(params, (n, form.keys, form.keys), sizes)]


def attention(b, form: Form, params):
    def scaled(x, factor, op="mul"):
        return b.op(op, x, b.literal(factor, form.dtype))

    q, k, v = qkv(b, form, params)
    factor = form.size**-0.5
    if form.scale in ("q", "both"):
        q = scaled(q, factor if form.scale == "q" else factor**0.5)
    if form.scale in ("k", "both"):
        k = scaled(k, factor if form.scale == "k" else factor**0.5)
    scores = b.op("matmul", q, k, transpose_b=True)
    if form.scale == "scores":
        scores = scaled(scores, factor)
    if form.scale == "div":
        scores = scaled(scores, 1 / factor, "div")
    lowest = b.literal(-1e4 if form.dtype == "f16" else -3e38, form.dtype)
    if form.mask.startswith("add") or (form.mask.startswith("seen") and "where" not in form.mask):
        scores = b.op("add", params[-1], scores)
    elif form.mask.startswith("seen"):
        scores = b.op("where", params[-1], scores, b.literal(-np.inf if "inf" in form.mask else -3e38, form.dtype))
    if form.mask == "where":
        scores = b.op("where", params[-1], scores, lowest)
    if form.mask == "where_scores":
        scores = b.op("where", b.op("logical_not", params[-1]), lowest, scores)
    weights = b.op("softmax", scores, axis=3)
    if form.mask == "at_least" or "at_least" in form.mask:
        weights = b.op("maximum", weights, b.literal(0.02, form.dtype))
    if "rows_zero" in form.mask:  # of those that see nothing
        seen = b.op("reduce_max", b.op("cast", params[-1], dtype="f32"), axes=[3], keepdims=True)
        seen = b.op("greater", seen, b.literal(0, "f32"))
        weights = b.op("where", seen, weights, b.literal(0, form.dtype))
    if form.mask == "add_nan_to_zero" or "guarded" in form.mask:
        weights = b.op("where", b.op("isnan", weights), b.literal(0, form.dtype), weights)
    context = b.op("matmul", weights, v)
    if not form.join:
        return context
    context = b.op("transpose", context, perm=[0, 2, 1, 3])
    width = form.heads * (form.value_size or form.size)
    return b.op("reshape", context, shape=[form.batch, form.rows, width])


def add(s, form: Form, special=None):
    form = dataclasses.replace(form, dtype=form.dtype or s.dtype)
    arrays = inputs_of(s, form) + mask_of(s, form)
    for array, at, value in special or []:
        arrays[array][at] = value
    label = "_".join(str(v) for v in dataclasses.astuple(form))
    s.build(label, arrays, lambda b, *p: attention(b, form, p), TOLERANCE[form.dtype])


@pytest.mark.parametrize("scale", ["", "scores", "div", "q", "k", "both"])
def test_scales(s, scale):
    add(s, Form(scale=scale))
    add(s, Form(scale=scale, rows=37, keys=21, mask="add"))
    s.check()


@pytest.mark.parametrize("mask", ["add", "add_keys", "where", "where_scores", "at_least", "add_nan_to_zero"])
def test_masks(s, mask):
    for keys in (1, 3, 16, 33, 70):
        add(s, Form(batch=2, heads=3, rows=19, keys=keys, mask=mask))
    s.check()


@pytest.mark.parametrize("mask", [
    "seen_causal_where", "seen_causal_inf", "seen_filled", "seen_filled_where_inf", "seen_rows", "seen_rows_where_inf_guarded",
    "seen_rows_zero_where_inf", "seen_rows_at_least",
])  # fmt: skip
def test_what_no_row_sees(s, mask):
    """Behind the last key that a mask lets through nothing is computed; as much as a row sees, rows that see none."""
    for rows, keys, heads in [
        (1, 256, 9),
        (1, 515, 2),
        (4, 131, 3),
        (3, 400, 9),
        (7, 200, 2),
        (19, 160, 3),
        (150, 301, 2),
    ]:
        add(s, Form(batch=2, rows=rows, keys=keys, heads=heads, size=24, mask=mask, scale="scores"))
    s.check()


def test_sizes(s):
    for size in (1, 2, 5, 16, 40, 64, 80, 129, 256):
        add(s, Form(rows=23, keys=31, size=size))
    for rows, keys in [(1, 1), (1, 77), (2, 130), (16, 40), (17, 40), (64, 64), (197, 197), (101, 5), (128, 600)]:
        add(s, Form(rows=rows, keys=keys, size=24, mask="add"))
    add(s, Form(rows=50, keys=60, size=16, value_size=48))
    add(s, Form(rows=50, keys=2100, size=64, heads=2))  # packed by a kernel of its own
    add(s, Form(rows=3, keys=2100, size=64, heads=2))
    for rows in (1, 2, 5, 8, 9, 16):  # meet keys and values where they lie
        add(s, Form(rows=rows, keys=77, size=37, heads=9, mask="add"))
        add(s, Form(rows=rows, keys=515, size=104, heads=3, mask="where", value_size=77))  # threads share a head
    add(s, Form(rows=20, keys=8000, size=8, heads=1))
    s.check()


def test_a_mask_that_is_read_many_times(s):
    """Each time by two arguments of the next operator: looking at it takes no longer than it is long."""

    def doubled(b, q, k, v, mask):
        for _ in range(40):
            mask = b.op("add", mask, mask)
        scores = b.op("add", b.op("matmul", q, k, transpose_b=True), mask)
        return b.op("matmul", b.op("softmax", scores, axis=3), v)

    shapes = [(1, 2, 3, 8), (1, 2, 140, 8), (1, 2, 140, 8)]
    s.build("doubled", [*map(s.floats, shapes), np.zeros((1, 2, 3, 140), NUMPY[s.dtype])], doubled, s.tolerance)
    s.check()


def test_many_keys(s):
    """More than the stack has room for the scores of."""
    for rows, keys, heads in [(1, 8200, 9), (4, 12001, 2), (5, 8224, 8), (40, 9001, 2)]:
        for mask in ("add", "seen_filled", "seen_causal_where_inf"):
            add(s, Form(rows=rows, keys=keys, heads=heads, mask=mask, scale="scores"))
    s.check()


def test_layouts(s):
    for joint in ("split", "slice"):
        for scale in ("q", "scores"):
            add(s, Form(rows=35, keys=35, heads=3, joint=joint, scale=scale, mask="add"))
    add(s, Form(join=False, rows=21, batch=2))
    s.check()


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_types(dtype):
    s = Ops()
    for mask in ("", "add", "where"):
        add(s, Form(dtype=dtype, rows=37, keys=29, size=24, mask=mask, scale="both"))
    s.check()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_narrow_keys_and_values_of_f32(dtype):
    """As 16-bit caches are read: k and v made f32 in front of, between or behind what moves them, or used elsewhere too."""
    s = Ops()

    def wide(b, x):
        return b.op("cast", x, dtype="f32")

    def split(b, x):
        return b.op("transpose", x, perm=[0, 2, 1, 3])

    def context(b, q, k, v, mask):
        scores = b.op("mul", b.op("matmul", q, k, transpose_b=True), b.literal(0.25, "f32"))
        return b.op("matmul", b.op("softmax", b.op("add", scores, mask), axis=3), v)

    ways = {
        "at_once": lambda b, q, k, v, m: context(b, q, split(b, wide(b, k)), wide(b, split(b, v)), m),
        "between": lambda b, q, k, v, m: context(
            b, q, split(b, wide(b, b.op("slice", k, begins=[0, 0, 0, 0], ends=[1, 99999, 99, 99], steps=[1] * 4))),
            split(b, b.op("reshape", wide(b, v), shape=list(v.shape))), m,
        ),
        "scaled": lambda b, q, k, v, m: context(
            b, q, b.op("mul", split(b, wide(b, k)), b.literal(0.5, "f32")), split(b, wide(b, v)), m
        ),
        "used_twice": lambda b, q, k, v, m: _twice(b, context, q, split(b, wide(b, k)), split(b, wide(b, v)), m),
    }  # fmt: skip
    for rows, keys, heads, size in [
        (1, 200, 9, 16),
        (4, 131, 2, 24),
        (7, 9000, 2, 16),
        (12, 40, 3, 16),
        (40, 150, 2, 37),
    ]:
        arrays = [
            s.data("f32", (1, heads, rows, size), -2, 2), s.data(dtype, (1, keys, heads, size), -2, 2),
            s.data(dtype, (1, keys, heads, size), -2, 2), s.data("f32", (1, 1, rows, keys)),
        ]  # fmt: skip
        for name, make in ways.items():
            s.build(f"{name}_{rows}_{keys}_{dtype}", arrays, make, TOLERANCE["f32"])
    s.check()


def _twice(b, context, q, k, v, mask):
    """k and v, made f32, are results as well."""
    return [context(b, q, k, v, mask), b.op("exp", k), b.op("neg", v)]


@pytest.mark.skipif(not BRAINS, reason="this processor has no AVX512-BF16")
def test_products_of_bf16_between_f32():
    """As mixed precision leaves it: scale, mask and softmax are f32."""
    s = Attentions("bf16")

    def mixed(b, q, k, v, mask):
        scores = b.op("cast", b.op("matmul", q, k, transpose_b=True), dtype="f32")
        scores = b.op("add", b.op("mul", scores, b.literal(0.25, "f32")), mask)
        weights = b.op("cast", b.op("softmax", scores, axis=3), dtype="bf16")
        return b.op("cast", b.op("matmul", weights, v), dtype="f32")

    for rows, keys, size, value_size in ((40, 40, 16, 16), (17, 33, 24, 40), (197, 65, 64, 64), (32, 1024, 64, 16)):
        shapes = [(2, 3, rows, size), (2, 3, keys, size), (2, 3, keys, value_size)]
        mask = s.data("f32", (2, 1, rows, keys))
        s.build(f"{rows}_{keys}", [*map(s.floats, shapes), mask], mixed, s.tolerance)
    s.check()


def test_special_values(s):
    """A row of which all is masked by -Inf is NaN, as softmax defines it, unless NaN is made 0; so is what NaN or Inf gets
    into."""
    inf, nan = np.inf, np.nan
    form = Form(rows=21, keys=37, mask="add")
    add(s, form, [(3, np.s_[0, 0, 4, :], -inf), (3, np.s_[0, 0, 5, 36], -inf), (3, np.s_[0, 0, 6, 2], inf)])
    add(
        s,
        dataclasses.replace(form, mask="add_nan_to_zero"),
        [(3, np.s_[0, 0, 4, :], -inf), (3, np.s_[0, 0, 5, 36], -inf)],
    )
    add(s, dataclasses.replace(form, mask="add_nan_to_zero", rows=2, scale="both"), [(3, np.s_[0, 0, 1, :], -inf)])
    add(s, form, [(0, np.s_[0, 3, 0], nan), (2, np.s_[0, 36, 1], inf)])
    add(s, form, [(1, np.s_[0, 36, 0], nan), (1, np.s_[0, 2, 20], -inf)])
    add(s, form, [(0, np.s_[0, 3, :], 1e30), (1, np.s_[0, 30, :], 1e9)])
    s.check()


def test_what_is_no_attention(s):
    """Near misses go the ordinary way."""
    q, k, v = (s.floats((2, 29, 16), -1, 1) for _ in range(3))

    def scores_leave(b, q, k, v):
        scores = b.op("matmul", q, k, transpose_b=True)
        return scores, b.op("matmul", b.op("softmax", scores, axis=2), v)

    def weights_leave(b, q, k, v):
        weights = b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=2)
        return b.op("matmul", weights, v), weights

    def other_axis(b, q, k, v):
        return b.op("matmul", b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=1), v)

    def on_the_right(b, q, k, v):
        return b.op("matmul", v, b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=2), transpose_a=True)

    def transposed(b, q, k, v):
        return b.op("matmul", b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=2), v, transpose_a=True)

    def broadcast_scores(b, q, k, v, mask):
        scores = b.op("add", b.op("matmul", q, k, transpose_b=True), mask)
        return b.op("matmul", b.op("softmax", scores, axis=3), v)

    def scores_squared(b, q, k, v):
        scores = b.op("matmul", q, k, transpose_b=True)
        return b.op("matmul", b.op("softmax", b.op("mul", scores, scores), axis=2), v)

    makes = [scores_leave, weights_leave, other_axis, on_the_right, transposed, scores_squared]
    for make in makes:
        s.build(make.__name__, [q, k, v], make, s.tolerance)
    mask = s.floats((3, 1, 1, 29))
    s.build("broadcast_scores", [q, k, v, mask], broadcast_scores, s.tolerance)
    s.check()


def test_tails_and_neighbours(s):
    """Pointwise work behind the context goes into its kernel; k may be v; k and v may be shared by all heads."""
    q, k = s.floats((2, 4, 19, 16), -1, 1), s.floats((2, 4, 23, 16), -1, 1)

    def tail(b, q, k, r):
        weights = b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=3)
        return b.op("add", b.op("gelu", b.op("matmul", weights, k)), r)

    s.build("tail", [q, k, s.floats((2, 4, 19, 16))], tail, s.tolerance)

    def shared(b, q, k):
        k = b.op("expand", k, shape=[2, 4, 23, 16])
        weights = b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=3)
        return b.op("matmul", weights, k)

    s.build("shared", [q, k[:, :1]], shared, s.tolerance)

    def one_matrix(b, q, k):
        return b.op("matmul", b.op("softmax", b.op("matmul", q, k, transpose_b=True), axis=1), k)

    s.build("one_matrix", [q[0, 0], k[0, 0]], one_matrix, s.tolerance)

    def computed(b, q, k):  # operands that are computed, not moved
        q, k = b.op("tanh", q), b.op("transpose", b.op("tanh", k), perm=[0, 1, 3, 2])
        weights = b.op("softmax", b.op("matmul", q, k), axis=3)
        return b.op("matmul", weights, b.op("transpose", k, perm=[0, 1, 3, 2]))

    s.build("computed", [q, k], computed, s.tolerance)
    s.check()


def grouped(size: int, join: bool = True):
    """Heads are [shared, group]."""

    def make(b, q, k, v, *masks):
        scores = b.op("mul", b.op("matmul", q, k, transpose_b=True), b.literal(size**-0.5, "f32"))
        if masks:
            scores = b.op("add", scores, b.op("cast", masks[0], dtype="f32"))
        context = b.op("matmul", b.op("softmax", scores, axis=4), v)
        return b.op("transpose", context, perm=[0, 3, 1, 2, 4]) if join else context

    return make


def test_heads_that_share_keys_and_values():
    """Are rows of one: few or many, in one block of rows or several, the last of a head's beside the next one's first."""
    s = Attentions("f32")
    for batch, shared, group, rows, keys, size, mask, join in [
        (1, 2, 3, 1, 37, 16, (1, 1, 1, 1, 37), False), (2, 3, 4, 2, 21, 40, (2, 1, 1, 2, 21), True),
        (1, 1, 12, 1, 77, 64, (1, 1, 12, 1, 77), True), (2, 2, 3, 19, 33, 16, (1, 2, 3, 1, 33), True),
        (1, 2, 7, 29, 70, 24, (1, 1, 1, 29, 70), True), (1, 1, 4, 130, 200, 64, (), False),
        (2, 1, 5, 3, 515, 104, (2, 1, 5, 3, 1), True), (1, 3, 1, 9, 11, 8, (), True), (3, 1, 2, 1, 5, 129, (), False),
    ]:  # fmt: skip
        q = s.floats((batch, shared, group, rows, size))
        k, v = (s.floats((batch, shared, 1, keys, size)) for _ in range(2))
        arrays = [q, k, v, *([s.floats(mask)] if mask else [])]
        label = f"grouped_{batch}_{shared}_{group}_{rows}_{keys}"
        s.build(label, arrays, grouped(size, join), s.tolerance)
    s.check()


def test_groups_whose_values_are_not_shared():
    """Nor their keys: such heads stay heads; two axes of heads may share."""
    s = Attentions("f32")
    for k_heads, v_heads in [((2, 1), (2, 3)), ((2, 3), (2, 1)), ((1, 1), (1, 1)), ((1, 3), (1, 3)), ((1, 1), (2, 1))]:
        arrays = [s.floats((2, 2, 3, 11, 16)), s.floats((2, *k_heads, 19, 16)), s.floats((2, *v_heads, 19, 16))]
        s.build(f"{k_heads}_{v_heads}", arrays, grouped(16), s.tolerance)
    s.build("one_for_all", [s.floats((2, 2, 3, 11, 16)), s.floats((19, 16)), s.floats((19, 16))], grouped(16), s.tolerance)  # fmt: skip
    s.check()
