"""The oracle of a run: what must hold of its messages, its commits, its outcomes and its processes at the end.

(a) Each query has one outcome. (b) It is right, and so is every message between stages. (c) An offset is committed only
when all that its record led to is on the topics. (d) The run comes to rest, and nothing is left in anybody's tables.
(e) No process ends by an error of ours, and no callback raises. (f) Nobody reads who has no room.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from spillway.agents.memory.broker import Standing
from spillway.agents.proof.pipelines.drawing import drawn
from spillway.agents.proof.pipelines.models import VALUE
from spillway.agents.proof.pipelines.play import Play
from spillway.agents.proof.pipelines.semantics import Semantics, said_of, text_of
from spillway.agents.proof.verdict import Proof, crash
from spillway.lineage import headers
from spillway.lineage.message import Outcome
from spillway.lineage.metric_names import GATE
from spillway.lineage.values.codec import Decoder
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from spillway.agents.memory.records import Kept
    from spillway.agents.proof.pipelines.case import Case

_NEVER = 1 << 60


class Judge:
    """Judges one run that has ended."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._graph = play.pipeline.graph
        self._meaning = Semantics(play.case, play.pipeline, play.seconds, play.fatal)
        self._decoder = Decoder(play.pipeline.spec.limits.merged())
        name = play.pipeline.spec.name
        self._outcomes, self._egress, self._dead = topics.outcomes(name), topics.egress(name), topics.dead(name)
        self._stages = {topics.stage_input(name, stage): stage for stage in self._graph.order}
        self._told: dict[tuple[str, str], int] = {}  # by stage and query: when all who wait had been told
        self._buried: dict[tuple[str, int, int, str], int] = {}  # records in dead letters, by whom, likewise
        self._released: dict[str, int] = {}  # by query: when its outcome was written
        self.problems: list[str] = []

    def judge(self) -> list[str]:
        play = self._play
        self.problems += [crash(error) for error in play.failed]
        if self.problems:
            return self.problems
        self._read_messages()
        self._judge_commits()
        self._judge_outcomes()
        if play.overread:
            self.problems.append(f"(f) a gate without room has read on {play.overread} times")
        if not (play.rested or play.case.loses):  # a join may wait until long after the end for a part that is gone
            left = [f"{name} is left with {some}" for name, some in play.left().items()]
            self.problems.append(f"(d) it did not come to rest: {'; '.join(left) or 'commits are missing'}")
        return self.problems

    # Messages --------------------------------------------------------------------------------------------------

    def _read_messages(self) -> None:
        reached: defaultdict[tuple[str, str], set[str | None]] = defaultdict(set)
        for moment, ((topic, _), record) in enumerate(self._play.proof.watched.order):
            if topic == self._dead:
                letter = self._decoder.dead_letter(record.value or b"")
                self._buried.setdefault((letter.topic, letter.partition, letter.offset, letter.stage), moment)
            elif topic == self._egress and record.standing is Standing.COMMITTED:
                self._released.setdefault(headers.identify(record.headers), moment)
            elif topic == self._outcomes or topic in self._stages:
                self._read(moment, record, self._stages.get(topic), reached)

    def _read(self, moment: int, record: Kept, to: str | None, reached: dict[tuple[str, str], set[str | None]]) -> None:
        known = headers.decode(record.headers)
        assert known.hop is not None  # a stage has sent it
        stage, request = known.hop.stage, known.request_id
        told = self._decoder.message(record.value or b"")
        said = said_of(told) if isinstance(told, Outcome) else text_of(told.inputs)
        may = self._meaning.of(request, unreadable=request in self._play.unreadable)
        if isinstance(said, str) and not _is_of(told.flags.get(stage, {}), said):
            self.problems.append(f"(b) {request}: {stage} says {told.flags[stage]} of {said}")
        if said not in self._meaning.messages(stage, to, may) and not (known.lost and said in may[stage]):
            self.problems.append(f"(b) {request}: {stage} tells {to or 'the gate'} {said}, which does not follow")
        reached[stage, request].add(to)
        if known.lost:
            waiting = {name for name, _ in self._graph.losses(stage, known.path)}
        else:
            waiting = set(known.path.get(stage, self._graph.successors[stage]) or (None,))
        if waiting <= reached[stage, request]:
            self._told.setdefault((stage, request), moment)

    # Commits ---------------------------------------------------------------------------------------------------

    def _judge_commits(self) -> None:
        broker = self._play.proof.watched
        reached: dict[tuple[str, int], int] = {}
        names = {self._play.groups[name].name: name for name in (*self._graph.order, GATE)}
        for group, partition, offset, moment in broker.commits:
            name, before = names[group], reached.get((group, partition), 0)
            if offset < before:
                self.problems.append(f"(c) {group} commits {offset} of [{partition}] after {before}")
            reached[group, partition] = max(offset, before)
            for record in broker.whole.get((self._play.groups[name].topic, partition), ()):
                if before <= record.offset < offset and not self._is_done(name, record, moment):
                    what = headers.identify(record.headers) or f"offset {record.offset}"
                    self.problems.append(f"(c) {name} commits {offset} of [{partition}], and {what} is not done")

    def _is_done(self, name: str, record: Kept, moment: int) -> bool:
        request = headers.identify(record.headers)
        if not request:
            return self._buried.get((record.topic, record.partition, record.offset, name), _NEVER) < moment
        if name != GATE:
            return self._told.get((name, request), _NEVER) < moment
        return self._released.get(request, _NEVER) < moment

    # Outcomes --------------------------------------------------------------------------------------------------

    def _judge_outcomes(self) -> None:
        counts: Counter[str] = Counter()
        for (topic, _), record in self._play.proof.watched.order:
            if topic != self._egress or record.standing is not Standing.COMMITTED:
                continue
            request = headers.identify(record.headers)
            counts[request] += 1
            if request not in self._play.asked:
                self.problems.append(f"(a) {request}: nobody asked")
                continue
            said = said_of(self._decoder.released(record.value or b""))
            may = self._meaning.of(request, unreadable=request in self._play.unreadable)
            if said not in self._meaning.outcomes(may):
                self.problems.append(f"(b) {request}: its outcome {said} does not follow")
        stopped = {partition for _, partition in self._play.stopped}
        for request, partition in self._play.asked.items():
            if counts[request] > 1:
                self.problems.append(f"(a) {request}: {counts[request]} outcomes")
            elif not counts[request] and partition not in stopped:
                self.problems.append(f"(a) {request}: no outcome")


def _is_of(flags: Mapping[str, Any], said: str) -> bool:
    """Whether a value is of the variant, or of one of the members, that its flags name as having answered."""
    made = json.loads(said).get(VALUE)
    if flags.get("default"):
        return True
    if "variant" in flags:
        return bool(made.split(".")[1] == flags["variant"])
    answers = {name: each["answer"] for name, each in flags.get("members", {}).items() if "answer" in each}
    return all(answer.split(".")[1] == name for name, answer in answers.items()) and (
        not answers or made in answers.values()
    )


def judged(case: Case, seed: int) -> tuple[Play | None, list[str]]:
    """Play a case and judge it. Whatever it raises is a problem of this seed."""
    play = None
    try:
        play = Play(case, seed)
        return play, Judge(play.run()).judge()
    except Exception as error:  # noqa: BLE001 - whatever is played, or was mutated, may raise anything
        return play, [crash(error)]


def prove(seeds: Iterable[int], limited: Callable[[], AbstractContextManager[object]] = nullcontext) -> Proof:
    """Play the schedules of these seeds. `limited`: what each is played in, so that it ends whatever it does."""
    proof = Proof()
    for seed in seeds:
        case = drawn(seed)
        with limited():
            play, found = judged(case, seed)
        proof.judge(seed, found)
        if play is not None:
            proof.struck.update(play.struck)
            proof.queries += len(play.asked)
            proof.counts["stages"] += len(play.pipeline.spec.stages)
            proof.seconds += play.seconds
    return proof
