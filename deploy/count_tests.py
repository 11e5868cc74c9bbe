#!/usr/bin/env python3
"""Counts what a test run passed and failed, for deploy/test.sh. Prints "PASSED FAILED"; names what failed on stderr.

    count_tests.py junit FILE...          JUnit files, as pytest writes them
    count_tests.py bazel EVENTS TARGET... a build event file (JSON) of `bazel test`, and the targets that it was given

A Bazel target without a result (it did not build, it crashed before it wrote its cases) counts as one failure.
"""

from __future__ import annotations

import json
import pathlib
import sys
import urllib.parse
from xml.etree import ElementTree


def count_junit(path: pathlib.Path) -> tuple[int, int]:
    """(passed, failed) test cases of one file; skipped and disabled ones are neither."""
    passed = failed = 0
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed += 1
            print(f"FAILED: {case.get('classname')}.{case.get('name')}", file=sys.stderr)
        elif "skipped" not in kinds and case.get("status") != "notrun" and case.get("result") != "skipped":
            passed += 1
    return passed, failed


def count_target(summary: dict | None) -> tuple[int, int]:
    """(passed, failed) of one Bazel target, from its testSummary event (None: it had none)."""
    if summary is None:
        return 0, 1
    ok = summary.get("overallStatus") in ("PASSED", "FLAKY")
    passed = failed = 0
    for log in summary.get("passed", []) + summary.get("failed", []):
        xml = pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(log["uri"]).path)).with_name("test.xml")
        try:
            case_passed, case_failed = count_junit(xml)
        except (OSError, ElementTree.ParseError):
            continue
        passed, failed = passed + case_passed, failed + case_failed
    if ok:
        return max(passed, 1), failed
    return passed, max(failed, 1)


def count_bazel(events: pathlib.Path, targets: list[str]) -> tuple[int, int]:
    summaries: dict[str, dict] = {}
    for line in events.read_text().splitlines():
        event = json.loads(line)
        label = event.get("id", {}).get("testSummary", {}).get("label")
        if label and "testSummary" in event:
            summaries[label] = event["testSummary"]
    passed = failed = 0
    for target in targets:
        target_passed, target_failed = count_target(summaries.get(target))
        if target_failed:
            status = summaries.get(target, {}).get("overallStatus", "NOT BUILT")
            print(f"FAILED: {target} ({status})", file=sys.stderr)
        passed, failed = passed + target_passed, failed + target_failed
    return passed, failed


def main(arguments: list[str]) -> int:
    if len(arguments) >= 2 and arguments[0] == "junit":
        counts = [count_junit(pathlib.Path(path)) for path in arguments[1:]]
    elif len(arguments) >= 2 and arguments[0] == "bazel":
        counts = [count_bazel(pathlib.Path(arguments[1]), arguments[2:])]
    else:
        print(__doc__, file=sys.stderr)
        return 2
    print(sum(p for p, _ in counts), sum(f for _, f in counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
