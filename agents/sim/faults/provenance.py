"""What every message of a run came from: the records that its sender made it of, theirs, and so on to the ingress.

A stateful stage's message rests on the version that its request is recorded in, whatever that rests on: which versions
are right is judged one by one, along the recovered history. What was never recorded rests on one that nobody made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.sim.faults.world.broker import INGRESS
from lineage.marks import Mark, Version

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.sim.faults.play import Play
    from agents.sim.faults.world.broker import Place, Record
    from agents.sim.faults.world.history import Source
    from checkpoint.logs import Logs

_NEVER = 1 << 60  # the n of a version that nobody made


class Provenance:
    """The messages of a run that has ended. `logs`: as they are at its end."""

    def __init__(self, play: Play, logs: Logs) -> None:
        self._play = play
        self._logs = logs
        self._offsets: dict[Place, dict[int, Record]] = {}  # a topic's partition: its records by offset
        self._recorded: dict[tuple[str, int, int, int, int], Mark] = {}
        for mark, batch in play.result.batches.items():
            for one in (*batch.taken, *batch.dropped):
                self._recorded[*mark.place, mark.version.epoch, one.partition, one.offset] = mark
        self._rests: dict[int, frozenset[Mark]] = {}
        self._lives: dict[int, bool] = {}
        self._spoken: set[tuple[str, str]] | None = None

    def at(self, place: Place, offset: int) -> Record | None:
        """Give a record; None if there is none."""
        if place not in self._offsets:
            self._offsets[place] = {record.offset: record for record in self._play.broker.whole.get(place, ())}
        return self._offsets[place].get(offset)

    def topic_of(self, stage: str) -> str:
        return stage if self._play.graph.predecessors[stage] else INGRESS

    def inputs(self, source: Source) -> list[Record]:
        """Give the records that a message was made of, in the order of their offsets."""
        place = self.topic_of(source.stage), source.partition
        found = (self.at(place, offset) for offset in sorted(source.offsets))
        return [record for record in found if record is not None]

    def recorded(self, source: Source) -> Mark | None:
        """Give the version that a stateful stage's request is recorded in; None if it is in none."""
        return self._recorded.get((source.stage, source.shard, source.epoch, source.partition, source.offsets[0]))

    def rests(self, record: Record) -> frozenset[Mark]:
        """Give the newest versions on each way that a message came by."""
        source: Source | None = record.source
        if source is None:
            return frozenset()
        found = self._rests.get(id(record))
        if found is None:
            if source.shard < 0:
                found = frozenset().union(*(self.rests(one) for one in self.inputs(source)))
            else:
                never = Mark(source.stage, source.shard, Version(source.epoch, _NEVER))
                found = frozenset((self.recorded(source) or never,))
            self._rests[id(record)] = found
        return found

    def lost(self, records: Iterable[Record]) -> Mark | None:
        """Give a version that one of these rests on, or says that it does, and that is not durable; None if all are."""
        for record in records:
            said = record.hop.marks if record.hop is not None else ()
            for mark in (*self.rests(record), *said):
                if not self._logs.durable(mark):
                    return mark
        return None

    def is_taken_back(self, record: Record) -> bool:
        """Whether the sender of a result has told a loss of the same request, too: of another attempt.

        An attempt comes to a result or to a loss. A model that fails by chance fails at one attempt and not at another:
        what a process that was paused sends of its attempt may come to a stage when its sender has committed the other
        one. It is an old message for the stage, and the loss went to others, who wait for what can no longer come.
        """
        if not self._play.scenario.fickle or record.hop is None:
            return False
        if self._spoken is None:
            self._spoken = {
                (one.request_id, one.hop.stage)
                for records in self._play.broker.whole.values()
                for one in records
                if one.hop is not None and one.lost
            }
        return (record.request_id, record.hop.stage) in self._spoken

    def lives(self, record: Record) -> bool:
        """Whether all that a message rests on, or says that it does, is durable."""
        lives = self._lives.get(id(record))
        if lives is None:
            lives = self._lives[id(record)] = self.lost((record,)) is None
        return lives
