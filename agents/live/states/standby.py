"""A backup follows its shard's partition of the state topic, so that it can take over without reading (rules 6 and 16).

One thread, which the process's log tells of chunks, feeds a `spillway.checkpoint.standby.Standby`, and applies to it
what its owner says is durable, the newest at once where several have become so. Its owner tells it what it reads of the
shard's version log: records that count (`heard`), from the first on, and `begin` when that log was caught up with; the
chunks are read from the beginning then, so that of old ones nothing is held.

A chunk that a version needs and that has not come is waited for up to the end of the partition; then the partition is
read once more from its start; then `on_missing` is posted, as a newer version may be durable whose writer has had the
chunk compacted. If the owner, who reads the version logs to their ends, answers that there is none, `on_failed` is
posted, with a ChunkError that names the chunk, and the thread ends.

`promote` has the base applied and the copy itself handed over, and ends the thread: a primary does not read what it
writes. What `Given.present` lacks, of what a zombie may still write, is left to the next reign's owner.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from spillway.agents.live.states.worker import Mailbox, Worker
from spillway.agents.run.log_reader import failure_of, shortened
from spillway.checkpoint.assembly import ChunkError
from spillway.checkpoint.chunks import decode_key
from spillway.checkpoint.standby import Given, Search, Standby, Step
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Base, Contents, Fence, Manifest
from spillway.topology.topics import state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.live.states.worker import Post
    from spillway.checkpoint.versions import History
    from spillway.lineage.errors import BrokerError, SpillwayError
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.ports import Bounds, Following, Log, Record
    from spillway.lineage.replication import Entry, InputPlace

log = logging.getLogger(__name__)


class Applied(NamedTuple):
    """A version that the copy has come to."""

    version: Version
    copied: int  # bytes
    seconds: float
    inputs: tuple[InputPlace, ...] = ()  # what it covers of the shard's input
    entries: tuple[Entry, ...] = ()  # what the state consists of; of a keyed one nothing
    keyed: bool = False


class StandbyReader:
    """Keeps the copy of one backup. It starts at once, and reads from `begin` on; `close` ends it.

    All methods are for its owner's thread, to which `post` brings the callbacks.
    """

    def __init__(
        self,
        log: Callable[[Post], Log],
        pipeline: str,
        place: Place,
        post: Post,
        on_applied: Callable[[Applied], object],
        on_failed: Callable[[SpillwayError], object],
        *,
        on_missing: Callable[[Version], object],
    ) -> None:
        """`log`: of whoever is told by a post. `on_missing` is to be answered by `answer`."""
        self._slot = (state(pipeline, place[0]), place[1])
        self._on_applied = on_applied
        self._on_missing = on_missing
        self._standby = Standby()
        self._following: Following
        self._aim: Search | None = None
        self._waits = False  # for the end of the partition, or for an answer, before the version is tried again
        self._then: Callable[[Given], object] | None = None  # whom to hand the copy to
        self.read_bytes = 0
        self._begun = threading.Event()
        self._jobs = Mailbox()
        self._log = log(self._jobs.post)
        self._worker = Worker("standby", self._run, post, on_failed)
        self._worker.start()

    def heard(self, record: Fence | Base | Manifest, history: History) -> None:
        """Take a record of the version log that counts, and what the shard's history is with it."""
        if isinstance(record, Manifest):
            self._jobs.post(self._standby.manifest, record)
        elif isinstance(record, Fence):
            self._jobs.post(self._standby.fenced, record.epoch)
        else:
            self._jobs.post(self._standby.based, history)

    def begin(self) -> None:
        self._begun.set()

    def durable(self, version: Version) -> None:
        """Have the copy brought to the newest version at or below this one."""
        self._jobs.post(self._aim_at, version)

    def answer(self, missing: Version, durable: Version) -> None:
        """Say what was durable when all version logs were read to their ends, behind `on_missing`'s call."""
        self._jobs.post(self._answered, missing, durable)

    def promote(self, base: Version, then: Callable[[Given], object]) -> None:
        """Have the copy brought to `base`, whose manifest was heard, and handed over; then the thread ends."""
        self._jobs.post(self._hand_over, base, then)

    def close(self) -> None:
        self._worker.stop()
        self._begun.set()
        self._jobs.post(bool)
        self._worker.join()

    def _run(self) -> None:
        self._begun.wait()
        if self._worker.stopped:
            return
        self._follow()
        try:
            while not self._worker.stopped and not self._round():
                pass
        finally:
            self._following.stop()

    def _round(self) -> bool:
        """Do what the owner and the log have said, waiting for the first word; return whether the copy was given."""
        self._jobs.deliver(None)
        if self._aim is not None and not self._waits:
            self._apply(self._aim)
        if self._then is None or self._aim is not None:
            return False
        self._worker.tell(self._then, self._standby.give())
        return True

    def _follow(self) -> None:
        """Read the partition from its beginning."""
        self._following = self._log.follow(self._slot, None, self._take, cut=self._lacks, trouble=self._cannot_read)

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            self.read_bytes += len(record.value or b"")
            try:
                key = decode_key(record.key or b"")
            except CheckpointError as error:  # it says nothing of any chunk; what is missing is found by its hash
                log.warning("%s[%d] offset %d is ignored: %s", *self._slot, record.offset, error)
                continue
            self._standby.chunk(key, record.value)

    def _lacks(self, _bounds: Bounds) -> None:
        raise shortened(f"{self._slot[0]}[{self._slot[1]}]")

    def _cannot_read(self, error: BrokerError) -> None:
        failure = failure_of(error)
        if failure is not None:
            raise failure

    def _reached(self, following: Following) -> None:
        if following is self._following:
            self._waits = False

    def _aim_at(self, version: Version) -> None:
        newest = self._standby.newest(version)
        if newest is not None and self._then is None and (self._aim is None or self._aim.version != newest):
            self._aim_for(newest)

    def _aim_for(self, version: Version) -> None:
        self._aim, self._waits = Search(version, self._aim), False

    def _answered(self, missing: Version, durable: Version) -> None:
        self._aim_at(durable)
        if self._aim is not None and self._aim.version == missing:
            self._waits = False  # it was the newest: what is missing now is damage

    def _hand_over(self, base: Version, then: Callable[[Given], object]) -> None:
        self._then = then
        if self._aim is None or self._aim.version != base:
            if base.n > self._standby.applied.n:
                self._aim_for(base)
            else:
                self._aim = None

    def _apply(self, aim: Search) -> None:
        began = time.monotonic()
        try:
            applied = self._standby.apply(aim.version)
        except ChunkError as error:
            if not self._seek(aim.step(error.key, opened=self._standby.opened(aim.version)), aim.version):
                raise
            return
        self._aim = None
        if applied:
            copy = self._standby.copy
            has = copy.contents or Contents()
            seconds = time.monotonic() - began
            told = Applied(aim.version, copy.copied, seconds, has.inputs, has.entries, keyed=bool(has.pages))
            self._worker.tell(self._on_applied, told)

    def _seek(self, step: Step, version: Version) -> bool:
        """Look for what is missing of a version; False where there is nowhere left to look."""
        if step is Step.REPORT:
            return False
        if step is Step.ASK:
            log.info(
                "chunks of %s are gone from %s[%d]; checking whether a newer version is durable", version, *self._slot
            )
            self._waits = True
            self._worker.tell(self._on_missing, version)
            return True
        if step is Step.READ_AGAIN:
            log.info("a chunk of %s is missing; reading %s[%d] again", version, *self._slot)
            self._following.stop()
            self._follow()
        self._waits = True
        following = self._following
        following.when_read(lambda _end: self._reached(following))
        return True
