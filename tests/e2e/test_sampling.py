"""Reading images at places that data says (GridSample, DeformConv, deformable attention), against onnxruntime and PyTorch."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import check_close, inputs_of, reference, run_everywhere
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import inlay

OPSET = 20  # the first that has cubes


def model_of(nodes: list, shapes: dict[str, list], out: list, weights: dict[str, np.ndarray] | None = None):
    """A model with inputs of f32 and the result y."""
    value = helper.make_tensor_value_info
    inputs = [value(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    initializers = [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "sampling", inputs, [value("y", TensorProto.FLOAT, out)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def sampler(x: list, grid: list, **attrs) -> onnx.ModelProto:
    # Mostly inside: seeded inputs are normal.
    nodes = [
        helper.make_node("Mul", ["grid", "by"], ["places"]),
        helper.make_node("GridSample", ["x", "places"], ["y"], **attrs),
    ]
    by = {"by": np.float32(0.6)}
    return model_of(nodes, {"grid": grid, "x": x}, [x[0], x[1], *grid[1:-1]], by)


def samples(executable: inlay.Executable) -> int:
    return sum(p.ops.count("grid_sample") for p in executable.report.partitions)


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_as_onnxruntime(client, mode, padding, align):
    # onnx's reference divides by the distance of a single pixel's borders.
    narrow = 2 if mode == "cubic" else 1
    for x, grid in ([2, 3, 7, 9], [2, 5, 6, 2]), ([1, 16, 5, narrow], [1, 2, 3, 2]), ([1, 33, 12, 10], [1, 40, 1, 2]):
        model = sampler(x, grid, mode=mode, padding_mode=padding, align_corners=align)
        executable = inlay.build(inlay.from_onnx(model), server=client)
        assert samples(executable) == (mode != "cubic")
        inputs = inputs_of(executable)
        # Of cubic ones onnxruntime also moves the axis that lies inside where the other one does not.
        wanted = ReferenceEvaluator(model).run(None, inputs) if mode == "cubic" else reference(model, inputs)
        check_close(executable.jit()["main"](**inputs), wanted)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v2"])
@pytest.mark.parametrize("executor", ["graph", "aot", "vm"])
def test_each_way_to_run_it(client, cpu, executor, tmp_path):
    model = sampler([2, 5, 4, 6, 7], [2, 3, 4, 5, 3], mode="linear", padding_mode="border")
    config = inlay.config.cpu(cpu, executor=executor)
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_of(executable)
    for outputs in run_everywhere(executable, inputs, tmp_path).values():
        check_close(outputs, reference(model, inputs))


@pytest.mark.parametrize("backend", ["native", "csource"])
def test_each_backend_that_has_it(client, backend):
    model = sampler([2, 12, 9, 8], [2, 7, 3, 2], mode="linear", align_corners=1)
    config = inlay.config.cpu(backends=[backend])
    executable = inlay.build(inlay.from_onnx(model), config, server=client)
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


def test_open_sizes(client):
    model = sampler(["n", 6, "h", "w"], ["n", "q", 4, 2], mode="linear", padding_mode="reflection")
    executable = inlay.build(
        inlay.from_onnx(model, executor="vm"), inlay.config.cpu(executor="vm", num_threads=2), server=client
    )
    main = executable.jit()["main"]
    random = np.random.default_rng(3)
    for n, h, w, q in (1, 1, 1, 1), (2, 5, 9, 3), (3, 30, 20, 50), (2, 4, 4, 0):
        grid = random.standard_normal((n, q, 4, 2)).astype(np.float32)
        x = random.standard_normal((n, 6, h, w)).astype(np.float32)
        wanted = reference(model, {"grid": grid, "x": x}) if q else [np.zeros((n, 6, 0, 4), np.float32)]
        check_close(main(grid, x), wanted)
    with pytest.raises(inlay.InlayError, match="h"):
        main(np.zeros((1, 2, 4, 2), np.float32), np.zeros((1, 6, 0, 3), np.float32))


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("groups", "parts"), [(1, 1), (1, 4), (2, 2), (4, 1)])
def test_deformable_convolutions_as_onnxruntime(client, groups, parts, masked):
    random = np.random.default_rng(parts)
    weights = {"w": random.standard_normal((12, 8 // groups, 3, 2)), "b": random.standard_normal(12)}
    shapes = {"x": [2, 8, 11, 9], "offset": [2, parts * 2 * 6, 6, 8]} | (
        {"mask": [2, parts * 6, 6, 8]} if masked else {}
    )
    attrs = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 0], "dilations": [1, 2], "group": groups}
    node = helper.make_node("DeformConv", ["x", "w", "offset", "b", "mask"][: 4 + masked], ["y"], **attrs,
                            offset_group=parts)  # fmt: skip
    model = model_of([node], shapes, [2, 12, 6, 8], {k: v.astype(np.float32) for k, v in weights.items()})
    executable = inlay.build(inlay.from_onnx(model), server=client)
    assert samples(executable) == 1
    inputs = inputs_of(executable)
    check_close(executable.jit()["main"](**inputs), reference(model, inputs))


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_as_pytorch(client, mode, padding, align):
    torch = pytest.importorskip("torch")

    class Sampler(torch.nn.Module):
        def forward(self, x, grid):
            return torch.nn.functional.grid_sample(x, grid, mode, padding, align)

    torch.manual_seed(2)
    for x, grid in ((2, 3, 7, 9), (2, 5, 6, 2)), ((1, 2, 4, 5, 6), (1, 3, 2, 4, 3)):
        if len(x) == 5 and mode == "bicubic":
            continue
        inputs = torch.randn(x), torch.randn(grid) * 0.7
        executable = inlay.build(inlay.from_torch(Sampler().eval(), inputs), server=client)
        assert samples(executable) == (mode != "bicubic")
        check_close(executable.jit()["main"](*inputs), [Sampler()(*inputs).numpy()])


def test_deformable_attention_of_pytorch(client):
    """As Deformable DETR has it: queries read points of images of several sizes, and weigh them."""
    torch = pytest.importorskip("torch")
    sizes, heads, width, points = [(9, 12), (5, 6), (3, 3)], 4, 8, 4

    class Attention(torch.nn.Module):
        def forward(self, values, places, weights):
            n, _, _, _ = values.shape
            queries = places.shape[1]
            grids, sampled = 2 * places - 1, []
            for level, value in enumerate(values.split([h * w for h, w in sizes], dim=1)):
                image = value.flatten(2).transpose(1, 2).reshape(n * heads, width, *sizes[level])
                grid = grids[:, :, :, level].transpose(1, 2).flatten(0, 1)
                sampled.append(torch.nn.functional.grid_sample(image, grid, align_corners=False))
            weights = weights.transpose(1, 2).reshape(n * heads, 1, queries, len(sizes) * points)
            y = (torch.stack(sampled, dim=-2).flatten(-2) * weights).sum(-1)
            return y.view(n, heads * width, queries).transpose(1, 2).contiguous()

    torch.manual_seed(4)
    shape = (2, 37, heads, len(sizes), points)
    inputs = (
        torch.randn(2, sum(h * w for h, w in sizes), heads, width),
        torch.rand(*shape, 2) * 1.2 - 0.1,
        torch.rand(shape),
    )
    executable = inlay.build(inlay.from_torch(Attention().eval(), inputs), server=client)
    assert samples(executable) == len(sizes)
    check_close(executable.jit()["main"](*inputs), [Attention()(*inputs).numpy()])
