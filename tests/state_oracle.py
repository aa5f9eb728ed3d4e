"""What must be true of a pipeline with states after a run, whatever went wrong on the way. It judges a `Recording`.

The guarantee: one outcome per accepted query; a released outcome never rests on a state that recovery does not
reproduce; a stage's state equals its recorded batches, applied in the recorded order, each once. So:

a. every accepted query has one outcome, and nobody else has (`outcomes`);
b. what was released rests on durable versions alone, and left after they were durable (`releases`);
c. the newest durable version can be put together from the log as it is, has the digest of its manifest, and, where the
   model has no chance in it, is the state that a replay of the recorded batches in one process comes to, bit for bit;
   and what the stage has sent for them is what the replay gives (`states`);
d. no two live messages of one sender about one query differ, and no query changes a state twice (`conflicts`);
e. what was recorded last is durable, and a newcomer finds the same (`progress`);
f. what a durable version has recorded came from versions that are durable, too, and a join went on without a part only
   where that part was lost, in a version that is durable (`grounds`).

Stages may join, choose, be several last ones, and have several shards.

Every function gives a list of problems that name query, place and version; empty when all is well.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from spillway.checkpoint.logs import Fate
from spillway.lineage import reasons
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.topology import topics
from tests.oracle import outcome_problems
from tests.state_history import Histories
from tests.state_messages import Messages, print_of, read_headers
from tests.state_replay import state_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from spillway.lineage.marks import Place
    from tests.state_topics import Recording

MOST = 20  # problems of one sort that are told


class Judge:
    """One run.

    `random`: the stages whose models have chance in them; they are compared by hash alone. `refusing`: the stages whose
    models refuse queries, which leaves dead letters.
    """

    def __init__(self, recording: Recording, *, random: Collection[str] = (), refusing: Collection[str] = ()) -> None:
        self.spec = recording.pipeline.spec
        self.histories = Histories(recording)
        self.messages = Messages(recording, self.histories.logs)
        self._random = random
        graph = recording.pipeline.graph
        self._refused = {
            topics.stage_input(self.spec.name, stage) if graph.predecessors[stage] else topics.ingress(self.spec.name)
            for stage in refusing
        }

    def problems(self, accepted: Collection[str], right: Callable[[str, str, Any], bool] | None = None) -> list[str]:
        """All that is wrong, with at most `MOST` of a sort; `right(id, kind, outputs)` judges an outcome's content."""
        found: list[str] = []
        for check in (lambda: self.outcomes(accepted, right), self.releases, self.states, self.conflicts, self.grounds):
            some = check()
            found += some[:MOST]
            if len(some) > MOST:
                found.append(f".. and {len(some) - MOST} more such")
        return [*found, *self.progress(accepted), *self.histories.problems]

    # a ---------------------------------------------------------------------------------------------------------

    def outcomes(self, accepted: Iterable[str], right: Callable[[str, str, Any], bool] | None = None) -> list[str]:
        """One outcome each; nothing among the dead letters."""
        judged = right if right is not None else lambda _id, kind, _told: kind == PREDICTION
        told = []
        for record in self.messages.of(topics.egress(self.spec.name)):
            outcome = self.messages.decoder.outcome(record.value or b"")
            what = outcome.outputs if outcome.kind == PREDICTION else f"{outcome.reason} {outcome.text:.200}"
            told.append((read_headers(record).request_id, outcome.kind, what))
        problems = outcome_problems(accepted, told, judged)
        for record in self.messages.of(topics.dead(self.spec.name)):
            letter = self.messages.decoder.dead_letter(record.value or b"")
            if letter.topic in self._refused and letter.reason == reasons.MODEL_RAISED:
                continue
            problems.append(f"{letter.topic}[{letter.partition}] offset {letter.offset}: {letter.reason} {letter.text}")
        return problems

    # b ---------------------------------------------------------------------------------------------------------

    def releases(self) -> list[str]:
        """Whatever a released outcome rests on is durable, and was when it left."""
        problems = []
        topic = topics.egress(self.spec.name)
        for record in self.messages.of(topic):
            told = read_headers(record)
            where = f"{told.request_id}, released at {topic}[{record.partition}] offset {record.offset}"
            marks = told.hop.marks if told.hop is not None else ()
            if told.hop is not None and not marks and self.messages.carries_marks(told.hop.stage):
                problems.append(f"{where}: it says of no version that it rests on it")
            for mark in marks:
                fate = self.histories.logs.fate(mark)
                since = self.histories.durable_since(mark) if fate is Fate.DURABLE else None
                if fate is not Fate.DURABLE:
                    problems.append(f"{where}: it rests on {mark}, which is {fate.value}")
                elif since is not None and record.at_ms < since:
                    problems.append(f"{where}: it left {since - record.at_ms} ms before {mark} was durable")
        return problems

    # c ---------------------------------------------------------------------------------------------------------

    def states(self) -> list[str]:
        """The newest durable version of every shard stands in the log, and is what its batches come to."""
        problems = []
        for place in self.histories.places:
            try:
                problems += state_problems(place, self.histories, self.messages, random=place[0] in self._random)
            except SpillwayError as error:
                problems.append(f"{place[0]}/{place[1]}: {error}")
        return problems

    # d ---------------------------------------------------------------------------------------------------------

    def conflicts(self) -> list[str]:
        """What one stage says of one query in one place is the same in all live copies."""
        said: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
        for topic, record, told in self.messages.sent():
            if told.hop is not None and self.messages.live(told):
                kind, content = self.messages.content(record)
                shown = f"{kind} {content!r:.100} ({', '.join(map(str, told.hop.marks))})"
                what = f"{kind} {sorted(told.path.items())} {told.lost} {print_of(content)}"
                said[topic, told.hop.stage, told.request_id].setdefault(what, shown)
        return [
            f"{request}: {stage} has sent to {topic} both {' and '.join(found.values())}"
            for (topic, stage, request), found in said.items()
            if len(found) > 1
        ]

    # e ---------------------------------------------------------------------------------------------------------

    def progress(self, accepted: Collection[str]) -> list[str]:
        """All is durable at the end, every accepted query is in every state, and a newcomer judges alike."""
        problems = []
        histories = self.histories
        newcomer = None
        try:
            newcomer = histories.of_newcomer()
        except SpillwayError as error:
            problems.append(f"a newcomer to the version logs: {error}")
        for place in histories.places:
            name = f"{place[0]}/{place[1]}"
            durable, newest = histories.logs.newest_durable(place), histories.logs.log(place).newest
            if durable != newest:
                problems.append(f"{name}: {newest} is complete and not durable, which is {durable}")
            if newcomer is not None and newcomer.newest_durable(place) != durable:
                problems.append(f"{name}: a newcomer finds {newcomer.newest_durable(place)} durable, and not {durable}")
        for stage in dict.fromkeys(stage for stage, _ in histories.places):
            there = {
                record.request
                for place in histories.places
                if place[0] == stage
                for _, batch in histories.batches(place).values()
                for record in (*batch.taken, *batch.dropped)
            }
            due = self._due(stage, accepted)
            problems += [f"{request}: {stage} has no record of it" for request in sorted(due - there)[:MOST]]
        return problems

    def _due(self, stage: str, accepted: Collection[str]) -> set[str]:
        """The queries that have to come by a stage: all, unless a choice before it sends some elsewhere."""
        if not self._behind_a_choice(stage):
            return set(accepted)
        topic = topics.stage_input(self.spec.name, stage)
        return {told.request_id for on, _, told in self.messages.sent() if on == topic and self.messages.live(told)}

    def _behind_a_choice(self, stage: str) -> bool:
        before = self.messages.graph.predecessors[stage]
        return any(self.spec.stage(one).choose is not None or self._behind_a_choice(one) for one in before)

    # f ---------------------------------------------------------------------------------------------------------

    def grounds(self) -> list[str]:
        """What durable versions have recorded is such that a recovery comes to the same."""
        problems = []
        for place in self.histories.places:
            if self.messages.graph.predecessors[place[0]]:
                problems += [*self._made_of(place), *self._went_without(place)]
        return problems

    def _made_of(self, place: Place) -> Iterator[str]:
        """Where a durable version has recorded a message that rests on one that is not."""
        topic = topics.stage_input(self.spec.name, place[0])
        said = {(one.partition, one.offset): told for on, one, told in self.messages.sent() if on == topic}
        for version, batch in self.histories.batches(place).values():
            for record in (*batch.taken, *batch.dropped):
                hop = said[record.partition, record.offset].hop
                for mark in hop.marks if hop is not None else ():
                    fate = self.histories.logs.fate(mark)
                    if fate is not Fate.DURABLE:
                        what = f"{place[0]}/{place[1]} {version}"
                        yield f"{record.request}: {what} is made of {mark}, which is {fate.value}"

    def _went_without(self, place: Place) -> Iterator[str]:
        """Where a join that waits for all went on without a part, and what stands of that part is no loss."""
        stage, graph = self.spec.stage(place[0]), self.messages.graph
        if not graph.is_join(stage.name) or (stage.join is not None and stage.join.mode != "all"):
            return
        topic = topics.stage_input(self.spec.name, stage.name)
        came: dict[tuple[int, int], str] = {}  # by place of the record: from whom
        stands: dict[tuple[str, str], set[bool]] = defaultdict(set)  # by request and sender: whether lost
        for on, one, told in self.messages.sent():
            if on == topic and told.hop is not None:
                if not told.lost:
                    came[one.partition, one.offset] = told.hop.stage
                if self.messages.live(told):
                    stands[told.request_id, told.hop.stage].add(bool(told.lost))
        for version, batch in self.histories.batches(place).values():
            parts: dict[str, set[str | None]] = defaultdict(set)
            for record in batch.taken:
                parts[record.request].add(came.get((record.partition, record.offset)))
            for request, senders in parts.items():
                missed = [one for one in graph.predecessors[stage.name] if stands.get((request, one)) == {False}]
                for one in sorted(set(missed) - senders):
                    yield f"{request}: {place[0]}/{place[1]} {version} went on without {one}, whose result stands"
