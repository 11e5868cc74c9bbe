"""Functions and methods of tensors: element by element, reductions, products."""

from __future__ import annotations

from .builder import DroppedError, step

UNARY = (
    "abs", "exp", "exp2", "expm1", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "asinh", "erf", "erfc", "sigmoid",
    "neg", "square", "relu", "rad2deg", "deg2rad", "sinc", "positive", "frac", "trunc", "sgn", "nan_to_num", "logit",
)  # fmt: skip
POSITIVE = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "lgamma", "acosh", "digamma")
FUNCTIONAL = (
    "F.gelu", "F.silu", "F.elu", "F.selu", "F.softsign", "F.tanhshrink", "F.logsigmoid", "F.hardtanh", "F.hardshrink",
    "F.softshrink", "F.relu6", "F.mish", "F.hardswish", "torch.special.expit", "torch.special.erfcx", "torch.special.i0",
    "torch.special.ndtr", "torch.special.entr", "torch.special.xlog1py", "torch.nn.functional.normalize",
)  # fmt: skip
NEVER = ("torch.special.erfcx", "torch.special.i0", "torch.special.xlog1py")  # which the IR can't say


@step(weight=2)
def unary(b, x):
    way = b.pick(("plain", "plain", "positive", "functional", "bounded"))
    if way == "plain":
        return b.do(f"{x}.{b.pick(UNARY)}()")
    if way == "positive":
        name = b.pick([name for name in POSITIVE if name not in ("lgamma", "digamma")])
        return b.do(f"({x}.abs() + 1.1).{name}()")
    if way == "functional":
        return b.do(f"{b.pick([name for name in FUNCTIONAL if name not in NEVER])}({x})")
    return b.do(f"({x}.tanh() * 0.9).{b.pick(('asin', 'acos', 'atanh', 'logit', 'erfinv')[:4])}()")


@step(weight=0.7, jumps=True)
def rounding(b, x):
    return b.do(
        f"({x} * 1.37 + 0.123).{b.pick(('floor()', 'ceil()', 'round()', 'trunc()', 'frac()', 'round(decimals=1)', 'sign()'))}"
    )


@step(weight=3)
def binary(b, x):
    op = b.pick(("+", "-", "*", "/", "add", "sub", "rsub", "maximum", "fmin", "lerp", "hypot", "atan2", "logaddexp", "addcmul",
                 "addcdiv", "xlogy", "copysign", "pow", "max", "float_power", "true_divide", "heaviside", "ldexp", "dist"))  # fmt: skip
    y = b.broadcastable(x)
    n = b.number()
    if op in ("+", "-", "*") and b.chance(0.5):
        y = b.pick((n, 2, True, f"{y}.double()", f"{y}.half()", f"{y}.bfloat16()"))
    forms = {
        "/": f"{x} / ({y}.abs() + 1)",
        "add": f"torch.add({x}, {y}, alpha={b.pick((2, 0.5))})",
        "sub": f"{x}.sub({y}, alpha={b.pick((2, 0.5))})",
        "rsub": b.pick((f"torch.rsub({x}, {y}, alpha=2)", f"1.5 - {x}")),
        "maximum": f"torch.{b.pick(('maximum', 'minimum'))}({x}, {y})",
        "max": f"torch.{b.pick(('max', 'min'))}({x}, {y})",
        "fmin": f"torch.{b.pick(('fmin', 'fmax'))}({x}, {y})",
        "lerp": f"torch.lerp({x}, {y}, {b.pick((0.3, y))})",
        "hypot": f"torch.hypot({x}, {y})",
        "atan2": f"torch.atan2({x}, {y} + 3)",
        "logaddexp": f"torch.{b.pick(('logaddexp', 'logaddexp2'))}({x}, {y})",
        "addcmul": f"torch.addcmul({x}, {y}, {y}, value={n})",
        "addcdiv": f"torch.addcdiv({x}, {y}, {y}.abs() + 1, value={n})",
        "xlogy": f"torch.xlogy({x}, {y}.abs() + 0.5)",
        "copysign": f"torch.copysign({x}, {y} + 0.0123)",
        "pow": b.pick((f"({x}.abs() + 0.1) ** {y}", f"{x} ** {b.pick((0, 1, 2, 3, -1))}", f"{b.pick((2, 0.7))} ** {x}",
                       f"({x}.abs() + 0.1) ** {b.pick((0.5, -0.5, 1.5))}")),
        "float_power": f"torch.float_power({x}, 2)",
        "true_divide": f"{x}.true_divide({b.pick((3, -0.7))})",
        "heaviside": f"torch.heaviside({x} + 0.0123, {y})",
        "ldexp": f"torch.ldexp({x}, torch.tensor(2))",
        "dist": f"torch.dist({x}, {y}, {b.pick((1, 2))})",
    }  # fmt: skip
    return b.do(forms.get(op, f"{x} {op} {y}" if b.chance(0.5) else f"{y} {op} {x}"))


@step(weight=1)
def where(b, x):
    y = b.broadcastable(x)
    mask = b.mask([n if b.chance(0.7) else 1 for n in b.shape(x)])
    ways = [
        f"torch.where({mask}, {x}, {y})", f"torch.where({mask}, {b.number()}, {x})", f"{x}.where({mask}, {b.number()})",
        f"{x}.masked_fill({mask}, {b.number()})", f"{x} * {mask}", f"{x}.masked_fill(~{mask}, -1)",
        f"torch.where({mask}, {x}, 0)", f"torch.where({x} > 0.0123, {x} - 0.0123, {y} * ({x} - 0.0123))",
        f"{x}.masked_scatter({mask}.expand({x}.shape), {x}.flip(0))",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(weight=1)
def clamp(b, x):
    y = b.broadcastable(x)
    ways = [
        f"{x}.clamp(-0.7, 0.9)", f"{x}.clamp(min={b.number()})", f"torch.clamp({x}, max={y})", f"{x}.clamp_min(0)",
        f"torch.clip({x}, {y}, {y} + 1)", f"{x}.clamp(1, 0)", f"F.threshold({x} - 0.0123, 0.0, 0.0)", f"F.hardtanh({x}, -0.1, 0.1)",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(weight=1, jumps=True)
def modulo(b, x):
    way = b.pick(("fmod", "remainder", "floor_divide", "trunc"))
    y = b.pick((0.7, -1.3, 2, f"({b.broadcastable(x)}.abs() + 0.5)"))
    if way == "trunc":
        return b.do(f"torch.div({x}, {y}, rounding_mode='{b.pick(('trunc', 'floor'))}')")
    return b.do(f"torch.{way}({x}, {y})")


@step(weight=1.5)
def cast(b, x):
    ways = [
        f"{x}.to(torch.{b.pick(('float32', 'float64', 'float16', 'bfloat16'))})", f"{x}.double()", f"{x}.float()", f"{x}.half()",
        f"{x}.type_as({b.pick(b.live)})", f"{x}.bfloat16().float()", f"{x}.to({b.pick(b.live)})", f"{x}.contiguous()", f"{x}.clone()",
        f"{x}.detach()",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(weight=0.6, jumps=True)
def to_integers(b, x):
    return b.do(f"({x} * 3.3 + 0.0123).clamp(-99, 99).{b.pick(('long()', 'int()', 'to(torch.int8)', 'short()'))}")


@step(weight=1, jumps=True)
def compare(b, x):
    y = b.pick((0.0123, b.broadcastable(x)))
    op = b.pick((">", "<", ">=", "<="))
    return b.do(
        b.pick((f"{x} {op} {y}", f"{x}.isclose({x} + 0.1)", f"{x}.isnan()", f"{x}.isfinite()", f"{x}.signbit()"))
    )


@step(1, 2, 3, 4, 5, weight=3)
def reduce(b, x):
    axis = b.axis(x)
    other = b.axis(x)
    rank = len(b.shape(x))
    axes = axis if (other - axis) % rank == 0 or b.chance(0.6) else (axis, other)
    keep = f"keepdim={b.chance(0.5)}"
    ways = [
        f"{x}.sum({axes}, {keep})", f"{x}.mean({axes}, {keep})", f"{x}.amax({axes}, {keep})", f"{x}.amin({axes}, {keep})",
        f"{x}.sum()", f"{x}.mean()", f"{x}.max()", f"{x}.min()", f"{x}.var({axes}, {keep})", f"{x}.std({axes}, correction=0, {keep})",
        f"torch.var({x})", f"{x}.std(unbiased=False)", f"{x}.norm()", f"{x}.norm(dim={axes}, {keep})", f"{x}.norm({b.pick((1, 3))}, {axis})",
        f"torch.linalg.vector_norm({x}, {b.pick((1, 2, 2.5, 'math.inf', '-math.inf'))}, dim={axes})",
        f"torch.linalg.vector_norm({x}, math.inf)", f"{x}.logsumexp({axes}, {keep})", f"(({x}.tanh() + 1.5) / 1.5).prod({axis}, {keep})",
        f"{x}.tanh().prod()", f"{x}.softmax({axis})", f"F.log_softmax({x}, {axis})", f"F.softmax({x}, {axis}, dtype=torch.float64)",
        f"{x}.cumsum({axis})", f"{x}.tanh().cumprod({axis})", f"{x}.median()", f"{x}.sum({axes}, dtype=torch.float64)",
        f"{x}.max({axis}, {keep})[0]", f"{x}.min({axis}, {keep}).values", f"{x}.median({axis}, {keep})[0]", f"{x}.mean(dtype=torch.float64)",
        f"{x}.kthvalue({b.pick((1, 2))}, {axis}, {keep})[0]", f"{x}.logcumsumexp({axis})", f"{x}.nansum({axes})", f"{x}.nanmean({axis})",
        f"torch.softmax({x}, {axis}).argmax({axis}).sum() * 0 + {x}.sum()", f"{x}.sum(())", f"{x}.amax(())", f"{x}.quantile(0.3, {axis})",
        f"F.normalize({x}, dim={axis})", f"{x}.renorm(2, {axis}, 1.5)", f"{x}.diff(dim={axis})", f"torch.trapezoid({x}, dim={axis})",
        f"{x}.count_nonzero({axis})", f"torch.cummax({x}, {axis})[0]", f"torch.cummin({x}, {axis}).values", f"{x}.nanmedian()",
        f"torch.linalg.norm({x}, dim={axis})", f"torch.aminmax({x}, dim={axis}).min",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, 5, weight=0.7)
def moments(b, x):
    axis = b.axis(x)
    ways = [
        f"torch.var_mean({x}, {axis}, keepdim={b.chance(0.5)})",
        f"torch.std_mean({x}, dim={axis}, correction=0)",
        f"torch.aminmax({x})",
    ]
    return b.do(b.pick(ways), 2)


@step(1, 2, 3, 4, weight=1, jumps=True)
def order(b, x):
    """Of values that are apart: a last bit would exchange others."""
    axis = b.axis(x)
    n = b.shape(x)[axis]
    values, _ = b.program.values[x].float().sort(axis)
    if n > 1 and float(values.diff(dim=axis).min()) < 1e-3:
        raise DroppedError("values that are close")
    k = b.pick(range(1, n + 1))
    ways = [
        f"{x}.topk({k}, {axis}, largest={b.chance(0.6)})", f"{x}.sort({axis}, descending={b.chance(0.5)})", f"{x}.max({axis})",
        f"torch.min({x}, {axis}, keepdim=True)", f"{x}.kthvalue({k}, {axis})", f"torch.median({x}, {axis})",
        f"torch.sort({x}, stable=True, dim={axis})", f"torch.cummax({x}, {axis})",
    ]  # fmt: skip
    if b.chance(0.3):
        return b.do(
            b.pick((f"{x}.argmax({axis}, keepdim={b.chance(0.5)})", f"{x}.argsort({axis})", f"{x}.argmin({axis})"))
        )
    return b.do(b.pick(ways), 2)


@step(2, 3, 4, weight=1.5)
def product(b, x):
    *lead, m, k = b.shape(x)
    n = b.pick((1, 3, 8))
    w = b.layer(f"torch.randn({(*([] if b.chance(0.5) else lead), k, n)}) / {k**0.5:.2f}")
    bias = b.layer(f"torch.randn({(n,)})")
    batch = ", ".join(map(str, lead))
    one = b.layer(f"torch.randn({k})")
    beta = f"beta={b.pick((1, 0.5, 0))}, alpha={b.pick((1, 2))}"
    ways = [
        f"{x} @ {w}", f"torch.matmul({x}, {w})", f"F.linear({x}, {w}.mT, {bias})", f"{x} @ {one}", f"{x} @ {x}.mT / {k}",
        f"torch.einsum('...ij,...jk->...ik', {x}, {w})", f"torch.einsum('...ij,...kj->...ik', {x}, {x}) / {k}", f"torch.matmul({one}, {x}.mT)",
    ]  # fmt: skip
    if not lead:
        ways += [
            f"torch.mm({x}, {w})", f"torch.addmm({bias}, {x}, {w}, {beta})", f"torch.mv({x}, {one})", f"torch.cdist({x}, {x} + 1)",
            f"torch.einsum('ij,kj->ki', {x}, {x})", f"torch.kron({x}, {w}) if {k} < 5 else {x}", f"torch.outer({one}, {bias})",
            f"torch.addmv({x}[:, 0], {x}, {one}, {beta})", f"torch.tensordot({x}, {w}, 1)", f"torch.linalg.multi_dot([{x}, {w}, {w}.t()])",
            f"torch.addr({x}, {x}[:, 0], {x}[0], {beta})", f"torch.chain_matmul({x}, {w})", f"torch.trace({x})", f"torch.inner({x}, {x})",
        ]  # fmt: skip
    if len(lead) == 1:
        v = b.layer(f"torch.randn({(lead[0], k, n)}) / {k**0.5:.2f}")
        ways += [
            f"torch.bmm({x}, {v})", f"torch.baddbmm({bias}, {x}, {v}, {beta})", f"torch.addbmm({bias}, {x}, {v}, {beta})",
            f"torch.einsum('bij,bjk->bki', {x}, {v})", f"torch.einsum('bij,bij->b', {x}, {x}) / {m * k}", f"torch.cdist({x}, {v}.mT, p=1.0)",
            f"torch.tensordot({x}, {v}, ([0, 2], [0, 1]))",
        ]  # fmt: skip
    if len(lead) == 2:
        ways += [
            f"torch.einsum('bhqd,bhkd->bhqk', {x}, {x}) / {k}",
            f"torch.einsum('bhqd->bqhd', {x}).flatten(2)",
            f"torch.einsum('bhqd,bhqe->hde', {x}, {x}) / {m * lead[0]}",
        ]
    return b.do(b.pick([way for way in ways if way] or [batch]))


@step(3, 4, weight=1.5)
def scaled_attention(b, x):
    *lead, q, e = b.shape(x)
    s = b.pick((q, 1, 5))
    heads = (*lead[:-1], b.divisor(lead[-1])) if len(lead) == 2 and b.chance(0.3) else tuple(lead)
    k, v = (b.do(f"{b.layer(f'torch.randn({(*heads, s, width)})')} * 1.0") for width in (e, b.pick((e, e, 3))))
    options = ", enable_gqa=True" if heads != tuple(lead) else ""
    way = b.pick(("", "", "causal", "bool", "float", "whole"))
    if way == "causal":
        options += ", is_causal=True"
    if way == "bool":
        options += f", attn_mask={b.mask((q, s))}"
    if way == "float":
        options += f", attn_mask={b.layer(f'torch.randn({(*[b.pick((1, n)) for n in lead], q, s)})')}.to({x}.dtype)"
    if way == "whole":
        options += f", attn_mask=torch.zeros({q}, {s}, dtype={x}.dtype).masked_fill({b.mask((q, s), 0.4)}, -math.inf)"
    options += f", scale={b.pick((0.3, 1.0))}" if b.chance(0.3) else ""
    return b.do(f"F.scaled_dot_product_attention({x}, {k}, {v}{options})")


@step(4, weight=0.7)
def sample(b, x):
    n = b.shape(x)[0]
    mode, padding = b.pick(("bilinear", "nearest", "bicubic")), b.pick(("zeros", "border", "reflection"))
    grid = b.layer(f"torch.rand({n}, {b.pick((1, 3))}, {b.pick((2, 5))}, 2) * 2.4 - 1.2")
    ways = [
        f"F.grid_sample({x}, {grid}, mode='{mode}', padding_mode='{padding}', align_corners={b.chance(0.5)})",
        f"F.grid_sample({x}, F.affine_grid(torch.eye(2, 3, dtype={x}.dtype).expand({n}, 2, 3) * 0.7, {x}.shape, align_corners=False), align_corners=False)",
        f"F.local_response_norm({x}, 3)",
    ]
    return b.do(b.pick(ways))


@step(kind="i", weight=2)
def integers(b, x):
    y = b.like(x, lambda y: y.shape == b.program.values[x].shape and not y.is_floating_point())
    ways = [
        f"{x} + {y}", f"{x} * 3 - {y}", f"{x} // {b.pick((2, -3))}", f"{x} % {b.pick((3, -4))}", f"{x} / 2", f"{x}.float()", f"{x} * 0.5",
        f"{x} & 5", f"{x} | {y}", f"{x} ^ 3", f"~{x}", f"{x} << 1", f"{x} >> 1", f"{x}.abs()", f"-{x}", f"{x} == {y}", f"{x} > 2", f"{x}.clamp(-2, 3)",
        f"{x}.sum()", f"{x}.float().mean()", f"{x}.to(torch.int32)", f"{x}.to(torch.uint8)", f"{x}.bool()", f"{x} ** 2", f"torch.maximum({x}, {y})",
        f"torch.div({x}, 3, rounding_mode='{b.pick(('trunc', 'floor'))}')", f"torch.fmod({x}, 3)", f"torch.remainder({x}, {y}.abs() + 1)",
        f"torch.where({x} > 0, {x}, {y})", f"F.one_hot({x}.long() % 4, 4)", f"{x}.sign()", f"torch.floor_divide({x}, {y}.abs() + 1)",
        f"torch.bucketize({x}, torch.tensor([-2, 1, 3]))", f"{x}.to(torch.int8) + {y}.to(torch.int16)", f"{x}.prod()", f"torch.sqrt({x}.abs() + 1)",
        f"{x}.eq({b.pick((1, 1.5))})", f"{x}.to(torch.{b.pick(('float16', 'bfloat16', 'float64'))})", f"torch.isin({x}, torch.tensor([1, 2]))",
        f"torch.searchsorted(torch.tensor([-2, 1, 3]), {x}, right=True)", f"torch.exp(-{x}.abs())", f"{x}.cumsum(-1)", f"{x}.masked_fill({x} < 0, 7)",
        f"torch.bitwise_left_shift({x}, 2)", f"{x}.logical_not()", f"torch.mean({x}, dtype=torch.float32)", f"{x}.any()", f"{x}.max()",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(1, 2, 3, 4, kind="i", weight=1)
def integers_of_axis(b, x):
    axis = b.axis(x)
    ways = [
        f"{x}.sum({axis})", f"{x}.argmax({axis})", f"{x}.argmin({axis})", f"{x}.amax({axis})", f"{x}.cumsum({axis})", f"{x}.sort({axis}, stable=True)[1]", f"{x}.prod({axis})",
        f"{x}.flip({axis})", f"{x}.any({axis})", f"{x}.all({axis})", f"{x}.sort({axis})[0]", f"{x}.topk(1, {axis})[0]", f"{x}.argsort({axis}, stable=True)",
        f"({x} != 0).cumsum({axis})", f"({x} > 0).sum({axis})", f"({x} > 0).float().mean({axis})", f"{x}.roll(1, {axis})", f"{x}.argmax()", f"{x}.diff(dim={axis})",
        f"torch.cummax({x}, {axis})[0]", f"{x}.max({axis})[0]", f"{x}.count_nonzero({axis})", f"{x}.median({axis})[0]",
    ]  # fmt: skip
    return b.do(b.pick(ways))


@step(kind="b", weight=3)
def booleans(b, x):
    y = b.like(x, lambda y: y.shape == b.program.values[x].shape)
    ways = [
        f"~{x}", f"{x} & ({y} > 0)", f"{x} | ({y} != 0)", f"{x} ^ ({y} > 0)", f"{x}.float()", f"{x}.long() + 1", f"{x}.sum()", f"{x}.all()", f"{x}.any()",
        f"{x}.to({b.pick(b.live)}.dtype)", f"torch.where({x}, 1.5, -0.5)", f"{x} * 2.0", f"{x}.logical_xor({y})", f"{x}.int().cumsum(-1)", f"{x} + 1", f"{x} == {y}",
        f"{x}.cumsum(-1)", f"{x}.sum(-1)", f"torch.where({x}, {y}, 0)", f"{x} + {x}", f"1.0 - {x}.float()", f"{x}.any(-1)", f"{x}.all(0)", f"{x}.to(torch.uint8)",
        f"torch.stack([{x}, ~{x}])", f"F.pad({x}, (1, 1))", f"F.pad({x}, (1, 0), value=True)", f"{x}.argmax(-1) if {x}.dtype != torch.bool else {x}.int().argmax(-1)",
        f"{x}.tril()", f"{x}.flip(0)", f"{x}.max()", f"{x}.amax(0)", f"{x}.unsqueeze(0).repeat(2, *[1] * {x}.dim())", f"{x}.sort(-1)[0]",
    ]  # fmt: skip
    return b.do(b.pick(ways))
