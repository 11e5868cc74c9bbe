"""dims: the normal form of extents, the same to the letter as core/ir/dim_expr_test.cc's; values; limits."""

import itertools
import random

import pytest

from inlay.ir import dims


@pytest.mark.parametrize(
    ("written", "normal"),
    [  # of dim_expr_test.cc
        ("batch * 4", "4*batch"),
        ("unk__12", "unk__12"),
        ("((", "(("),
        ("(h - 1)/2 + 1", "((h+1)/2)"),
        ("(((-1+h)//2)+1)*2", "2*((h+1)/2)"),
        ("(a+b)*c", "a*c+b*c"),
        ("slice((1+seq),-1,5,2)", "slice(seq+1,-1,5,2)"),
        ("((h+1)/2)", "((h+1)/2)"),
        ("slice(((h)/2)+1,0,-1,1)", "slice(((h)/2)+1,0,-1,1)"),
        ("pool(h,3,2,0,0)", "pool(h,3,2,0,0)"),
        ("2*a*b-c-1", "2*a*b-c-1"),
        ("floor(h/2)", "floor(h/2)"),
        ("a/b", "a/b"),
        ("batch size", "batch size"),
        ("(4*h)/4", "h"),
        ("(8*h-1)/2+1", "4*h"),
        ("(h-1)/2", "((h+1)/2)-1"),
        ("(3*h+2)/2", "((h)/2)+h+1"),
        ("(-h)/2", "((h)/2)-h"),
        ("(2*h+1)/4", "((h)/2)"),
        ("(4*h+6*w+3)/8", "((2*h+3*w+1)/4)"),
        ("(batch size * 2 + 5) / 3", "((2*batch size+2)/3)+1"),
        ("h/2/2", "((h)/4)"),
        ("((h-1)/2)/2+1", "((h+3)/4)"),
        ("((((h-1)/2+1-1)/2+1-1)/2+1-1)/2+1", "((h+15)/16)"),
        ("(w+h/2)/2", "((h+2*w)/4)"),
        ("(h+h/2)/3", "((h)/2)"),
        ("(h/2+h/3)/2", "((((h)/2)+((h)/3))/2)"),
        ("(h/2*w)/2", "((((h)/2)*w)/2)"),
        ("(h/4611686018427387904)/2", "((((h)/4611686018427387904))/2)"),
        # Names that are no expressions.
        ("", ""),
        ("h w.1", "h w.1"),
        ("slice(seq,1)", "slice(seq,1)"),
        ("pool(seq,3,0,0,0)", "pool(seq,3,0,0,0)"),
        ("99999999999999999999", "99999999999999999999"),
        ("h/0", "h/0"),
    ],
)
def test_normal_form(written, normal):
    assert dims.canonical(written) == normal
    assert dims.canonical(normal) == normal


def test_numbers():
    assert dims.canonical("2*3-7") == -1
    assert dims.canonical("h-h") == 0
    assert dims.canonical("2*batch+((h+1)/2)", {"batch": 3, "h": 4}) == 8
    assert dims.canonical("pool(h,2,2,0,1)+slice(h,-3,100,1)", {"h": 7}) == 7
    assert dims.canonical("past + 1", {"past": "8*h"}) == "8*h+1"
    assert dims.names_in("2*batch + slice(seq,0,5,2)/3") == ["batch", "seq"]
    assert dims.names_in("a/b") == ["a/b"]


def test_equal_derivations_are_equal():
    h = "height"
    for i in range(1, 6):  # ResNet's halvings: a 3x3 window with pads, or a 1x1 without
        wide, narrow = dims.window_extent(h, 3, 2, 1, 1), dims.window_extent(h, 1, 2, 0, 0)
        assert wide == narrow == f"((height+{2**i - 1})/{2**i})"
        h = wide
    assert dims.window_extent("8*h", 2, 2, 0, 0) == dims.window_extent("8*h", 3, 2, 1, 1) == "4*h"
    assert dims.window_extent("h", 3, 2, 0, 0, ceil_mode=True) == "((h)/2)"
    assert dims.window_extent("h", 2, 2, 0, 1, ceil_mode=True) == "pool(h,2,2,0,1)"
    assert dims.sub(dims.mul("a", "b"), dims.mul("b", "a")) == 0
    assert dims.floordiv("12*b*h", "4*b") == "3*h"
    assert dims.floordiv("b", "b") == 1


def test_windows_of_a_symbol_are_those_of_its_values():
    for window, stride, before, after, ceil in itertools.product(range(1, 6), range(1, 6), range(3), range(3), (0, 1)):
        made = dims.window_extent("h", window, stride, before, after, bool(ceil))
        for h in range(max(1, window - before - after), 20):
            want = dims.window_extent(h, window, stride, before, after, bool(ceil))
            assert dims.canonical(made, {"h": h}) == want, (made, window, stride, before, after, ceil, h)


@pytest.mark.parametrize(
    "dim,least,most", [("h", 0, None), ("3-2*h", None, 3), ("h-w", None, None), ("h*w+4", 4, None), (7, 7, 7)]
)
def test_bounds(dim, least, most):
    assert (dims.bound(dim), dims.bound(dim, upper=True)) == (least, most)


@pytest.mark.parametrize("divisor", ["b", "2*h", "h+1", "w", 0, -2])
def test_divisions_that_leave_a_rest(divisor):
    with pytest.raises(ValueError, match="divided"):
        dims.floordiv("h*w+1" if divisor != "h+1" else "h", divisor)


def test_random_expressions_keep_their_values():
    draw = random.Random(20)
    values = [{"a": 0, "b": 0}, {"a": 1, "b": 7}, {"a": 225, "b": 31}, {"a": 64, "b": 1000}]
    for _ in range(1000):
        dim = draw.choice("ab")
        direct = [v[dim] for v in values]
        for _ in range(draw.randint(1, 8)):
            kind, n, divisor, name = draw.randrange(5), draw.randint(-4, 4), draw.randint(1, 6), draw.choice("ab")
            if kind == 0:
                dim, direct = dims.add(dim, n), [d + n for d in direct]
            elif kind == 1:
                dim, direct = dims.add(dim, name), [d + v[name] for d, v in zip(direct, values)]
            elif kind == 2:
                dim, direct = dims.mul(dim, n), [d * n for d in direct]
            else:
                dim, direct = dims.floordiv(dim, divisor), [d // divisor for d in direct]
            assert [dims.canonical(str(dim), v) for v in values] == direct
        assert dims.canonical(str(dim)) == dim


def test_growth_has_limits():
    with pytest.raises(ValueError, match="more than 32 symbolic terms"):
        dims.product([dims.add(dims.add(f"a{i}", f"b{i}"), 1) for i in range(9)])
    with pytest.raises(ValueError, match="more than 1024 characters"):
        dims.product([f"{'long' * 20}{i}" for i in range(20)])
    with pytest.raises(ValueError, match="overflows 64 bits"):
        dims.mul("a", 2**63)
    extent: dims.Dim = "h"
    for _ in range(60):  # a deep network's
        extent = dims.add(dims.mul(dims.window_extent(extent, 3, 2, 1, 1), 2), 1)
    assert len(str(extent)) < 1024


def test_broadcast_says_what_helps():
    assert dims.broadcast(("h", 1), (1, "w")) == ("h", "w")
    with pytest.raises(ValueError, match=r"declare height as a multiple, e.g. shape={'height': '8\*n'}"):
        dims.broadcast_dim("2*((height)/2)", "height")
    with pytest.raises(ValueError, match="extents a and b do not broadcast$"):
        dims.broadcast_dim("a", "b")


@pytest.mark.parametrize(
    ("a", "b", "may"),
    [
        ("2*(h/2)", "h", True), ("(h+3)/4", "(h+1)/4", True), ("(h+3)/4", "2*((h+7)/8)", True),
        ("4*(h/2)+w/2", "2*h+(w+1)/2", True), ("h/2+h/3", "5*h/6", True), ("(h/2+w/2)/2", "(h+w)/4", True),
        ("8*(h/8)+7", "h", True), ("8*(h/8)+8", "h", False), ("8*(h/8)-1", "h", False), ("h/2+1", "(h+1)/2", True),
        ("h/2+2", "(h+1)/2", False), ("h", "h+1", False), ("h/2", "h", False), ("h/2", "w/2", False), ("h", "w", False),
        ("h/2*(h/2)*4", "h*h", False),  # what is left is no number: "h" is told to be declared as a multiple
        ("h/32", 7, False), ("h-4*(h/4)", 3, True), ("h-4*(h/4)", 4, False),
    ],
)  # fmt: skip
def test_extents_that_differ_by_rests(a, b, may):
    a, b = (dims.canonical(d) if isinstance(d, str) else d for d in (a, b))
    assert dims.differ_by_rests(a, b) == dims.differ_by_rests(b, a) == may


def test_what_is_equal_at_large_sizes_differs_by_rests():
    generator = random.Random(0)
    seen = set()
    for _ in range(1000):
        m, n, by = (generator.randint(2, 8) for _ in range(3))
        i, j = (generator.randint(-20, 20) for _ in range(2))
        a, b = (dims.mul(dims.floordiv(dims.add("h", at), d), d * by) for at, d in ((i, m), (j, n)))
        equal = any(at_size(a, h) == at_size(b, h) for h in range(1000, 1000 + m * n))
        if a != b:
            assert dims.differ_by_rests(a, b) or not equal, (a, b)
            seen.add((equal, dims.differ_by_rests(a, b)))
    assert {(True, True), (False, False)} <= seen


def at_size(dim, h):
    return dims.canonical(str(dim), {"h": h})


def test_ranges():
    """{symbol: (least, most)} of a module: test_ir_builder.py."""
    assert dims.ranges([]) == {}
    required = ["n-2", "-m+9", "-m+n", "((n)/2)-3", "n*n-4", "3*n-10", "-2*n+31", "n"]
    assert dims.ranges(required) == {"n": (4, 15), "m": (None, 9)}


@pytest.mark.parametrize(
    ("text", "left", "right"),
    [
        ("h-w", "h", "w"), ("-a-b+2*c*c+3", "a+b", "2*c*c+3"), ("((h+1)/8)-((h+5)/8)", "((h+1)/8)", "((h+5)/8)"),
        ("-2*((h)/2)+h-1", "2*((h)/2)+1", "h"), ("h-8", "h", "8"), ("h+w+3", "h+w+3", "0"), (f"-{2**63}*h", f"{2**63}*h", "0"),
        (0, "0", "0"), (-3, "3", "0"),
    ],
)  # fmt: skip
def test_sides(text, left, right):
    assert dims.sides(text) == (left, right)
    if str(2**63) not in left:
        assert dims.sides(dims.mul(text, -1)) == (left, right)


def test_slices():
    """As core/ir/ops_test.cc's."""
    end, first = 2**63 - 1, -(2**63)
    for of, begin, stop, step, wanted in [
        ("n", 1, end, 1, "n-1"), ("n", 0, -1, 1, "n-1"), ("n+4", 1, -3, 1, "n"), ("n", 1, end, 2, "((n)/2)"),
        ("2*n", 0, end, 2, "n"), ("n", -1, first, -1, "n"), ("n", 0, 1, 1, 1), ("n", -1, end, 1, 1),
        ("7*h", 0, 3, 1, 3), ("8*h-8*((h)/2)", -8, -2, 1, 6), ("h+1", 0, 3, 1, "slice(h+1,0,3,1)"),
        ("n", 0, 5, 1, "slice(n,0,5,1)"), ("n", -3, end, 1, f"slice(n,-3,{end},1)"),
        ("n", 2, end, 2, f"slice(n,2,{end},2)"), ("n", end, 0, -1, f"slice(n,{end},0,-1)"), (9, 7, first, -3, 3),
    ]:  # fmt: skip
        assert dims.slice_extent(of, begin, stop, step) == wanted
    assert dims.mod("h", 8) == "-8*((h)/8)+h" and dims.mod("8*h+3", 8) == 3 and dims.mod(-3, 8) == 5
