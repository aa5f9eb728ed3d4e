"""What must be true after a run, whatever went wrong on the way. It reads all topics, what was compacted away included.

(a) every accepted query has exactly one outcome; another report that comes after the time for which the gate remembers
    what it has released (`spillway.agents.core.outcomes`) may bring another;
(b) what was released rests on versions of the recovered history alone: those that it came from, be it a result, a drop
    or a failure, and, version by version, those that they came from, of what was lost as of what came;
(c) along that history every version begins with the state that the one before ended with; what a reign began with, and
    what the last primary has, is the state of its version; whoever reads the logs now recovers just that; and where the
    model draws nothing, one process that takes the recorded batches in their order gets the same, bit for bit;
(d) no request has two different live messages of the same hop;
(e) all is at rest, and every shard has one primary;
(f) every request that came to a stateful stage, and is live, is recorded there exactly once;
(i) where an input has lost what its reader needed, that reader has said so, and nothing else is missing; one that was
    cut and has grown past its reader's position since cannot be told from one that is whole
    (`spillway.checkpoint.inputs`);
(j) a stateless stage that rests on no state executes a request once in an assignment of its partition, and never one
    that was committed before (noticed by the process itself);
(g), (h) every live message, and every outcome, follows from what it was made of, and nobody who waits for one lacks it
    (`spillway.agents.proof.shards.semantics`).

The judge knows the recovered history from the logs, and what came from what from the records that each message was made
of (`spillway.agents.proof.shards.semantics`); of the marks on messages it believes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import nullcontext
from math import inf
from typing import TYPE_CHECKING, Any

from spillway.agents.core.outcomes import RELEASED_SECONDS
from spillway.agents.memory.broker import Standing
from spillway.agents.proof.shards.member.host import Standby
from spillway.agents.proof.shards.play import Play
from spillway.agents.proof.shards.replica import items_of
from spillway.agents.proof.shards.schedule.drawing import drawn
from spillway.agents.proof.shards.semantics import Provenance, Semantics
from spillway.agents.proof.shards.world import model
from spillway.agents.proof.shards.world.records import EGRESS, OUTCOMES, Logged, state_of, versions_of
from spillway.agents.proof.verdict import Proof, crash
from spillway.checkpoint.logs import Logs
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.message import Outcome
from spillway.lineage.replication import Batch, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.schedule.scenario import Scenario, Topology
    from spillway.checkpoint.modes import Mode


class Judge:
    """Judges one run that has ended."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.run = play.result
        self.problems = list(self.run.problems)
        self.topology = play.scenario.topology
        self.places: list[Place] = play.shards_of(self.topology.states)
        self.logs = Logs(self.places)
        self.standbys = {place: Standby() for place in self.places}
        self.batches: dict[Mark, Batch] = {}  # as recorded, of the live history
        self.told: set[Mark] = set()  # those of them that some manifest names
        self.provenance = Provenance(play, self.logs)
        self.values: dict[tuple[Mark, str], str] = {}  # what a live version gives a request

    def judge(self) -> list[str]:
        if self.run.damaged:
            return self._lost_aloud()
        if not self._read_logs():
            return self.problems
        self._read_batches()
        self._outcomes()
        for place in self.places:
            self._history(place)
            self._recovered(place)
            self._recorded(place)
        self._messages()
        self.problems += Semantics(self.play, self.provenance, self.values).judge()
        self.problems += [f"(e) {process} did not come to rest" for process in self.run.stuck]
        return self.problems

    def _lost_aloud(self) -> list[str]:
        """Judge a run in which an input lost what was needed: nothing is doubled, and all that is missing was told."""
        counts = self._counts()
        told = {partition for _, partition in self.run.stopped} | {place[1] for place in self.run.refilled}
        silent = [
            request
            for request in self.run.accepted
            if request not in counts and self.play.partition_of(request) not in told
        ]
        return [
            *(f"(a) {request}: {n} outcomes" for request, n in counts.items() if n > 1),
            *(f"(i) {request}: no outcome, and no input of its partition is said to be lost" for request in silent),
        ]

    # The recovered history -------------------------------------------------------------------------------------

    def _read_logs(self) -> bool:
        broker = self.play.broker
        for place in self.places:
            broker.compact(versions_of(place), broker.end(versions_of(place)))
            broker.compact(state_of(place), broker.end(state_of(place)))
        try:
            for place in self.places:
                standby = self.standbys[place]
                for record in broker.read(versions_of(place), 0):
                    counts = record.body is not None and self.logs.take(place, record.body.record)
                    standby.read_version(record.body, counts=counts)
                for record in broker.read(state_of(place), 0):
                    standby.read_state(record)
            for place in self.places:
                self.logs.caught_up(place)
        except CheckpointError as error:
            self.problems.append(f"the logs contradict themselves: {error}")
            return False
        return True

    def _read_batches(self) -> None:
        for place in self.places:
            for n in range(1, self.logs.newest_durable(place).n + 1):
                mark = self._at(place, n)
                if mark is not None and mark in self.run.batches:
                    self.batches[mark] = self.run.batches[mark]
            for record in self.play.broker.whole.get(versions_of(place), ()):
                if not isinstance(record.body, Logged) or not isinstance(record.body.record, Manifest):
                    continue
                version = record.body.record.version
                if not self.logs.log(place).history.alive(version):
                    continue
                for batch in record.body.contents.batches:
                    known = self._at(place, batch.n)
                    if known is None or known not in self.batches:
                        continue
                    self.told.add(known)
                    if self.batches[known] != batch:
                        self.problems.append(f"(f) {known} is recorded in two ways")

    def _at(self, place: Place, n: int) -> Mark | None:
        links = self.logs.log(place).history.links
        for (epoch, base), (_, end) in zip(links, [*links[1:], (0, Version(0, 1 << 60))], strict=True):
            if base.n < n <= end.n:
                return Mark(*place, Version(epoch, n))
        return None

    # (a) -----------------------------------------------------------------------------------------------------

    def _counts(self) -> Counter[str]:
        """Count the outcomes of each request; one that rests on a later report than the gate remembers is its last."""
        counts: Counter[str] = Counter()
        until: dict[str, float] = {}
        for partition in range(self.play.scenario.partitions):
            for record in self.play.broker.whole.get((EGRESS, partition), ()):
                if record.standing is not Standing.COMMITTED:
                    continue
                request = record.body.request
                reports = (self.provenance.at((OUTCOMES, partition), offset) for offset in record.body.offsets)
                forgotten = max((one.appended for one in reports if one is not None), default=0.0) > until.get(
                    request, inf
                )
                counts[request] += not forgotten
                until[request] = record.appended + RELEASED_SECONDS
        return counts

    def _outcomes(self) -> None:
        counts = self._counts()
        self.problems += [f"(a) {request}: no outcome" for request in self.run.accepted if request not in counts]
        self.problems += [f"(a) {request}: {n} outcomes" for request, n in counts.items() if n > 1]
        self.problems += [f"(a) {request}: nobody asked" for request in counts if request not in self.run.accepted]

    # (c) -------------------------------------------------------------------------------------------------------

    def _history(self, place: Place) -> None:
        stage, keys = place[0], self.play.scenario.keys_of(place[0])
        made, end = self.run.made, self.logs.newest_durable(place)
        digest = (state := model.State()).digest
        for n in range(1, end.n + 1):
            mark = self._at(place, n)
            if mark is None or mark not in made:
                self.problems.append(f"(c) {stage}: nobody made version {n} of {end}")
                return
            if made[mark].before != digest:
                self.problems.append(f"(c) {mark} was made from another state than the version before it")
                return
            digest = made[mark].after
            batch = self.batches.get(mark)
            if batch is None or (mark not in self.told and not self.play.scenario.mode.logs):
                self.problems.append(f"(f) {mark} is in no manifest")
                return
            items = self._items(place, batch)
            if items is None or not self._is_live(place, batch):
                return
            for item in items:
                self.values[mark, item.request] = model.compute(stage, state, item, made[mark].nonce, keys)
            state = model.update(stage, state, items, made[mark].nonce, keys)
            if state.digest != digest:
                self.problems.append(f"(c) {mark} is another state than what its record gives")
                return

    def _items(self, place: Place, batch: Batch) -> list[model.Item] | None:
        taken = []
        for one in batch.taken:
            record = self.provenance.at((self.play.topic(place[0]), one.partition), one.offset)
            if record is None or record.request_id != one.request:
                self.problems.append(f"(f) {place[0]} recorded {one}, which is not there")
                return None
            taken.append(record)
        return items_of(place[0], taken, self.play.scenario.poison)

    def _is_live(self, place: Place, batch: Batch) -> bool:
        topic = self.play.topic(place[0])
        for one in (*batch.taken, *batch.dropped):
            record = self.provenance.at((topic, one.partition), one.offset)
            lost = self.provenance.lost((record,)) if record is not None else None
            if lost is not None:
                self.problems.append(f"(b) {place[0]} v{batch.n} rests on {lost} by {one.request}, which is lost")
                return False
        return True

    def _recovered(self, place: Place) -> None:
        """Compare what a reign began with, what the last primary has, and what a new member would load."""
        made = self.run.made
        first = model.State().digest
        for loaded in self.run.loaded:
            if loaded.place == place:
                right = first if loaded.version == INITIAL else made[Mark(*place, loaded.version)].after
                if loaded.digest != right:
                    self.problems.append(f"(c) {loaded.member} began with another state than {loaded.version}")
        if place not in self.run.final:
            return
        version, digest = self.run.final[place]
        durable = self.logs.newest_durable(place)
        if version != durable:
            self.problems.append(f"(c) {place[0]}: the primary is at {version}, durable is {durable}")
            return
        try:
            standby = self.standbys[place]
            state = standby.state_of(durable)
            entry = standby.entries.get(durable)
            if entry is not None and entry.state_n < durable.n:
                for batch in entry.contents.batches:
                    items = self._items(place, batch) if batch.n > entry.state_n else None
                    if items is not None:
                        state = model.update(place[0], state, items, 0, self.play.scenario.keys_of(place[0]))
            if state.digest != digest and (self.play.scenario.deterministic or not self.play.scenario.mode.logs):
                self.problems.append(f"(c) {place[0]}: another state than {durable} is recovered from the logs")
        except CheckpointError as error:
            self.problems.append(f"(c) {place[0]}: {durable} cannot be recovered: {error}")

    # (d) and (f) -----------------------------------------------------------------------------------------------

    def _messages(self) -> None:
        said: dict[tuple[str, str, str], Any] = {}
        for (topic, _), records in self.play.broker.whole.items():
            if topic not in self.topology.edges and topic != OUTCOMES:
                continue
            for record in records:
                if record.hop is None or not self.provenance.lives(record):
                    continue
                if self.play.scenario.fickle and record.hop.stage not in self.topology.states:
                    continue  # what chance or time decides may be decided otherwise by who takes it again
                key = (record.hop.stage, topic, record.request_id)
                what = (record.lost, _value(record.body))
                if said.setdefault(key, what) != what:
                    self.problems.append(f"(d) {record.request_id}: two live messages from {key[0]} to {topic}")

    def _recorded(self, place: Place) -> None:
        stage, shard = place
        versions: defaultdict[str, set[int]] = defaultdict(set)
        places: Counter[tuple[int, int]] = Counter()
        end = self.logs.newest_durable(place)
        for mark, batch in self.batches.items():
            if mark.place == place and mark.version.n <= end.n:
                for one in (*batch.taken, *batch.dropped):
                    versions[one.request].add(batch.n)
                    places[one.partition, one.offset] += 1
        self.problems += [
            f"(f) {stage}: {request} is recorded in {len(n)} versions" for request, n in versions.items() if len(n) > 1
        ]
        self.problems += [f"(f) {stage}: {where} is recorded {n} times" for where, n in places.items() if n > 1]
        topic = self.play.topic(stage)
        for partition in range(self.play.scenario.partitions):
            if partition % self.play.scenario.shards_of(stage) == shard:
                for record in self.play.broker.whole.get((topic, partition), ()):
                    missing = record.request_id not in versions and self.provenance.lives(record)
                    if missing and not self.provenance.is_taken_back(record):
                        self.problems.append(f"(f) {stage}: {record.request_id} is recorded nowhere")


def _value(body: Any) -> Any:
    if isinstance(body, Outcome):
        return body.kind, body.reason, tuple(body.outputs.items())
    return body


def judged(scenario: Scenario, seed: int) -> tuple[Play, list[str]]:
    """Play a scenario and judge it. A crash of what is played is a problem of this seed, and stops no other one."""
    play = Play(scenario, seed)
    try:
        found = Judge(play.run()).judge()
    except Exception as error:  # noqa: BLE001 - whatever is played, or was mutated, may raise anything
        found = [crash(error)]
    return play, found


def prove(
    seeds: Iterable[int],
    topology: Topology | None = None,
    mode: Mode | None = None,
    limited: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Proof:
    """Play the schedules of these seeds. `topology`, `mode`: None to have them drawn as well.

    `limited`: what each is played in, so that one that stays in a single event ends all the same.
    """
    proof = Proof()
    for seed in seeds:
        scenario = drawn(seed, topology, mode)
        with limited():
            play, found = judged(scenario, seed)
        proof.judge(seed, found)
        proof.struck.update(play.result.struck)
        proof.counts.update(play.result.counts, events=play.result.events)
        proof.topologies[scenario.topology.name] += 1
        proof.modes[scenario.mode.name] += 1
        proof.queries += len(play.result.accepted)
        proof.seconds += play.result.seconds
    return proof
