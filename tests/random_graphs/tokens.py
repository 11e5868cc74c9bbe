"""Steps on [N, T, C], and on what lies by rows: linear layers, norms, attention, recurrent layers."""

from __future__ import annotations

import math

import numpy as np

from .activations import activation
from .builder import DroppedError, step


@step(4, weight=1.2)
def image_to_tokens(b, x):
    n, c, h, w = b.shape(x)
    if b.chance(0.7):
        return b.node("Transpose", b.reshape(x, n, c, h * w), perm=[0, 2, 1])
    return b.reshape(b.node("Transpose", x, perm=[0, 2, 3, 1]), n, h * w, c)


@step(3, weight=1.2)
def tokens_to_image(b, x):
    n, t, c = b.shape(x)
    h = b.pick([h for h in range(1, t + 1) if t % h == 0])
    if b.chance(0.5):
        return b.reshape(b.node("Transpose", x, perm=[0, 2, 1]), n, c, h, t // h)
    return b.node("Transpose", b.reshape(x, n, h, t // h, c), perm=[0, 3, 1, 2])


@step(3, weight=1.2)
def tokens_depthwise(b, x):
    """What PVT and SegFormer do between two linear layers."""
    n, t, c = b.shape(x)
    h = b.pick([h for h in range(1, t + 1) if t % h == 0])
    image = b.reshape(b.node("Transpose", x, perm=[0, 2, 1]), n, c, h, t // h)
    y = b.conv(image, c, [3, 3], group=c, pads=[1] * 4, strides=[b.pick((1, 1, 2))] * 2)
    if b.chance(0.4):
        y = activation(b, y)
    m, c, h, w = b.shape(y)
    y = b.node("Transpose", b.reshape(y, m, c, h * w), perm=[0, 2, 1])
    return activation(b, y) if b.chance(0.6) else y


@step(2, 3, 4, weight=2)
def linear(b, x):
    y = b.linear(x, b.shape(x)[-1] if b.chance(0.3) else b.pick(b.sizes.channels))
    y = activation(b, y) if b.chance(0.6) else y
    return b.add_to(y) if b.chance(0.3) else y


@step(2, weight=1.2)
def gemm(b, x):
    rows, k = b.shape(x)
    out = b.pick(b.sizes.channels)
    transposed = b.chance(0.6)
    w = b.weight((out, k) if transposed else (k, out), 1 / math.sqrt(k))
    c = [b.weight(b.pick(((out,), (1, out), (rows, 1), (rows, out), ())), 0.5)] if b.chance(0.7) else []
    scale = {"alpha": 0.7, "beta": 1.2} if b.chance(0.2) else {}
    return b.node("Gemm", x, w, *c, transB=int(transposed), **scale)


@step(2, 3, 4, weight=1)
def product_of_two(b, x):
    """Of two activations."""
    y = b.scaled(x)
    rank = len(b.shape(y))
    perm = [*range(rank - 2), rank - 1, rank - 2]
    k = b.shape(y)[-1]
    y = b.node("Mul", y, b.number(1 / math.sqrt(k)))
    t = b.node("Transpose", b.scaled(x), perm=perm)
    return b.node("MatMul", y, t) if b.chance(0.7) else b.node("MatMul", t, y)


@step(2, 3, 4, weight=1.2)
def layer_norm(b, x):
    rank = len(b.shape(x))
    axis = -1 if b.chance(0.8) else int(b.random.integers(1, rank)) - rank
    shape = b.shape(x)[axis:]
    b.check_spread(x, range(axis, 0))
    scale, bias = b.constant(1 + b.array(shape, 0.2)), b.constant(b.array(shape, 0.2))
    if b.chance(0.5):
        y = b.node("LayerNormalization", x, scale, bias, axis=axis, epsilon=1e-5)
        return y
    axes = b.ints(*range(axis, 0))
    centred = b.node("Sub", x, b.node("ReduceMean", x, axes, keepdims=1))
    square = b.node("Pow", centred, b.number(2)) if b.chance(0.5) else b.node("Mul", centred, centred)
    variance = b.node("Add", b.node("ReduceMean", square, axes, keepdims=1), b.number(1e-5))
    y = b.node("Div", centred, b.node("Sqrt", variance))
    if b.chance(0.8):
        y = b.node("Mul", *b.either_way(y, scale))
    return b.node("Add", *b.either_way(y, bias)) if b.chance(0.8) else y


@step(2, 3, 4, weight=0.7)
def rms_norm(b, x):
    mean = b.node("ReduceMean", b.node("Pow", x, b.number(2)), b.ints(-1), keepdims=1)
    root = b.node("Sqrt", b.node("Add", mean, b.number(1e-5)))
    y = b.node("Div", x, root) if b.chance(0.5) else b.node("Mul", x, b.node("Reciprocal", root))
    return b.node("Mul", *b.either_way(b.constant(1 + b.array(b.shape(x)[-1:], 0.2)), y))


@step(2, 3, 4, weight=0.7)
def softmax(b, x):
    axis = -1 if b.chance(0.6) else int(b.random.integers(len(b.shape(x))))
    if b.chance(0.7):
        return b.node(b.pick(("Softmax", "Softmax", "LogSoftmax")), x, axis=axis)
    e = b.node("Exp", b.node("Sub", x, b.node("ReduceMax", x, b.ints(axis), keepdims=1)))
    return b.node("Div", e, b.node("ReduceSum", e, b.ints(axis), keepdims=1))


@step(3, weight=2)
def attention(b, x):
    n, t, d = b.shape(x)
    heads = b.pick([h for h in (1, 2, 3, 4, 8) if h <= d])
    size = b.pick((1, 3, 4, 8, 16, 17, 32))
    kv = b.pick([y for y in b.live if len(b.shape(y)) == 3 and b.shape(y)[0] == n]) if b.chance(0.2) else x
    s = b.shape(kv)[1]

    def split_heads(y, tokens, perm):
        return b.node("Transpose", b.reshape(y, n, tokens, heads, size), perm=perm)

    if kv == x and b.chance(0.4):  # one product for three, taken apart
        qkv = b.linear(x, 3 * heads * size)
        if b.chance(0.5):
            y = b.node("Transpose", b.reshape(qkv, n, t, 3, heads, size), perm=[2, 0, 3, 1, 4])
            q, k, v = (b.node("Gather", y, b.constant(np.int64(i)), axis=0) for i in range(3))
        else:
            parts = b.node("Split", qkv, outputs=3, axis=2, num_outputs=3)
            q, k, v = (split_heads(b.sibling(parts, i), t, [0, 2, 1, 3]) for i in range(3))
        k = b.node("Transpose", k, perm=[0, 1, 3, 2])
    else:
        q = split_heads(b.linear(x, heads * size), t, [0, 2, 1, 3])
        v = split_heads(b.linear(kv, heads * size), s, [0, 2, 1, 3])
        k = b.linear(kv, heads * size)
        if b.chance(0.5):
            k = split_heads(k, s, [0, 2, 3, 1])
        else:
            k = b.node("Transpose", split_heads(k, s, [0, 2, 1, 3]), perm=[0, 1, 3, 2])
    scale = 1 / math.sqrt(size)
    where = b.pick(("q", "scores", "divide", "both"))
    if where == "q":
        q = b.node("Mul", q, b.number(scale))
    if where == "both":
        q, k = b.node("Mul", q, b.number(math.sqrt(scale))), b.node("Mul", k, b.number(math.sqrt(scale)))
    scores = b.node("MatMul", q, k)
    if where == "scores":
        scores = b.node("Mul", *b.either_way(scores, b.number(scale)))
    if where == "divide":
        scores = b.node("Div", scores, b.number(1 / scale))
    mask = b.pick(("none", "none", "bias", "causal", "keys", "where", "input"))
    if mask == "bias":
        scores = b.node("Add", *b.either_way(scores, b.weight(b.pick(((heads, t, s), (1, heads, t, s), (t, s))), 1)))
    if mask == "causal":
        scores = b.node("Add", scores, b.constant(np.triu(np.full((t, s), -1e4, np.float32), 1)))
    if mask == "keys":
        keys = np.where(b.data.random((n, 1, 1, s)) < 0.8, 0, -1e4).astype(np.float32)
        keys[..., 0] = 0
        scores = b.node("Add", scores, b.constant(keys))
    if mask == "where":
        kept = np.tril(np.ones((1, 1, t, s), bool))
        scores = b.node("Where", b.constant(kept), scores, b.constant(np.float32(-100)))
    if mask == "input":
        scores = b.node("Add", scores, b.input((n, 1, b.pick((1, t)), s)))
    y = b.node("MatMul", b.node("Softmax", scores, axis=-1), v)
    if b.chance(0.85):
        y = b.reshape(b.node("Transpose", y, perm=[0, 2, 1, 3]), n, t, heads * size)
    else:
        return y
    if b.chance(0.7):
        y = b.linear(y, d)
        return b.node("Add", *b.either_way(x, y)) if b.chance(0.7) else y
    return y


@step(3, weight=1.2)
def mlp(b, x):
    d = b.shape(x)[2]
    y = layer_norm(b, x) if b.chance(0.5) else x
    wide = d * b.pick((1, 2, 4))
    if b.chance(0.3):  # gated
        y = b.linear(y, 2 * wide)
        parts = b.node("Split", y, outputs=2, axis=-1, num_outputs=2)
        y = b.node("Mul", activation(b, parts), b.sibling(parts, 1))
    else:
        y = activation(b, b.linear(y, wide))
    y = b.linear(y, d)
    return b.node("Add", *b.either_way(x, y)) if b.chance(0.8) else y


@step(3, weight=0.7)
def recurrent(b, x):
    """Takes [sequence, batch, features]."""
    t, n, d = b.shape(x)
    h = b.pick((1, 3, 4, 8, 16, 17, 32))
    op, gates = b.pick((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = b.pick(("forward", "forward", "reverse", "bidirectional"))
    count = 2 if direction == "bidirectional" else 1
    scale = 1 / math.sqrt(h)
    inputs = [x, b.weight((count, gates * h, d), 1 / math.sqrt(d)), b.weight((count, gates * h, h), scale)]
    inputs.append(b.weight((count, 2 * gates * h), 0.2) if b.chance(0.7) else "")
    if b.chance(0.3):
        inputs += ["", b.weight((count, n, h), 0.5)]
    extra = {"linear_before_reset": int(b.chance(0.5))} if op == "GRU" else {}
    results = 3 if op == "LSTM" else 2
    y = b.node(op, *inputs, outputs=results, hidden_size=h, direction=direction, **extra)
    last = b.sibling(y, 1)
    flat = b.reshape(b.node("Transpose", y, perm=[0, 2, 1, 3]), t, n, count * h)
    return [flat, last] if b.chance(0.3) else flat


@step(2, 3, 4, weight=0.5)
def rotary(b, x):
    d = b.shape(x)[-1]
    if d % 2:
        raise DroppedError("extent")
    half = d // 2
    last = len(b.shape(x)) - 1
    low = b.node("Slice", x, b.ints(0), b.ints(half), b.ints(last))
    high = b.node("Slice", x, b.ints(half), b.ints(2**62), b.ints(last))
    turned = b.node("Concat", b.node("Neg", high), low, axis=-1)
    shape = b.shape(x)[-2:]
    cos, sin = b.constant(np.cos(b.array(shape))), b.constant(np.sin(b.array(shape)))
    return b.node("Add", b.node("Mul", x, cos), b.node("Mul", turned, sin))


@step(4, weight=0.6)
def windows(b, x):
    """Swin's: parts of an image that lie together, of [N, H, W, C], perhaps rolled first."""
    n, h, w, c = b.shape(x)
    wh = b.pick([d for d in range(1, h + 1) if h % d == 0])
    ww = b.pick([d for d in range(1, w + 1) if w % d == 0])
    if h > 1 and b.chance(0.5):
        head = b.node("Slice", x, b.ints(0), b.ints(1), b.ints(1))
        rest = b.node("Slice", x, b.ints(1), b.ints(2**62), b.ints(1))
        x = b.node("Concat", rest, head, axis=1)
    y = b.node("Transpose", b.reshape(x, n, h // wh, wh, w // ww, ww, c), perm=[0, 1, 3, 2, 4, 5])
    return b.reshape(y, -1, wh * ww, c)
