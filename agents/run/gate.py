"""The gate: outcomes in, one transaction per round out, so that each query gets exactly one outcome.

A round takes what is there, asks the core, and writes what it releases together with the offsets. While the gate is
idle that is at once, and an outcome waits for nobody; the busier it is, the longer outcomes gather between two
transactions (`spillway.agents.core.linger`). Partitions come and go while it takes, when no transaction is open and
nothing is collected: what is revoked then has been committed, or has not been written at all.

What may go wrong, and what answers it:

* killed at any moment: its open transaction is aborted when a gate with the same id starts, or by the broker after
  a time; memory is rebuilt from the committed offsets, their notes and the egress (`gate_memory`);
* paused while another gate takes its place: the broker voids what it still writes, by the id or by the group's
  generation, as each transaction carries an offset;
* a transaction that is aborted, or of which nothing is heard: what the core has decided since the last commit is
  dropped with the core, and the gate begins again from what is committed;
* ousted from its group: whoever runs it calls `rejoin`, which makes sure that no successor is at work.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spillway.agents.core.linger import Linger
from spillway.agents.core.request import Delivery
from spillway.agents.run.background import Conversions, Rereading
from spillway.agents.run.gate_memory import load
from spillway.lineage.errors import AbortedError, SilentError
from spillway.lineage.headers import about
from spillway.lineage.ports import Commit, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from spillway.agents.core.outcomes import Release
    from spillway.agents.run.gate_context import GateContext
    from spillway.agents.run.gate_wire import Poison
    from spillway.lineage.ports import Bounds, Record

log = logging.getLogger(__name__)

MOST_OUTCOMES = 1_000  # in one transaction
ROUND_SECONDS = 60.0  # a round waits for a broker that restarts; one that takes longer hangs
_QUIET_COMMIT_SECONDS = 0.5  # offsets that no release takes along are committed this often


class Gate:
    """One gate replica, the owner of its input."""

    def __init__(self, context: GateContext) -> None:
        self._context = context
        self._topics = context.topics
        self._input = context.input
        self._transactions = context.transactions
        self._clock = context.clock
        self._wire = context.wire
        self._versions = context.versions
        self._recorder = context.recorder
        self._rereading = Rereading(context.reread)
        self._conversions = Conversions(context.wire.message, context.begin)
        self._core = context.core()
        self._duplicates = 0  # of earlier cores
        self._standing: dict[int, Commit] = {}  # what is committed for each of our partitions
        self._letters: list[tuple[Outgoing, str]] = []  # to write, with their reasons
        self._ways: list[float] = []  # to here, of what was taken since the last transaction
        self._committed_at = self._clock.monotonic()
        self._gathering = Linger(context.gather)
        self._gathered = 0.0  # seconds, in this round
        self._turned_at = self._clock.monotonic()  # when the last round began
        self._recorder.duplicates = lambda: self._duplicates + self._core.stats.duplicates
        self._recorder.held = lambda: self._core.pending + self._core.waiting

    @property
    def partitions(self) -> Collection[int]:
        """Those that are read."""
        return self._standing.keys()

    @property
    def idle(self) -> bool:
        """Whether nothing of what was taken waits to be released or committed."""
        core = self._core
        return not (core.pending or core.waiting or self._letters or any(place for place, _ in core.commits().values()))

    async def start(self) -> None:
        await self._transactions.open()
        await self._input.join(self)

    async def rejoin(self) -> None:
        """Go on after `OustedError`. Raises `FencedError` if a successor is at work.

        What was decided and not yet written is decided again.
        """
        await self._transactions.hold(self._topics.egress)
        self._context.inputs.stopped.clear()
        self._renew()
        await self._input.join(self)

    async def run(self, stopping: Callable[[], bool]) -> None:
        """Work until `stopping()`. Raises `OustedError`, after which it may `rejoin`, or another `BrokerError`."""
        while not stopping():
            self._turned_at = self._clock.monotonic()
            await self.round()

    def what_hangs(self) -> str:
        """Return what is wrong where rounds do not follow one another; called from another thread."""
        since = self._clock.monotonic() - self._turned_at
        return f"the gate has finished no round for {since:.0f} s" if since > ROUND_SECONDS else ""

    async def round(self) -> None:
        self._heed_room()
        now = self._hear(await self._next())
        self._gathered = self._gathering.pause(self._clock.monotonic()) if self._core.decided else 0.0
        if self._gathered:
            await self._context.sleep(self._gathered)
            self._ways = [way + self._gathered for way in self._ways]
            now = self._hear(await self._input.take(MOST_OUTCOMES, 0.0))
        self._conversions.look()
        releases = self._core.collect(now, MOST_OUTCOMES, self._conversions.ready)
        quiet = self._clock.monotonic() - self._committed_at < _QUIET_COMMIT_SECONDS
        if releases or self._letters or not quiet:
            await self._write(releases)
        self._recorder.report_waits(self._core.waits)
        self._context.tell(now)

    # Reading ---------------------------------------------------------------------------------------------------

    def _heed_room(self) -> None:
        """Stop reading while the core is full of outcomes that may not leave yet. Partitions come and go all the same.

        It is said in every round, as what has come meanwhile is not paused.
        """
        if self._core.room and self._conversions.room:
            self._input.resume()
        else:
            self._input.pause()

    async def _next(self) -> Sequence[Record]:
        held = self._rereading.busy or self._conversions.waiting or (self._versions is not None and self._core.held > 0)
        return await self._input.take(MOST_OUTCOMES, self._context.held_poll if held else self._context.poll)

    def _hear(self, records: Iterable[Record]) -> float:
        """Let the core have what came, by whichever way; return the time."""
        now = self._clock.now()
        for record in records:
            self._take(now, record)
        if self._versions is not None and self._versions.news():
            self._core.durability_changed(now)
        self._core.advance(now)
        self._read_again(now)
        return now

    def _take(self, now: float, record: Record) -> None:
        way = max(0.0, now - record.timestamp / 1000)
        self._recorder.accepted(way)
        self._ways.append(way)
        taken = self._wire.read(record)
        if isinstance(taken, Delivery):
            taken.payload.taken = now
            self._core.deliver(now, taken)
        else:
            self._put_aside(now, taken)

    def _put_aside(self, now: float, unusable: Poison) -> None:
        """Write a record that cannot be taken as a dead letter; its query fails, where that is known."""
        raw = unusable.raw
        extra = about(raw.headers)
        log.warning("%s[%d] offset %d: %s", raw.topic, raw.partition, raw.offset, unusable.text, extra=extra)
        letter = Outgoing(self._topics.dead, raw.partition, raw.key, *self._wire.letter(unusable))
        self._letters.append((letter, unusable.reason))
        if unusable.stand_in is not None:
            self._core.deliver(now, unusable.stand_in)
        else:
            self._core.skip(raw.partition, raw.offset)

    def _read_again(self, now: float) -> None:
        self._rereading.ask(self._core.take_fetches())
        for fetch, record in self._rereading.take():
            payload, loss = self._wire.again(fetch, record)
            payload.taken = now
            self._core.fetched(now, fetch, payload, loss)

    # Writing ---------------------------------------------------------------------------------------------------

    async def _write(self, releases: Sequence[Release]) -> None:
        self._committed_at = self._clock.monotonic()
        commits = self._core.commits()
        written = {release.partition for release in releases}
        # Whatever is written carries at least one offset, if only the standing one: offsets are what the broker checks
        # the group's generation by, and thus what fences a gate whose partitions have moved to another member.
        commits |= {partition: self._standing[partition] for partition in written - commits.keys()}
        if not commits and not self._letters:
            return
        letters, self._letters = self._letters, []
        records = [*map(self._record, releases), *(letter for letter, _ in letters)]
        begun = self._clock.monotonic()
        try:
            stored = await self._transactions.write(records, commits)
        except (AbortedError, SilentError) as error:
            log.warning("%s; restarting from the committed offsets", error)
            self._recorder.aborted += 1
            if isinstance(error, SilentError):
                await self._transactions.open()
            await self._begin_again()
            return
        seconds = self._clock.monotonic() - begun
        if releases:
            self._gathering.sent(self._clock.monotonic())
        self._note(releases, stored, commits)
        self._score(releases, [reason for _, reason in letters], seconds)

    def _record(self, release: Release) -> Outgoing:
        key = release.source.payload.key
        return Outgoing(self._topics.egress, release.partition, key, *self._conversions.message(release))

    def _note(self, releases: Sequence[Release], stored: Sequence[tuple[int, int]], commits: dict[int, Commit]) -> None:
        for release, (offset, appended) in zip(releases, stored, strict=False):  # dead letters are behind them
            source = release.source
            self._core.written(release.partition, offset, release.request_id, source.sent, appended / 1000)
        for partition, commit in commits.items():
            self._core.committed(partition, commit.offset)
            self._recorder.committed[partition] = commit.offset
        self._standing |= commits

    def _score(self, releases: Sequence[Release], reasons: Sequence[str], seconds: float) -> None:
        now = self._clock.now()  # from now on readers see them
        self._recorder.transferred(now, [way + seconds for way in self._ways])
        self._ways.clear()
        self._recorder.wrote_letters(reasons)
        self._recorder.released(now, releases, seconds, self._gathered)
        if self._context.trace is not None:
            for release in releases:
                self._context.trace(release, now)

    # Partitions come and go ------------------------------------------------------------------------------------

    async def assigned(self, partitions: frozenset[int]) -> dict[int, int]:
        begun = self._clock.monotonic()
        starts = await self._load(sorted(partitions))
        if starts:
            took = self._clock.monotonic() - begun
            log.info("gate %s took over partitions %s in %.2f s", self._context.name, list(starts), took)
        return starts

    async def revoked(self, partitions: frozenset[int]) -> None:
        """Let partitions go. No transaction is open, so what was released is committed, and the rest is not ours."""
        for partition in partitions:
            self._core.revoke(partition)
            self._standing.pop(partition, None)
            self._recorder.committed.pop(partition, None)
            self._context.inputs.stopped.pop(partition, None)
        self._letters = [each for each in self._letters if each[0].partition not in partitions]

    def out_of_range(self, partition: int, position: int, bounds: Bounds) -> int | None:
        return max(position, bounds.start) if self._context.inputs.admits(partition, position, bounds) else None

    async def _load(self, partitions: Collection[int]) -> dict[int, int]:
        if not partitions:
            return {}
        await self._context.mend()  # no transaction is under way
        starts = await load(self._context, self._core, partitions)
        self._standing |= starts
        return {partition: start.offset for partition, start in starts.items()}

    async def _begin_again(self) -> None:
        """Drop what the core has decided since the last commit, with the core, and read on from there."""
        ours = sorted(self._standing)
        self._renew()
        await self._input.read_on(await self._load(ours))

    def _renew(self) -> None:
        self._duplicates += self._core.stats.duplicates
        self._core = self._context.core()
        self._standing.clear()
        self._letters.clear()
        self._ways.clear()
