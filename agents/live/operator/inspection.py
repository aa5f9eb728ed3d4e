"""What became of one query, as plain data: of what was found of it on its pipeline's topics. Pure.

`describe` is what `spillway inspect --json` prints. Times are milliseconds from when the query was sent, by the
client's clock; those of stages are by theirs, so hosts whose clocks differ by 5 ms move a stage by as much. When the
outcome was written, Kafka tells in whole milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.message import DROPPED, PREDICTION
from spillway.lineage.values.json_text import show_value
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.lineage.headers import Headers
    from spillway.lineage.message import Outcome, StageTiming
    from spillway.topology.spec import PipelineSpec

# What became of it. Only of an answered query there is an outcome.
ANSWERED: Final = "answered"
HELD: Final = "held"  # its outcome waits at the gate for versions
WAITING: Final = "waiting"  # a stage, or the gate, has its record to do
PASSED: Final = "passed"  # who had its record to do has done it, and nothing was found of it further on
NOT_FOUND: Final = "not-found"

_DURABLE: Final = "durable"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record of the query on one of the pipeline's topics."""

    topic: str
    partition: int
    offset: int
    at: float  # unix seconds: when it was written
    headers: Headers
    key: bytes | None = None
    value: bytes | None = None
    done: Mapping[str, bool | None] = field(default_factory=dict)  # by reader: has it committed beyond the record?


@dataclass(frozen=True, slots=True)
class Search:
    """What was found of a query. With an outcome, `seen` is its record on the egress."""

    request_id: str
    since: float | None  # unix seconds from which records were read; None: all that are there
    seconds: float  # of records that were read from there
    partition: int  # the one that is its own, by its id or key
    seen: Sequence[Sighting] = ()
    outcome: Outcome | None = None
    waits_for: Mapping[str, str] = field(default_factory=dict)  # the fate of each version that it rests on at the gate
    oldest: float | None = None  # where nothing was found: when the oldest outcome that is kept was written


def describe(search: Search, spec: PipelineSpec) -> dict[str, Any]:
    """Return what became of a query, as a JSON object; its `text` is a sentence or two."""
    told: dict[str, Any] = {"request_id": search.request_id, "pipeline": spec.name, "partition": search.partition}
    if search.outcome is not None:
        return {**told, **_answered(search.outcome, search.seen[0], spec)}
    told["searched"] = {"since": search.since, "seconds": search.seconds if search.since is not None else None}
    if not search.seen:
        return {**told, "state": NOT_FOUND, "text": _not_found(search), "oldest": search.oldest}
    seen = sorted(search.seen, key=lambda sighting: sighting.at)
    waits_for = {mark: fate for mark, fate in search.waits_for.items() if fate != _DURABLE}
    state, text = _unanswered(seen[-1], waits_for, spec)
    places = [_place(sighting) for sighting in seen]
    return {**told, **_envelope(seen[-1]), "state": state, "text": text, "seen": places, "waits_for": waits_for}


def _answered(outcome: Outcome, sighting: Sighting, spec: PipelineSpec) -> dict[str, Any]:
    headers = sighting.headers
    latency = max(0.0, sighting.at * 1e3 - headers.sent_us / 1e3)
    margin = (headers.deadline_us - headers.sent_us) / 1e3 - latency
    return {
        **_envelope(sighting),
        "state": ANSWERED,
        "kind": outcome.kind,
        "reason": outcome.reason,
        "stage": outcome.stage,
        "text": _ended(outcome, latency, margin),
        "latency_ms": _rounded(latency),
        "margin_ms": _rounded(margin),
        "late": margin < 0,
        "outputs": sorted(outcome.outputs),
        "rests_on": [str(mark) for mark in headers.hop.marks] if headers.hop is not None else [],
        "flags": show_value(outcome.flags),
        "stages": _stages(outcome, headers.sent_us, spec),
    }


def _envelope(sighting: Sighting) -> dict[str, Any]:
    headers = sighting.headers
    return {
        "sent_us": headers.sent_us,
        "deadline_ms": _rounded((headers.deadline_us - headers.sent_us) / 1e3),
        "key": None if sighting.key is None else sighting.key.decode("utf-8", "replace"),
        "partition": sighting.partition,
        "offset": sighting.offset,
        "trace_id": None if headers.trace is None else headers.trace.trace_id,
        "path": {chooser: list(chosen) for chooser, chosen in headers.path.items()},
    }


def _stages(outcome: Outcome, sent_us: int, spec: PipelineSpec) -> list[dict[str, Any]]:
    """What each stage did, in the order in which it came there; those that did not say when it did are first."""
    after = {stage.name: stage.after for stage in spec.stages}
    ends: dict[str, float] = {}
    rows = []
    for timing in sorted(outcome.timings, key=lambda timing: timing.arrived):
        arrived = (timing.arrived - sent_us) / 1e3 if timing.arrived else None
        if arrived is not None:
            ends[timing.stage] = arrived + (timing.queued + timing.waited + timing.executed) * 1e3
        before = max((ends.get(name, 0.0) for name in after.get(timing.stage, ())), default=0.0)
        flags = outcome.flags.get(timing.stage)
        rows.append(_row(timing, arrived, before, flags if isinstance(flags, dict) else {}))
    return rows


def _row(timing: StageTiming, arrived: float | None, before: float, flags: Any) -> dict[str, Any]:
    return {
        "stage": timing.stage,
        "arrived_ms": None if arrived is None else _rounded(arrived),
        "travelled_ms": None if arrived is None else _rounded(arrived - before),
        "queued_ms": _rounded(timing.queued * 1e3),
        "waited_ms": _rounded(timing.waited * 1e3),
        "executed_ms": _rounded(timing.executed * 1e3),
        "batch": timing.batch,
        "model": timing.model,
        "version": timing.version,
        "flags": show_value(flags),
    }


def _ended(outcome: Outcome, latency: float, margin: float) -> str:
    side = "before" if margin >= 0 else "after"
    when = f"{latency:.1f} ms after it was sent, {abs(margin):.1f} ms {side} its deadline"
    if outcome.kind == PREDICTION:
        return f"answered {when}"
    what = "dropped by" if outcome.kind == DROPPED else "failed at"
    return f"{what} {outcome.stage} ({outcome.reason}) {when}" + (f": {outcome.text}" if outcome.text else "")


def _unanswered(last: Sighting, waits_for: Mapping[str, str], spec: PipelineSpec) -> tuple[str, str]:
    where = f"{last.topic}, partition {last.partition}, offset {last.offset}"
    left = " and ".join(reader for reader, done in last.done.items() if not done)
    if not left:
        return PASSED, (
            f"no outcome was found: {' and '.join(last.done)} has committed beyond {where}, and what followed lies "
            "outside of the time that was searched (give another time), or this repeats a query answered before"
        )
    if waits_for and last.topic == topics.outcomes(spec.name):
        return HELD, "no outcome yet: held at the gate for " + ", ".join(f"{m} ({f})" for m, f in waits_for.items())
    unsure = " (what was committed is unknown)" if None in last.done.values() else ""
    return WAITING, f"no outcome yet: {left} has it to do{unsure}, from {where}"


def _not_found(search: Search) -> str:
    text = f"no record of it in {'the partition' if search.since is None else f'{search.seconds:g} s of each topic'}"
    if search.oldest is None:
        text += "; no outcome is kept in its partition"
    elif search.since is not None and search.oldest > search.since:
        text += "; what was written before its partition's oldest outcome is no longer kept (the topics' retention)"
    return f"{text}; was it sent at another time, or with a key? (--at, --key; by HTTP ?at=, ?key=)"


def _place(sighting: Sighting) -> dict[str, Any]:
    return {
        "topic": sighting.topic,
        "partition": sighting.partition,
        "offset": sighting.offset,
        "at_ms": _rounded(sighting.at * 1e3 - sighting.headers.sent_us / 1e3),
        "sent_by": sighting.headers.hop.stage if sighting.headers.hop is not None else None,
        "done": dict(sighting.done),
    }


def _rounded(milliseconds: float) -> float:
    return round(milliseconds, 3)
