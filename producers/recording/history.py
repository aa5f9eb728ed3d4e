"""What became of the queries of a recording, one by one: when they came, how they ended, what the stages did for them.

The ingress gives each query's coming and its budget, the egress its outcome, with the timings of the stages that it
passed and, in its headers, the choices made for it. A query came when its sender says, unless that is more than a
second off the broker's append time, as at the root stage; then the append time counts. Its latency runs from there to
the outcome's time on the egress, which is in whole milliseconds. A message that cannot be read is counted and left out.

Payloads are not kept, so that memory grows with the number of queries alone. Durations in seconds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from spillway.lineage import headers as wire
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.message import PREDICTION, Query
from spillway.lineage.values.codec import Decoder
from spillway.producers import report

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Outcome, StageTiming
    from spillway.producers.recording.files import Recorded, Recording

_SKEW_SECONDS: Final = 1.0


@dataclass(slots=True)
class StageRecord:
    """What the outcomes say of one stage. A batch is seen once for each of its queries."""

    queries: int = 0
    batches: float = 0.0  # each query counts as its share of a batch
    executed: dict[int, list[float]] = field(default_factory=dict)  # by batch size, one element per query


@dataclass(frozen=True, slots=True)
class History:
    """One element per query, in order of coming; a query without an outcome is MISSING (see `producers.report`)."""

    due: NDArray[np.float64]  # since the first
    budget: NDArray[np.float64]  # NaN where the query names no deadline
    partition: NDArray[np.int64]
    kind: NDArray[np.uint8]
    latency: NDArray[np.float64]  # NaN where missing
    spent: NDArray[np.float64]  # its share of the executions that it was in
    lost_at: list[str]  # the stage that dropped or failed it
    stages: dict[str, StageRecord]
    choices: dict[str, Counter[str]]  # chooser -> how often it chose what ("+" between several, "" for none)
    hop: NDArray[np.float64]  # what a prediction's timings leave unexplained of its latency, per hop; else NaN
    paths: list[dict[str, tuple[str, ...]]]  # the choices made for it, as far as they are known
    unreadable: int

    def until(self, seconds: float) -> Self:
        """The queries of the first `seconds`. The sums (stages, choices) stay those of all."""
        count = int(np.searchsorted(self.due, seconds))
        if not count:
            raise UsageError(f"no query came within the first {seconds:g} s of the recording")
        arrays = ("due", "budget", "partition", "kind", "latency", "spent", "lost_at", "hop", "paths")
        return replace(self, **{name: getattr(self, name)[:count] for name in arrays})


def inputs(recording: Recording, limits: Limits) -> Iterator[Mapping[str, Any]]:
    """The inputs of each query, in order of arrival; a message that cannot be read is left out."""
    decoder = Decoder(limits)
    for recorded in recording.queries():
        try:
            message = decoder.message(recorded.value or b"")
        except WireError:
            continue  # a poison message was recorded as it came
        if isinstance(message, Query):
            yield message.inputs


def history(recording: Recording, predecessors: dict[str, tuple[str, ...]], limits: Limits) -> History:
    """Read a recording once. `predecessors` by stage, in topological order. Raises `UsageError` without any query."""
    reader = _Reader(Decoder(limits), predecessors)
    for message in recording.messages():
        if message.topic == recording.about.ingress:
            reader.query(message)
        elif message.topic == recording.about.egress:
            reader.outcome(message)
    if not reader.came:
        raise UsageError(f"{recording.directory} holds no readable query: record while the pipeline is in use")
    return reader.history()


class _Reader:
    """Collects what one pass over the messages gives; a query and its outcome may come in either order."""

    def __init__(self, decoder: Decoder, predecessors: dict[str, tuple[str, ...]]) -> None:
        self.came: dict[str, tuple[float, float, int]] = {}  # by request id: due (unix), budget, partition
        self._ended: dict[str, tuple[float, Outcome, dict[str, tuple[str, ...]]]] = {}  # when, and the choices
        self._decoder = decoder
        self._predecessors = predecessors
        self._unreadable = 0

    def query(self, message: Recorded) -> None:
        try:
            headers = wire.decode(message.headers, appended_us=int(message.timestamp * 1e6))
        except WireError:
            self._unreadable += 1
            return
        if headers.request_id in self.came:
            return
        sent = headers.sent_us / 1e6
        due = sent if abs(sent - message.timestamp) <= _SKEW_SECONDS else message.timestamp
        budget = (headers.deadline_us - headers.sent_us) / 1e6
        self.came[headers.request_id] = (due, budget if budget > 0 else np.nan, message.partition)

    def outcome(self, message: Recorded) -> None:
        try:
            headers = wire.decode(message.headers)
            outcome = self._decoder.released(message.value or b"")
        except WireError:
            self._unreadable += 1
            return
        self._ended.setdefault(headers.request_id, (message.timestamp, outcome, headers.path))

    def history(self) -> History:
        ids = sorted(self.came, key=lambda name: self.came[name][0])
        count = len(ids)
        first = self.came[ids[0]][0]
        made = History(
            due=np.array([self.came[name][0] - first for name in ids]),
            budget=np.array([self.came[name][1] for name in ids]),
            partition=np.array([self.came[name][2] for name in ids], np.int64),
            kind=np.full(count, report.MISSING, np.uint8),
            latency=np.full(count, np.nan),
            spent=np.zeros(count),
            lost_at=[""] * count,
            stages={name: StageRecord() for name in self._predecessors},
            choices={},
            hop=np.full(count, np.nan),
            paths=[{}] * count,
            unreadable=self._unreadable,
        )
        for index, name in enumerate(ids):
            if name in self._ended:
                at, outcome, path = self._ended[name]
                made.latency[index] = max(0.0, at - self.came[name][0])
                self._add(made, index, outcome, path)
        return made

    def _add(self, made: History, index: int, outcome: Outcome, path: dict[str, tuple[str, ...]]) -> None:
        made.kind[index] = report.KINDS[outcome.kind]
        made.paths[index] = path
        if outcome.kind == PREDICTION:
            _, (seconds, stages) = explained(outcome.timings, self._predecessors)
            made.hop[index] = max(0.0, (made.latency[index] - seconds) / (stages + 1))
        else:
            made.lost_at[index] = outcome.stage
            made.stages.setdefault(outcome.stage, StageRecord())
        for timing in outcome.timings:
            stage = made.stages.setdefault(timing.stage, StageRecord())
            if timing.batch > 0:  # else it was dropped there
                made.spent[index] += timing.executed / timing.batch
                stage.queries += 1
                stage.batches += 1 / timing.batch
                stage.executed.setdefault(timing.batch, []).append(timing.executed)
        for chooser, chosen in path.items():
            made.choices.setdefault(chooser, Counter())["+".join(chosen)] += 1


def explained(
    timings: Iterable[StageTiming], predecessors: Mapping[str, Sequence[str]]
) -> tuple[dict[str, tuple[float, int]], tuple[float, int]]:
    """Return when each stage that a query passed began, and when the last ended, by the stages' own timings.

    Each is told as seconds since the roots began, along the longest path, and the stages that came before.
    `predecessors` by stage, in topological order.
    """
    known = {timing.stage: timing for timing in timings}
    begins: dict[str, tuple[float, int]] = {}
    ends: dict[str, tuple[float, int]] = {}
    for stage, before in predecessors.items():
        if stage in known:
            seconds, stages = begins[stage] = max((ends[name] for name in before if name in ends), default=(0.0, 0))
            timing = known[stage]
            ends[stage] = (seconds + timing.queued + timing.waited + timing.executed, stages + 1)
    return begins, max(ends.values(), default=(0.0, 0))
