"""Layers of torch.nn."""

from __future__ import annotations

from .builder import EXTENTS, DroppedError, step

ACTIVATIONS = (
    "nn.ReLU()", "nn.ReLU6()", "nn.ReLU(inplace=True)", "nn.LeakyReLU(0.2)", "nn.PReLU()", "nn.ELU(0.7)", "nn.SELU()",
    "nn.CELU(1.3)", "nn.GELU()", 'nn.GELU("tanh")', "nn.SiLU()", "nn.Mish()", "nn.Sigmoid()", "nn.Tanh()",
    "nn.Hardtanh(-0.5, 1.5)", "nn.Hardswish()", "nn.Hardsigmoid()", "nn.Softplus()", "nn.Softplus(2.0, 3.0)",
    "nn.Softsign()", "nn.LogSigmoid()", "nn.Tanhshrink()", "nn.Softmax(-1)", "nn.LogSoftmax(0)", "nn.Softmin(-1)",
    "nn.Dropout(0.3)", "nn.AlphaDropout()", "nn.Identity()", "nn.RReLU()",
)  # fmt: skip


@step(weight=3)
def activation(b, x):
    code = b.pick(ACTIVATIONS)
    return b.do(f"{b.layer(code)}({x}{' + 0' if 'inplace' in code else ''})")


@step(2, 3, 4, weight=1)
def channel_activation(b, x):
    c = b.shape(x)[1]
    ways = [f"nn.PReLU({c})", "nn.Softmax(1)", "nn.GLU(1)", "nn.GLU()", "nn.Softmax2d()", "nn.Dropout2d()"]
    return b.do(f"{b.layer(b.pick(ways))}({x})")


@step(2, 3, 4, 5, weight=3)
def conv(b, x):
    """Sometimes without a batch."""
    lone = len(b.shape(x)) == 2 or (len(b.shape(x)) < 5 and b.chance(0.2))
    n = len(b.shape(x)) - (1 if lone else 2)
    c = b.shape(x)[0 if lone else 1]
    kernel = b.pick((1, 2, 3, 3, (3, 1, 2)[:n], 5))
    groups = b.pick((1, 1, b.divisor(c), c))
    stride = b.pick((1, 1, 2))
    dilation = b.pick((1, 1, 2))
    padding = b.pick((0, 1, 1, 2, "'same'", "'valid'") if stride == 1 else (0, 1, 2))
    mode = b.pick(("zeros", "zeros", "zeros", "reflect", "replicate", "circular"))
    out = groups * b.pick((1, 2, 3, 8))
    code = (
        f"nn.Conv{n}d({c}, {out}, {kernel}, stride={stride}, padding={padding}, dilation={dilation}, groups={groups}, "
        f"bias={b.chance(0.7)}, padding_mode='{mode}')"
    )
    y = b.do(f"{b.layer(code)}({x})")
    if b.chance(0.3) and not lone:
        y = b.do(f"{b.layer(f'nn.BatchNorm{n}d({out})')}({y})")
    return activation(b, y) if b.chance(0.3) else y


@step(3, 4, 5, weight=1)
def conv_transpose(b, x):
    n, c = len(b.shape(x)) - 2, b.shape(x)[1]
    groups = b.pick((1, 1, b.divisor(c)))
    stride = b.pick((1, 2, 3))
    code = (
        f"nn.ConvTranspose{n}d({c}, {groups * b.pick((1, 2, 3))}, {b.pick((1, 2, 3, 4))}, stride={stride}, "
        f"padding={b.pick((0, 0, 1))}, output_padding={b.pick((0, 0, stride - 1))}, groups={groups}, "
        f"bias={b.chance(0.7)}, dilation={b.pick((1, 1, 2))})"
    )
    return b.do(f"{b.layer(code)}({x})")


@step(1, 2, 3, 4, weight=3)
def linear(b, x):
    code = f"nn.Linear({b.shape(x)[-1]}, {b.pick(EXTENTS)}, bias={b.chance(0.7)})"
    return b.do(f"{b.layer(code)}({x})")


@step(2, 3, weight=0.2)
def bilinear(b, x):
    y = b.like(x, lambda y: y.shape[:-1] == b.program.values[x].shape[:-1])
    return b.do(f"{b.layer(f'nn.Bilinear({b.shape(x)[-1]}, {b.shape(y)[-1]}, {b.pick((1, 3))})')}({x}, {y})")


@step(2, 3, 4, 5, weight=2.5)
def norm(b, x):
    shape = b.shape(x)
    c, n = shape[1], len(shape) - 2
    affine = b.chance(0.7)
    last = list(shape[-b.pick((1, 1, 2)) :])
    ways = [
        f"nn.LayerNorm({last}, elementwise_affine={affine}, bias={b.chance(0.7)}, eps={b.pick((1e-5, 1e-2))})",
        f"nn.RMSNorm({last}, elementwise_affine={affine}, eps={b.pick((None, 1e-3))})",
        f"nn.GroupNorm({b.divisor(c)}, {c}, affine={affine})",
        f"nn.BatchNorm{max(n, 1)}d({c}, affine={affine}, track_running_stats={b.chance(0.8)})",
        f"nn.InstanceNorm{max(n, 1)}d({c}, affine={affine}, track_running_stats={b.chance(0.3)})",
        f"nn.LocalResponseNorm({b.pick((1, 2, 3))}, k=1.5)",
        f"nn.utils.parametrizations.weight_norm(nn.Linear({shape[-1]}, 5))",
        f"nn.utils.parametrizations.spectral_norm(nn.Linear({shape[-1]}, 5))",
    ]
    return b.do(f"{b.layer(b.pick(ways))}({x})")


@step(3, weight=2)
def attention(b, x):
    n, t, c = b.shape(x)
    heads, first = b.divisor(c), b.chance(0.6)
    batch, length = (n, t) if first else (t, n)
    other = x
    options = f"bias={b.chance(0.8)}, batch_first={first}"
    if b.chance(0.3):
        other = b.like(x, lambda y: y.dim() == 3 and y.shape[0 if first else 1] == batch and y.dtype == b.program.dtype)
        options += f", kdim={b.shape(other)[2]}, vdim={b.shape(other)[2]}"
    keys = b.shape(other)[1 if first else 0]
    options += ", add_bias_kv=True" if b.chance(0.1) else ""
    options += ", add_zero_attn=True" if b.chance(0.1) else ""
    layer = b.layer(f"nn.MultiheadAttention({c}, {heads}, {options})")
    call = f"{x}, {other}, {other}"
    way = b.pick(("", "", "padding", "bool", "float", "causal"))
    if way == "padding":
        call += f", key_padding_mask={b.layer(f'(torch.rand({batch}, {keys}) < 0.3) & (torch.arange({keys}) > 0)')}"
    elif way == "bool":
        call += f", attn_mask={b.layer(f'torch.ones({length}, {keys}).triu(1) > 0')}"
    elif way == "float":
        call += (
            f", attn_mask={b.layer(f'torch.randn({b.pick((1, batch * heads))}, 1, 1).expand(-1, {length}, {keys})')}"
        )
    elif way == "causal" and length == keys:
        call += f", attn_mask=nn.Transformer.generate_square_subsequent_mask({length}, dtype={x}.dtype), is_causal=True"
    if b.chance(0.5):
        return b.do(f"{layer}({call}, need_weights=False)[0]")
    return b.do(f"{layer}({call}, average_attn_weights={b.chance(0.5)})", 2)


@step(3, weight=1)
def transformer(b, x):
    n, t, c = b.shape(x)
    heads, first = b.divisor(c), b.chance(0.6)
    options = (
        f"{c}, {heads}, {b.pick((4, 7))}, batch_first={first}, norm_first={b.chance(0.5)}, bias={b.chance(0.8)}, "
        f"activation='{b.pick(('relu', 'gelu'))}'"
    )
    length = t if first else n
    mask = f"nn.Transformer.generate_square_subsequent_mask({length}, dtype={x}.dtype)"
    way = b.pick(("encoder", "encoder", "stack", "decoder"))
    if way == "decoder":
        masked = f", tgt_mask={mask}, tgt_is_causal=True" if b.chance(0.3) else ""
        return b.do(f"{b.layer(f'nn.TransformerDecoderLayer({options})')}({x}, {x}.flip(0){masked})")
    masked = f", {mask}" if b.chance(0.3) else ""
    layer = f"nn.TransformerEncoderLayer({options})"
    if way == "stack":
        layer = f"nn.TransformerEncoder({layer}, 2, enable_nested_tensor=False)"
    return b.do(f"{b.layer(layer)}({x}{masked})")


@step(2, 3, weight=1.5)
def recurrent(b, x):
    kind = b.pick(("LSTM", "GRU", "RNN"))
    hidden, layers, both, first = b.pick((1, 2, 5, 8)), b.pick((1, 1, 2)), b.chance(0.4), b.chance(0.5)
    options = f"num_layers={layers}, bias={b.chance(0.8)}, batch_first={first}, bidirectional={both}"
    out = hidden
    if kind == "LSTM" and hidden > 1 and b.chance(0.2):
        out = hidden - 1
        options += f", proj_size={out}"
    if kind == "RNN" and b.chance(0.5):
        options += ", nonlinearity='relu'"
    if b.chance(0.2):
        options += ", dropout=0.1"
    layer = b.layer(f"nn.{kind}({b.shape(x)[-1]}, {hidden}, {options})")
    batch = () if len(b.shape(x)) == 2 else (b.shape(x)[0 if first else 1],)
    state = ""
    if b.chance(0.4):
        h, c = (b.layer(f"torch.randn({(layers * (1 + both), *batch, n)})") for n in (out, hidden))
        state = f", ({h}, {c})" if kind == "LSTM" else f", {h}"
    y, s = b._name(), b._name()
    if kind == "LSTM":
        z = b._name()
        b.block(f"{y}, ({s}, {z}) = {layer}({x}{state})", [y, s, z])
        return [y, s, z]
    b.block(f"{y}, {s} = {layer}({x}{state})", [y, s])
    return [y, s]


@step(2, weight=0.4)
def cell(b, x):
    kind = b.pick(("LSTMCell", "GRUCell", "RNNCell"))
    layer = b.layer(f"nn.{kind}({b.shape(x)[1]}, {b.pick((1, 3, 8))}, bias={b.chance(0.7)})")
    return b.do(f"{layer}({x})", 2) if kind == "LSTMCell" else b.do(f"{layer}({x})")


@step(1, 2, 3, kind="i", weight=3)
def embedding(b, x):
    rows, width = b.pick((3, 10)), b.pick((1, 4, 8))
    index = b.do(f"{x}.long() % {rows}")
    if len(b.shape(x)) == 2 and b.chance(0.4):
        mode = b.pick(("sum", "mean", "max"))
        weights = (
            f", per_sample_weights={b.layer(f'torch.randn({b.shape(x)})')}" if b.chance(0.3) and mode == "sum" else ""
        )
        padding = f", padding_idx={b.pick((0, 1))}" if b.chance(0.3) else ""
        return b.do(f"{b.layer(f'nn.EmbeddingBag({rows}, {width}, mode={mode!r}{padding})')}({index}{weights})")
    options = b.pick(("", "", ", padding_idx=0", ", scale_grad_by_freq=True"))
    return b.do(f"{b.layer(f'nn.Embedding({rows}, {width}{options})')}({index})")


@step(2, 3, 4, 5, weight=2)
def pool(b, x):
    lone = len(b.shape(x)) == 2 or (len(b.shape(x)) < 5 and b.chance(0.2))
    n = len(b.shape(x)) - (1 if lone else 2)
    k, ceil = b.pick((1, 2, 3, (3, 1, 2)[:n])), b.chance(0.3)
    options = f"stride={b.pick((1, 2, 2, 3, None))}, padding={b.pick((0, 0, 1))}, ceil_mode={ceil}"
    size = b.pick((1, 1, 2, 3, (2, None, 3)[:n], (5, 4, 1)[:n]))
    way = b.pick(("Max", "Max", "indices", "Avg", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP"))
    if way == "Max":
        return b.do(f"{b.layer(f'nn.MaxPool{n}d({k}, {options}, dilation={b.pick((1, 1, 2))})')}({x})")
    if way == "indices":
        return b.do(f"{b.layer(f'nn.MaxPool{n}d({k}, {options}, return_indices=True)')}({x})", 2)
    if way == "Avg":
        options += f", count_include_pad={b.chance(0.5)}"
        options += f", divisor_override={b.pick((1, 3))}" if n > 1 and b.chance(0.2) else ""
        return b.do(f"{b.layer(f'nn.AvgPool{n}d({k}, {options})')}({x})")
    if way == "LP":
        return b.do(f"{b.layer(f'nn.LPPool{n}d({b.pick((1, 2, 3))}, {k}, ceil_mode={ceil})')}({x}.abs())")
    return b.do(f"{b.layer(f'nn.{way}Pool{n}d({size})')}({x})")


@step(3, 4, 5, weight=1.5)
def upsample(b, x):
    n = len(b.shape(x)) - 2
    modes = [
        "nearest",
        "nearest-exact",
        {1: "linear", 2: "bilinear", 3: "trilinear"}[n],
        *(["bicubic", "bilinear"] if n == 2 else []),
    ]
    mode = b.pick(modes)
    align = f", align_corners={b.pick((True, False, None))}" if "linear" in mode or mode == "bicubic" else ""
    align += ", antialias=True" if mode in ("bilinear", "bicubic") and b.chance(0.1) else ""
    size = tuple(b.pick((1, 2, 3, 5, 8)) for _ in range(n))
    way = b.pick(("size", "factor", "factor", "recompute"))
    if way == "size":
        return b.do(f"F.interpolate({x}, size={size}, mode='{mode}'{align})")
    if way == "factor":
        return b.do(
            f"F.interpolate({x}, scale_factor={b.pick((2, 2.0, 3, 0.5, 1.5, (2.0, 1.0, 3.0)[:n]))}, mode='{mode}'{align})"
        )
    return b.do(
        f"F.interpolate({x}, scale_factor={b.pick((1.5, 0.7))}, mode='{mode}'{align}, recompute_scale_factor=True)"
    )


@step(3, 4, weight=1)
def shuffle(b, x):
    c = b.shape(x)[1]
    r = b.pick((2, 3))
    ways = [
        f"nn.PixelShuffle({r})", f"nn.PixelUnshuffle({r})", f"nn.ChannelShuffle({b.divisor(c)})",
        f"nn.Unfold({b.pick((1, 2, 3))}, dilation={b.pick((1, 2))}, padding={b.pick((0, 1))}, stride={b.pick((1, 2))})",
        f"nn.Unflatten(1, ({(d := b.divisor(c))}, {c // d}))", "nn.Flatten()", "nn.Flatten(0, 1)", "nn.Flatten(-2)",
        "nn.Fold((4, 5), 2, padding=1, stride=2)", "nn.Fold((3, 3), 2)",
    ]  # fmt: skip
    return b.do(f"{b.layer(b.pick(ways))}({x})")


@step(2, 3, 4, 5, weight=1)
def pad(b, x):
    n = b.pick(range(1, min(len(b.shape(x)) - 1, 3) + 1))
    amounts = tuple(b.pick((0, 1, 2)) for _ in range(2 * n))
    way = b.pick(("Reflection", "Replication", "Zero", "Circular", "Constant", "crop"))
    if way == "crop":
        return b.do(f"F.pad({x}, {tuple(b.pick((-1, 0, 1)) for _ in amounts)}, value={b.number()})")
    value = f", {b.number()}" if way == "Constant" else ""
    return b.do(f"{b.layer(f'nn.{way}Pad{n}d({amounts}{value})')}({x})")


@step(2, 3, 4, weight=0.5)
def distance(b, x):
    y = b.like(x, lambda y: y.shape == b.program.values[x].shape and y.is_floating_point())
    ways = [
        "nn.CosineSimilarity(1)", "nn.CosineSimilarity(-1)", "nn.PairwiseDistance(2)", "nn.PairwiseDistance(1, keepdim=True)",
        "nn.MSELoss()", "nn.L1Loss(reduction='sum')", "nn.SmoothL1Loss()", "nn.HuberLoss(delta=0.5)",
        "nn.KLDivLoss(reduction='none', log_target=True)", "nn.SoftMarginLoss()", "nn.MSELoss(reduction='none')",
        "nn.PoissonNLLLoss()", "nn.BCEWithLogitsLoss(reduction='none')", "nn.HingeEmbeddingLoss()",
    ]  # fmt: skip
    return b.do(f"{b.layer(b.pick(ways))}({x}, {y})")


@step(2, weight=0.3)
def classification(b, x):
    target = b.ints(b.shape(x)[:1], 0, b.shape(x)[1])
    ways = [
        "nn.CrossEntropyLoss()",
        "nn.CrossEntropyLoss(label_smoothing=0.1, reduction='none')",
        "nn.NLLLoss(reduction='sum')",
    ]
    return b.do(f"{b.layer(b.pick(ways))}({x}, {target})")


@step(1, 2, 3, 4, weight=1)
def again(b, x):
    """A layer that another line has, with the same weights."""
    layers = [
        name for name, code in b.program.layers.items() if code.startswith(("nn.Linear", "nn.Conv", "nn.LayerNorm"))
    ]
    if not layers:
        raise DroppedError("none yet")
    return b.do(f"self.{b.pick(layers)}({x})")
