"""The command line against the fake server; with a real daemon: tests/e2e/test_cli.py."""

from __future__ import annotations

import json

import click
import onnx
import pytest
from click.testing import CliRunner

from inlay import cli, cli_command
from inlay.models import recurrent


@pytest.fixture
def invoke(server):
    def run(*arguments):
        return CliRunner().invoke(cli.main, [*map(str, arguments)], env={"INLAY_SERVER": server.address})

    return run


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(recurrent.build_mlp(recurrent.TINY_MLP), path)
    return path


def test_compile_prints_the_report(invoke, model):
    result = invoke("compile", model, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["partitions"][0]["cache"] == "miss"
    assert report["inputs"] == [{"name": "input", "dtype": "f32", "shape": [4, 16]}]
    text = invoke("compile", model).stdout
    assert "1 native" in text
    assert "0 from the cache" in text


def test_options_reach_the_server(invoke, server, model):
    options = ["--target", "llvm -mcpu=x86-64-v2", "--threads", 3, "--search", "none", "--backends", "native,onednn"]
    assert invoke("compile", model, *options, "--opt-level", 1, "--params-beside", "--json").exit_code == 0
    config = server.requests[-1].module.config
    assert config.targets[0].attrs["mcpu"] == "x86-64-v2"
    assert (config.num_threads, config.search.mode, config.passes.opt_level) == (3, 1, 1)
    assert list(config.search.backends) == ["native", "onednn"]
    assert config.link_params is False


def test_server_commands(invoke):
    assert json.loads(invoke("stats", "--json").stdout) == {"inlay_requests_total": 3}
    assert json.loads(invoke("info", "--json").stdout)["workers"] == 2
    assert json.loads(invoke("handles", "--json").stdout)["handles"][0]["runs"] == 2
    assert "h1" in invoke("handles", "--unload", "h1").stdout
    assert "inlay_requests_total" in invoke("stats").stdout


def test_failures_are_one_line_with_an_exit_code(invoke, server, model):
    import grpc

    server.fail["Compile"] = [
        (grpc.StatusCode.INVALID_ARGUMENT, "main: conv1:\nbad", ()),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "no memory", ()),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "late", ()),
    ]
    for code in (cli_command.EXIT_FAILED, cli_command.EXIT_SERVER, cli_command.EXIT_TIMEOUT):
        result = invoke("compile", model, "--json")
        assert result.exit_code == code
        assert len(result.stderr.strip().splitlines()) == 1
        assert json.loads(result.stdout)["error"]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        (("batch=1",), {"batch": 1}),
        (("x=1,3,224,224",), {"x": [1, 3, 224, 224]}),
        (("x=1x3", "n=2"), {"x": [1, 3], "n": 2}),
        (("x=[n,4]",), {"x": ["n", 4]}),
        (("x=1,3,8*max,8*w", "h=8*n"), {"x": [1, 3, "8*max", "8*w"], "h": "8*n"}),
    ],
)
def test_shapes(values, want):
    assert cli._shapes(values) == want


@pytest.mark.parametrize("value", ["batch", "=1", "batch=", "x=1,,2"])
def test_bad_shapes(value):
    with pytest.raises(click.BadParameter):
        cli._shapes((value,))
