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
   recognized there (`memory`).
4. Where only outputs hang, it is made to stand: either the offsets have gone past them, or they are recognized.

By 3 and 4 it is the same whether the transaction was meant to stand or to fall, and which partitions were told.
"""

from __future__ import annotations

import logging
import time
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


class Hang(NamedTuple):
    """A partition of an output that shows nothing from offset `stable` on, or one of the input's (-1): its offset."""

    topic: str
    partition: int
    stable: int


class Mender:
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
        # New ones: what saw the group's coordinator go may wait for it for good
        # (`spillway.agents.live.gate.transaction`).
        withheld = Withheld(self._settings, self._group)
        try:
            sight = _Sight(Admin(self._settings), withheld, self._outcomes, self._outputs)
            self._mend(sight, writer, time.monotonic() + within)
        finally:
            withheld.close()

    def _mend(self, sight: _Sight, writer: TransactionalWriter, until: float) -> None:
        while hanging := sight.persisting():
            places = ", ".join(f"{hang.topic}[{hang.partition}]" for hang in sorted(hanging))
            if time.monotonic() >= until:
                log.error(
                    "a transaction of another producer hangs in %s: find and abort it with kafka-transactions.sh",
                    places,
                )
                return
            log.warning("a finished transaction of this gate still hangs in %s; ending it", places)
            try:
                self._end(hanging, writer, max(until - time.monotonic(), _SURE_SECONDS))
            except (AbortedError, SilentError) as error:
                log.warning("%s; checking again", error)
                if isinstance(error, SilentError):
                    writer.open(max(until - time.monotonic(), _SURE_SECONDS))

    def _end(self, hanging: frozenset[Hang], writer: TransactionalWriter, within: float) -> None:
        empty = b""  # no request's, so nobody takes it for an outcome
        records = [Record(hang.topic, hang.partition, None, empty) for hang in hanging if hang.topic != self._outcomes]
        withheld = [TopicPartition(hang.topic, hang.partition, 0) for hang in hanging if hang.topic == self._outcomes]
        if not withheld:
            writer.write(Turn(records), None, within)
            return
        # A consumer that is no member: the group may have none yet, and what is withdrawn binds nobody.
        stranger = Consumer({**self._settings, "group.id": self._group}, logger=log)
        try:
            writer.withdraw(Turn(records, withheld), stranger.consumer_group_metadata(), within)
        finally:
            stranger.close()


class _Sight:
    """What hangs, by the cluster's answers."""

    def __init__(self, admin: Admin, withheld: Withheld, outcomes: str, outputs: Sequence[str]) -> None:
        self._admin = admin
        self._offsets = withheld
        self._outcomes = outcomes
        self._outputs = outputs

    def persisting(self) -> frozenset[Hang]:
        hanging = self._look()
        sure = time.monotonic() + _SURE_SECONDS
        while hanging and time.monotonic() < sure:
            time.sleep(_PAUSE_SECONDS)
            hanging &= self._look()
        return hanging

    def _look(self) -> frozenset[Hang]:
        return self._withheld().union(*(self._open(topic) for topic in self._outputs))

    def _open(self, topic: str) -> frozenset[Hang]:
        partitions = self._partitions(topic)
        written = self._ends(topic, partitions, IsolationLevel.READ_UNCOMMITTED)
        stable = self._ends(topic, partitions, IsolationLevel.READ_COMMITTED)  # after it: none of a gate at work lags
        return frozenset(Hang(topic, n, stable[n]) for n in partitions if stable[n] < written[n])

    def _ends(self, topic: str, partitions: Sequence[int], isolation: IsolationLevel) -> dict[int, int]:
        return offsets(self._admin, topic, partitions, OffsetSpec.latest(), isolation, _ASK_SECONDS)

    def _withheld(self) -> frozenset[Hang]:
        topic = self._outcomes
        partitions = self._partitions(topic)
        found = patiently(
            lambda seconds: self._offsets.once(topic, partitions, seconds), "see its group's offsets", _ASK_SECONDS
        )
        return frozenset(Hang(topic, partition, -1) for partition in found)

    def _partitions(self, topic: str) -> list[int]:
        def question(client: AdminClient) -> list[int]:
            listed = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
            if listed.error is not None:  # as a broker that starts says of one that it has not read yet
                raise unanswered()
            return sorted(listed.partitions)

        return self._admin.ask(question, f"list the partitions of {topic}", _ASK_SECONDS)
