"""Transposed convolutions of every form, against onnxruntime: what the compiler makes of them is other convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import check_close, inputs_of, reference
from onnx import TensorProto

import inlay
from inlay.models.graph import Graph


def pick(rng: np.random.Generator, *values: int) -> int:
    return int(rng.choice(values))


def attributes(rng: np.random.Generator, spatial: int) -> tuple[list[int], list[int], dict, list[int]]:
    """Extents of an image and of a kernel, the node's attributes, the extents of what it gives."""
    image = [pick(rng, 1, 2, 3, 5, 8, 17) if spatial < 3 else pick(rng, 1, 3, 4) for _ in range(spatial)]
    kernel = [pick(rng, 1, 2, 3, 4, 5, 7) for _ in range(spatial)]
    strides = [pick(rng, 1, 2, 2, 3, 4) for _ in range(spatial)]
    dilations = [pick(rng, 1, 1, 2, 3) for _ in range(spatial)]
    extra = [int(rng.integers(s)) for s in strides]
    whole = [(e - 1) * s + (k - 1) * d + 1 for e, s, k, d in zip(image, strides, kernel, dilations, strict=True)]
    begins = [int(rng.integers((w + 1) // 2)) for w in whole]  # also more than a kernel reaches
    ends = [int(rng.integers((w + 1) // 2)) for w in whole]
    out = [w - b - e + x for w, b, e, x in zip(whole, begins, ends, extra, strict=True)]
    found = {"strides": strides, "dilations": dilations, "pads": begins + ends, "output_padding": extra}
    return image, kernel, found, out


def model(seed: int, spatial: int, count: int) -> onnx.ModelProto:
    rng = np.random.default_rng(seed)
    g = Graph(f"conv_transpose_{spatial}d", seed=seed)
    outputs = []
    for i in range(count):
        image, kernel, found, out = attributes(rng, spatial)
        groups, per_group, m = pick(rng, 1, 1, 2, 3), pick(rng, 1, 2, 7), pick(rng, 1, 3, 5)
        n, c = pick(rng, 1, 1, 2), groups * per_group
        x = g.input(f"x{i}", TensorProto.FLOAT, [n, c, *image])
        args = [x, g.weight(f"w{i}", (c, m, *kernel))]
        if rng.random() < 0.7:
            args.append(g.weight(f"b{i}", (groups * m,), "zeros"))
        y = g.op("ConvTranspose", *args, group=groups, **found)
        if rng.random() < 0.5:
            y = g.op("LeakyRelu", y)
        outputs.append((y, f"y{i}", [n, groups * m, *out]))
    return g.finish(outputs)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_any_attributes(client, spatial: int, level: int):
    wanted = model(seed=spatial, spatial=spatial, count=24)
    config = inlay.config.cpu(backends=["native"]).replace(opt_level=level)
    executable = inlay.build(inlay.from_onnx(wanted), config, server=client)
    inputs = inputs_of(executable)
    got = executable.jit()["main"](*(inputs[spec[0]] for spec in executable.inputs))
    check_close(list(got), reference(wanted, inputs))
