"""Views, joins, indexing, and writes to parts of a tensor."""

from __future__ import annotations

from .builder import DroppedError, step

ALL = "fib"


@step(kind=ALL, weight=2)
def view(b, x):
    """In part by sizes that the code takes from the tensor."""
    shape = list(b.shape(x))
    rank = len(shape)
    ways = [
        f"{x}.reshape(-1)",
        f"{x}.unsqueeze({b.pick(range(-rank - 1, rank + 1))})",
        f"{x}[None]",
        f"{x}[..., None]",
        f"{x}.squeeze()",
    ]
    if rank:
        i = b.pick(range(rank))
        d = b.divisor(shape[i])
        sizes = [f"{x}.shape[{j}]" if b.chance(0.5) else n for j, n in enumerate(shape)]
        rest = lambda *middle: ", ".join(map(str, [*sizes[:i], *middle, *sizes[i + 1 :]]))
        ways += [
            f"{x}.reshape({rest(d, shape[i] // d)})", f"{x}.reshape({rest(d, -1)})", f"{x}.unflatten({i}, ({d}, -1))", f"{x}.flatten({i})",
            f"{x}.flatten({b.axis(x)}, -1)", f"{x}.squeeze({b.axis(x)})", f"{x}.reshape({x}.size(0), -1)", f"{x}.transpose({b.axis(x)}, {b.axis(x)})",
            f"{x}.permute({tuple(map(int, b.random.permutation(rank)))})", f"{x}.movedim({b.axis(x)}, {b.axis(x)})", f"{x}.reshape({x}.shape[0] * {shape[1] if rank > 1 else 1}, -1)",
            f"{x}.swapaxes(0, -1)", f"{x}.transpose(0, -1).contiguous().view(-1)", f"{x}.permute({tuple(map(int, b.random.permutation(rank)))}).reshape({x}.shape)",
            f"{x}.mT if {rank} > 1 else {x}", f"{x}.view({x}.shape)", f"{x}.ravel()", f"torch.atleast_3d({x})", f"{x}.expand(2, *{x}.shape)", f"{x}.unfold({i}, {d}, {b.pick((1, 2))})",
        ]  # fmt: skip
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, 5, kind=ALL, weight=2)
def index(b, x):
    parts = []
    for n in b.shape(x):
        i, j = sorted((b.pick(range(-n, n)), b.pick(range(-n, n))))
        parts.append(
            b.pick((":", ":", str(i), f"{i}:", f":{j + 1 or n}", f"{i}:{j}", "::2", f"{abs(i) - 1}::3", "None, :"))
        )
    if b.chance(0.3):
        parts = [*parts[: b.pick(range(len(parts)))], "..."]
    return b.do(f"{x}[{', '.join(parts)}]")


@step(1, 2, 3, 4, 5, kind=ALL, weight=2)
def join(b, x):
    value, axis = b.program.values[x], b.axis(x)
    rest = list(value.shape)
    del rest[axis]
    fits = lambda y: y.dim() == value.dim() and [n for i, n in enumerate(y.shape) if i != axis % y.dim()] == rest
    others = [b.like(x, fits) for _ in range(b.pick((1, 1, 2)))]
    parts = b.pick((f"{x}, {', '.join(others)}", f"{', '.join(others)}, {x}"))
    same = b.like(x, lambda y: y.shape == value.shape)
    ways = [
        f"torch.cat([{parts}], {axis})", f"torch.stack([{x}, {same}], {axis})", f"torch.concat([{x}, {x}[:1]])", f"torch.hstack([{x}, {same}])", f"torch.vstack([{same}, {x}])",
        f"torch.dstack([{x}, {x}])", f"torch.stack([{x}, {same}], -1)", f"torch.column_stack([{x}, {x}])", f"torch.block_diag({x}, {x})", f"torch.cat([{x}, torch.zeros_like({x})], {axis})",
        f"torch.cartesian_prod({x}, {x})", f"torch.meshgrid({x}, {x}, indexing='ij')[1]",
    ]  # fmt: skip
    return b.do(b.pick(ways[:1] * 4 + ways))


@step(1, 2, 3, 4, 5, kind=ALL, weight=1.5)
def split(b, x):
    axis = b.axis(x)
    n = b.shape(x)[axis]
    if n < 2:
        raise DroppedError("extent")
    at = b.pick(range(1, n))
    ways = [
        (f"{x}.split([{at}, {n - at}], {axis})", 2), (f"{x}.chunk(2, {axis})", 2), (f"{x}.split({-(-n // 2)}, dim={axis})", 2), (f"torch.tensor_split({x}, 2, {axis})", 2),
        (f"torch.tensor_split({x}, ({at},), {axis})", 2), (f"{x}.unbind({axis})[0]", 1), (f"{x}.unbind({axis})[-1]", 1), (f"{x}.narrow({axis}, {at}, {n - at})", 1), (f"{x}.select({axis}, -{at})", 1),
        (f"{x}.chunk(3, {axis})[-1]", 1), (f"torch.unsafe_chunk({x}, 2, {axis})", 2),
    ]  # fmt: skip
    return b.do(*b.pick(ways))


@step(1, 2, 3, 4, kind=ALL, weight=1.5)
def rearrange(b, x):
    axis, rank = b.axis(x), len(b.shape(x))
    k = b.pick((-1, 0, 1))
    ways = [
        f"{x}.roll({b.pick((1, -2, 5))}, {axis})", f"{x}.roll({b.pick((1, 3))})", f"{x}.flip({axis})", f"{x}.flip(({b.pick((0, -1))},))", f"{x}.repeat({', '.join(['2', *['1'] * (rank - 1)])})",
        f"{x}.repeat(2, {', '.join(['1'] * rank)})", f"{x}.tile(2)", f"{x}.repeat_interleave({b.pick((1, 2, 3))}, {axis})", f"{x}.repeat_interleave(2)", f"torch.broadcast_to({x}, (2, *{x}.shape))",
        f"torch.diag_embed({x}, {k})", f"torch.rot90({x}, {b.pick((1, 2, 3))}, (0, -1)) if {rank} > 1 else {x}", f"{x}.diag() if {rank} < 3 else {x}",
    ]  # fmt: skip
    if rank > 1:
        ways += [
            f"{x}.tril({k})",
            f"{x}.triu({k})",
            f"{x}.diagonal({k})",
            f"{x}.diagonal(0, {axis}, {axis - 1 if axis not in (0, -rank) else axis + 1})",
            f"{x}.fliplr()",
            f"torch.diagonal_copy({x}, {k})",
        ]
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, kind=ALL, weight=2.5)
def gather(b, x):
    shape, axis = b.shape(x), b.axis(x)
    n, rank = shape[axis], len(shape)
    row = b.ints((b.pick((1, 3)),), 0, n)
    first = b.ints((3,), -shape[0], shape[0])
    last = b.ints(b.pick(((3,), (2, 1), (1,))), -shape[-1], shape[-1])
    part = [b.pick((m, max(1, m - 1))) if i != axis % rank else b.pick((1, 2, m)) for i, m in enumerate(shape)]
    at = b.ints(part, 0, n)
    ways = [
        f"{x}.index_select({axis}, {row})", f"{x}.gather({axis}, {at})", f"{x}[{first}]", f"{x}[..., {last}]", f"torch.take_along_dim({x}, {at}, {axis})", f"{x}[{first}, ..., {first}.abs() % {shape[-1]}]",
        f"{x}.take({row})", f"{x}[torch.tensor([0, -1])]", f"{x}[[0, -1]]", f"{x}[:, [0]]", f"{x}[{first}[:, None], {last}.reshape(1, -1)]", f"{x}[{first}][::2]", f"{x}[{first}, None]",
        f"{x}[{last}.reshape(-1) * 0, :, 0]", f"{x}[:, {row} * 0, {row} * 0]", f"{x}[0, :, {row} * 0]", f"{x}[{row} * 0, 1:, {row} * 0]", f"{x}[torch.arange({shape[0]}), 0]",
        f"{x}.index_select(0, torch.arange({x}.size(0) - 1, -1, -1))", f"F.embedding({row}, {x})", f"{x}[{first}.int()]", f"{x}[torch.arange({shape[0]})[:, None], {x}[:, :2].long() * 0]",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, kind="fi", weight=2)
def scatter(b, x):
    """Indices that occur once where a later write would win."""
    shape, axis = b.shape(x), b.axis(x)
    n, rank = shape[axis], len(shape)
    part = [m if i != axis % rank else b.pick((1, m)) for i, m in enumerate(shape)]
    once = b.layer(f"torch.rand({shape}).argsort({axis})[{', '.join(f':{m}' for m in part)}]")
    often = b.ints(part, 0, n)
    rows = b.layer(f"torch.randperm({n})[:{b.pick((1, n))}]")
    many = b.ints((3,), 0, n)
    reduce = b.pick(("sum", "amax", "amin", "prod", "mean"))
    source = f"{x}[{', '.join(f':{m}' for m in part)}].flip(0)"
    ways = [
        f"{x}.scatter({axis}, {once}, {source})", f"{x}.scatter({axis}, {often}, {b.pick((0, 7))})", f"{x}.scatter_add({axis}, {often}, {source})", f"{x}.index_add({axis}, {many}, {x}.index_select({axis}, {many}), alpha=2)",
        f"{x}.scatter_reduce({axis}, {often}, {source}, '{reduce}', include_self={b.chance(0.5)})", f"{x}.index_copy({axis}, {rows}, {x}.index_select({axis}, {rows}) * 2)", f"{x}.index_fill({axis}, {rows}, 3)",
        f"torch.zeros_like({x}).scatter_add({axis}, {often}, {source})", f"{x}.scatter({axis}, {once}, {source}, reduce='multiply')", f"{x}.index_put(({rows} % {shape[0]},), {x}[0] * 2)",
        f"{x}.index_put(({many} % {shape[0]},), {x}[:1], accumulate=True)", f"torch.select_scatter({x}, {x}.select({axis}, 0), {axis}, -1)", f"torch.slice_scatter({x}, {x}[:1], 0, 0, 1)",
        f"torch.zeros({x}.shape, dtype={x}.dtype).index_add({axis}, {many}, {x}.index_select({axis}, {many}))", f"{x}.index_reduce({axis}, {many}, {x}.index_select({axis}, {many}), '{b.pick(('amax', 'amin'))}')",
        f"torch.diagonal_scatter({x}, {x}.diagonal() * 2)", f"{x}.put({rows}, {x}.reshape(-1)[:{rows}.shape[0]])", f"{x}.masked_scatter({b.mask(shape)}, {x}.flip(0))",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, kind="fi", weight=2.5)
def write(b, x):
    shape, axis = b.shape(x), b.axis(x)
    n = shape[axis]
    i = b.pick(range(n))
    rows = b.layer(f"torch.randperm({shape[0]})[:{b.pick((1, shape[0]))}]")
    ways = [
        ["y[0] = 1"], ["y[..., -1] += 2"], ["y[1:] = y[:-1].clone()"], ["y[::2] *= 3"], ["y.add_(1).mul_(2)"], ["y.view(-1)[0] = 5"], ["y.transpose(0, -1)[0].fill_(2)"], ["y[..., :1].zero_()"], ["y.clamp_(-1, 1)"],
        [f"y.select({axis}, {i}).copy_(y.select({axis}, 0) * 2)"], [f"y.narrow({axis}, {i}, {n - i}).sub_(1)"], ["y.masked_fill_(y > 0.0123, 2)"], ["y[y > 0.0123] = 0"], [f"y[{rows}] = 4"],
        ["y += y.flip(0)"], ["y.t_() if y.dim() < 3 else y.transpose_(0, 1)"], ["y.unsqueeze_(0)"], ["y.copy_(y[:1])"], ["for part in y.unbind(0):", "    part.mul_(2)"], ["y.resize_(y.shape)"],
        [f"y[{rows}] += y[{rows}] * 2"], ["y.diagonal().add_(1)"], ["y.chunk(2)[0].neg_()"], ["y.index_add_(0, torch.tensor([0]), y[-1:])"], ["y.flatten()[1:3] = 9"], ["z = y[0]", "y[0] = 3", "y[-1] = z + 1"], ["y.relu_()"],
        ["y.squeeze_()"], ["y.fill_diagonal_(2)"], ["y.cumsum_(0)"], ["y.tril_()"], ["z = y.view(-1)", "y.mul_(2)", "z[-1:] = z[:1]"], ["y[..., 0], y[..., -1] = y[..., -1].clone(), y[..., 0].clone()"], [f"y[:, 0] = y.sum({axis} if False else 1)"],
        ["y.scatter_(0, torch.zeros_like(y, dtype=torch.long)[:1], 3)"], ["y[None, ...] += 1"], ["y[-1:, ...] = torch.arange(y.shape[-1]).to(y.dtype)"], ["y[torch.tensor([True] + [False] * (y.shape[0] - 1))] = 5"],
    ]  # fmt: skip
    return b.written(x, *b.pick(ways))


@step(weight=0.7)
def create(b, x):
    """Tensors of the code itself, next to x."""
    rank = len(b.shape(x))
    n = b.shape(x)[-1] if rank else 3
    ways = [
        f"{x} + torch.arange({n})", f"{x} * torch.linspace(-1, 1, {n})", f"{x} + torch.ones({n}, dtype={x}.dtype)", f"{x} + torch.zeros_like({x})", f"{x} - torch.full_like({x}, 0.5)", f"{x} + torch.tensor([0.5])",
        f"{x} + {x}.new_ones({n})", f"{x} + {x}.new_full((1,), 2)", f"{x} * torch.eye({n})", f"{x} + torch.arange(0, {n}, dtype={x}.dtype) / {n}", f"{x} + torch.tril(torch.ones({n}, {n}))[-1]", f"{x} + torch.full((), 2)",
        f"{x} + torch.arange({n}, 0, -1)", f"{x} + torch.logspace(-1, 0, {n})", f"{x} * torch.hann_window({n})", f"{x} + {x}.size(-1)" if rank else f"{x} + 1", f"{x} * {x}.shape[0] ** -0.5" if rank else f"{x} + 2", f"{x} + torch.empty({n}).fill_(3)",
        f"{x} + torch.arange({x}.shape[-1]).unsqueeze(0).expand({n}, -1)[0]" if rank else f"-{x}", f"{x} + torch.tensor(2.5, dtype=torch.float64)", f"{x} + torch.tensor(3)", f"{x} + torch.triu_indices({n}, {n})[0][:{n}]", f"{x} + torch.vander(torch.arange({n}), 1).squeeze(-1)",
    ]  # fmt: skip
    return b.do(b.pick(ways))
