"""MatMul, Gemm, Einsum, Det, MatMulInteger."""

from __future__ import annotations

import string

from inlay.ir import dims
from inlay.onnx_import.integer_products import dequantised_matmul, integer_product
from inlay.onnx_import.registry import NodeContext, converter
from inlay.onnx_import.value import Unsupported, Value
from inlay.onnx_import.weight_only import weight_only_matmul


def _product(ctx: NodeContext, a: Value, b: Value, transpose_b: bool = False) -> Value:
    """Of the integers that DequantizeLinear made them of, where there is such a product."""
    for way in (dequantised_matmul, weight_only_matmul):
        y = way(ctx, a, b, transpose_b)
        if y is not None:
            return y
    return ctx.op("matmul", a, b, transpose_b=transpose_b)


@converter("MatMul")
def matmul(ctx: NodeContext) -> Value:
    return _product(ctx, ctx[0], ctx[1])


def _scaled(ctx: NodeContext, x: Value, factor: float) -> Value:
    if factor == 1.0:
        return x
    if not x.is_float and factor != int(factor):
        raise Unsupported(f"an integer Gemm with factor {factor}")
    return ctx.op("mul", x, ctx.like(factor, x))


@converter("Gemm")
def gemm(ctx: NodeContext) -> Value:
    """alpha * A' B' + beta * C."""
    a, b = ctx[0], ctx[1]
    if a.rank != 2 or b.rank != 2:
        raise Unsupported(f"Gemm of ranks {a.rank} and {b.rank}")
    ctx.ignore("broadcast")  # of opset 6: C broadcasts as it always does now
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0)
    trans_a, trans_b = bool(ctx.attr("transA", 0)), bool(ctx.attr("transB", 0))
    y = ctx.op("matmul", a, b, transpose_a=True, transpose_b=trans_b) if trans_a else _product(ctx, a, b, trans_b)
    y = _scaled(ctx, y, alpha)
    c = ctx.get(2)
    if c is None or beta == 0.0:
        return y
    return ctx.op("add", y, _scaled(ctx, c, beta))


@converter("MatMulInteger")
def matmul_integer(ctx: NodeContext) -> Value:
    return integer_product(ctx, ctx[0], ctx.get(2), ctx[1], ctx.get(3))


@converter("Det")
def det(ctx: NodeContext) -> Value:
    """By cofactors, for matrices up to 3 by 3."""
    x = ctx[0]
    shape = ctx.static_shape(x, "Det")
    n = shape[-1]
    if len(shape) < 2 or shape[-2] != n or not 1 <= n <= 3:
        raise Unsupported(f"the determinant of matrices {shape[-2:]}")

    def at(i: int, j: int) -> Value:
        lead = [0] * (len(shape) - 2)
        item = ctx.op(
            "slice", x, begins=[*lead, i, j], ends=[*shape[:-2], i + 1, j + 1], steps=[1] * len(shape)
        )  # fmt: skip
        return ctx.reshape(item, shape[:-2])

    def minor(rows: list[int], columns: list[int]) -> Value:
        if len(rows) == 1:
            return at(rows[0], columns[0])
        total: Value | None = None
        for k, column in enumerate(columns):
            rest = minor(rows[1:], columns[:k] + columns[k + 1 :])
            term = ctx.op("mul", at(rows[0], column), rest)
            total = term if total is None else ctx.op("sub" if k % 2 else "add", total, term)
        assert total is not None
        return total

    return minor(list(range(n)), list(range(n)))


# --- Einsum ----------------------------------------------------------------------------------------------------------


def parse_einsum(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The labels of each operand and of the output, one character an axis; an ellipsis becomes capital-like labels."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Unsupported(f"equation {equation!r} for {len(ranks)} operands")
    used = set(equation)
    free = [c for c in string.ascii_letters + "αβγδεζηθ" if c not in used]
    most = max((r - len(t.replace("...", "")) for t, r in zip(terms, ranks) if "..." in t), default=0)
    ellipsis = "".join(free[:most])
    labels = []
    for term, rank in zip(terms, ranks):
        if "..." in term:
            count = rank - len(term.replace("...", ""))
            term = term.replace("...", ellipsis[len(ellipsis) - count :] if count > 0 else "")
        if len(term) != rank or not all(c.isalpha() for c in term):
            raise Unsupported(f"equation {equation!r}: {term!r} for an operand of rank {rank}")
        labels.append(term)
    if arrow:
        output = right.replace("...", ellipsis)
    else:
        counts = "".join(labels)
        output = ellipsis + "".join(sorted(c for c in set(counts) - set(ellipsis) if counts.count(c) == 1))
    if len(set(output)) != len(output) or not set(output) <= set("".join(labels)):
        raise Unsupported(f"equation {equation!r}: output {output!r}")
    return labels, output


def _diagonal(ctx: NodeContext, x: Value, labels: str) -> tuple[Value, str]:
    """Repeated labels of one operand become one axis."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            i, j = labels.index(label), labels.rindex(label)
            n = ctx.static_shape(x, "Einsum")[i]
            rows = ctx.op("iota", shape=[n if k == i else 1 for k in range(x.rank)], axis=i, dtype="i64")
            columns = ctx.op("iota", shape=[n if k == j else 1 for k in range(x.rank)], axis=j, dtype="i64")
            kept = ctx.op("where", ctx.op("equal", rows, columns), x, ctx.like(0, x))
            x = ctx.op("reduce_sum", kept, axes=[j], keepdims=False)
            labels = labels[:j] + labels[j + 1 :]
    return x, labels


def _sum_out(ctx: NodeContext, x: Value, labels: str, needed: set[str]) -> tuple[Value, str]:
    drop = [i for i, c in enumerate(labels) if c not in needed]
    if not drop:
        return x, labels
    return ctx.op("reduce_sum", x, axes=drop, keepdims=False), "".join(c for c in labels if c in needed)


def _arrange(ctx: NodeContext, x: Value, labels: str, wanted: str) -> Value:
    return ctx.transpose(x, [labels.index(c) for c in wanted])


def _contract(ctx: NodeContext, a: Value, la: str, b: Value, lb: str, needed: set[str]) -> tuple[Value, str]:
    """One matmul: labels of both that are needed later are its batch, of both that are not its inner axes."""
    a, la = _sum_out(ctx, a, la, needed | set(lb))
    b, lb = _sum_out(ctx, b, lb, needed | set(la))
    size = {**dict(zip(lb, b.shape)), **dict(zip(la, a.shape))}
    for c, d in zip(lb, b.shape):
        if size[c] != d:
            raise Unsupported(f"label {c!r} is {size[c]} and {d}; broadcasting inside Einsum is not supported")
    batch = "".join(c for c in la if c in lb and c in needed)
    inner = "".join(c for c in la if c in lb and c not in needed)
    left, right = "".join(c for c in la if c not in lb), "".join(c for c in lb if c not in la)

    def extents(labels: str) -> list[dims.Dim]:
        return [size[c] for c in labels]

    def flat(labels: str) -> dims.Dim:
        return dims.product(extents(labels))

    lhs = ctx.reshape(_arrange(ctx, a, la, batch + left + inner), [*extents(batch), flat(left), flat(inner)])
    rhs = ctx.reshape(_arrange(ctx, b, lb, batch + inner + right), [*extents(batch), flat(inner), flat(right)])
    return ctx.reshape(ctx.op("matmul", lhs, rhs), extents(batch + left + right)), batch + left + right


@converter("Einsum")
def einsum(ctx: NodeContext) -> Value:
    values = ctx.all()
    labels, output = parse_einsum(ctx.required("equation"), [v.rank for v in values])
    operands = [_diagonal(ctx, v, text) for v, text in zip(values, labels)]
    x, have = operands[0]
    for i, (y, other) in enumerate(operands[1:], start=1):
        later = set(output) | {c for _, text in operands[i + 1 :] for c in text}
        x, have = _contract(ctx, x, have, y, other, later)
    x, have = _sum_out(ctx, x, have, set(output))
    return _arrange(ctx, x, have, output)
