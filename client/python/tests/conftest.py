"""Makes the checkout importable (package, reference evaluator, benchmark models); a fake server and a client of it."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "client" / "python"), str(ROOT / "tests")]

import generate_protos

if generate_protos.stale():
    generate_protos.generate()

from fake_server import FakeServer

from inlay.client import Client
from inlay.ir import FunctionBuilder


@pytest.fixture
def server(tmp_path):
    fake = FakeServer(f"unix:{tmp_path}/s.sock")
    fake.address = f"unix:{tmp_path}/s.sock"
    yield fake
    fake.hold.set()
    fake.stop()


@pytest.fixture
def client(server):
    with Client(server.address) as client:
        yield client


@pytest.fixture
def module():
    """y = relu(x @ w), with one 64x10 weight."""
    builder = FunctionBuilder()
    x = builder.param("x", "f32", (4, 64))
    w = builder.weight(np.random.default_rng(0).standard_normal((64, 10)).astype(np.float32), "w")
    return builder.finish([builder.op("relu", builder.op("matmul", x, w))], ["y"])
