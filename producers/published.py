"""Published state: the rows that a keyed stage writes to its table for keys that changed, and who looks them up.

A record's key is the state's key; its value is a `spillway.Query` with the input `value`, which is what the model's
`publish` returned, and the parameters `epoch` and `n`: the version of the shard's state that it is of. What a shard's
keys share has a key that no text has. A record whose version is lower than the one before it is from an owner that was
replaced, and is passed over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.lineage.errors import WireError
from spillway.lineage.keys import partition_for
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import Query
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.producers.table import READ_SECONDS, Follower, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from spillway.lineage.limits import Limits
    from spillway.producers.connection import ClientSettings
    from spillway.producers.kafka.log import KafkaLog

log = logging.getLogger(__name__)

SHARED: Final = b"\xffshared/"  # begins with what no UTF-8 does


class Row(NamedTuple):
    """One key's published state, and the version of its shard that it is of."""

    value: Any
    epoch: int
    n: int

    @property
    def version(self) -> tuple[int, int]:
        return self.epoch, self.n


def key_of_shared(shard: int) -> bytes:
    """The key of the row that a shard's keys share."""
    return SHARED + b"%d" % shard


def read_of(own: Collection[int], shards: int) -> frozenset[int]:
    """The partitions of a table to read for keys in the partitions `own`.

    These, and of each one's shard the one with what that shard's keys share, which has the shard's number.
    """
    return frozenset(own) | {partition % shards for partition in own}


def encode_row(row: Row, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """A row as a record's value. Raises WireError for what cannot travel."""
    return encode_query(Query({"value": row.value}, {"epoch": row.epoch, "n": row.n}), limits)


def decode_row(value: bytes, decoder: Decoder) -> Row:
    """The row in a record's value. Raises WireError (CORRUPT among others) for what is none."""
    said = decoder.query(value)
    epoch, n = said.parameters.get("epoch"), said.parameters.get("n")
    if "value" not in said.inputs or type(epoch) is not int or type(n) is not int:
        raise WireError("corrupt", "the record is not a row of a published table")
    return Row(said.inputs["value"], epoch, n)


class Published(Follower):
    """Follows one table of published state. A context, which reads from its start to its end."""

    def __init__(
        self,
        settings: ClientSettings,
        topic: str,
        *,
        partitions: int,
        shards: int,
        limits: Limits = DEFAULT_LIMITS,
        own: bool = False,
        log: KafkaLog | None = None,
        changed: Callable[[bytes, Row | None], None] = lambda _key, _row: None,
    ) -> None:
        """`partitions` and `shards` are those of the stage that publishes; `own`: none is read until `follow`.

        `log`: that of the process, where it has one. `changed` is told of each row that has come or gone, on the log's
        thread.
        """
        self._heard = changed
        self._topic = topic
        self._partitions, self._shards = partitions, shards
        self._decoder = Decoder(limits)
        self._rows: dict[bytes, Row] = {}
        self._own: frozenset[int] | None = frozenset() if own else None
        self._table = Table(log or settings, topic, self._changed, () if own else range(partitions))

    def read(self, timeout: float = READ_SECONDS) -> None:
        """Wait until the table is read to its end, at most `timeout` seconds; it is `stale` where it is not."""
        self._table.wait(timeout)

    def follow(self, own: Collection[int]) -> None:
        """Read the rows of keys in these partitions from now on, and no others."""
        self._own = frozenset(own)
        self._table.follow(read_of(own, self._shards))

    def partition_of(self, key: str) -> int:
        return partition_for(key.encode("utf-8", "replace"), self._partitions)

    def shard_of(self, key: str) -> int:
        return self.partition_of(key) % self._shards

    def follows(self, key: str) -> bool:
        """Whether the partition that a key is in is read."""
        return self._own is None or self.partition_of(key) in self._own

    def find(self, key: str) -> Row | None:
        """A key's row; else the one that its shard's keys share; else None."""
        row = self._rows.get(key.encode("utf-8", "replace"))
        return self._rows.get(key_of_shared(self.shard_of(key))) if row is None else row

    def rows_of(self, key: str) -> tuple[bytes, ...]:
        """The keys of the rows that `find` looks at, as things are."""
        own = key.encode("utf-8", "replace")
        return (own,) if own in self._rows else (own, key_of_shared(self.shard_of(key)))

    def _changed(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self._rows.pop(key, None)
            self._heard(key, None)
            return
        try:
            row = decode_row(value, self._decoder)
        except WireError as error:
            log.warning("%s: the row of key %r is ignored: %s", self._topic, key[:80], error)
            return
        known = self._rows.get(key)
        if known is None or row.version >= known.version:
            self._rows[key] = row
            self._heard(key, row)
