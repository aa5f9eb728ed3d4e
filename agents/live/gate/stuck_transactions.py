"""Transactions that are over, of which some partitions were never told: they are found, and ended.

A broker that knows no leader for a partition when a transaction ends may take the partition for deleted and leave it
out (KAFKA-20734, in 4.3 at least; a cluster of one that stops knows none). The producer hears that all went well. But
what it wrote there is never seen, nor is anything behind it, and the offsets that it committed are withheld: whoever
reads waits for good. Kafka calls such a transaction hanging (KIP-664).

1. A gate that has its transactional id and no transaction under way has nothing open. If a partition that it writes, or
   its group's offsets, show an open transaction all the same, that one hangs, or is another gate's and ends soon.
2. The producer behind the id is the same, so the end of its next transaction in such a partition is the end of what
   hangs there. Nobody has seen any of that yet.
3. Where offsets hang, it is made to fall. Then the inputs are taken again, and what stands in other partitions is
   recognized there (`spillway.agents.run.gate_memory`).
4. Where only outputs hang, it is made to stand: either the offsets have gone past them, or they are recognized.

By 3 and 4 it is the same whether the transaction was meant to stand or to fall, and which partitions were told.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from spillway.agents.live.admin import ANSWER_SECONDS, Admin
from spillway.agents.live.committed import Withheld
from spillway.agents.live.gate.transaction import Record, Turn
from spillway.agents.live.spans import offsets
from spillway.lineage.errors import AbortedError, SilentError
from spillway.producers.patience import patiently, unanswered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka.admin import AdminClient

    from spillway.agents.live.gate.transaction import TransactionalWriter

log = logging.getLogger(__name__)

_SURE_SECONDS = 1.0  # another gate's transaction is over in less
_PAUSE_SECONDS = 0.1
_ASK_SECONDS = 30.0  # a broker that starts answers before
_WAY_OUT = "find and abort it with kafka-transactions.sh (docs/failover.md, 'A transaction that hangs')"


class StuckPartition(NamedTuple):
    """A partition of an output that shows nothing from offset `stable` on, or one of the input's (-1): its offset."""

    topic: str
    partition: int
    stable: int


class StuckTransactions:
    """Ends what hangs of a gate: in `outputs`, which it writes, and in its group's offsets of `outcomes`."""

    def __init__(self, settings: Mapping[str, Any], *, group: str, outcomes: str, outputs: Sequence[str]) -> None:
        self._settings = settings
        self._group = group
        self._outcomes = outcomes
        self._outputs = tuple(outputs)

    def mend(self, writer: TransactionalWriter, within: float) -> None:
        """End what hangs, by `writer`, which has its id and no transaction under way.

        What hangs after `within` seconds is another's, and said in the log. Raises `FencedError` where the id is lost,
        `BrokerError` where nobody answers.
        """
        until = time.monotonic() + within
        # New ones: what saw the group's coordinator go may wait for it for good
        # (`spillway.agents.live.gate.transaction`).
        admin = Admin(self._settings)
        with closing(Withheld(self._settings, self._group)) as offsets_of_group:
            while hanging := self._persisting(admin, offsets_of_group):
                places = ", ".join(f"{hang.topic}[{hang.partition}]" for hang in sorted(hanging))
                if time.monotonic() >= until:
                    log.error("a transaction of another producer hangs in %s; %s", places, _WAY_OUT)
                    return
                log.warning("a finished transaction of this gate still hangs in %s; ending it", places)
                self._end(hanging, writer, max(until - time.monotonic(), _SURE_SECONDS))

    def _end(self, hanging: frozenset[StuckPartition], writer: TransactionalWriter, within: float) -> None:
        """End it, or leave it as it is: whoever calls looks again."""
        empty = b""  # no request's, so nobody takes it for an outcome
        records = [Record(hang.topic, hang.partition, None, empty) for hang in hanging if hang.topic != self._outcomes]
        withheld = [TopicPartition(hang.topic, hang.partition, 0) for hang in hanging if hang.topic == self._outcomes]
        # A consumer that is no member: the group may have none yet, and what is withdrawn binds nobody.
        stranger = Consumer({**self._settings, "group.id": self._group}, logger=log)
        try:
            if withheld:
                writer.write(Turn(records, withheld), stranger.consumer_group_metadata(), within, stand=False)
            else:
                writer.write(Turn(records), None, within)
        except AbortedError as error:
            log.warning("%s; checking again", error)
        except SilentError as error:
            log.warning("%s; checking again", error)
            writer.open(within)
        finally:
            stranger.close()

    def _persisting(self, admin: Admin, offsets_of_group: Withheld) -> frozenset[StuckPartition]:
        """Return what hangs for longer than a gate at work takes to end a transaction."""
        hanging = self._look(admin, offsets_of_group)
        sure = time.monotonic() + _SURE_SECONDS
        while hanging and time.monotonic() < sure:
            time.sleep(_PAUSE_SECONDS)
            hanging &= self._look(admin, offsets_of_group)
        return hanging

    def _look(self, admin: Admin, offsets_of_group: Withheld) -> frozenset[StuckPartition]:
        partitions = _partitions(admin, self._outcomes)
        withheld = patiently(
            lambda seconds: offsets_of_group.once(self._outcomes, partitions, seconds),
            "see its group's offsets",
            _ASK_SECONDS,
        )
        found = {StuckPartition(self._outcomes, partition, -1) for partition in withheld}
        return frozenset(found.union(*(_open(admin, topic) for topic in self._outputs)))


def _open(admin: Admin, topic: str) -> set[StuckPartition]:
    either, committed = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
    partitions = _partitions(admin, topic)
    written = offsets(admin, topic, partitions, OffsetSpec.latest(), either, _ASK_SECONDS)
    stable = offsets(admin, topic, partitions, OffsetSpec.latest(), committed, _ASK_SECONDS)  # after it: none lags
    return {
        StuckPartition(topic, partition, stable[partition])
        for partition in partitions
        if stable[partition] < written[partition]
    }


def _partitions(admin: Admin, topic: str) -> list[int]:
    def question(client: AdminClient) -> list[int]:
        listed = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
        if listed.error is not None:  # as a broker that starts says of one that it has not read yet
            raise unanswered()
        return sorted(listed.partitions)

    return admin.ask(question, f"list the partitions of {topic}", _ASK_SECONDS)
