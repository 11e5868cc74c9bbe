#!/usr/bin/env bash
# Sets up and runs every check: lint, the C++ tests (bazel test), the Python client's tests, and tests/ (real daemon).
# Ends with the line "N passed, N failed"; the exit status is non-zero if anything failed, or if nothing ran.
#
#   deploy/test.sh [--slow]     also the tests marked slow (large models; after deploy/setup.sh --bench)
set -euo pipefail
cd "$(dirname "$0")/.."

marker='not slow'
case ${1-} in
  '') ;;
  --slow) marker='slow or not slow' ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

passed=0 failed=0 complete=0
logs=$(mktemp -d)

# The last line is always the summary, however the script ends.
summarise() {
  local status=$?
  if ((!complete)); then
    failed=$((failed + 1))
    printf 'FAILED: a step of test.sh itself (status %d)\n' "$status"
  fi
  rm -rf "$logs"
  printf '%d passed, %d failed\n' "$passed" "$failed"
  if ((status == 0 && (failed > 0 || passed == 0))); then status=1; fi
  exit "$status"
}
trap summarise EXIT

heading() { printf '\n==== %s\n' "$*"; }

# check NAME COMMAND...: one check that passes or fails.
check() {
  local name=$1
  shift
  if "$@" >"$logs/check" 2>&1; then
    passed=$((passed + 1))
    printf 'ok      %s\n' "$name"
  else
    failed=$((failed + 1))
    tail -n 40 "$logs/check"
    printf 'FAILED: %s\n' "$name"
  fi
}

# add WHAT ARGUMENTS...: adds what count_tests.py counts.
add() {
  local what=$1 counts p f
  shift
  counts=$(.venv/bin/python deploy/count_tests.py "$@")
  read -r p f <<<"$counts"
  passed=$((passed + p)) failed=$((failed + f))
  printf '%s: %d passed, %d failed\n' "$what" "$p" "$f"
}

lint() {
  heading "lint"
  check "ruff" .venv/bin/ruff check client tests deploy
  check "ruff format" .venv/bin/ruff format --check client tests deploy
  check "mypy" .venv/bin/mypy --no-error-summary --config-file client/python/pyproject.toml client/python/inlay
  check "clang-format" bash -c 'git ls-files -z "*.h" "*.cc" | xargs -0 -P "$(nproc)" -n 8 clang-format-19 --dry-run -Werror'
}

run_bazel_tests() {
  heading "C++ tests"
  local targets=() status=0
  mapfile -t targets < <(bazel query --noshow_progress 'tests(//...) except attr(tags, "\bmanual\b", tests(//...))')
  ((${#targets[@]} > 0)) || { echo "no test targets"; return 1; }
  bazel test --keep_going --noshow_progress --jobs="${INLAY_JOBS:-$(nproc)}" \
    --build_event_json_file="$logs/events" "${targets[@]}" || status=$?
  # 1: something did not build; 3: tests failed. Both are counted below; anything else is Bazel's own trouble.
  if ((status != 0 && status != 1 && status != 3)); then echo "bazel test: status $status"; return "$status"; fi
  add "C++ tests" bazel "$logs/events" "${targets[@]}"
}

# run_pytest NAME FOLDER
run_pytest() {
  heading "$1"
  local status=0
  .venv/bin/python -m pytest -q -m "$marker" --timeout=600 --junitxml="$logs/junit.xml" "$2" || status=$?
  # 1: tests failed, which is counted below.
  if ((status > 1)); then echo "pytest $2: status $status"; return "$status"; fi
  add "$1" junit "$logs/junit.xml"
}

deploy/setup.sh --dev
lint
run_bazel_tests
run_pytest "client" client/python/tests
run_pytest "whole system" tests
complete=1
