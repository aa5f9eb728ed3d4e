"""What a reign writes to its stage's table: the published state of keys that changed, once that is durable.

Rows are taken with a version's copy, and go when that version is durable, or a later one: no published value is ever
taken back. Publishing is outside the version protocol: it holds no offset and no manifest. So the last rows of a reign
may be missing, and an owner that was replaced may still write some. Therefore a reign follows its shard's partitions of
the table, and writes a key anew whose last record is of an older epoch. That it has the right value would not do: it
may have come late, after one with a higher version and another value, which is what readers go by.

A state that cannot be published (`publish` raises, or returns what no message can hold) has no row in its version: its
version is as durable as any, the key's row before stays, and the log and a metric say so. The next state is tried anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.agents.models.model_errors import RaisedLog
from spillway.agents.models.stateful import SHARED
from spillway.agents.run.shard_context import Sent
from spillway.lineage.errors import WireError
from spillway.lineage.keys import partition_for
from spillway.lineage.ports import Outgoing
from spillway.lineage.values.codec import Decoder
from spillway.producers.published import Row, decode_row, encode_row, key_of_shared
from spillway.producers.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from spillway.agents.live.stateful.context import MemberContext
    from spillway.agents.models.stateful import Machine
    from spillway.lineage.limits import Limits

_AT_ONCE: Final = 256  # keys that are looked at between two batches
_PAUSE: Final = 0.05  # seconds, where what was sent is not acknowledged yet


class Where(NamedTuple):
    """The part of a table that a shard writes."""

    topic: str
    partitions: int  # of the topic
    shard: int
    shards: int
    limits: Limits
    stage: str = ""


class Publishing:
    """Publishes for one reign, from `begin` to `close`. All methods but `rows` are the loop's."""

    def __init__(
        self,
        where: Where,
        epoch: int,
        durable_n: int,
        recorded: Callable[[], int],
        machine: Machine,
        means: MemberContext,
    ) -> None:
        """`recorded`: the newest version that is recorded, so that no state is newer; `durable_n`: the base's."""
        self._where = where
        self._epoch = epoch
        self._durable_n = durable_n
        self._recorded = recorded
        self._machine = machine
        self._means = means
        self._decoder = Decoder(where.limits)
        self._shared = key_of_shared(where.shard)
        self._waiting: deque[tuple[int, Mapping[bytes, bytes | None]]] = deque()  # by version: records
        self._touched: set[str] = set()  # since the last copy
        self._loop = asyncio.get_running_loop()
        own = range(where.shard, where.partitions, where.shards)
        self._table = Table(means.kafka, where.topic, self._heard, own)
        self._foreign: set[bytes] = set()  # keys whose last record may be another owner's
        self._stirred = asyncio.Event()
        self._mending: asyncio.Task[None] | None = None
        self._unpublished: set[bytes] = set()  # keys whose newest state cannot be published
        self._raised = RaisedLog(where.stage)

    def begin(self) -> None:
        self._table.start()
        if self._means.metrics.state is not None:
            self._means.metrics.state.unpublished = lambda: len(self._unpublished)
        self._mending = self._loop.create_task(self._mend())
        self._mending.add_done_callback(self._ended)

    def close(self) -> None:
        self._waiting.clear()
        self._unpublished = set()
        if self._mending is not None:
            self._mending.cancel()
            self._table.close()

    # With the versions -----------------------------------------------------------------------------------------

    def touched(self, keys: Iterable[str]) -> None:
        self._touched.update(keys)

    def due(self) -> set[str]:
        """The keys whose rows are to be taken with the copy that is made now."""
        touched, self._touched = self._touched, set()
        return touched

    def rows(self, keys: Iterable[str], n: int) -> dict[bytes, bytes]:
        """Records of keys as they are now, in version n, of those that can be published.

        While the state stands still, on any thread.
        """
        rows = {}
        for key in keys:
            name = self._name(key)
            try:
                for _, value in self._machine.published([key]):
                    rows[name] = encode_row(Row(value, self._epoch, n), self._where.limits)
            except BaseException as error:  # noqa: BLE001 - the author's code
                self._unpublished.add(name)
                self._raised.words(error, f"publish of key {key!r:.80}")
            else:
                self._unpublished.discard(name)
        return rows

    def taken(self, rows: Mapping[bytes, bytes | None], n: int) -> None:
        """Have records written when version n is durable; n never falls."""
        if rows:
            self._waiting.append((n, rows))

    def durable(self, n: int) -> None:
        self._durable_n = n
        self.publish()

    def publish(self) -> None:
        """Write what is durable, while this owner may emit."""
        while self._waiting and self._waiting[0][0] <= self._durable_n and self._means.may_emit():
            for key, value in self._waiting.popleft()[1].items():
                of_shard = key == self._shared
                partition = self._where.shard if of_shard else partition_for(key, self._where.partitions)
                self._means.output.send(Outgoing(self._where.topic, partition, key, value), Sent(None, None))

    # What others wrote -----------------------------------------------------------------------------------------

    def _heard(self, key: bytes, value: bytes | None) -> None:
        """On the table's thread: what comes after its end was read."""
        if not self._table.stale and (value is None or self._epoch_of(value) < self._epoch):
            self._loop.call_soon_threadsafe(self._stir, key)

    def _stir(self, key: bytes) -> None:
        self._foreign.add(key)
        self._stirred.set()

    async def _mend(self) -> None:
        while self._table.stale:
            await asyncio.to_thread(self._table.wait)
        self._foreign |= {self._name(key) for key in list(self._machine.state)} | self._table.rows().keys()
        while True:
            keys, self._foreign = self._foreign, set()
            for some in _chunks(keys):
                await self._compare(some)
                while not self._means.output.room:  # noqa: ASYNC110 - seldom, and nobody tells
                    await asyncio.sleep(_PAUSE)
            self._stirred.clear()
            if not self._foreign:
                await self._stirred.wait()

    async def _compare(self, keys: list[bytes]) -> None:
        """Have those written whose last record is an older owner's, between two batches."""
        names = [SHARED if key == self._shared else key.decode("utf-8", "replace") for key in keys]
        found = await self._means.models.call(lambda: self.rows(names, self._recorded()))
        older: dict[bytes, bytes | None] = {}
        for key in keys:
            last = self._table.get(key)
            if last is not None and self._epoch_of(last) >= self._epoch:
                continue
            if key in found:
                older[key] = found[key]
            elif last is not None and key not in self._unpublished:
                older[key] = None
        self.taken(older, self._recorded())
        self.publish()

    def _name(self, key: str) -> bytes:
        return self._shared if key == SHARED else key.encode()

    def _epoch_of(self, value: bytes) -> int:
        try:
            return decode_row(value, self._decoder).epoch
        except WireError:
            return -1  # of nobody's

    def _ended(self, mending: asyncio.Task[None]) -> None:
        if not mending.cancelled() and (error := mending.exception()) is not None:
            self._means.crashed(error)


def _chunks(keys: Iterable[bytes]) -> Iterator[list[bytes]]:
    every = list(keys)
    for at in range(0, len(every), _AT_ONCE):
        yield every[at : at + _AT_ONCE]
