"""One reign: drives a shard's `StatefulCore` from promotion to stand-down.

    records -> core -> compute -> outputs sent -> update -> copy -> chunks -> manifest -> durable (as the logs say)

Everything here runs on the loop; computing and updating, copying, and writing run on a thread each. After every call
into the core `pump` does what it asks for, in its order. Invariants:

* A reign ends for good by `close`: what its threads still bring is thrown away, what its messages' acknowledgements
  say is nobody's business any more. What it sent counts as the logs say.
* It sends nothing while its right to emit has lapsed (`spillway.checkpoint.leases`): messages wait, in their order.
* The state is touched by the model's thread alone, but while it is copied: the core lets no update run then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from spillway.agents.run import crash_points
from spillway.agents.run.alarm import Alarm
from spillway.agents.run.feed import Feed
from spillway.agents.run.shard_context import Sent, UpdateError
from spillway.checkpoint.reign import Copy, Release, Seal, Write
from spillway.lineage.errors import SpillwayError
from spillway.lineage.marks import Version
from spillway.lineage.ports import Outgoing
from spillway.lineage.replication import Output as Contained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.actions import Emit
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.policy import StageState
    from spillway.agents.core.request import Loss
    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.models.stateful import Machine
    from spillway.agents.run.emission import Carried
    from spillway.agents.run.shard_context import Computed, Publisher, ReignWriter, ShardContext, Updated
    from spillway.checkpoint.capture import Capture, Captured
    from spillway.lineage.ports import Record
    from spillway.lineage.replication import InputPlace

log = logging.getLogger(__name__)


# What a reign does about updates that raise: it tells `spillway.agents.core.crash_suspects`, and asks for a new reign.
#
# A state that an update has left half changed is never used again: nothing of this reign is computed, copied or written
# from then on, as the core waits for an update that never ends. The member claims its shard anew at once and takes the
# state of the newest complete version, from its own copy or from the log. It does not yield: a backup would meet the
# same queries, and know less.


class ModelCheck:
    """The suspects of a member during one reign."""

    def __init__(self, means: ShardContext) -> None:
        self._means = means
        self._recorded: deque[tuple[int, list[str]]] = deque()  # versions that had batches while there were suspects

    def tries(self, batch: Batch) -> bool:
        """Whether a batch that is computed now is to be tried on a copy first."""
        suspects = self._means.suspects
        return bool(suspects) and suspects.tries(_ids(batch))

    def computed(self, batch: Batch, guilty: int, n: int) -> None:
        """Note that a batch was recorded in version n, and how many of its queries were found to raise."""
        suspects = self._means.suspects
        if guilty:
            suspects.guilty()
        if suspects:
            self._recorded.append((n, _ids(batch)))

    def durable(self, n: int) -> None:
        while self._recorded and self._recorded[0][0] <= n:
            self._means.suspects.durable(self._recorded.popleft()[1])

    def raised(self, batch: Batch, error: UpdateError) -> None:
        """Have the reign end whose state may be half changed; or the member, where a new one would not help."""
        if self._means.suspects.raised(_ids(batch)):
            log.error("%s; restarting as primary from the version before this update", error)
            self._means.begin_anew("an update raised")
        else:
            text = f"{error}; it succeeded on a copy but raised three times, so this member ends"
            self._means.crashed(UpdateError(text))


def _ids(batch: Batch) -> list[str]:
    return [request.request_id for request in batch.requests]


_AT_ONCE = 32  # records decoded before the loop gets to do something else


class Primary:
    """The driver of one reign."""

    def __init__(
        self,
        core: StatefulCore,
        machine: Machine,
        capture: Capture,
        writer: ReignWriter,
        means: ShardContext,
        read_again: Callable[[int, int], Record | None] = lambda _partition, _offset: None,
        publishing: Publisher | None = None,
    ) -> None:
        """`machine` has the base's state; `writer` writes this epoch's versions and says `completed`.

        `read_again` gives a record of the input that was taken and is not covered, if it is at hand.
        """
        self.core = core
        self._machine = machine
        self._capture = capture
        self._writer = writer
        self._means = means
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._wake)
        self._touched: set[str] | None = None  # keys updated since the last copy; None: all
        self._publishing = publishing
        self._read_again = read_again
        self._fetches: deque[Fetch] = deque()  # payloads that joins have dropped and want again
        self._unsent: list[Emit] = []  # while the right to emit has lapsed
        self._made: dict[int, tuple[Emit, Outgoing]] = {}  # messages that a manifest contains, until they are sent
        self._closed = False
        self._base_n = core.reign.durable_n
        self._keyed = machine.kind == "keyed"
        self._trial = ModelCheck(means)
        core.apart = means.suspects.apart
        self.feed = Feed(
            core,
            means.intake,
            clock=means.clock,
            metrics=means.metrics,
            reload_schemas=means.reload_schemas,
            may_take=lambda: core.room and means.output.room,
            delivered=self.pump,
            crashed=means.crashed,
        )

    @property
    def unsent(self) -> int:
        """Messages that wait for the right to emit."""
        return len(self._unsent)

    # What happens ----------------------------------------------------------------------------------------------

    def resend(self, outputs: Sequence[Contained]) -> None:
        """Send once more what the base's manifest contains: its primary may not have got to it."""
        self.core.reign.resend(len(outputs))
        for each in outputs:
            record = Outgoing(each.topic, each.partition, each.key or None, each.value, each.headers)
            self._means.output.send(record, Sent(self, None))

    def stored(self, tokens: Sequence[Sent]) -> None:
        if self._closed:
            return
        emits = [token.emit for token in tokens if token.emit is not None]
        for _ in range(len(tokens) - len(emits)):
            self.core.reign.resent()
        self.core.acked_all(emits)
        if emits:
            crash_points.at("after-outputs")
        self.pump()

    def durability_changed(self) -> Mapping[int, InputPlace]:
        """Look at what the logs have learned; gives what the newest durable version covers."""
        self.core.durability_changed(self._means.clock.now())
        if self.core.reign.durable_n > self._base_n:
            self._writer.durable(Version(self.core.epoch, self.core.reign.durable_n))
            self._trial.durable(self.core.reign.durable_n)
        if self._publishing is not None:
            self._publishing.durable(self.core.durable_n)
        self.pump()
        return self.core.durable_places

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        if not self._closed:
            self.core.tick(now, states)
            self.pump()

    def close(self) -> None:
        """End the reign. Its copies are let go; what is under way on its threads comes to nothing."""
        self._closed = True
        self._means.metrics.depth = int
        if self._means.metrics.state is not None:
            self._means.metrics.state.lag.clear()
        self.feed.stop()
        self._means.excuse(0)
        self._writer.close()
        if self._publishing is not None:
            self._publishing.close()
        self._alarm.cancel()

    # What the core asks for ------------------------------------------------------------------------------------

    def pump(self) -> None:
        if self._closed:
            return
        core, means = self.core, self._means
        means.excuse(core.held_by_joins)
        if not (len(self.feed) or means.reads_on()):
            core.cover()
        for batch in core.take_runs():
            self._compute(batch)
        for batch in core.take_updates():
            self._update(batch)
        for order in core.take_orders():
            self._obey(order)
        self._send(core.take_emits())
        if core.reads_again and (fetches := core.take_fetches()):
            if not self._fetches:
                self._loop.call_soon(self._fetch_some)
            self._fetches.extend(fetches)
        self.feed.go_on()
        if means.metrics.state is not None:
            means.metrics.state.lag.note(core.reign.recorded, core.reign.durable_n)
        now = means.clock.now()
        wake = core.next_wake(now)
        if wake is not None:
            self._alarm.within(wake - now)

    def _fetch_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._fetches))):
            if self._closed:
                return
            fetch = self._fetches.popleft()
            record = self._read_again(fetch.partition, fetch.offset)
            if record is None:
                self._means.rereading.ask([fetch])
            else:
                self.core.fetched(self._means.clock.now(), fetch, *self._means.intake.again(fetch, record))
        if self._fetches:
            self._loop.call_soon(self._fetch_some)
        self.pump()

    def fetched(self, fetch: Fetch, payload: Carried, loss: Loss | None) -> None:
        """Take a payload that was read again; what an earlier reign has asked for is the same."""
        if not self._closed:
            self.core.fetched(self._means.clock.now(), fetch, payload, loss)
            self.pump()

    def _compute(self, batch: Batch) -> None:
        work, machine = self._means.work, self._machine
        tried = self._trial.tries(batch)
        self._means.models.submit(
            lambda: work.compute(machine, batch, tried=tried), lambda done: self._computed(batch, done)
        )

    def _computed(self, batch: Batch, done: Computed) -> None:
        if self._closed:
            return
        now = self._means.clock.now()
        self._means.tally.executed(now, batch, done)
        self.core.computed(now, batch, done.results, done.seconds, changes=done.changes)
        self._trial.computed(batch, done.guilty, self.core.reign.recorded)
        self.pump()
        self._means.metrics.handoff.observe(self._loop.time() - done.ended)

    def _update(self, batch: Batch) -> None:
        work, machine, capture = self._means.work, self._machine, self._capture

        def update() -> Updated:
            with capture.updating():
                return work.update(machine, batch)

        self._means.models.submit(update, lambda done: self._updated(batch, done))

    def _updated(self, batch: Batch, done: Updated) -> None:
        if self._closed:
            return
        if done.error is not None:
            self._trial.raised(batch, done.error)
            return
        if self._touched is not None:
            self._touched.update(done.touched)
        if self._publishing is not None:
            self._publishing.touched(done.touched)
        self.core.updated(self._means.clock.now(), done.seconds)
        self.pump()

    def _obey(self, order: Any) -> None:
        if isinstance(order, Copy):
            self._copy(order.version)
        elif isinstance(order, Write):
            contained: Iterable[Emit] = self.core.withheld(order.version) if self.core.reign.mode.holds else ()
            self._writer.write(order, self._contained(contained))
        elif isinstance(order, Seal):
            self._writer.seal(order.version)
        elif isinstance(order, Release):
            self._means.copies.submit(order.what.release, _nothing)

    def _copy(self, version: Version) -> None:
        state = self._machine.state
        touched, self._touched = self._touched, set()

        figures, publishing, clock = self._means.metrics.state, self._publishing, self._means.clock
        changed = set() if publishing is None else publishing.due()

        def take() -> tuple[Captured, dict[bytes, bytes]]:
            crash_points.at("before-capture")
            began = clock.monotonic()
            captured = self._capture.take({}, state, touched) if self._keyed else self._capture.take(state)
            if figures is not None:
                figures.captures.observe(clock.monotonic() - began)
            crash_points.at("after-capture")
            return captured, {} if publishing is None else publishing.rows(changed, version.n)

        self._means.copies.submit(take, lambda taken: self._copied(version, *taken))

    def _copied(self, version: Version, captured: Captured, rows: dict[bytes, bytes]) -> None:
        if self._closed:
            return
        if self._publishing is not None:
            self._publishing.taken(rows, version.n)
        self.core.copied(self._means.clock.now(), version, captured)
        self.pump()

    def completed(self, version: Version) -> None:
        if not self._closed:
            self.core.completed(self._means.clock.now(), version)
            self.pump()

    # Messages --------------------------------------------------------------------------------------------------

    def may_emit_again(self) -> None:
        unsent, self._unsent = self._unsent, []
        self._send(unsent)
        if self._publishing is not None:
            self._publishing.publish()

    def _send(self, emits: list[Emit]) -> None:
        if not emits:
            return
        means = self._means
        if self._unsent or not means.may_emit():
            self._unsent += emits
            return
        crash_points.at("before-outputs")
        now = means.clock.now()
        for emit in emits:
            means.tally.emitted(now, emit)
            known = self._made.pop(id(emit), None)
            try:
                message = means.emission.message(emit) if known is None else known[1]
            except SpillwayError as error:
                means.crashed(error)
                return
            means.output.send(message, Sent(self, emit))

    def _contained(self, emits: Iterable[Emit]) -> tuple[Contained, ...]:
        contained = []
        for emit in emits:
            if id(emit) not in self._made:
                self._made[id(emit)] = emit, self._means.emission.message(emit)
            topic, partition, key, value, headers = self._made[id(emit)][1]
            contained.append(Contained(topic, partition, key or b"", value or b"", cast("Any", tuple(headers))))
        return tuple(contained)

    def _wake(self) -> None:
        if not self._closed:
            self.core.advance(self._means.clock.now())
            self.pump()


def _nothing(_result: object) -> None:
    """A released copy has nothing to say."""
