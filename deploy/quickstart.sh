#!/usr/bin/env bash
# From a fresh clone to a result: sets everything up, starts the daemon, compiles MiniLM with its trained weights,
# embeds sentences, compares with onnxruntime, and compiles it a second time, from the cache.
# Arguments go to the example (client/python/inlay/examples/minilm.py): --json, --server ADDRESS.
set -euo pipefail
cd "$(dirname "$0")/.."

deploy/setup.sh --examples >&2
printf '==> your daemon: ' >&2
.venv/bin/inlay info --json | .venv/bin/python -c '
import json, sys
info = json.load(sys.stdin)
print(info["address"] + ", backends " + ", ".join(sorted(set(info["backends"]) - set(info["unusable"]))))' >&2
exec .venv/bin/python -m inlay.examples.minilm "$@"
