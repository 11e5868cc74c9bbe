"""Extents of shapes: an int, or the text of a symbolic expression ("batch", "2*batch+seq", "((h+1)/2)").

A text is a polynomial over names with integer coefficients, printed in the one normal form of core/ir/dim_expr.h: what
is derived here and by the server's inference is the same text, and equal derivations are equal texts. Divisions that
leave a rest, slices and poolings are names of their own that say what they are made from.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

Dim = int | str
Shape = tuple[Dim, ...]

# A product of names, sorted; () is 1. A polynomial gives each its coefficient, which is never 0.
_Names = tuple[str, ...]
_Polynomial = dict[_Names, int]

# core/ir/dim_expr.cc's: what a chain of operations can grow to.
_MAX_TERMS, _MAX_TEXT, _MAX_DEPTH = 32, 1024, 64
_SPACE = " \t\n\v\f\r"


# --- Polynomials and their texts --------------------------------------------------------------------------------------


def _add_term(p: _Polynomial, names: _Names, coefficient: int) -> None:
    total = p.pop(names, 0) + coefficient
    if not -(2**63) <= total < 2**63:
        raise ValueError("an extent overflows 64 bits")
    if total:
        p[names] = total
    if len(p) > _MAX_TERMS:
        raise ValueError(f"an extent has more than {_MAX_TERMS} symbolic terms; fix dimensions with shape=")


def _number(word: str) -> int | None:
    """None: it's a name, as what has more digits than an extent can."""
    return int(word) if re.fullmatch(r"\s*[0-9]+\s*", word, re.ASCII) and int(word) < 2**63 else None


def _split(text: str, separators: str) -> list[str]:
    """The parts between separators outside of brackets, and these: ["a", "-", "f(b-c)"]."""
    depth, parts = 0, [""]
    for c in text:
        depth += (c == "(") - (c == ")")
        if depth < 0:
            break
        if depth == 0 and c in separators:
            parts += [c, ""]
        else:
            parts[-1] += c
    if depth:
        raise ValueError(f"{text!r} has unbalanced brackets")
    return parts


def _read(text: str) -> _Polynomial:
    """Of a text in the normal form. Raises ValueError."""
    p: _Polynomial = {}
    sign = 1
    for i, term in enumerate(parts := _split(text, "+-")):
        if i % 2:
            sign = -1 if term == "-" else 1
        elif term or i or len(parts) == 1:  # there may be a sign before the first
            factors = _split(term, "*")[::2]
            if not all(factors):
                raise ValueError(f"{text!r} lacks an operand")
            numbers = [_number(f) for f in factors]
            names = tuple(sorted(f for f, n in zip(factors, numbers) if n is None))
            _add_term(p, names, sign * math.prod(n for n in numbers if n is not None))
    return p


@functools.lru_cache(maxsize=65536)
def _polynomial(dim: Dim) -> _Polynomial:
    """Not to be changed: it is shared."""
    if isinstance(dim, str):
        try:
            return _read(dim)
        except ValueError:
            return {(dim,): 1}
    p: _Polynomial = {}
    _add_term(p, (), int(dim))
    return p


def _terms(p: _Polynomial) -> list[tuple[_Names, int]]:
    """In the normal form's order: the number comes last."""
    return sorted(p.items(), key=lambda term: (not term[0], term[0]))


def _print(p: _Polynomial) -> str:
    text = ""
    for names, c in _terms(p):
        text += "-" if c < 0 else "+" if text else ""
        text += "*".join([str(abs(c))] * (abs(c) != 1 or not names) + list(names))
    return text


def _dim(p: _Polynomial) -> Dim:
    if not p or list(p) == [()]:
        return p.get((), 0)
    text = _print(p)
    if len(text) > _MAX_TEXT:
        raise ValueError(f"an extent's expression has more than {_MAX_TEXT} characters; fix dimensions with shape=")
    return text


# --- Arithmetic -------------------------------------------------------------------------------------------------------
# All raise ValueError where an expression grows over the limits.


def add(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    p = dict(_polynomial(a))
    for names, c in _polynomial(b).items():
        _add_term(p, names, c)
    return _dim(p)


def sub(a: Dim, b: Dim) -> Dim:
    return add(a, mul(b, -1))


def mul(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    p: _Polynomial = {}
    for names_a, c_a in _polynomial(a).items():
        for names_b, c_b in _polynomial(b).items():
            _add_term(p, tuple(sorted(names_a + names_b)), c_a * c_b)
    return _dim(p)


def floordiv(a: Dim, b: Dim) -> Dim:
    """floor(a / b). By a symbol only where that divides `a` whatever it stands for, else ValueError."""
    if isinstance(b, str):
        return _exact(a, b)
    if b == 0 or (isinstance(a, str) and b < 0):
        raise ValueError(f"{a} is divided by {b}")
    if isinstance(a, int):
        return a // b
    # floor((b*whole + rest) / b) = whole + floor(rest / b), each coefficient of rest in [0, b).
    whole: _Polynomial = {}
    rest: _Polynomial = {}
    for names, c in _polynomial(a).items():
        for p, part in zip((whole, rest), divmod(c, b)):
            _add_term(p, names, part)
    return add(_dim(whole), _quotient(rest, b))


def _quotient(rest: _Polynomial, divisor: int) -> Dim:
    """floor(rest / divisor); coefficients in [0, divisor)."""
    symbolic = [c for names, c in rest.items() if names]
    if not symbolic:
        return 0
    common = math.gcd(divisor, *symbolic)
    rest, divisor = {names: c // common for names, c in rest.items() if c >= common}, divisor // common
    # floor((floor(a / m) + r) / n) = floor((a + m*r) / (m*n)): strides that follow each other are one division.
    inner = [(names, found) for names, c in rest.items() if c == 1 and (found := _division(names))]
    if len(inner) == 1:
        names, (of, m) = inner[0]
        try:
            merged = add(_dim(of), mul(_dim({k: c for k, c in rest.items() if k != names}), m))
        except ValueError:
            pass  # too large for that
        else:
            if m * divisor < 2**63:
                return floordiv(merged, m * divisor)
    return _dim({(f"(({_print(rest)})/{divisor})",): 1})


@functools.lru_cache(maxsize=65536)
def _division(names: _Names) -> tuple[_Polynomial, int] | None:
    """(a, m) where it is one name that is floor(a / m)."""
    if len(names) != 1 or not (found := re.fullmatch(r"\(\((.*)\)/([0-9]+)\)", names[0], re.DOTALL)):
        return None
    try:
        of, divisor = _read(found[1]), _number(found[2])
        return (of, divisor) if divisor and isinstance(_dim(of), str) else None
    except ValueError:
        return None


def _exact(a: Dim, b: str) -> Dim:
    [(divisor, by), *more] = _polynomial(b).items()
    p: _Polynomial = {}
    for names, c in _polynomial(a).items():
        left = list(names)
        for name in divisor:
            if name not in left:
                break
            left.remove(name)
        if more or by < 0 or c % by or len(left) + len(divisor) != len(names):
            raise ValueError(f"{a} can't be divided by {b}")
        _add_term(p, tuple(left), c // by)
    return _dim(p)


def mod(a: Dim, b: Dim) -> Dim:
    """a - b * floor(a / b)."""
    return sub(a, mul(b, floordiv(a, b)))


def slice_extent(extent: Dim, begin: int, end: int, step: int) -> Dim:
    """How many elements NumPy's x[begin:end:step] has; INT64_MIN with a negative step means "through the first".

    Of a symbol a polynomial where a few are dropped at an end (a run with fewer is refused) or the step divides or turns
    the whole axis; a number where what is taken lies in the first or last g elements of a multiple of g ("7*h", g = 7;
    "n", g = 1), which then can't be 0; else a name of its own.
    """
    if isinstance(extent, int):
        end_of = None if step < 0 and end <= -(2**63) else end
        return len(range(*slice(begin, end_of, step).indices(extent)))
    through_last = end == 2**63 - 1
    if step == 1 and 0 <= begin < 2**48:
        if through_last:
            return sub(extent, begin)
        if -(2**48) < end < 0:
            return add(extent, end - begin)
    unit = math.gcd(*_polynomial(extent).values())
    if step == 1 and 0 <= begin < end <= unit:
        return end - begin
    if step == 1 and -unit <= begin < 0 and (through_last or begin < end < 0):
        return -begin if through_last else end - begin
    if 0 <= begin < step and through_last:
        return floordiv(add(extent, step - 1 - begin), step)
    if step == -1 and begin in (-1, 2**63 - 1) and end == -(2**63):
        return extent
    return _opaque_slice(extent, begin, end, step)


def _opaque_slice(extent: str, begin: int, end: int, step: int) -> str:
    return f"slice({extent},{begin},{end},{step})"


def from_end(place: Dim, extent: Dim) -> Dim:
    """Where a slice begins or ends, counted from the end where that is a number; 2**63-1: at the end, or behind it."""
    if isinstance(place, int):
        return place
    left = sub(extent, place)
    if isinstance(left, str):
        return place
    return -left if left > 0 else 2**63 - 1


def from_start(place: Dim, extent: Dim) -> Dim:
    """The same counted from the start."""
    if place == 2**63 - 1:
        return extent
    return add(extent, place) if isinstance(place, int) and place < 0 else place


def ratio(size: Dim, extent: Dim) -> float:
    """A resize's scale; 0: what a run's extents say."""
    if isinstance(size, str) or isinstance(extent, str):
        return 1.0 if size == extent else 0.0
    return size / extent


def window_extent(extent: Dim, window: int, stride: int, before: int, after: int, ceil_mode: bool = False) -> Dim:
    """How many windows that span `window` elements there are in an axis with pads. Raises ValueError where none is."""
    room = add(extent, before + after - window)
    if isinstance(room, str) or isinstance(extent, str):
        if ceil_mode and isinstance(room, str):
            # The last window stays if it starts before the pads at the end: where it reaches over these and a step more
            # it always does, else its fate depends on the number.
            if stride > 1 and after + stride > window:
                return _opaque_pool(extent, window, stride, before, after)
            room = add(room, stride - 1)
        return add(floordiv(room, stride), 1)
    if room < 0:
        raise ValueError(f"a window of {window} does not fit into {room + window}")
    count = room // stride + 1
    # In ceil mode the last one may reach over the end, but has to start before the pads there.
    return count + 1 if ceil_mode and room % stride and count * stride < extent + before else count


def _opaque_pool(extent: Dim, window: int, stride: int, before: int, after: int) -> str:
    return f"pool({extent},{window},{stride},{before},{after})"


def reshaped(shape: Sequence[Dim], target: Sequence[Dim]) -> Shape:
    """The target of a reshape with what its -1 stands for, if it has one. Raises ValueError where nothing fits."""
    source, added = list(shape), []  # but for the symbols that stay
    for d in target:
        if isinstance(d, str) and d in source:
            source.remove(d)
        elif d != -1:
            added.append(d)
    total, known = product(source), product(added)
    misfit = f"{list(shape)} does not fit into shape {list(target)}"
    if -1 not in target:
        if total != known:
            raise ValueError(misfit)
        return tuple(target)
    try:
        rest = floordiv(total, known) if known else 0
    except ValueError:
        raise ValueError(misfit) from None
    if not known or mul(rest, known) != total:
        raise ValueError(misfit + division_hint(rest))
    return tuple(rest if d == -1 else d for d in target)


def product(dims: Sequence[Dim]) -> Dim:
    result: Dim = 1
    for dim in dims:
        result = mul(result, dim)
    return result


def static(shape: Sequence[Dim]) -> bool:
    return all(isinstance(dim, int) for dim in shape)


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """NumPy's rule; a symbol only equals itself. Raises ValueError."""
    if a == b:
        return a
    if a == 1:
        return b
    if b == 1:
        return a
    raise ValueError(f"extents {a} and {b} do not broadcast{division_hint(a, b)}")


def division_hint(*dims: Dim) -> str:
    """What helps where extents may differ by the rest of a division only (a U-Net's "2*((h)/2)" and "h"), or ""."""
    divided = [names_in(d)[0] for d in dims if isinstance(d, str) and any(_division((n,)) for n in _names(d))]
    return f"; declare {divided[0]} as a multiple, e.g. shape={{{divided[0]!r}: '8*n'}}" if divided else ""


def differ_by_rests(a: Dim, b: Dim) -> bool:
    """Whether two extents differ by the rests of divisions only, and by none in some run ("2*((h)/2)" and "h"; not
    "((h)/2)" and "h", not "h" and "h+1")."""
    # floor(p / m) = p / m - r / m with a rest r of 0 to m-1: the difference is that of the fractions, less what rests make.
    try:
        left = [(_polynomial(sub(a, b)), Fraction(1))]
    except ValueError:
        return False  # too large to tell
    fractions: dict[_Names, Fraction] = {}
    least = most = Fraction(0)
    while left:
        polynomial, factor = left.pop()
        for names, c in polynomial.items():
            part = c * factor
            if not (division := _division(names)):
                fractions[names] = fractions.get(names, Fraction(0)) + part
                continue
            of, m = division
            left.append((of, part / m))
            rest = part * (m - 1) / m
            least, most = (least - rest, most) if rest > 0 else (least, most - rest)
    number = fractions.pop((), Fraction(0))
    return not any(fractions.values()) and least + number <= 0 <= most + number


def _names(dim: Dim) -> list[str]:
    return [name for names in _polynomial(dim) for name in names]


def broadcast(*shapes: Sequence[Dim]) -> Shape:
    """The common shape by NumPy's rule. Raises ValueError naming the shapes."""
    rank = max((len(shape) for shape in shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, dim in enumerate(shape):
            try:
                result[offset + i] = broadcast_dim(result[offset + i], dim)
            except ValueError as error:
                text = " and ".join(str(list(s)) for s in shapes)
                raise ValueError(f"shapes {text} do not broadcast: {error}") from None
    return tuple(result)


def axis(value: int, rank: int, what: str = "axis") -> int:
    """The non-negative form of an axis. Raises ValueError."""
    if not -rank <= value < max(rank, 1) and not (rank == 0 and value in (0, -1)):
        raise ValueError(f"{what} {value} is outside rank {rank}")
    return value + rank if value < 0 else value


def bound(dim: Dim, upper: bool = False) -> int | None:
    """The least number that it can be (the greatest, if `upper`) while its symbols are 0 or more; None: there is none."""
    polynomial = _polynomial(dim)
    if any((c > 0) == upper for names, c in polynomial.items() if names):
        return None
    return polynomial.get((), 0)


def linear_in_one(dim: Dim) -> tuple[str, int, int] | None:
    """(symbol, a, b) of an extent that is a*symbol+b; None of any other."""
    polynomial = _polynomial(dim)
    names = [n for n in polynomial if n]
    if len(names) != 1 or len(names[0]) != 1 or names_in(names[0][0]) != [names[0][0]]:
        return None
    return names[0][0], polynomial[names[0]], polynomial.get((), 0)


def ranges(required: Iterable[Dim]) -> dict[str, tuple[int | None, int | None]]:
    """{symbol: (least, most)} where all of these are 0 or more, both included, None: no bound; what is said of more than
    one symbol, or of what follows from one, is left out."""
    found: dict[str, tuple[int | None, int | None]] = {}
    for expression in required:
        line = linear_in_one(expression)
        if line is None:
            continue
        symbol, a, b = line  # a * symbol + b >= 0
        least, most = found.get(symbol, (None, None))
        if a > 0:
            least = -(b // a) if least is None else max(least, -(b // a))
        else:
            most = b // -a if most is None else min(most, b // -a)
        found[symbol] = least, most
    return found


def sides(dim: Dim) -> tuple[str, str]:
    """("h", "w") of h-w, and of w-h: what it is the difference of, without minus signs. The first of its terms is on the
    left, as where a run is refused (core/runtime/open_shapes.cc)."""
    left: _Polynomial = {}
    right: _Polynomial = {}
    terms = _terms(_polynomial(dim))
    for names, c in terms:
        (left if (c < 0) == (terms[0][1] < 0) else right)[names] = abs(c)
    return _print(left) or "0", _print(right) or "0"


def symbols(shape: Sequence[Dim]) -> list[str]:
    """The symbolic extents of a shape, in order, each once."""
    return list(dict.fromkeys(dim for dim in shape if isinstance(dim, str)))


# --- What people and importers write ----------------------------------------------------------------------------------


class _Expression:
    """+ - * and whole division by numbers, brackets, the opaque functions, over names of any other characters; with what
    `values` says of the names. Raises ValueError where a text is no such expression."""

    def __init__(self, text: str, values: Mapping[str, object]):
        self.tokens = [t for token in re.findall(r"[-+*/(),]|[^-+*/(),]+", text) if (t := token.strip(_SPACE))]
        self.values, self.names, self.depth = values, [], 0  # type: Mapping[str, object], list[str], int
        self.result = self._sum()
        if self.tokens:
            raise ValueError(f"{self.tokens[0]!r} is too much")

    def _take(self, token: str) -> bool:
        found = self.tokens[:1] == [token]
        del self.tokens[: int(found)]
        return found

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise ValueError(f"lacks {token!r}")

    def _word(self) -> str:
        if not self.tokens or self.tokens[0] in "-+*/(),":
            raise ValueError("lacks an operand")
        return self.tokens.pop(0)

    def _sum(self) -> Dim:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ValueError("is nested too deeply")
        negative = self._take("-")
        result = mul(self._product(), -1 if negative else 1)
        while (minus := self._take("-")) or self._take("+"):
            result = add(result, mul(self._product(), -1 if minus else 1))
        self.depth -= 1
        return result

    def _product(self) -> Dim:
        result = self._factor()
        while (times := self._take("*")) or self._take("/"):
            if times:
                result = mul(result, self._factor())
                continue
            self._take("/")  # Python's //
            divisor = self._factor()
            if isinstance(divisor, str) or divisor <= 0:
                raise ValueError(f"a division by {divisor}")
            result = floordiv(result, divisor)
        return result

    def _factor(self) -> Dim:
        if self._take("("):
            result = self._sum()
            self._expect(")")
            return result
        word = self._word()
        if (number := _number(word)) is not None:
            return number
        if self._take("("):
            return self._opaque(word)
        self.names.append(word)
        value = self.values.get(word)
        if isinstance(value, str):
            return canonical(value)
        return int(value) if isinstance(value, int | np.integer) else word

    def _opaque(self, function: str) -> Dim:
        before = len(self.names)
        of, args = self._sum(), []
        while self._take(","):
            negative = self._take("-")
            args.append(int(self._word()) * (-1 if negative else 1))
        self._expect(")")
        if isinstance(of, str) or any(name in self.values for name in self.names[before:]):
            if function == "slice" and len(args) == 3 and args[2]:
                return _opaque_slice(of, *args) if isinstance(of, str) else slice_extent(of, *args)
            if function == "pool" and len(args) == 4 and args[1] > 0:
                window, stride, before_it, after = args
                if isinstance(of, str):
                    return _opaque_pool(of, window, stride, before_it, after)
                return window_extent(of, window, stride, before_it, after, ceil_mode=True)
        raise ValueError(f"{function}() is no function of ours")


def names_in(text: str) -> list[str]:
    """The symbols of an expression ("2*batch + 1"): ["batch"]; the whole text where it is not one."""
    try:
        return list(dict.fromkeys(_Expression(text, {}).names)) or [text]
    except ValueError:
        return [text]


def canonical(text: str, values: Mapping[str, object] | None = None) -> Dim:
    """The normal form of an expression ("past + 1": "past+1") with what `values` says of its symbols; a number once it
    says all. Any other text is given as it is: ONNX's names may hold any character."""
    return _evaluated(text, values) if values else _normal(text)


def _evaluated(text: str, values: Mapping[str, object]) -> Dim:
    try:
        return _Expression(text, values).result
    except ValueError:
        return text


@functools.lru_cache(maxsize=65536)
def _normal(text: str) -> Dim:
    return _evaluated(text, {})
