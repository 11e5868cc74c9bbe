#!/usr/bin/env python3
"""Writes the built-in models as onnxruntime quantises them, for `inlay bench`.

    python tests/quantised_models.py DIR [--models resnet50,minilm]
    inlay bench DIR/*.onnx --vs onnxruntime,openvino --threads 1 --search analytic

NAME_static.onnx: 8-bit activations (unsigned) and weights around every layer, calibrated with two random inputs.
NAME_dynamic.onnx: 8-bit weights, activations quantised by each run.
"""

from __future__ import annotations

import argparse
import logging
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "client" / "python"))

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from inlay import models

CALIBRATION_RUNS = 2


class RandomInputs(CalibrationDataReader):
    """A few runs' inputs: normal numbers; of integers, 0 and 1."""

    def __init__(self, model: onnx.ModelProto):
        random = np.random.default_rng(0)

        def values(info):
            shape = [d.dim_value or 1 for d in info.type.tensor_type.shape.dim]
            floating = info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            return (
                random.standard_normal(shape).astype(np.float32)
                if floating
                else random.integers(0, 2, shape, dtype=np.int64)
            )

        self.runs = iter([{i.name: values(i) for i in model.graph.input} for _ in range(CALIBRATION_RUNS)])

    def get_next(self):
        return next(self.runs, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--models", default="resnet50,mobilenet_v2,minilm,bert_base,vit_small,gpt2")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.models.split(","):
        plain, prepared = (args.folder / f".{name}{suffix}.onnx" for suffix in ("", "_prepared"))
        onnx.save(models.build(name), plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        inputs = RandomInputs(onnx.load(prepared))
        static = args.folder / f"{name}_static.onnx"
        quantize_static(prepared, static, inputs, activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
        quantize_dynamic(prepared, args.folder / f"{name}_dynamic.onnx", weight_type=QuantType.QInt8)
        plain.unlink()
        prepared.unlink()


if __name__ == "__main__":
    main()
