"""Gives the calls in a journal to a new core, and says where it does something else.

Invariant: a core is a function of its calls. A new core of the same make, given the recorded calls, asks for the same
batches and messages, commits the same offsets and releases the same outcomes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents.core.actions import Failed, Ok
from agents.core.gate import GATE, GateCore
from agents.core.journal import VERSION, emit_digest, release_digest, runs_digest, state_digest
from agents.core.loss import Loss
from agents.core.policy import StageState
from agents.core.refetch import Fetch
from agents.core.request import Delivery
from agents.core.stage import StageCore
from lineage.errors import UsageError
from lineage.hops import Hop
from lineage.message import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.core.actions import Emit, Result
    from agents.core.batching import Batch


@dataclass(slots=True, frozen=True)
class Difference:
    """The first line of a journal at which the replayed core did something else."""

    line: int
    call: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"line {self.line}, {self.call}: recorded {self.recorded!r}, replayed {self.replayed!r}"


def replay(lines: Iterable[str], core: StageCore | GateCore) -> Difference | None:
    """Give the recorded calls to a new core; None if it asks for the same all along.

    Raises UsageError for a text that is no journal of such a core.
    """
    who = core.stage if isinstance(core, StageCore) else GATE
    replayed: _Replay = _StageReplay(core) if isinstance(core, StageCore) else _GateReplay(core)
    for number, line in enumerate(lines, start=1):
        call, *arguments = json.loads(line)
        if number == 1:
            if [call, *arguments] != ["journal", VERSION, who]:
                raise UsageError(f"this is no journal of {who!r} in version {VERSION}: it begins with {line[:80]!r}")
            continue
        recorded, done = replayed.step(call, arguments)
        if recorded != done:
            return Difference(number, call, recorded, done)
    return None


class _Replay:
    """Gives calls to a core; `step` returns what was recorded of its answer and what the answer is now."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def step(self, call: str, arguments: list[Any]) -> tuple[Any, Any]:
        if call == "commits":
            return arguments[0], sorted([p, *place] for p, place in self.core.commits().items())
        if call == "remember":
            self.core.remember(_unpacked(arguments[0]))
        else:
            getattr(self.core, call)(*arguments)
        return None, None


class _StageReplay(_Replay):
    def __init__(self, core: StageCore) -> None:
        super().__init__(core)
        self._running: dict[int, Batch] = {}
        self._emits: dict[int, Emit] = {}
        self._taken = 0

    def step(self, call: str, arguments: list[Any]) -> tuple[Any, Any]:
        core: StageCore = self.core
        if call == "runs":
            runs = core.take_runs()
            self._running |= {run.worker: run for run in runs}
            return arguments[0], runs_digest(runs)
        if call == "emits":
            emits = core.take_emits()
            for emit in emits:
                self._emits[self._taken] = emit
                self._taken += 1
            return arguments[0], json.loads(json.dumps([emit_digest(emit) for emit in emits]))
        if call == "fetches":
            return arguments[0], [[fetch.partition, fetch.offset] for fetch in core.take_fetches()]
        if call == "acked":
            core.acked_all([self._emits.pop(number) for number in arguments[0]])
        elif call == "fetched":
            now, fetch, loss = arguments
            core.fetched(now, Fetch(*fetch), None, None if loss is None else Loss(*loss))
        elif call == "complete":
            now, instance, results, executed = arguments
            core.complete(now, self._running.pop(instance), [_unpacked_result(r) for r in results], executed)
        elif call == "report":
            state = core.report(arguments[0])
            return arguments[1], None if state is None else json.loads(json.dumps(state_digest(state)))
        elif call == "tick":
            now, told = arguments
            core.tick(now, {stage: [_unpacked_state(packed) for packed in told[stage]] for stage in told})
        elif call == "deliver":
            core.deliver(arguments[0], _unpacked(arguments[1]))
        elif call == "fail":
            now, packed, reason, text = arguments
            core.fail(now, _unpacked(packed), reason, text)
        else:
            return super().step(call, arguments)
        return None, None


@dataclass(slots=True, frozen=True)
class _Report:
    outcome: Outcome


class _GateReplay(_Replay):
    def step(self, call: str, arguments: list[Any]) -> tuple[Any, Any]:
        core: GateCore = self.core
        if call == "collect":
            now, limit, recorded = arguments
            return recorded, [release_digest(release) for release in core.collect(now, limit)]
        if call == "deliver":
            now, packed, (kind, reason) = arguments
            delivery = _unpacked(packed)
            delivery.payload = _Report(Outcome(kind, reason=reason))
            core.deliver(now, delivery)
            return None, None
        if call == "fetches":
            return arguments[0], [[fetch.partition, fetch.offset] for fetch in core.take_fetches()]
        if call == "fetched":
            fetch, (kind, reason), loss = arguments
            report = _Report(Outcome(kind, reason=reason))
            core.fetched(Fetch(*fetch), report, None if loss is None else Loss(*loss))
            return None, None
        return super().step(call, arguments)


def _unpacked(packed: list[Any]) -> Delivery:
    request_id, partition, offset, sent, deadline, predecessor, hop, path, lost, appended, kind, size = packed
    return Delivery(
        request_id,
        partition,
        offset,
        sent,
        deadline,
        predecessor,
        None if hop is None else Hop(*hop),
        {stage: tuple(chosen) for stage, chosen in path.items()},
        tuple(lost),
        appended,
        kind=kind,
        size=size,
    )


def _unpacked_state(packed: list[Any]) -> StageState:
    fields: list[Any] = [tuple(said) if isinstance(said, list) else said for said in packed]
    return StageState(*fields)


def _unpacked_result(packed: list[Any]) -> Result:
    first, second = packed
    if isinstance(first, str):
        return Failed(first, second)
    return Ok(dict.fromkeys(first), None if second is None else tuple(second))
