"""A record of the calls into a core and of its answers, and a replay that gives the calls to a new core and compares.

A journal is a text of JSON lines, `[call, answer, arguments by name]`; the first line says what it is of. Payloads are
left out: no core reads them. A driver that is to keep one wraps its core in `Recorded`.

Invariant: a core is a function of its calls. A new core of the same make, given the recorded calls, asks for the same
batches and messages, commits the same offsets and releases the same outcomes.

A journal has the moments at which the logs of states had news (`durability_changed`), but not the news, nor the marks
of messages. So of a core behind a stateful stage it is a record to read; `replay` stops where what it lacks mattered.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Emit, Failed, Ok, Work
from spillway.agents.core.batching import Batch
from spillway.agents.core.gate import GATE, GateCore
from spillway.agents.core.joins import Fetch
from spillway.agents.core.lane import Ticket
from spillway.agents.core.outcomes import Release
from spillway.agents.core.policy import StageState
from spillway.agents.core.request import Delivery, Loss
from spillway.agents.core.stage import StageCore
from spillway.lineage.errors import UsageError
from spillway.lineage.hops import Hop
from spillway.lineage.message import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

VERSION = 5
CALLS = frozenset({
    "acked", "acked_all", "advance", "assign", "attach", "collect", "commits", "committed", "complete", "deliver",
    "drain", "durability_changed", "fail", "fetched", "lose", "recall", "remember", "report", "revoke", "skip",
    "take_emits", "take_fetches", "take_runs", "tick", "written",
})  # fmt: skip


@dataclass(slots=True, frozen=True)
class _Report:
    """What the gate looks at in a payload."""

    outcome: Outcome


# What is recorded of each type. Those of `_MADE` are made from it again.
_SAID: dict[type, tuple[str, ...]] = {
    Delivery: (
        "request_id", "partition", "offset", "sent", "deadline", "predecessor", "hop", "path", "lost", "appended",
        "payload", "kind", "size", "offline",
    ),
    Hop: ("stage", "epoch", "partition", "sequence", "committed"),
    Ok: ("payloads", "chosen"),
    Failed: ("reason", "text"),
    Loss: ("kind", "reason", "text"),
    Fetch: ("partition", "offset"),
    StageState: tuple(field.name for field in fields(StageState)),
    Outcome: ("kind", "reason"),
    _Report: ("outcome",),
    Batch: ("worker", "requests"),
    Work: ("request_id",),
    Ticket: ("request_id", "lane"),
    Emit: ("kind", "destination", "request_id", "partition", "hop", "path", "lost", "loss"),
    Release: ("request_id", "partition", "outcome", "good"),
}  # fmt: skip
_MADE = {f"@{kind.__name__}": kind for kind in (Delivery, Hop, Failed, Loss, Fetch, StageState, Outcome, _Report)}
_GIVEN = "@given"  # a batch or message that the core gave before, by its number


class _Packer:
    """Packs values as JSON has them, and numbers the batches and messages that a core gives, until they come back."""

    def __init__(self) -> None:
        self._numbered = 0
        self._numbers: dict[int, int] = {}  # by id
        self._given: dict[int, Any] = {}  # by number

    def answer(self, value: Any) -> Any:
        for one in value if isinstance(value, list) else ():
            if isinstance(one, Batch | Emit):
                self._numbers[id(one)], self._given[self._numbered] = self._numbered, one
                self._numbered += 1
        return _packed(value)

    def argument(self, value: Any, name: str) -> Any:
        if isinstance(value, Batch | Emit):
            number = self._numbers.pop(id(value))
            del self._given[number]
            return {_GIVEN: number}
        if isinstance(value, list | tuple):
            return [self.argument(one, name) for one in value]
        return _packed(value, name)

    def unpacked(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(self.unpacked(one) for one in value)
        if not isinstance(value, dict):
            return value
        for name, said in value.items():
            if name == _GIVEN:
                return self._given.pop(said)
            if name == "@Ok":
                return Ok(dict.fromkeys(said[0]), self.unpacked(said[1]))
            if name in _MADE:
                made = _MADE[name]
                return made(**dict(zip(_SAID[made], map(self.unpacked, said), strict=True)))
        return {name: self.unpacked(said) for name, said in value.items()}


def _packed(value: Any, name: str = "") -> Any:
    if name == "payload":
        value = _Report(value.outcome) if hasattr(value, "outcome") else None
    elif name == "payloads":
        value = list(value)
    if isinstance(value, Enum):
        return value.value
    said = _SAID.get(type(value))
    if said is not None:
        return {f"@{type(value).__name__}": [_packed(getattr(value, one), one) for one in said]}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_packed(one) for one in value]
    if isinstance(value, Mapping):
        return {key: _packed(one) for key, one in value.items()}
    return value


def _who(core: StageCore | GateCore) -> str:
    return core.stage if isinstance(core, StageCore) else GATE


class Recorded:
    """A core, and a journal of the calls into it; all else of the core is had through it, too."""

    def __init__(self, core: StageCore | GateCore, write: Callable[[str], object]) -> None:
        """`write` is called with each line."""
        self._core = core
        self._write = write
        self._packer = _Packer()
        self._encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
        self._line("journal", VERSION, _who(core))

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._core, name)
        if name not in CALLS:
            return method
        bind, packer = signature(method).bind, self._packer

        def called(*given: Any, **named: Any) -> Any:
            bound = bind(*(one if not hasattr(one, "__next__") else list(one) for one in given), **named)
            arguments = {name: packer.argument(one, name) for name, one in bound.arguments.items()}
            answer = method(*bound.args, **bound.kwargs)
            if answer or not name.startswith("take_"):  # else there was nothing to take
                self._line(name, packer.answer(answer), arguments)
            return answer

        self.__dict__[name] = called
        return called

    def _line(self, *what: Any) -> None:
        self._write(self._encode(what) + "\n")


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
    """Give the recorded calls to a new core; None if it answers the same all along.

    Raises UsageError for a text that is no journal of such a core.
    """
    packer, who = _Packer(), _who(core)
    for number, line in enumerate(lines, start=1):
        call, recorded, arguments = json.loads(line)
        if number == 1:
            if [call, recorded, arguments] != ["journal", VERSION, who]:
                raise UsageError(f"this is not a journal of {who!r} in version {VERSION}: it begins with {line[:80]!r}")
            continue
        if call not in CALLS:
            raise UsageError(f"line {number} of this journal of {who!r} has an unknown call: {line[:80]!r}")
        answer = getattr(core, call)(**{name: packer.unpacked(one) for name, one in arguments.items()})
        done = json.loads(json.dumps(packer.answer(answer)))
        if recorded != done:
            return Difference(number, call, recorded, done)
    return None
