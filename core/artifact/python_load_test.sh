#!/bin/bash
# Runs python_load_test.py with the Python whose tvm-ffi this build uses.
set -euo pipefail
library=$(readlink -f ../tvm_ffi/lib/libtvm_ffi.so)
python=${library%/lib/python*}/bin/python
core/artifact/testing/export_test_model core/runtime "$(dirname "$library")" "$TEST_TMPDIR"
exec "$python" core/artifact/python_load_test.py "$TEST_TMPDIR"
