"""Models whose weights alone are quantised: constants that DequantizeLinear widens before a MatMul, a Gemm or a Gather
stay in their few bits. Against onnxruntime on the same model, and against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from conftest import inputs_of
from ml_dtypes import bfloat16, iinfo, int2, int4, uint2, uint4
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantFormat
from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from random_graphs import run_nodes

import inlay
from inlay._proto import ir_pb2
from inlay.errors import InvalidModelError, UnsupportedOperatorError
from inlay.onnx_import import fold
from inlay.runtime import as_numpy

F, H = np.float32, np.float16
LAYOUTS = ("MatMul", "Gemm", "Gemm, transB", "Transpose", "Transpose of the numbers")
SCALES = ("of all", "of columns", "of blocks")
BITS = {np.int8: 8, np.uint8: 8, int4: 4, uint4: 4, int2: 2, uint2: 2}


class Model:
    """Products of one input each, that do not know of each other: one compilation for all."""

    def __init__(self, float_type=F, seed: int = 0):
        self.random = np.random.default_rng(seed)
        self.float_type = float_type
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.wanted: dict[str, np.ndarray] = {}  # outputs, by NumPy
        self.names = 0
        self.newest = False

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def given(self, *shape: int) -> str:
        name = self.name()
        self.inputs[name] = self.random.standard_normal(shape).astype(self.float_type)
        return name

    def constant(self, array: np.ndarray) -> str:
        name = self.name()
        self.constants[name] = array
        return name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        self.nodes.append(helper.make_node(op, inputs, [self.name()], **attributes))
        return self.nodes[-1].output[0]

    def numbers(self, shape, dtype) -> np.ndarray:
        bounds = iinfo(dtype)
        return self.random.integers(int(bounds.min), int(bounds.max) + 1, shape).astype(dtype)

    def matrix(
        self, shape, dtype, scales: str, zeros: bool, axis: int, block: int = 32, turned: bool = False
    ) -> tuple[str, np.ndarray]:
        """A dequantised matrix, and what it is. axis: of the scales, also where they are of blocks. turned: the numbers are
        turned round before."""
        self.newest |= dtype in (int2, uint2)
        extents = list(shape)
        extents[axis] = -(-shape[axis] // block)
        extents = {"of all": [], "of columns": [shape[axis]], "of blocks": extents}[scales]
        numbers, zero = self.numbers(shape, dtype), self.numbers(extents, dtype)
        scale = self.random.uniform(0.1, 0.2, extents).astype(self.float_type)

        def wide(parameter: np.ndarray) -> np.ndarray:
            parameter = parameter.astype(np.float64)
            if scales == "of blocks":
                return np.repeat(parameter, block, axis).take(range(shape[axis]), axis)
            return parameter.reshape([-1 if i == axis else 1 for i in range(len(shape))])

        name = self.constant(np.ascontiguousarray(numbers.T) if turned else numbers)
        if turned:
            name = self.node("Transpose", name, perm=[1, 0])
        attributes = {"of all": {}, "of columns": {"axis": axis}, "of blocks": {"axis": axis, "block_size": block}}
        parameters = [self.constant(scale), *([self.constant(zero)] if zeros else [])]
        made = self.node("DequantizeLinear", name, *parameters, **attributes[scales])
        return made, (numbers.astype(np.float64) - (wide(zero) if zeros else 0)) * wide(scale)

    def product(self, rows, dtype, layout: str, scales: str, zeros: bool, k: int, n: int, block: int = 32) -> None:
        a = self.given(*rows, k)
        lies = layout in ("Gemm, transB", "Transpose")  # the matrix as [n, k]
        axis = int((scales == "of columns") != lies)
        b, floats = self.matrix(
            (n, k) if lies else (k, n), dtype, scales, zeros, axis, block, turned=layout == "Transpose of the numbers"
        )
        product = self.inputs[a].astype(np.float64) @ (floats.T if lies else floats)
        if layout.startswith("Gemm"):
            c = self.constant(self.random.standard_normal(n).astype(self.float_type))
            y = self.node("Gemm", a, b, c, alpha=0.5, beta=2.0, transB=int(lies))
            self.wanted[y] = 0.5 * product + 2.0 * self.constants[c].astype(np.float64)
        else:
            y = self.node("MatMul", a, self.node("Transpose", b, perm=[1, 0]) if layout == "Transpose" else b)
            self.wanted[y] = product

    def proto(self, open_rows: bool = False) -> onnx.ModelProto:
        elem = helper.np_dtype_to_tensor_dtype
        inputs = [
            helper.make_tensor_value_info(name, elem(v.dtype), open_shape(v) if open_rows else v.shape)
            for name, v in self.inputs.items()
        ]
        constants = [numpy_helper.from_array(v, name) for name, v in self.constants.items()]
        outputs = [helper.make_empty_tensor_value_info(name) for name in self.wanted]
        graph = helper.make_graph(self.nodes, "weight only", inputs, outputs, constants)
        opset = helper.make_opsetid("", 25 if self.newest else 21)
        return helper.make_model(graph, opset_imports=[opset], ir_version=12 if self.newest else 10)

    def check(self, client, open_rows: bool = False, kernels: bool = True, source=None) -> inlay.IRModule:
        """kernels: onnxruntime has them. source: the model's file, where it has one."""
        model = self.proto(open_rows)
        module = inlay.from_onnx(model if source is None else source)
        config = inlay.config.cpu(executor="vm" if open_rows else "graph")
        got = inlay.build(module, config, server=client).jit()["main"](*self.inputs.values())
        got = got if isinstance(got, list | tuple) else [got]
        by_onnxruntime = run_nodes(model, self.inputs) if kernels else [None] * len(got)
        step = {F: 1e-6, H: 2e-3, bfloat16: 2e-2}[self.float_type]
        for ours, theirs, (name, exact) in zip(got, by_onnxruntime, self.wanted.items(), strict=True):
            ours, what = as_numpy(ours), self.origin(name)
            assert ours.shape == exact.shape, what
            largest = np.abs(exact).max(initial=0)
            np.testing.assert_allclose(ours.astype(np.float64), exact, atol=step * largest, rtol=step, err_msg=what)
            if theirs is not None:
                assert ours.dtype == theirs.dtype, what
                np.testing.assert_allclose(ours, theirs, atol=2 * step * largest, rtol=step, err_msg=what)
        return module

    def origin(self, name: str) -> str:
        by = next(n for n in self.nodes if name in n.output)
        around = {**self.inputs, **self.constants}
        return f"{by.op_type} of {[(i, around[i].shape) for i in by.input if i in around]}"


def open_shape(value: np.ndarray) -> list[int | str]:
    """All extents open, of floats all but the last."""
    return [f"rows{i}" if i < value.ndim - 1 or value.dtype == np.int64 else d for i, d in enumerate(value.shape)]


def operators(module: inlay.IRModule) -> list[str]:
    return [b.call.op for b in module.functions["main"].body.bindings]


def shape_of(constant: ir_pb2.Constant) -> list[int]:
    return [d.value for d in constant.type.dims]


def only_few_bits(module: inlay.IRModule, products: int) -> None:
    """Each product is of weights in their bits; nothing is widened."""
    made = operators(module)
    assert made.count("matmul_nbits") == products
    assert not {"matmul", "transpose", "matmul_integer"} & set(made)
    integers = [c.type.dtype in (ir_pb2.I8, ir_pb2.U8) for c in module.proto.constants]
    for binding in module.functions["main"].body.bindings:
        taken = [a for a in binding.args if a.WhichOneof("kind") == "constant" and integers[a.constant]]
        assert not taken or binding.call.op == "matmul_nbits", binding.call.op


@pytest.mark.parametrize("float_type", [F, H, bfloat16])
@pytest.mark.parametrize("dtype", BITS, ids=lambda t: np.dtype(t).name)
def test_products(client, dtype, float_type):
    m = Model(float_type)
    for layout in LAYOUTS:
        for scales in SCALES:
            for zeros in (False, True):
                for rows, k, n in [((1,), 128, 24), ((5,), 70, 7)]:  # in whole blocks, and not
                    m.product(rows, dtype, layout, scales, zeros, k, n)
    kernels = dtype in (np.int8, np.uint8, int4, uint4) and float_type is not bfloat16
    only_few_bits(m.check(client, kernels=kernels), len(m.wanted))


@pytest.mark.parametrize("dtype", [np.int8, uint4], ids=lambda t: np.dtype(t).name)
def test_rows(client, dtype):
    m = Model()
    for rows in [(), (1,), (2, 3), (40,), (2, 1, 9), (0,)]:
        for scales in SCALES:
            m.product(rows, dtype, "MatMul", scales, True, 96, 33)
    only_few_bits(m.check(client), len(m.wanted))


@pytest.mark.parametrize("dtype", [np.uint8, int4], ids=lambda t: np.dtype(t).name)
def test_open_rows(client, dtype):
    m = Model()
    for layout in LAYOUTS:
        m.product((7,), dtype, layout, "of blocks", True, 96, 33)
        m.product((7,) if layout.startswith("Gemm") else (7, 3), dtype, layout, "of columns", False, 50, 16)
    only_few_bits(m.check(client, open_rows=True), len(m.wanted))


def test_extents(client):
    """Of one element, of a prime, of more than the kernels' block of k; blocks of other sizes; one that is all of k."""
    m = Model()
    for k, n in [(1, 1), (1, 5), (3, 1), (257, 3), (1004, 5)]:
        for dtype in np.int8, int4:
            m.product((2,), dtype, "MatMul", "of columns", True, k, n)
    for dtype, k, block in [(np.int8, 20, 4), (int4, 30, 8), (uint4, 300, 128), (int4, 50, 50), (np.uint8, 21, 21)]:
        for layout in ("MatMul", "Transpose"):
            m.product((3,), dtype, layout, "of blocks", True, k, 5, block)
    only_few_bits(m.check(client), len(m.wanted))


def test_one_matrix_of_many(client):
    """Several products, of two floats, and what wants the floats themselves."""
    m = Model()
    b, floats = m.matrix((64, 32), int4, "of blocks", True, 0)
    for rows in (1, 4):
        a = m.given(rows, 64)
        m.wanted[m.node("MatMul", a, b)] = m.inputs[a].astype(np.float64) @ floats
    a = m.given(3, 32)
    m.wanted[m.node("Gemm", a, b, transB=1)] = m.inputs[a].astype(np.float64) @ floats.T
    m.wanted[m.node("MatMul", a, m.node("Transpose", b))] = m.inputs[a].astype(np.float64) @ floats.T
    other = m.given(64, 32)
    m.wanted[m.node("Add", other, b)] = m.inputs[other] + floats
    module = m.check(client)
    assert operators(module).count("matmul_nbits") == 2  # the blocks are along the others' columns
    assert sum(c.name == "v1" and c.type.dtype == ir_pb2.U8 for c in module.proto.constants) == 1


def test_left_as_they_are(client):
    """Forms that are none of matmul_nbits."""
    m = Model()

    def product(shape, scales, axis, dtype=np.int8, block=32, trans_a=0):
        b, floats = m.matrix(shape, dtype, scales, True, axis, block)
        a = m.given(*shape[:-2], *((shape[-2], 3) if trans_a else (3, shape[-2])))
        y = m.node("Gemm", a, b, transA=1) if trans_a else m.node("MatMul", a, b)
        left = m.inputs[a].astype(np.float64)
        m.wanted[y] = (left.T if trans_a else left) @ floats

    product((40, 8), "of columns", 0)  # along k
    product((40, 64), "of blocks", 1)  # along n
    product((40, 64), "of blocks", 1, int4)
    product((40, 8), "of blocks", 0, block=10)  # no multiple of 4 bytes
    product((40, 8), "of blocks", 0, int4, block=4)
    product((2, 40, 8), "of all", 0)
    product((2, 40, 8), "of blocks", 1, int4)
    product((40, 8), "of columns", 1, trans_a=1)
    m.product((0,), np.int8, "MatMul", "of all", True, 7, 5)
    a, numbers, scale = m.given(3, 40), m.numbers((40, 8), np.int8), m.given()
    b = m.node("DequantizeLinear", m.constant(numbers), scale)  # by a scale that only a run knows
    m.wanted[m.node("MatMul", a, b)] = m.inputs[a].astype(np.float64) @ numbers.astype(np.float64) * m.inputs[scale]
    assert operators(m.check(client)).count("matmul_nbits") == 1
    m = Model(np.float64)
    m.float_type = F
    b, floats = m.matrix((40, 8), np.int8, "of all", False, 0)
    a = m.given(3, 40)
    m.wanted[m.node("MatMul", m.node("Cast", a, to=11), m.node("Cast", b, to=11))] = m.inputs[a] @ floats
    assert "matmul_nbits" not in operators(inlay.from_onnx(m.proto()))


def test_scales_of_another_type(client):
    """output_dtype: f16 scales are those of f32 exactly; the other way round they would be rounded."""
    m, newest = Model(), {"output_dtype": onnx.TensorProto.FLOAT}
    m.newest = True
    numbers, scale = m.numbers((40, 8), np.int8), m.random.uniform(0.1, 0.2, 8).astype(H)
    b = m.node("DequantizeLinear", m.constant(numbers), m.constant(scale), axis=1, **newest)
    a = m.given(3, 40)
    m.wanted[m.node("MatMul", a, b)] = m.inputs[a] @ (numbers.astype(np.float64) * scale)
    only_few_bits(m.check(client, kernels=False), 1)
    m = Model(H)
    m.newest = True
    scale = scale.astype(F) + F(1e-5)
    b = m.node(
        "DequantizeLinear", m.constant(numbers), m.constant(scale), axis=1, output_dtype=onnx.TensorProto.FLOAT16
    )
    a = m.given(3, 40)
    m.wanted[m.node("MatMul", a, b)] = m.inputs[a].astype(np.float64) @ (numbers.astype(np.float64) * scale)
    assert "matmul_nbits" not in operators(m.check(client, kernels=False))


@pytest.mark.parametrize("turned", [False, True])
def test_both_quantised(client, turned):
    """The products of integers that they were."""
    m = Model()
    a = m.given(5, 40)
    scale, zero = m.constant(np.float32(0.05)), m.constant(np.uint8(131))
    left = m.node("DequantizeLinear", m.node("QuantizeLinear", a, scale, zero), scale, zero)
    b, floats = m.matrix((8, 40) if turned else (40, 8), np.int8, "of columns", False, 0 if turned else 1)
    quantised = np.clip(np.rint(m.inputs[a] / np.float32(0.05)) + 131, 0, 255) - 131
    y = m.node("MatMul", left, m.node("Transpose", b) if turned else b)
    m.wanted[y] = quantised * np.float64(np.float32(0.05)) @ (floats.T if turned else floats)
    made = operators(m.check(client))
    assert "matmul_integer" in made
    assert "matmul_nbits" not in made
    for dtype, axis in [(np.int8, 0), (np.int8, 1), (int4, 0)]:  # of blocks there is no such product
        c, floats = m.matrix((40, 64), dtype, "of blocks", True, axis)
        m.wanted[m.node("MatMul", left, c)] = quantised * np.float64(np.float32(0.05)) @ floats
    assert operators(m.check(client)).count("matmul_nbits") == 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, int4, uint4], ids=lambda t: np.dtype(t).name)
@pytest.mark.parametrize("turned", [False, True])
def test_weights_stay_small(dtype, turned, tmp_path, monkeypatch):
    """In the module, and on the way into it: nobody makes floats of them."""
    m = Model()
    for zeros in (False, True):
        m.product((1,), dtype, "Transpose" if turned else "MatMul", "of blocks", zeros, 1024, 512)
    path = tmp_path / "model.onnx"
    onnx.save(m.proto(), path, save_as_external_data=True, location="weights", size_threshold=0)

    def refuse(node, *_):
        raise AssertionError(f"{node.op_type} is evaluated")

    monkeypatch.setattr(fold, "evaluate", refuse)
    module = inlay.from_onnx(path)
    only_few_bits(module, 2)
    blocks = 512 * 1024 // 32
    unsigned = np.dtype(dtype).name.startswith("u")
    zero_points = 2 if unsigned else 1
    distinct = 2 * (512 * 1024 * BITS[dtype] // 8 + blocks * 4) + zero_points * blocks
    assert module.weight_bytes() <= distinct


@pytest.mark.parametrize("dtype", [int4, uint4, int2, uint2], ids=lambda t: np.dtype(t).name)
def test_external_data(client, dtype, tmp_path):
    """Of packed types, large and small, the elements no multiple of a byte's."""
    m = Model()
    for k, n in [(512, 257), (33, 5)]:
        m.product((2,), dtype, "MatMul", "of columns", True, k, n)
    table, floats = m.matrix((301, 257), dtype, "of columns", True, 0)
    m.wanted[m.node("Identity", table)] = floats
    path = tmp_path / "model.onnx"
    onnx.save(m.proto(), path, save_as_external_data=True, location="weights", size_threshold=0)
    module = m.check(client, kernels=dtype in (int4, uint4), source=path)
    assert operators(module).count("matmul_nbits") == 2
    data = (tmp_path / "weights").read_bytes()
    (tmp_path / "weights").write_bytes(data[:1000])
    with pytest.raises(InvalidModelError, match="ends before byte"):
        inlay.from_onnx(path)


def test_damaged_data():
    m = Model()
    m.product((2,), int4, "MatMul", "of columns", True, 512, 257)
    model = m.proto()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-1]
    with pytest.raises(InvalidModelError, match="65791 bytes"):
        inlay.from_onnx(model)


def test_extents_that_do_not_fit():
    m = Model()
    b, _ = m.matrix((64, 8), int4, "of blocks", False, 0)
    m.wanted[m.node("MatMul", m.given(3, 60), b)] = np.zeros((3, 8))
    with pytest.raises(UnsupportedOperatorError, match="inner extents 60 and 64 differ"):
        inlay.from_onnx(m.proto())


@pytest.mark.parametrize("float_type", [F, H])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, int4, uint4], ids=lambda t: np.dtype(t).name)
def test_tables(client, dtype, float_type):
    """Rows are widened when they have been gathered, where the scales are of all, of rows, or of blocks of a row."""
    m = Model(float_type)
    m.inputs["index"] = np.array([[0, 3, 8], [-1, 5, 5]], np.int64)
    for scales, axis in [("of all", 1), ("of columns", 0), ("of blocks", 1), ("of columns", 1), ("of blocks", 0)]:
        for zeros in (False, True):
            table, floats = m.matrix((64, 96), dtype, scales, zeros, axis)
            m.wanted[m.node("Gather", table, "index")] = floats[m.inputs["index"]]
    table, floats = m.matrix((64, 70), dtype, "of blocks", True, 1)  # the last one is not whole
    m.wanted[m.node("Gather", table, "index")] = floats[m.inputs["index"]]
    table, floats = m.matrix((64, 70), dtype, "of all", True, 1)
    m.wanted[m.node("Gather", table, "index", axis=1)] = floats[:, m.inputs["index"]]
    module = m.check(client)
    tables = [i for i, c in enumerate(module.proto.constants) if c.type.dtype == ir_pb2.U8 and shape_of(c) == [64, 96]]
    gathered = {b.args[0].constant for b in module.functions["main"].body.bindings if b.call.op == "gather"}
    assert len(gathered.intersection(tables)) == 6


def test_open_table(client):
    m = Model()
    m.inputs["index"] = np.array([[0, 3, 8], [-1, 5, 5]], np.int64)
    for dtype in (np.int8, int4):
        table, floats = m.matrix((64, 96), dtype, "of blocks", True, 1)
        m.wanted[m.node("Gather", table, "index")] = floats[m.inputs["index"]]
    m.check(client, open_rows=True)


def two_layers() -> onnx.ModelProto:
    random = np.random.default_rng(0)
    weights = {"w0": random.standard_normal((128, 96)), "w1": random.standard_normal((96, 64))}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "w1"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "two layers",
        [helper.make_tensor_value_info("x", 1, ["rows", 128])],
        [helper.make_tensor_value_info("y", 1, ["rows", 64])],
        [numpy_helper.from_array(w.astype(F), name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    ("way", "bits", "options"),
    [
        (QuantFormat.QDQ, 4, {}),
        (QuantFormat.QDQ, 4, {"channel_wised_quantize": True}),
        (QuantFormat.QOperator, 4, {}),
        (QuantFormat.QOperator, 8, {}),
    ],
)
def test_onnxruntime_quantiser(client, way, bits, options, symmetric):
    config = DefaultWeightOnlyQuantConfig(32, symmetric, quant_format=way, bits=bits, **options)
    quantiser = MatMulNBitsQuantizer(two_layers(), algo_config=config)
    quantiser.process()
    model = quantiser.model.model
    kinds = {n.op_type for n in model.graph.node}
    assert ("DequantizeLinear" if way == QuantFormat.QDQ else "MatMulNBits") in kinds
    module = inlay.from_onnx(model, shape={"rows": 5})
    assert operators(module).count("matmul_nbits") == 2
    assert "matmul" not in operators(module)
    executable = inlay.build(module, inlay.config.cpu(), server=client)
    inputs = inputs_of(executable)
    got = as_numpy(executable.jit()["main"](inputs["x"]))
    (wanted,) = run_nodes(model, inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
