"""Which workers a front starts, keeps and ends: as many as it is told to have, replaced when they are lost.

The front's driver says what happens (`ready`, `lost`, `completed`, `asked_to_drain`) and does what `take` gives it. A
worker that is lost is replaced at once. Where workers are lost before they have served `_SETTLED` seconds, each waits
twice as long as the one before, up to `_LONGEST`, so that a model that cannot be loaded does not fill the machine.
`now` is in seconds and does not decrease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.core.workers import LIFE, Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

_SETTLED: Final = 10.0  # seconds after which a worker's start counts as having gone well
_SHORTEST: Final = 0.25  # seconds
_LONGEST: Final = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker under this number, which none had before."""

    worker: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Give a worker no more batches (`Batcher.drain`); once it runs nothing, say Bye.

    One that was `loading` was never ready, so no batcher knows it.
    """

    worker: int
    loading: bool = False


@dataclass(slots=True)
class _Member:
    phase: Phase
    since: float


class Pool:
    """The workers of one lane at one front."""

    def __init__(self, count: int, *, starts: bool = True) -> None:
        """`count`: how many there should be; see `resize`. Without `starts` they come by themselves (`ready`)."""
        self._count = count
        self.starts = starts
        self._members: dict[int, _Member] = {}
        self._numbers = 0
        self._failures = 0  # workers lost one after the other that had not settled
        self._not_before = 0.0
        self.restarts = 0

    def resize(self, count: int) -> None:
        """Have `count` workers from now on: what is over drains, those that load first, then the newest."""
        if count < 0:
            raise ValueError(f"a pool cannot have {count} workers")
        self._count = count

    @property
    def count(self) -> int:
        return self._count

    def phases(self) -> dict[int, Phase]:
        """Each worker's phase, by its number, oldest first."""
        return {number: member.phase for number, member in self._members.items()}

    @property
    def there(self) -> int:
        """How many have said Hello and stay."""
        return sum(member.phase in (Phase.READY, Phase.BUSY) for member in self._members.values())

    def take(self, now: float) -> Iterator[Start | Drain]:
        """Give what is to be done now, one after the other: do each before asking for the next.

        What formed for a worker that drains may start on another one, which is to drain next.
        """
        if not self.starts:
            return
        staying = [n for n, member in self._members.items() if member.phase is not Phase.DRAINING]
        if len(staying) < self._count and now >= self._not_before:
            for _ in range(self._count - len(staying)):
                number, self._numbers = self._numbers, self._numbers + 1
                self._members[number] = _Member(Phase.LOADING, now)
                yield Start(number)
        over = len(staying) - self._count
        if over > 0:
            newest = sorted(staying, key=lambda n: (self._members[n].phase is Phase.LOADING, n), reverse=True)
            for number in newest[:over]:
                yield self._drained(now, number)

    def next_wake(self, now: float) -> float | None:
        """When `take` next has something to do that time alone brings."""
        if not self.starts:
            return None
        staying = sum(member.phase is not Phase.DRAINING for member in self._members.values())
        return self._not_before if staying < self._count and now < self._not_before else None

    def ready(self, now: float, worker: int) -> bool:
        """Note that a worker said Hello; False if it is not wanted any more."""
        if worker not in self._members:
            if self.starts:
                return False
            self._members[worker] = _Member(Phase.LOADING, now)
        self._pass(now, worker, "hello")
        return True

    def began(self, now: float, worker: int) -> None:
        self._pass(now, worker, "batch")

    def completed(self, now: float, worker: int) -> bool:
        """Note that a worker's batch is answered; True if it is to be told Bye."""
        self._pass(now, worker, "answer")
        return worker not in self._members

    def asked_to_drain(self, now: float, worker: int) -> list[Drain]:
        """Let a worker go that asked to; another takes its place."""
        member = self._members.get(worker)
        if member is None or member.phase is Phase.DRAINING:
            return []
        return [self._drained(now, worker)]

    def lost(self, now: float, worker: int) -> None:
        member = self._members.get(worker)
        if member is None:
            return
        settled = member.phase is not Phase.LOADING and now - member.since >= _SETTLED
        self._pass(now, worker, "lost")
        self.restarts += 1
        if settled:
            self._failures = 0
        else:
            self._failures += 1
            if self._failures > 1:
                wait = _SHORTEST * 2.0 ** min(self._failures - 2, 16)
                self._not_before = now + min(_LONGEST, wait)

    def _drained(self, now: float, worker: int) -> Drain:
        loading = self._members[worker].phase is Phase.LOADING
        self._pass(now, worker, "drain")
        return Drain(worker, loading)

    def _pass(self, now: float, worker: int, event: str) -> None:
        member = self._members[worker]
        phase = LIFE.get((member.phase, event))
        if phase is None:
            raise ValueError(f"worker {worker} is {member.phase}: {event!r} cannot happen to it")
        if phase is Phase.GONE:
            del self._members[worker]
        elif event == "hello":
            self._members[worker] = _Member(phase, now)
        else:
            member.phase = phase
