"""`inlay explain`: why each partition of a model is compiled by the backend that compiles it.

Everything here comes from the compile's report: the whole-model plans that competed, and for each partition the candidates
that backends proposed for its operators, with their costs and what speaks against them.
"""

from __future__ import annotations

from typing import Any

from inlay.report import Report


def explanation(report: Report) -> dict[str, Any]:
    """{plan_source, measure_ms, plans, partitions: [{..., candidates}], other_candidates, unusable, notes, transitions}:
    what `--json` prints.

    A candidate belongs to a partition where they share an operator of the model; one of several partitions stands with each.
    """
    partitions, used = [], set()
    for partition in report.partitions:
        places = set(partition.locations)
        mine = []
        for index, candidate in enumerate(report.candidates):
            if places & set(candidate.locations):
                mine.append(candidate)
                used.add(index)
        # The chosen one first, then by cost, what was excluded last.
        mine.sort(key=lambda c: (not _won(c, partition), bool(c.excluded), c.cost_us))
        partitions.append({**partition, "candidates": mine, "verdict": _verdict(partition, mine)})
    partitions.sort(key=lambda p: -p["cost_us"] * max(1, p["call_sites"]))
    return {
        "plan_source": report.plan_source,
        "measure_ms": report.measure_ms,
        "plans": report.plans,
        "partitions": partitions,
        "other_candidates": [c for i, c in enumerate(report.candidates) if i not in used],
        "unusable": report.unusable,
        "notes": report.notes,
        "transitions": report.transitions,
    }


def _won(candidate: dict[str, Any], partition: dict[str, Any]) -> bool:
    return bool(candidate["chosen"]) and candidate["backend"] == partition["backend"]


def _verdict(partition: dict[str, Any], candidates: list[Any]) -> str:
    """Why the winner won, in words: against the best that covers the same operators, else what the server says."""
    same = [c for c in candidates if sorted(c.ops) == sorted(partition["ops"]) and c.backend != partition["backend"]]
    rivals = [c for c in same if not c.excluded]
    ours = next((c for c in candidates if _won(c, partition) and sorted(c.ops) == sorted(partition["ops"])), None)
    if ours is None or not ours.cost_us or not same:
        return str(partition["why"])
    if not rivals:
        return f"no other backend may take it: {'; '.join(sorted({f'{c.backend}: {c.excluded}' for c in same}))}"
    best = min(rivals, key=lambda c: c.cost_us)
    difference = best.cost_us - ours.cost_us
    if difference >= 0:
        within = " (within the spread)" if difference < best.spread_us + ours.spread_us else ""
        return f"{best.cost_us / ours.cost_us:.2f}x faster than {best.backend}{within}"
    return (
        f"{best.backend} is {-difference:.1f} us faster alone, but not with what is around it (the whole model decides)"
    )


def cost(record: Any) -> str:
    """ "12.3 ±0.4 us" where it was measured, "~12.3 us" where it was estimated, "-" where nobody knows."""
    if not record["cost_us"]:
        return "-"
    if record.get("measured"):
        return f"{record['cost_us']:.1f} ±{record['spread_us']:.1f} us"
    return f"~{record['cost_us']:.1f} us"


def _outcome(candidate: Any) -> str:
    words = ["chosen"] if candidate["chosen"] else []
    if candidate["excluded"]:
        words = [f"excluded: {candidate['excluded']}"]
    return "; ".join(words + [candidate["note"]] * bool(candidate["note"]))


def print_explanation(found: dict[str, Any], limit: int) -> None:
    from inlay.printing import ops_in_words, print_table

    _print_plans(found)
    for line in unusable_in_words(found["unusable"]) + found["notes"]:
        print(line)
    for line in transitions_in_words(found["transitions"]):
        print(line)
    for number, p in enumerate(found["partitions"][:limit]):
        where = f" at {p['locations'][0]!r}" if p["locations"] else ""
        calls = f", {p['call_sites']} calls" if p["call_sites"] > 1 else ""
        print(f"\n{number + 1}. {ops_in_words(p['ops'])}: {p['backend']}, {cost(p)}{calls}{where}")
        print(f"   {p['verdict']}")
        if layouts := layouts_in_words(p):
            print(f"   {layouts}")
        if p["candidates"]:
            rows = [
                [f"   {c['backend']}", c["rule"], cost(c), ops_in_words(c["ops"]), _outcome(c)] for c in p["candidates"]
            ]
            print_table(["   candidate", "rule", "a call", "ops", ""], rows)
    more = len(found["partitions"]) - limit
    if more > 0:
        print(f"\nand {more} more partitions that cost less (--limit)")
    if found["other_candidates"]:
        print(
            f"\n{len(found['other_candidates'])} candidates for what is not in the run (weights' work, --json lists them)"
        )
    if not any(p["candidates"] for p in found["partitions"]):
        print("\nThe server's report has no candidates.")


def layouts_in_words(partition: dict[str, Any]) -> str:
    """What crosses its borders without being transposed: "channels last: input 0, output 0"; "" where nothing does."""
    values = [f"{side} {i}" for side in ("input", "output") for i in partition[f"channels_last_{side}s"]]
    return f"channels last: {', '.join(values)}" if values else ""


def unusable_in_words(unusable: list[Any]) -> list[str]:
    """A line a backend: "xnnpack, which the configuration names, cannot serve: ..."."""
    return [
        f"{b['backend']}{', which the configuration names,' if b['named'] else ''} cannot serve: {b['reason']}"
        for b in unusable
    ]


def transitions_in_words(transitions: Any) -> list[str]:
    """What going from one partition to the next costs: a line for calls, one for copies, one for layouts."""
    calls = [f"{d['backend']} {d['failed'] or format(d['us'], '.2f') + ' us'}" for d in transitions["dispatch"]]
    copies = [f"{_size(c['bytes'])} {c['us']:.1f} us" for c in transitions["copies"]]
    layouts = [
        f"{c['backend']} {_size(c['bytes'])} {c['failed'] or format(c['us'], '.1f') + ' us'} (~{c['estimated_us']:.1f})"
        for c in transitions["layouts"]
    ]
    named = {"a call": calls, "a copy": copies, "a change of layout": layouts}
    return [f"measured here: {what}: {', '.join(values)}" for what, values in named.items() if values]


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


def _print_plans(found: dict[str, Any]) -> None:
    from inlay.printing import print_table

    def microseconds(value: float, spread: float = 0) -> str:
        return "-" if not value else f"{value:,.0f} us" + (f" ±{spread:,.0f}" if spread else "")

    rows = []
    for plan in sorted(found["plans"], key=lambda p: (not p["chosen"], bool(p["excluded"]), p["measured_us"])):
        calls = ", ".join(f"{name} {count}" for name, count in sorted(plan["calls"].items()))
        outcome = _outcome(plan)
        measured = microseconds(plan["measured_us"], plan["spread_us"])
        rows.append([plan["name"], measured, microseconds(plan["estimated_us"]), calls, outcome])
    if rows:
        print_table(["plan of the whole model", "measured", "estimated", "calls", ""], rows)
    if found["plan_source"]:
        spent = f"; {found['measure_ms'] / 1e3:.1f} s spent measuring" if found["measure_ms"] else ""
        print(f"from: {found['plan_source']}{spent}")
