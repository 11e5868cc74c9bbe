"""The operators that move data, and the recurrent ones; see ops.py."""

from __future__ import annotations

from inlay.ir import dims
from inlay.ir.ops import N, _count, _dtype, _same_dtype, op
from inlay.ir.types import FLOATS, TensorType


@op("reshape", shape="extents")
def _reshape(args, attrs):
    _count(args, 1)
    target = list(attrs["shape"])
    if sum(1 for d in target if d == -1) > 1 or any(isinstance(d, int) and d < -1 for d in target):
        raise ValueError(f"shape {target} is not one of extents and at most one -1")
    return TensorType(args[0].dtype, dims.reshaped(args[0].shape, target))


@op("transpose", perm="ints")
def _transpose(args, attrs):
    _count(args, 1)
    if sorted(attrs["perm"]) != list(range(args[0].rank)):
        raise ValueError(f"perm {attrs['perm']} for rank {args[0].rank}")
    return TensorType(args[0].dtype, tuple(args[0].shape[p] for p in attrs["perm"]))


@op("concat", axis="int")
def _concat(args, attrs):
    if not args:
        raise ValueError("no argument")
    dtype = _same_dtype(args)
    axis = dims.axis(attrs["axis"], args[0].rank)
    shape = list(args[0].shape)
    for arg in args[1:]:
        differ = [(a, b) for i, (a, b) in enumerate(zip(shape, arg.shape)) if i != axis and a != b]
        if arg.rank != len(shape) or differ:
            hint = dims.division_hint(*(d for pair in differ for d in pair))
            raise ValueError(f"{args[0]} and {arg} differ outside axis {axis}{hint}")
        shape[axis] = dims.add(shape[axis], arg.shape[axis])
    return TensorType(dtype, tuple(shape))


@op("split", axis="int", sizes="ints")
def _split(args, attrs):
    _count(args, 1)
    axis = dims.axis(attrs["axis"], args[0].rank)
    extent = args[0].shape[axis]
    if any(s < 0 for s in attrs["sizes"]) or (isinstance(extent, int) and sum(attrs["sizes"]) != extent):
        raise ValueError(f"sizes {attrs['sizes']} do not make up extent {extent}")
    shape = args[0].shape
    return tuple(TensorType(args[0].dtype, (*shape[:axis], s, *shape[axis + 1 :])) for s in attrs["sizes"])


@op("slice", begins="ints", ends="ints", steps="ints", dims=("strings", None))
def _slice(args, attrs):
    _count(args, 1)
    rank = args[0].rank
    taken = attrs.get("dims") or [""] * rank
    if len(taken) != rank:
        raise ValueError(f"dims {taken} for rank {rank}")
    if any(len(attrs[k]) != rank for k in ("begins", "ends", "steps")) or 0 in attrs["steps"]:
        raise ValueError(f"begins {attrs['begins']}, ends {attrs['ends']}, steps {attrs['steps']} for rank {rank}")
    out = []
    for extent, b, e, s, symbol in zip(args[0].shape, attrs["begins"], attrs["ends"], attrs["steps"], taken):
        if symbol:
            out.append(symbol)
        else:
            out.append(dims.slice_extent(extent, b, e, s))
    return TensorType(args[0].dtype, tuple(out))


@op("expand", shape="extents")
def _expand(args, attrs):
    _count(args, 1)
    return TensorType(args[0].dtype, dims.broadcast(args[0].shape, tuple(attrs["shape"])))


@op("pad", pads="ints", mode=("string", "constant"), value=("float", 0.0))
def _pad(args, attrs):
    _count(args, 1)
    rank, p = args[0].rank, attrs["pads"]
    if len(p) != 2 * rank:
        raise ValueError(f"pads {p} for rank {rank}")
    if attrs["mode"] not in ("constant", "reflect", "edge", "wrap"):
        raise ValueError(f"mode {attrs['mode']!r}")
    shape = tuple(dims.add(d, p[i] + p[rank + i]) for i, d in enumerate(args[0].shape))
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ValueError(f"pads {p} crop more than {args[0]} has")
    return TensorType(args[0].dtype, shape)


@op("tile", repeats="ints")
def _tile(args, attrs):
    _count(args, 1)
    if len(attrs["repeats"]) != args[0].rank or any(r < 0 for r in attrs["repeats"]):
        raise ValueError(f"repeats {attrs['repeats']} for rank {args[0].rank}")
    return TensorType(args[0].dtype, tuple(dims.mul(d, r) for d, r in zip(args[0].shape, attrs["repeats"])))


def _indices(arg: TensorType) -> None:
    _dtype(arg, ("i32", "i64"), "indices")


@op("gather", axis=("int", 0))
def _gather(args, attrs):
    _count(args, 2)
    _indices(args[1])
    axis = dims.axis(attrs["axis"], args[0].rank)
    return TensorType(args[0].dtype, args[0].shape[:axis] + args[1].shape + args[0].shape[axis + 1 :])


@op("gather_elements", axis=("int", 0))
def _gather_elements(args, attrs):
    _count(args, 2)
    _indices(args[1])
    dims.axis(attrs["axis"], args[0].rank)
    if args[0].rank != args[1].rank:
        raise ValueError(f"ranks of {args[0]} and {args[1]} differ")
    return TensorType(args[0].dtype, args[1].shape)


@op("gather_nd", batch_dims=("int", 0))
def _gather_nd(args, attrs):
    _count(args, 2)
    _indices(args[1])
    x, i, b = args[0].shape, args[1].shape, attrs["batch_dims"]
    if not i or not isinstance(i[-1], int) or b + i[-1] > len(x) or b >= len(i):
        raise ValueError(f"indices {args[1]} of {args[0]} with batch_dims {b}")
    return TensorType(args[0].dtype, i[:-1] + x[b + i[-1] :])


def _reduction(attrs) -> None:
    if attrs["reduction"] not in ("none", "add", "mul", "max", "min"):
        raise ValueError(f"reduction {attrs['reduction']!r}")


@op("scatter_elements", axis=("int", 0), reduction=("string", "none"))
def _scatter_elements(args, attrs):
    _count(args, 3)
    _indices(args[1])
    _reduction(attrs)
    dims.axis(attrs["axis"], args[0].rank)
    if args[1].shape != args[2].shape or args[0].rank != args[1].rank:
        raise ValueError(f"indices {args[1]} and updates {args[2]} of {args[0]}")
    return args[0]


@op("scatter_nd", reduction=("string", "none"))
def _scatter_nd(args, attrs):
    _count(args, 3)
    _indices(args[1])
    _reduction(attrs)
    i = args[1].shape
    if not i or not isinstance(i[-1], int) or args[2].shape != i[:-1] + args[0].shape[i[-1] :]:
        raise ValueError(f"indices {args[1]} and updates {args[2]} of {args[0]}")
    return args[0]


@op("trilu", upper=("bool", True), k=("int", 0))
def _trilu(args, attrs):
    _count(args, 1)
    if args[0].rank < 2:
        raise ValueError(f"x {args[0]} has rank below 2")
    return args[0]


@op("full", shape="extents", value="number", dtype="dtype")
def _full(args, attrs):
    _count(args, 0)
    return TensorType.of(attrs["dtype"], attrs["shape"])


@op("iota", shape="extents", axis="int", dtype="dtype")
def _iota(args, attrs):
    _count(args, 0)
    dims.axis(attrs["axis"], len(attrs["shape"]))
    return TensorType.of(attrs["dtype"], attrs["shape"])


@op("resize", sizes="extents", scales="floats", mode="string", coordinate="string", nearest_mode="string",
    cubic_coeff=("float", -0.75), exclude_outside=("bool", False))  # fmt: skip
def _resize(args, attrs):
    _count(args, 1)
    if attrs["mode"] != "nearest":
        _dtype(args[0], FLOATS)
    if len(attrs["sizes"]) != args[0].rank or len(attrs["scales"]) != args[0].rank:
        raise ValueError(f"sizes {attrs['sizes']} or scales {attrs['scales']} for rank {args[0].rank}")
    return TensorType.of(args[0].dtype, attrs["sizes"])


@op("grid_sample", mode=("string", "linear"), coordinate=("string", "half_pixel"), padding=("string", "zeros"))
def _grid_sample(args, attrs):
    _count(args, 2)
    x, grid = args
    _same_dtype(args)
    _dtype(x, FLOATS)
    axes = x.rank - 2
    if not 1 <= axes <= 3 or 0 in x.shape[1:-1]:
        raise ValueError(f"{x} has no pixels along 1 to 3 axes")
    if grid.rank < 2 or grid.shape[0] != x.shape[0] or grid.shape[-1] != axes:
        raise ValueError(f"the grid {grid} for {x} is not [{x.shape[0]}, ..., {axes}]")
    return TensorType(x.dtype, (*grid.shape[:-1], x.shape[-1]))


@op("reverse_sequence", batch_axis=("int", 1), time_axis=("int", 0))
def _reverse_sequence(args, attrs):
    _count(args, 2)
    _dtype(args[1], ("i64",), "lengths")
    return args[0]


def _directions(attrs) -> int:
    if attrs["direction"] not in ("forward", "reverse", "bidirectional"):
        raise ValueError(f"direction {attrs['direction']!r}")
    return 2 if attrs["direction"] == "bidirectional" else 1


def _recurrent(gates: int, states: int, peepholes: bool):
    def infer(args, attrs):
        least = 4 + states
        _count(args, least, least + 1 if peepholes else least)
        _same_dtype(args)
        _dtype(args[0], FLOATS)
        count, hidden = _directions(attrs), attrs["hidden_size"]
        x = args[0].shape
        if len(x) != 3:
            raise ValueError(f"x {args[0]} is not [seq, batch, in]")
        wanted = [(count, gates * hidden, x[2]), (count, gates * hidden, hidden), (count, 2 * gates * hidden)]
        wanted += [(count, x[1], hidden)] * states + [(count, 3 * hidden)]
        for arg, want, name in zip(args[1:], wanted, ("w", "r", "b", "h0", "c0" if states == 2 else "p", "p")):
            if arg.shape != want:
                raise ValueError(f"{name} {arg} wants shape {list(want)}")
        state = TensorType(args[0].dtype, (count, x[1], hidden))
        return (TensorType(args[0].dtype, (x[0], count, x[1], hidden)), *[state] * states)

    return infer


op("lstm", direction="string", hidden_size="int")(_recurrent(4, 2, True))
op("gru", direction="string", hidden_size="int", linear_before_reset=("bool", False))(_recurrent(3, 1, False))
op("rnn", direction="string", hidden_size="int", activation=("string", "tanh"))(_recurrent(1, 1, False))
__all__ = ["N"]
