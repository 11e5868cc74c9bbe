"""Models with random damage: from_onnx gives a module or an InlayError, never anything else."""

import random

import onnx
import onnx_backend_report as suite
import pytest

from inlay import InlayError, from_onnx


def _damage(model: onnx.ModelProto, rng: random.Random) -> None:
    """Changes one thing: an input's name, an attribute's value, a shape, a type, an initializer, the opset."""
    node = rng.choice(model.graph.node)
    kind = rng.randrange(9)
    if kind == 0 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(["", "nowhere", *[i.name for i in model.graph.input]])
    elif kind == 1 and node.attribute:
        attr = rng.choice(node.attribute)
        if attr.type == onnx.AttributeProto.INT:
            attr.i = rng.choice([-(2**63), -5, -1, 0, 1, 7, 2**40])
        elif attr.type == onnx.AttributeProto.INTS:
            attr.ints[:] = [rng.choice([-3, -1, 0, 1, 2, 2**50]) for _ in range(rng.randrange(6))]
        elif attr.type == onnx.AttributeProto.STRING:
            attr.s = rng.choice([b"", b"\xff\xfe", b"SAME", b"nonsense"])
        else:
            attr.type = rng.choice([onnx.AttributeProto.INT, onnx.AttributeProto.FLOATS, onnx.AttributeProto.GRAPH])
    elif kind == 2 and node.attribute:
        del node.attribute[rng.randrange(len(node.attribute))]
    elif kind == 3 and model.graph.input:
        dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
        if dims:
            dims[rng.randrange(len(dims))].dim_value = rng.choice([-1, 0, 1, 3, 2**40])
    elif kind == 4 and model.graph.input:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice([0, 1, 7, 8, 9, 10, 11, 16, 99])
    elif kind == 5 and model.graph.input:
        dims = rng.choice(model.graph.input).type.tensor_type.shape.dim
        if dims:
            del dims[0]
    elif kind == 6:
        node.op_type = rng.choice(
            ["Add", "Conv", "Reshape", "Gather", "LSTM", "If", "Loop", "Einsum", "Resize", "Nope"]
        )
    elif kind == 7:
        del node.input[rng.randrange(len(node.input) + 1) :]
    else:
        model.opset_import[0].version = rng.choice([0, 1, 5, 9, 12, 19, 99])


@pytest.mark.filterwarnings("ignore")
def test_damaged_models():
    rng = random.Random(1)
    cases = [c[2] for c in suite.load_cases(["node"])][::3]
    imported = refused = 0
    for _ in range(1500):
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(cases))
        for _ in range(rng.randrange(1, 4)):
            _damage(model, rng)
        try:
            from_onnx(model)
            imported += 1
        except InlayError as error:
            assert str(error)
            refused += 1
    assert imported > 50
    assert refused > 300
