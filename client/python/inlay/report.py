"""Report: what a compile did, as a JSON-able dict whose keys are attributes too."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from inlay._proto import artifact_pb2, cost_table_pb2


class Record(dict):
    """A dict whose keys are attributes too: `report.server_ms`, `report["server_ms"]`."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r} here; there are {', '.join(self)}") from None


class Report(Record):
    """What the server says of a compile.

    Keys: server_ms, actions_run, cache_hits, shared_flight (answered by an identical request under way), phase_ms
    ({phase: ms}), upload_bytes, and partitions: [{name, backend, ops, cache ("hit" or "miss"), why, miss_reason,
    compile_ms, cost_us, call_sites, action, locations, codegen_target (of the backend's variant; "" without attributes),
    channels_last_inputs, channels_last_outputs (indices of what crosses its borders so; all else is row-major)}].
    Of the choice of backends: plan_source ("search", "plan cache" or "pinned"), measure_ms, plans (whole-model covers
    that competed: [{name, estimated_us, measured_us, spread_us, chosen, calls, excluded}]) and candidates (sub-graphs
    that backends proposed: [{backend, rule, ops, locations, cost_us, spread_us, measured, chosen, excluded, note,
    estimate_us, unfitted_us}]), unusable (backends that can't serve this configuration's target at all: [{backend,
    reason, named}], named: by the configuration), notes (what went otherwise than usual, in words) and transitions (what
    going from one partition to the next costs, where that was measured: {device, num_threads, dispatch, copies,
    layouts}).
    """

    @staticmethod
    def from_proto(proto: artifact_pb2.CompileReport) -> Report:
        return Report(
            server_ms=proto.server_ms,
            actions_run=proto.actions_run,
            cache_hits=proto.cache_hits,
            shared_flight=proto.shared_flight,
            phase_ms=dict(proto.phase_ms),
            partitions=[_partition(p) for p in proto.partitions],
            plan_source=proto.plan_source,
            measure_ms=proto.measure_ms,
            plans=[_record(p, calls=dict(p.calls)) for p in proto.plans],
            candidates=[_record(c, ops=list(c.ops), locations=list(c.locations)) for c in proto.candidates],
            unusable=[_record(b) for b in proto.unusable],
            notes=list(proto.notes),
            transitions=_transitions(proto.transitions),
        )

    def backends(self) -> dict[str, int]:
        """{backend: how many call sites it has in the plan}."""
        counts: dict[str, int] = {}
        for partition in self["partitions"]:
            counts[partition["backend"]] = counts.get(partition["backend"], 0) + max(1, partition["call_sites"])
        return counts


def _transitions(proto: cost_table_pb2.TransitionCosts) -> Record:
    lists = {name: [_record(m) for m in getattr(proto, name)] for name in ("dispatch", "copies", "layouts")}
    return _record(proto, **lists)


def _record(message: Message, **lists: Any) -> Record:
    """The message's fields by name; those in `lists` as plain Python."""
    return Record({f.name: lists.get(f.name, getattr(message, f.name)) for f in message.DESCRIPTOR.fields})


def _partition(p: artifact_pb2.PartitionReport) -> Record:
    return Record(
        name=p.name,
        backend=p.backend,
        codegen_target=p.codegen_target,
        ops=list(p.ops),
        cache="hit" if p.cache_hit else "miss",
        why=p.why,
        miss_reason=p.miss_reason,
        compile_ms=p.compile_ms,
        cost_us=p.cost_us,
        call_sites=p.call_sites,
        action=p.action_digest,
        locations=list(p.locations),
        channels_last_inputs=list(p.channels_last_inputs),
        channels_last_outputs=list(p.channels_last_outputs),
    )
