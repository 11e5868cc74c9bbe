#!/usr/bin/env python3
"""Runs the onnx package's own backend cases (node, simple, pytorch-converted, pytorch-operator, light) through inlay.

    python tests/onnx_backend_report.py [--executor evaluator|daemon] [--kinds node,light] [--filter REGEX] [--json OUT]

Every case ends as one of
    passed    the outputs equal onnx's expected ones within the suite's own tolerances
    refused   an UnsupportedOperatorError named what is not supported, before anything ran
    wrong     it ran, and an output differs
    crashed   anything else was raised
`specialised` counts the passed cases in which an input's value was bound at compile time (see inlay.onnx_backend).
Exits 1 where anything is wrong or crashed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import pathlib
import re
import sys
import time
import traceback
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "client" / "python")]

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from inlay.errors import UnsupportedOperatorError
from inlay.onnx_backend import InlayRep, build_executor
from inlay.server_errors import ServerUnavailableError, UnsupportedError

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
ONNX_DATA = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"


def evaluator_executor(module):
    """Runs a module with the NumPy reference evaluator."""
    from reference.evaluator import evaluate

    return lambda inputs: evaluate(module.proto, module.weights, inputs)


def daemon_executor(args):
    """Compiles through a daemon and runs there (or here)."""
    target = args.target
    if args.backends:
        import inlay

        target = inlay.config.cpu(backends=args.backends.split(","))
    return build_executor(target, args.server, remote=not args.in_process)


def load_cases(kinds):
    """(kind, name, model, [(inputs, expected)], rtol, atol, directory) of each case."""
    for kind in kinds:
        if kind == "light":
            yield from _light_cases()
            continue
        for case in load_model_tests(kind=kind):
            if case.model is not None:
                yield kind, case.name, case.model, case.data_sets, case.rtol, case.atol
            else:
                folder = pathlib.Path(case.model_dir)
                model = onnx.load(str(folder / "model.onnx"))
                yield (
                    kind,
                    case.name,
                    model,
                    _data_sets(folder, model),
                    case.rtol,
                    case.atol,
                )


def _data_sets(folder, model):
    sets = []
    infos = list(model.graph.input)
    for data in sorted(folder.glob("test_data_set_*")):
        inputs = [_read(data / f"input_{i}.pb", infos[i].type) for i in range(len(list(data.glob("input_*.pb"))))]
        outputs = [
            _read(data / f"output_{i}.pb", model.graph.output[i].type)
            for i in range(len(list(data.glob("output_*.pb"))))
        ]
        sets.append((inputs, outputs))
    for data in sorted(folder.glob("test_data_*.npz")):
        arrays = np.load(data, encoding="bytes", allow_pickle=True)
        sets.append((list(arrays["inputs"]), list(arrays["outputs"])))
    return sets


def _read(path, type_proto):
    if type_proto.WhichOneof("value") == "tensor_type":
        return numpy_helper.to_array(onnx.load_tensor(str(path)))
    kind = onnx.SequenceProto if type_proto.WhichOneof("value") == "sequence_type" else onnx.OptionalProto
    proto = kind()
    proto.ParseFromString(path.read_bytes())
    return numpy_helper.to_list(proto) if kind is onnx.SequenceProto else numpy_helper.to_optional(proto)


def _light_cases():
    """As onnx's runner makes them: the expected output is shipped for an input that counts up to 1."""
    for path in sorted((ONNX_DATA / "light").glob("light_*.onnx")):
        model = onnx.load(str(path))
        initialized = {t.name for t in model.graph.initializer}
        inputs = [
            Runner.generate_dummy_data(i, seed=n, name=path.stem)
            for n, i in enumerate(i for i in model.graph.input if i.name not in initialized)
        ]
        expected = numpy_helper.to_array(onnx.load_tensor(str(path.with_name(path.stem + "_output_0.pb"))))
        yield "light", f"test_{path.stem}", model, [(inputs, [expected])], 1e-3, 1e-4


def _tensor(value):
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.generic, int, float)) else value


def run_case(model, data_sets, rtol, atol, executor) -> tuple[str, str, bool]:
    """(status, detail, whether an input's value was bound)."""
    specialised = False
    try:
        rep = InlayRep(model, executor)
        for inputs, expected in data_sets:
            arrays, wanted = (
                [_tensor(v) for v in inputs],
                [_tensor(v) for v in expected],
            )
            if any(not isinstance(a, np.ndarray) for a in arrays):
                return "refused", "graph input: a sequence or an optional", False
            outputs = rep.run(arrays)
            specialised = specialised or bool(rep.specialized)
            try:
                Runner.assert_similar_outputs(ref_outputs=wanted, outputs=list(outputs), rtol=rtol, atol=atol)
            except (AssertionError, TypeError) as error:
                return "wrong", " ".join(str(error).split())[:300], specialised
    except ServerUnavailableError:
        raise  # every further case would only wait for the same answer
    except UnsupportedError as error:
        return "refused", f"server: {' '.join(str(error).split())}", False
    except UnsupportedOperatorError as error:
        return "refused", "; ".join(f"{n.op}: {n.why}" for n in error.nodes), False
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the case's result
        return (
            "crashed",
            f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}",
            specialised,
        )
    return "passed", "", specialised


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--executor", choices=["evaluator", "daemon"], default="evaluator")
    parser.add_argument("--server", default=None, help="address of the daemon (executor daemon)")
    parser.add_argument("--target", default=None)
    parser.add_argument("--backends", default=None, help="comma-separated; default: all that the server has")
    parser.add_argument("--in-process", action="store_true", help="load the library here instead of the daemon's JIT")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument(
        "--filter",
        default="",
        help="only cases whose name matches this regular expression",
    )
    parser.add_argument("--json", default=None, help="write every case's result here")
    parser.add_argument("--verbose", action="store_true", help="print refused cases too")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    executor = evaluator_executor if args.executor == "evaluator" else daemon_executor(args)
    results, start = [], time.monotonic()
    for kind, name, model, data_sets, rtol, atol in load_cases(args.kinds.split(",")):
        if not re.search(args.filter, name):
            continue
        began = time.monotonic()
        status, detail, specialised = run_case(model, data_sets, rtol, atol, executor)
        results.append({
            "kind": kind, "name": name, "status": status, "detail": detail, "specialised": specialised,
            "seconds": round(time.monotonic() - began, 4),
        })  # fmt: skip
        if status in ("wrong", "crashed") or (args.verbose and status == "refused"):
            print(f"{status.upper()} {kind} {name}: {detail}", flush=True)
    report(results, time.monotonic() - start)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(results, indent=1))
    sys.stdout.flush()
    bad = any(r["status"] in ("wrong", "crashed") for r in results)
    os._exit(1 if bad else 0)


def report(results, seconds: float) -> None:
    """Prints the table and the refused cases by operator."""
    statuses = ("passed", "refused", "wrong", "crashed")
    print(f"\n{'kind':<20}{'cases':>7}" + "".join(f"{s:>9}" for s in statuses) + f"{'specialised':>13}")
    rows = [(k, [r for r in results if r["kind"] == k]) for k in dict.fromkeys(r["kind"] for r in results)]
    for kind, some in [*rows, ("all", results)]:
        count = collections.Counter(r["status"] for r in some)
        special = sum(1 for r in some if r["specialised"] and r["status"] == "passed")
        print(f"{kind:<20}{len(some):>7}" + "".join(f"{count[s]:>9}" for s in statuses) + f"{special:>13}")
    refused: collections.Counter = collections.Counter()
    for r in results:
        if r["status"] == "refused":
            refused[r["detail"].split(":")[0]] += 1
    print(f"\n{seconds:.0f} s. Refused, by the first unsupported operator:")
    print(", ".join(f"{name} {count}" for name, count in refused.most_common()))


if __name__ == "__main__":
    sys.exit(main())
