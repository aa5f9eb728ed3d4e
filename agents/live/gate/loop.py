"""The gate's loop: outcomes in, one transaction per round out.

A round takes what is there, asks the core, and writes what it releases together with the offsets. While the gate is
idle that is at once, and an outcome waits for nobody; the busier it is, the longer outcomes gather between two
transactions (`spillway.agents.core.gathering`). Group callbacks run while it takes, when no transaction is open and
nothing is collected: what is revoked then has been committed, or has not been written at all.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

from spillway.agents.core.gathering import Gathering
from spillway.agents.live.gate.conversion import Conversions
from spillway.agents.live.gate.fencing import is_fencing, ousted
from spillway.agents.live.gate.transaction import Record, Turn
from spillway.agents.live.gate.wire import Poison
from spillway.lineage.errors import AbortedError, BrokerError
from spillway.lineage.flags import is_cut
from spillway.lineage.headers import about
from spillway.lineage.message import PREDICTION
from spillway.producers.patience import passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from confluent_kafka import Consumer

    from spillway.agents.core.gate import GateCore
    from spillway.agents.core.outcomes import Release
    from spillway.agents.live.gate.hanging import Mender
    from spillway.agents.live.gate.memory import Memory, Rereading
    from spillway.agents.live.gate.metrics import GateMetrics
    from spillway.agents.live.gate.states import GateStates
    from spillway.agents.live.gate.transaction import Writer
    from spillway.agents.live.gate.wire import Wire

log = logging.getLogger(__name__)

MOST_OUTCOMES = 1_000  # in one transaction
ROUND_SECONDS = 60.0  # a round waits for a broker that restarts; one that takes longer hangs
GATHER_SECONDS = 0.02  # between two transactions, at most
GATHER_SHARE = 0.05  # of the SLO, at most
_POLL_SECONDS = 0.1
_HOLDING_POLL_SECONDS = 0.001  # while outcomes wait for states, payloads or their JSON: those come another way
_WRITE_SECONDS = 60.0  # a broker that restarts is back by then
_LOAD_SECONDS = 120.0
_MEND_SECONDS = 30.0
_QUIET_COMMIT_SECONDS = 0.5  # offsets that no release takes along are committed this often


@dataclass(slots=True, frozen=True)
class GateTopics:
    """The topics of one pipeline that the gate touches."""

    outcomes: str
    egress: str
    dead: str


@dataclass(slots=True, frozen=True)
class Means:
    """What a gate works with."""

    consumer: Consumer
    writer: Writer
    wire: Wire
    memory: Memory
    rereading: Rereading
    mender: Mender
    metrics: GateMetrics
    core: Callable[[], GateCore]  # a new one for each beginning
    tell: Callable[[float], None] = lambda _now: None  # called every round
    states: GateStates | None = None  # None where no stage has a state
    gather: float = GATHER_SECONDS  # between two transactions where they fill all time
    trace: Callable[[Release, float], None] | None = None  # called with each release that readers see, and since when


class Gate:
    """One gate replica, in one thread. `name` is for messages; `clock` gives unix seconds."""

    def __init__(self, name: str, topics: GateTopics, means: Means, clock: Callable[[], float] = time.time) -> None:
        self._name = name
        self._topics = topics
        self._consumer = means.consumer
        self._writer = means.writer
        self._wire = means.wire
        self._memory = means.memory
        self._rereading = means.rereading
        self._mender = means.mender
        self._metrics = means.metrics
        self._conversions = Conversions(means.wire.message)
        self._new_core = means.core
        self._tell = means.tell
        self._trace = means.trace
        self._states = means.states
        self._clock = clock
        self._core = means.core()
        self._duplicates = 0  # of earlier cores
        self._standing: dict[int, tuple[int, str]] = {}  # what is committed for each of our partitions
        self._letters: list[tuple[Record, str]] = []  # to write, with their reasons
        self._paused: set[int] = set()  # the partitions that the consumer was told to pause
        self._ways: list[float] = []  # to here, of what was taken since the last transaction
        self._committed_at = time.monotonic()
        self._gathering = Gathering(means.gather)
        self._gathered = 0.0  # seconds, in this round
        self._turned_at = time.monotonic()  # when the last round began
        means.metrics.duplicates = lambda: self._duplicates + self._core.stats.duplicates
        means.metrics.held = lambda: self._core.pending + self._core.waiting

    def start(self) -> None:
        self._writer.open(_WRITE_SECONDS)
        self._join()

    def rejoin(self, consumer: Consumer) -> None:
        """Go on with another consumer, after `OustedError`. Raises `FencedError` if a successor is at work.

        The old one must be closed. What was decided and not yet written is decided again.
        """
        self._writer.hold(self._topics.egress, _WRITE_SECONDS)
        self._consumer = consumer
        self._memory.consumer = consumer
        self._metrics.stopped.clear()
        self._renew()
        self._join()

    def _join(self) -> None:
        self._consumer.subscribe(
            [self._topics.outcomes], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def run(self, stopping: Callable[[], bool]) -> None:
        """Work until `stopping()`. Raises `OustedError`, after which it may `rejoin`, or another `BrokerError`."""
        while not stopping():
            self._turned_at = time.monotonic()
            self.round()

    def close(self) -> None:
        self._conversions.close()

    def what_hangs(self) -> str:
        """Say what is wrong where rounds do not follow one another; called from another thread."""
        since = time.monotonic() - self._turned_at
        return f"the gate has finished no round for {since:.0f} s" if since > ROUND_SECONDS else ""

    def round(self) -> None:
        self._heed_room()
        now = self._hear(self._next())
        self._gathered = self._gathering.pause(time.monotonic()) if self._core.decided else 0.0
        if self._gathered:
            time.sleep(self._gathered)
            self._ways = [way + self._gathered for way in self._ways]
            now = self._hear(self._consumer.consume(MOST_OUTCOMES, 0))
        self._conversions.look()
        releases = self._core.collect(now, MOST_OUTCOMES, self._conversions.ready)
        quiet = time.monotonic() - self._committed_at < _QUIET_COMMIT_SECONDS
        if releases or self._letters or not quiet:
            self._write(releases)
        if self._metrics.waits.due:
            self._metrics.waits.say(self._core.waits())
        self._tell(now)

    # Reading ---------------------------------------------------------------------------------------------------

    def _hear(self, messages: Iterable[Any]) -> float:
        """Let the core have what came, by whichever way; return the time."""
        now = self._clock()
        for message in messages:
            self._take(now, message)
        if self._states is not None and self._states.news():
            self._core.durability_changed(now)
        self._core.advance(now)
        self._read_again(now)
        return now

    def _next(self) -> list[Any]:
        held = self._rereading.busy or self._conversions.waiting or (self._states is not None and self._core.held > 0)
        first = self._consumer.poll(_HOLDING_POLL_SECONDS if held else _POLL_SECONDS)
        return [] if first is None else [first, *self._consumer.consume(MOST_OUTCOMES - 1, 0)]

    def _heed_room(self) -> None:
        """Stop reading while the core is full of outcomes that may not leave yet. Group callbacks go on."""
        if self._core.room and self._conversions.room:
            self._resume(self._paused)
        elif fresh := self._standing.keys() - self._paused:
            self._consumer.pause(self._partitions(fresh))
            self._paused |= fresh

    def _resume(self, partitions: Iterable[int]) -> None:
        """End the pause of those that are paused. Call it before they are unassigned: librdkafka keeps a pause."""
        paused = self._paused.intersection(partitions)
        if paused:
            self._consumer.resume(self._partitions(paused))
            self._paused -= paused

    def _partitions(self, numbers: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topics.outcomes, number) for number in sorted(numbers)]

    def _take(self, now: float, message: Any) -> None:
        if message.error() is not None:
            if message.error().code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 (a local code)
                self._out_of_range(message)
            else:
                self._judge(message.error())
            return
        if message.partition() not in self._standing:
            return  # revoked while it was in hand
        self._metrics.received += 1
        way = max(0.0, now - message.timestamp()[1] / 1000)
        self._metrics.intake.observe(way)
        self._ways.append(way)
        taken = self._wire.read(message)
        if not isinstance(taken, Poison):
            taken.payload.taken = now
            self._core.deliver(now, taken)
            return
        place, of = (taken.raw.topic, taken.raw.partition, taken.raw.offset), about(taken.raw.headers)
        log.warning("%s[%d] offset %d: %s", *place, taken.text, extra=of)
        value, headers = self._wire.letter(taken)
        letter = Record(self._topics.dead, taken.raw.partition, taken.raw.key, value, headers)
        self._letters.append((letter, taken.reason))
        if taken.stand_in is not None:
            self._core.deliver(now, taken.stand_in)
        else:
            self._core.skip(taken.raw.partition, taken.raw.offset)

    def _read_again(self, now: float) -> None:
        self._rereading.ask(self._core.take_fetches())
        for fetch, message in self._rereading.take():
            payload, loss = self._wire.again(fetch, message)
            payload.taken = now
            self._core.fetched(fetch, payload, loss)

    def _out_of_range(self, message: Any) -> None:
        partition, position = message.partition(), message.offset()
        if partition not in self._standing:
            return  # revoked while it was in hand
        start = self._memory.read_on(partition, position, _LOAD_SECONDS)
        if start is not None:
            place = TopicPartition(self._topics.outcomes, partition, start)
            self._consumer.incremental_unassign([place])  # librdkafka cannot seek one that was out of range
            self._consumer.incremental_assign([place])

    def _judge(self, error: Any) -> None:
        if is_fencing(error):
            raise ousted(self._name, error)
        if not passes(error) and error.code() != KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001 (it joins again)
            raise BrokerError(f"gate {self._name} cannot read {self._topics.outcomes}: {error.str()} ({error.name()})")
        log.info("gate %s: %s", self._name, error.str())

    # Writing ---------------------------------------------------------------------------------------------------

    def _write(self, releases: Sequence[Release]) -> None:
        self._committed_at = time.monotonic()
        commits = self._core.commits()
        written = {release.partition for release in releases}
        # Whatever is written carries at least one offset, if only the standing one: offsets are what the broker checks
        # the group's generation by, and thus what fences a gate whose partitions have moved to another member.
        commits |= {partition: self._standing[partition] for partition in written - commits.keys()}
        if not commits and not self._letters:
            return
        records = [self._record(release) for release in releases]
        letters, self._letters = self._letters, []
        positions = [TopicPartition(self._topics.outcomes, p, offset, note) for p, (offset, note) in commits.items()]
        begun = time.monotonic()
        turn = Turn([*records, *(letter for letter, _ in letters)], positions)
        try:
            self._writer.write(turn, self._consumer.consumer_group_metadata(), _WRITE_SECONDS)
        except AbortedError as error:
            self._metrics.aborted += 1
            log.warning("%s; restarting from the committed offsets", error)
            self._begin_again()
            return
        if releases:
            self._gathering.sent(time.monotonic())
        self._note(releases, records, commits)
        self._score(releases, [reason for _, reason in letters], time.monotonic() - begun)

    def _record(self, release: Release) -> Record:
        carried = release.source.payload
        return Record(self._topics.egress, release.partition, carried.key, *self._conversions.message(release))

    def _note(
        self, releases: Sequence[Release], records: Sequence[Record], commits: dict[int, tuple[int, str]]
    ) -> None:
        for release, record in zip(releases, records, strict=True):
            source = release.source
            self._core.written(release.partition, record.offset, release.request_id, source.sent, record.appended)
        for partition, (offset, _) in commits.items():
            self._core.committed(partition, offset)
            self._metrics.committed[partition] = offset
        self._standing |= commits

    def _score(self, releases: Sequence[Release], reasons: Iterable[str], seconds: float) -> None:
        metrics = self._metrics
        metrics.transaction.observe(seconds)
        metrics.emitted += len(releases)
        metrics.dead_letters.update((reason,) for reason in reasons)
        now = self._clock()  # from now on readers see them
        for way in self._ways:
            metrics.transfer.hear(now, way + seconds)
        self._ways.clear()
        for release in releases:
            outcome = release.outcome
            metrics.outcomes[outcome.kind, outcome.reason] += 1
            online = not release.source.offline
            if online:
                metrics.latency[outcome.kind].observe(max(0.0, now - release.source.sent))
            if metrics.hold is not None:
                until = now - seconds - self._gathered
                metrics.hold.observe(max(0.0, until - max(part.payload.taken for part in release.parts)))
            if outcome.kind == PREDICTION:
                good = now <= release.source.deadline
                metrics.good += good and online
                metrics.late += not good and online
                metrics.flags_cut += is_cut(outcome.flags)
            else:
                metrics.note(now, release.request_id, outcome)
            if self._trace is not None:
                self._trace(release, now)

    # Partitions come and go ------------------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        begun = time.monotonic()
        places = self._load([partition.partition for partition in partitions])
        consumer.incremental_assign(places)
        if places:
            log.info(
                "gate %s took over partitions %s in %.2f s",
                self._name, [place.partition for place in places], time.monotonic() - begun,
            )  # fmt: skip

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let partitions go. No transaction is open, so what was released is committed, and the rest is not ours."""
        for partition in partitions:
            self._core.revoke(partition.partition)
            self._metrics.committed.pop(partition.partition, None)
            self._metrics.stopped.pop(partition.partition, None)
        self._resume(partition.partition for partition in partitions)
        read = [each for each in partitions if self._standing.pop(each.partition, None) is not None]
        consumer.incremental_unassign(read)  # one that was stopped when it came was never assigned

    def _load(self, partitions: Sequence[int]) -> list[TopicPartition]:
        if not partitions:
            return []
        self._mender.mend(self._writer, _MEND_SECONDS)  # no transaction is under way
        places = self._memory.load(self._core, partitions, _LOAD_SECONDS)
        for place in places:
            self._standing[place.partition] = (place.offset, place.note)
        return [TopicPartition(self._topics.outcomes, place.partition, place.offset) for place in places]

    def _begin_again(self) -> None:
        """Drop what the core has decided since the last commit, with the core, and read on from there."""
        ours = self._consumer.assignment()
        self._resume(partition.partition for partition in ours)
        self._renew()
        self._consumer.incremental_unassign(ours)
        self._consumer.incremental_assign(self._load([partition.partition for partition in ours]))

    def _renew(self) -> None:
        self._duplicates += self._core.stats.duplicates
        self._core = self._new_core()
        self._standing.clear()
        self._letters.clear()
        self._ways.clear()
        self._paused.clear()
