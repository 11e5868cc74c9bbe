"""Small versions of real architectures, as both of torch's exporters write them in many opsets, against onnxruntime."""

import io
import warnings

import numpy as np
import onnx
import pytest
from reference.evaluator import evaluate

from inlay import from_onnx

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")


class Picked(torch.nn.Module):
    def __init__(self, network, pick):
        super().__init__()
        self.network, self.pick = network, pick

    def forward(self, *args):
        return self.pick(self.network, *args)


def _resnet():
    config = transformers.ResNetConfig(
        depths=[1, 1], hidden_sizes=[16, 32], embedding_size=8, layer_type="bottleneck", num_labels=10
    )
    network = transformers.ResNetForImageClassification(config)
    return Picked(network, lambda n, x: n(pixel_values=x).logits), (torch.randn(2, 3, 32, 32),)


def _mobilenet():
    config = transformers.MobileNetV2Config(num_labels=10, depth_multiplier=0.35, image_size=64)
    network = transformers.MobileNetV2ForImageClassification(config)
    for parameter in network.parameters():
        if parameter.ndim > 1:  # the default of 0.02 leaves nothing after so many layers
            torch.nn.init.kaiming_normal_(parameter, nonlinearity="relu")
    return Picked(network, lambda n, x: n(pixel_values=x).logits), (torch.randn(1, 3, 64, 64),)


def _bert():
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=100
    )
    network = transformers.BertModel(config)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    pick = lambda n, ids, mask: n(input_ids=ids, attention_mask=mask).last_hidden_state
    return Picked(network, pick), (torch.randint(0, 100, (2, 12)), mask)


def _gpt2():
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=100, n_positions=32)
    network = transformers.GPT2LMHeadModel(config)
    pick = lambda n, ids: n(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return Picked(network, pick), (torch.randint(0, 100, (2, 9)),)


def _vit():
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32, patch_size=8
    )
    network = transformers.ViTForImageClassification(config)
    return Picked(network, lambda n, x: n(pixel_values=x).logits), (torch.randn(2, 3, 32, 32),)


def _lstm():
    network = torch.nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True)
    return Picked(network, lambda n, x: n(x)[0]), (torch.randn(2, 5, 8),)


def _gru():
    network = torch.nn.GRU(8, 16, num_layers=2)
    return Picked(network, lambda n, x: n(x)), (torch.randn(5, 2, 8),)


def _layers():
    """Layers that the models above lack."""

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1)
            self.group, self.instance = torch.nn.GroupNorm(2, 6), torch.nn.InstanceNorm2d(6, affine=True)
            self.act = torch.nn.PReLU(6)

        def forward(self, x):
            y = torch.nn.functional.hardswish(self.instance(self.act(self.group(self.up(x)))))
            y = torch.nn.functional.interpolate(y, scale_factor=1.5, mode="bilinear", align_corners=False)
            y = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(y, (1, 2, 0, 1), mode="reflect"), 3, 2, 1)
            y = torch.nn.functional.mish(y) + torch.einsum("nchw,ncwk->nchk", y, y.transpose(2, 3)).mean()
            values, indices = torch.topk(y.flatten(1), 5)
            return torch.cumsum(values, 1), indices, torch.logsumexp(y, (2, 3)), y.std(dim=1), y.roll(1, 2)

    return Layers(), (torch.randn(2, 4, 7, 7),)


NETWORKS = {
    "resnet": _resnet, "mobilenet": _mobilenet, "bert": _bert, "gpt2": _gpt2, "vit": _vit, "lstm": _lstm, "gru": _gru,
    "layers": _layers,
}  # fmt: skip


def export(name, opset, dynamo):
    torch.manual_seed(0)
    network, inputs = NETWORKS[name]()
    network.eval()
    buffer = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(network, inputs, buffer, opset_version=opset, dynamo=dynamo)
        except (torch.onnx.errors.UnsupportedOperatorError, torch.onnx.errors.SymbolicValueError) as error:
            pytest.skip(f"torch cannot export it: {str(error)[:100]}")
    return buffer.getvalue(), [i.numpy() for i in inputs]


def check(name, opset, dynamo):
    data, inputs = export(name, opset, dynamo)
    model = onnx.load_from_string(data)
    module = from_onnx(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    wanted = session.run(None, {i.name: x for i, x in zip(session.get_inputs(), inputs)})
    got = evaluate(module.proto, module.weights, inputs)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted):
        assert a.dtype == b.dtype
        assert np.std(b.astype(np.float64)) > 1e-3  # a constant output would show nothing
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("opset", [11, 13, 14, 17, 18, 20])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_torchscript_exporter(name, opset):
    check(name, opset, dynamo=False)


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_dynamo_exporter(name, opset):
    check(name, opset, dynamo=True)
