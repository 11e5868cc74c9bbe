#!/usr/bin/env python3
"""Seconds to compile, each model by a daemon of its own with an empty cache: by the analytic model, measured, and
measured again with what the cost table then knows; and a GPT-2 of 12, 24 and 48 layers, whose repeated layers should
cost nothing more. Use it on a quiet machine.

    python tests/compile_time_report.py [MODEL...]
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "client" / "python"))

import inlay
from inlay import models
from inlay.bench.measure import fresh_daemon
from inlay.models import gpt2


def timed(name: str, module: inlay.IRModule, client: inlay.Client, search: str, replan: bool = False) -> None:
    config = inlay.CompilationConfig(targets=["llvm -mcpu=native"], num_threads=1, search=search, replan=replan)
    started = time.perf_counter()
    report = inlay.build(module, config, server=client).report
    seconds = time.perf_counter() - started
    how = f"{search}, again" if replan else search
    print(
        f"{name:16} {how:16} {seconds:6.2f} s, server {report.server_ms / 1e3:.2f} s, {report.actions_run} actions run"
    )


def main(names: list[str]) -> None:
    modules = {name: inlay.from_onnx(models.build(name)) for name in names}
    for layers in (12, 24, 48):
        config = dataclasses.replace(gpt2.GPT2, vocabulary=5000, width=256, heads=4, layers=layers)
        modules[f"gpt2, {layers} layers"] = inlay.from_onnx(gpt2.build(config, batch=1, length=64))
    for name, module in modules.items():
        with fresh_daemon() as client:
            timed(name, module, client, "analytic")
        with fresh_daemon() as client:
            timed(name, module, client, "measured")
            timed(name, module, client, "measured", replan=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(models.NAMES))
    names = parser.parse_args().models or ["resnet50", "bert_base"]
    if unknown := set(names) - set(models.NAMES):
        parser.error(f"no built-in model {', '.join(sorted(unknown))}; there are {', '.join(models.NAMES)}")
    main(names)
