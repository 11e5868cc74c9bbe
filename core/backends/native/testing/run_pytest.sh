#!/bin/bash
# run_pytest.sh COMPILE_MAIN TEST.py: a Python test of this folder as a Bazel test. It runs from the source tree, whose
# .venv has NumPy and pytest (deploy/setup.sh).
set -eu
export INLAY_NATIVE_COMPILER="$PWD/$1"
test_file=$(realpath "$2")
root=${test_file%/core/backends/native/*}
exec "$root/.venv/bin/python" -m pytest -q -p no:cacheprovider "$test_file"
