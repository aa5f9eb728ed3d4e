"""A record of every call into a core, with its `now`, and of what the core then asked for.

A journal is a text of JSON lines, `[call, arguments...]`; the first line says what it is of. Payloads are left out:
no core reads them. `agents.core.replay` gives the calls to a new core and compares.

A driver that is to keep a journal makes `JournaledStage` or `JournaledGate` in place of the core; without one, nothing
is spent.

It has the moments at which the logs of states had news (`durability_changed`), but not the news, nor the marks of
messages. So of a core behind a stateful stage it is a record to read; `replay` stops where what it lacks mattered.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from agents.core.actions import Ok
from agents.core.gate import GATE, GateCore
from agents.core.policy import StageState
from agents.core.stage import StageCore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agents.core.actions import Emit, Result
    from agents.core.batching import Batch
    from agents.core.loss import Loss
    from agents.core.outcomes import Release
    from agents.core.refetch import Fetch
    from agents.core.request import Delivery
    from checkpoint.dedup import Span

VERSION = 4
_STATE = tuple(field.name for field in fields(StageState))


class _Lines:
    """Writes a journal's lines."""

    __slots__ = ("_encode", "_write")

    def __init__(self, write: Callable[[str], object], who: str) -> None:
        self._write = write
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
        self("journal", VERSION, who)

    def __call__(self, call: str, *arguments: Any) -> None:
        self._write(self._encode((call, *arguments)) + "\n")


class JournaledStage(StageCore):
    """A stage's core that writes down its calls."""

    def __init__(self, *arguments: Any, journal: Callable[[str], object], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._log = _Lines(journal, self.stage)
        self._numbers: dict[int, int] = {}  # id of an emit that is not acknowledged -> its number
        self._taken = 0

    def assign(self, partition: int, committed: int, note: str = "") -> tuple[Span, ...]:
        self._log("assign", partition, committed, note)
        return super().assign(partition, committed, note)

    def remember(self, delivery: Delivery) -> None:
        self._log("remember", packed(delivery))
        super().remember(delivery)

    def revoke(self, now: float, partition: int) -> None:
        self._log("revoke", now, partition)
        super().revoke(now, partition)

    def committed(self, partition: int, offset: int) -> None:
        self._log("committed", partition, offset)
        super().committed(partition, offset)

    def commits(self) -> dict[int, tuple[int, str]]:
        commits = super().commits()
        self._log("commits", sorted([p, *place] for p, place in commits.items()))
        return commits

    def deliver(self, now: float, delivery: Delivery) -> None:
        self._log("deliver", now, packed(delivery))
        super().deliver(now, delivery)

    def fail(self, now: float, delivery: Delivery, reason: str, text: str = "") -> None:
        self._log("fail", now, packed(delivery), reason, text)
        super().fail(now, delivery, reason, text)

    def durability_changed(self, now: float) -> None:
        self._log("durability_changed", now)
        super().durability_changed(now)

    def advance(self, now: float) -> None:
        self._log("advance", now)
        super().advance(now)

    def complete(self, now: float, batch: Batch, results: Sequence[Result], executed: float) -> None:
        self._log("complete", now, batch.worker, [packed_result(result) for result in results], executed)
        super().complete(now, batch, results, executed)

    def report(self, now: float) -> StageState | None:
        state = super().report(now)
        self._log("report", now, None if state is None else state_digest(state))
        return state

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        told = {stage: [packed_state(state) for state in replicas] for stage, replicas in states.items()}
        self._log("tick", now, told)
        super().tick(now, states)

    def fetched(self, now: float, fetch: Fetch, payload: Any, loss: Loss | None = None) -> None:
        self._log(
            "fetched",
            now,
            [fetch.partition, fetch.offset],
            None if loss is None else [loss.kind, loss.reason, loss.text],
        )
        super().fetched(now, fetch, payload, loss)

    def take_fetches(self) -> list[Fetch]:
        fetches = super().take_fetches()
        if fetches:
            self._log("fetches", [[fetch.partition, fetch.offset] for fetch in fetches])
        return fetches

    def acked(self, emit: Emit) -> None:
        self.acked_all((emit,))

    def acked_all(self, emits: Iterable[Emit]) -> None:
        emits = list(emits)
        self._log("acked", [self._numbers.pop(id(emit)) for emit in emits if id(emit) in self._numbers])
        super().acked_all(emits)

    def take_runs(self) -> list[Batch]:
        runs = super().take_runs()
        if runs:
            self._log("runs", runs_digest(runs))
        return runs

    def take_emits(self) -> list[Emit]:
        emits = super().take_emits()
        if emits:
            self._log("emits", [emit_digest(emit) for emit in emits])
            for emit in emits:
                self._numbers[id(emit)] = self._taken
                self._taken += 1
        return emits


class JournaledGate(GateCore):
    """A gate's core that writes down its calls."""

    def __init__(self, *arguments: Any, journal: Callable[[str], object], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._log = _Lines(journal, GATE)

    def assign(self, partition: int, committed: int, note: str = "") -> tuple[tuple[Span, ...], int]:
        self._log("assign", partition, committed, note)
        return super().assign(partition, committed, note)

    def recall(self, partition: int, offset: int, request_id: str, sent: float, appended: float) -> None:
        self._log("recall", partition, offset, request_id, sent, appended)
        super().recall(partition, offset, request_id, sent, appended)

    def remember(self, delivery: Delivery) -> None:
        self._log("remember", packed(delivery))
        super().remember(delivery)

    def revoke(self, partition: int) -> None:
        self._log("revoke", partition)
        super().revoke(partition)

    def deliver(self, now: float, delivery: Delivery) -> None:
        outcome = delivery.payload.outcome
        self._log("deliver", now, packed(delivery), [outcome.kind, outcome.reason])
        super().deliver(now, delivery)

    def fetched(self, fetch: Fetch, payload: Any, loss: Loss | None = None) -> None:
        said = [payload.outcome.kind, payload.outcome.reason]
        self._log(
            "fetched",
            [fetch.partition, fetch.offset],
            said,
            None if loss is None else [loss.kind, loss.reason, loss.text],
        )
        super().fetched(fetch, payload, loss)

    def take_fetches(self) -> list[Fetch]:
        fetches = super().take_fetches()
        if fetches:
            self._log("fetches", [[fetch.partition, fetch.offset] for fetch in fetches])
        return fetches

    def skip(self, partition: int, offset: int) -> None:
        self._log("skip", partition, offset)
        super().skip(partition, offset)

    def durability_changed(self, now: float) -> None:
        self._log("durability_changed", now)
        super().durability_changed(now)

    def advance(self, now: float) -> None:
        self._log("advance", now)
        super().advance(now)

    def collect(self, now: float, limit: int = 10_000) -> list[Release]:
        releases = super().collect(now, limit)
        self._log("collect", now, limit, [release_digest(release) for release in releases])
        return releases

    def commits(self) -> dict[int, tuple[int, str]]:
        commits = super().commits()
        self._log("commits", sorted([p, *place] for p, place in commits.items()))
        return commits

    def written(self, partition: int, offset: int, request_id: str, sent: float, appended: float) -> None:
        self._log("written", partition, offset, request_id, sent, appended)
        super().written(partition, offset, request_id, sent, appended)

    def committed(self, partition: int, offset: int) -> None:
        self._log("committed", partition, offset)
        super().committed(partition, offset)


def packed(delivery: Delivery) -> list[Any]:
    hop = delivery.hop
    return [
        delivery.request_id,
        delivery.partition,
        delivery.offset,
        delivery.sent,
        delivery.deadline,
        delivery.predecessor,
        None if hop is None else [hop.stage, hop.epoch, hop.partition, hop.sequence, hop.committed],
        delivery.path,
        delivery.lost,
        delivery.appended,
        delivery.kind,
        delivery.size,
    ]


def packed_result(result: Result) -> list[Any]:
    if isinstance(result, Ok):
        return [list(result.payloads), result.chosen]
    return [result.reason, result.text]


def packed_state(state: StageState) -> list[Any]:
    """Give all that a state says, in the order of its fields."""
    return [list(state.waits) if name == "waits" else getattr(state, name) for name in _STATE]


def state_digest(state: StageState) -> list[Any]:
    """Give what a state says, but of its batch waits only how many there are: there may be thousands."""
    return [len(state.waits) if name == "waits" else getattr(state, name) for name in _STATE]


def runs_digest(runs: list[Batch]) -> list[Any]:
    return [[run.worker, [request.request_id for request in run.requests]] for run in runs]


def emit_digest(emit: Emit) -> list[Any]:
    hop = emit.hop
    return [
        emit.kind.value,
        emit.destination,
        emit.request_id,
        emit.partition,
        [hop.epoch, hop.sequence, hop.committed],
        emit.path,
        emit.lost,
        None if emit.loss is None else emit.loss.reason,
    ]


def release_digest(release: Release) -> list[Any]:
    return [release.request_id, release.partition, release.outcome.kind, release.outcome.reason, release.good]
