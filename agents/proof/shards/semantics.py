"""What must follow from what: every live message, and every outcome, is what the records say that it was made of.

(g) A result is made of enough parts, by its join's rule; its value is what its stage makes of these parts, a stateful
    one of the state that the recovered history has there; it goes where that value says. A loss has its reason in what
    was lost, or in what can go wrong at its stage. An outcome follows from the reports of the sinks likewise.
(h) Whoever has live parts enough of a request says something of it, and says it to everybody who waits.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from spillway.agents.core.join_rules import Rule
from spillway.agents.memory.broker import Standing
from spillway.agents.proof.shards.world import model
from spillway.agents.proof.shards.world.records import EGRESS, OUTCOMES
from spillway.lineage import reasons
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.play import Play
    from spillway.agents.proof.shards.world.records import Record
    from spillway.agents.proof.shards.world.world import Source, Told
    from spillway.checkpoint.logs import Logs


# What every message of a run came from: the records that its sender made it of, theirs, and so on to the ingress.
#
# A stateful stage's message rests on the version that its request is recorded in, whatever that rests on: which
# versions are right is judged one by one, along the recovered history. What was never recorded rests on one that nobody
# made.

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
        if place not in self._offsets:
            self._offsets[place] = {record.offset: record for record in self._play.broker.whole.get(place, ())}
        return self._offsets[place].get(offset)

    def inputs(self, source: Source) -> list[Record]:
        """Give the records that a message was made of, in the order of their offsets."""
        place = self._play.topic(source.stage), source.partition
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


_PATIENCE = 10.0  # seconds before which no join gives a request up
_READY, _LOST, _WAITING = "ready", "lost", "waiting"


class Heard(NamedTuple):
    """What was heard of a request."""

    results: dict[str, Record]  # by sender
    lost: set[str]
    path: dict[str, tuple[str, ...]]


class Semantics:
    """Judges the messages of one run. `values`: of each live version, what it gives each request."""

    def __init__(self, play: Play, provenance: Provenance, values: Mapping[tuple[Mark, str], str]) -> None:
        self.play = play
        self.scenario = play.scenario
        self.graph = play.graph
        self.provenance = provenance
        self.values = values
        self.problems: list[str] = []
        self.said: defaultdict[tuple[str, str], list[tuple[str, Record]]] = defaultdict(list)

    def judge(self) -> list[str]:
        for topic, record in self._live():
            if record.source is not None:
                self.said[record.source.stage, record.request_id].append((topic, record))
                self._follows(topic, record)
        for (stage, request), messages in self.said.items():
            self._reaches(stage, request, messages)
        for stage in self.graph.order:
            self._answered(stage)
        for partition in range(self.scenario.partitions):
            for record in self.play.broker.whole.get((EGRESS, partition), ()):
                if record.standing is Standing.COMMITTED:
                    self._decided(partition, record.body)
        return self.problems

    def _live(self) -> Iterator[tuple[str, Record]]:
        for (topic, _), records in self.play.broker.whole.items():
            if topic in self.graph.predecessors or topic == OUTCOMES:
                for record in records:
                    if self.provenance.lives(record):
                        yield topic, record

    # What a message is made of ---------------------------------------------------------------------------------

    def heard(self, stage: str, inputs: Iterable[Record]) -> Heard:
        heard = Heard({}, set(), {})
        for record in inputs:
            sender = record.hop.stage if record.hop is not None else ""
            heard.path.update(record.path)
            if record.lost:
                heard.lost.update(record.lost)
            elif model.unreadable(stage, sender, record.request_id, self.scenario.poison):
                heard.lost.add(sender)
            else:
                heard.results.setdefault(sender, record)
        return heard

    def _verdict(self, stage: str, heard: Heard) -> str:
        if not self.graph.is_join(stage):
            return _READY if heard.results else _LOST
        return _verdict(self.scenario.topology.rules[stage], self.graph.expected(stage, heard.path), heard)

    def _follows(self, topic: str, record: Record) -> None:
        source = record.source
        inputs = self.provenance.inputs(source)
        heard = self.heard(source.stage, inputs)
        verdict = self._verdict(source.stage, heard)
        late = record.appended - min((one.appended for one in inputs), default=0.0) >= _PATIENCE
        if record.lost:
            right = self._may_be_lost(record, inputs, heard, verdict, late=late)
        else:
            right = verdict == _READY or (late and bool(heard.results))
            right = right and self._is_right(record, heard)
        if not right:
            what = f"the loss of {', '.join(record.lost)}" if record.lost else "the result"
            way = f"from {source.stage} to {topic}"
            self.problems.append(f"(g) {record.request_id}: {what} {way} does not follow from what it was made of")

    def _is_right(self, record: Record, heard: Heard) -> bool:
        source, stage = record.source, record.source.stage
        value = record.body.outputs["value"] if isinstance(record.body, Outcome) else record.body
        if source.shard >= 0:
            mark = self.provenance.recorded(source)
            right = mark is not None and self.values.get((mark, record.request_id)) == value
        else:
            parts = sorted((sender, one.body) for sender, one in heard.results.items())
            right = value == model.hashed(stage, model.Item(record.request_id, tuple(parts)))
        return right and record.path.get(stage) == self.scenario.chosen(stage, value)

    def _may_be_lost(self, record: Record, inputs: list[Record], heard: Heard, verdict: str, *, late: bool) -> bool:
        scenario, source, told = self.scenario, record.source, record.body
        stage, ready = source.stage, verdict == _READY or (late and bool(heard.results))
        if told.stage != stage:  # it is passed on
            bodies = [one.body for one in inputs if one.lost]
            same = ((one.kind, one.reason, one.stage) == (told.kind, told.reason, told.stage) for one in bodies)
            return verdict == _LOST and any(same)
        if told.reason == reasons.BAD_INPUT:
            senders = {one.hop.stage if one.hop is not None else "" for one in inputs if not one.lost}
            return verdict == _LOST and bool(senders & heard.lost)
        if told.reason == reasons.MODEL_RAISED:
            chance = scenario.flaky if source.shard < 0 else scenario.chance
            return ready and (chance > 0 or model.raises(stage, record.request_id, scenario.poison))
        if told.reason == reasons.EXPIRED:
            return ready and (scenario.policy if source.shard >= 0 else scenario.stateless_policy) == "expired"
        return late and told.reason == reasons.JOIN_TIMEOUT

    # Who hears of it -------------------------------------------------------------------------------------------

    def _reaches(self, stage: str, request: str, messages: list[tuple[str, Record]]) -> None:
        """Look whether everybody who waits for a stage was told: by one attempt, as chance may decide another anew."""
        topics = {topic for topic, _ in messages}
        missing: set[str] = set()
        for _, record in messages:
            if record.lost:
                told = dict(self.graph.losses(stage, record.path))
                missing = {destination or OUTCOMES for destination in told} - topics
            else:
                missing = set(record.path.get(stage, self.graph.successors[stage]) or (OUTCOMES,)) - topics
            if not missing:
                return
        self.problems.append(f"(h) {request}: {stage} says nothing of it to {min(missing)}")

    def _answered(self, stage: str) -> None:
        heard: defaultdict[str, list[Record]] = defaultdict(list)
        topic = self.play.topic(stage)
        for partition in range(self.scenario.partitions):
            for record in self.play.broker.whole.get((topic, partition), ()):
                silent = (stage, record.request_id) not in self.said and self.provenance.lives(record)
                if silent and not self.provenance.is_taken_back(record):
                    heard[record.request_id].append(record)
        for request, records in heard.items():
            senders = {name for one in records for name in one.lost or (one.hop.stage if one.hop else "",)}
            if any(senders.issuperset(self.graph.expected(stage, one.path)) for one in records):
                self.problems.append(f"(h) {request}: {stage} has all of it, and says nothing")

    # Outcomes --------------------------------------------------------------------------------------------------

    def _decided(self, partition: int, told: Told) -> None:
        found = (self.provenance.at((OUTCOMES, partition), offset) for offset in told.offsets)
        reports = [record for record in found if record is not None]
        lost = self.provenance.lost(reports)
        if lost is not None:
            self.problems.append(f"(b) {told.request}: released, but {lost} is lost")
        elif not self._is_decided(told, reports):
            self.problems.append(f"(g) {told.request}: its {told.kind} does not follow from the reports")

    def _is_decided(self, told: Told, reports: list[Record]) -> bool:
        results = {one.hop.stage: one for one in reports if not one.lost and one.hop is not None}
        heard = Heard(results, {name for one in reports for name in one.lost}, {})
        for one in reports:
            heard.path.update(one.path)
        sinks = self.scenario.topology.sinks
        verdict = _READY if results else _LOST
        if sinks is not None:
            verdict = _verdict(Rule(sinks), self.graph.terminals(heard.path), heard)
        if told.kind == PREDICTION and sinks == "all":
            given = {f"{sink}.value": one.body.outputs["value"] for sink, one in results.items()}
            return verdict == _READY and told.told == given
        if told.kind == PREDICTION:
            return verdict == _READY and any(told.told == one.body.outputs for one in results.values())
        if told.told == reasons.JOIN_TIMEOUT and verdict == _WAITING:
            return self.scenario.stretch > 1 and self.scenario.policy == "expired"  # a deadline's grace has passed
        return verdict == _LOST and any(one.lost and one.body.reason == told.told for one in reports)


def _verdict(rule: Rule, expected: Iterable[str], heard: Heard) -> str:
    complete = heard.lost.union(heard.results).issuperset(expected)
    if rule.mode == "any":
        return _READY if heard.results else _LOST if complete else _WAITING
    if rule.on_loss == "drop" and heard.lost:
        return _LOST
    return _WAITING if not complete else _READY if heard.results else _LOST
