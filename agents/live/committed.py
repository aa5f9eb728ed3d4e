"""What a group has committed, asked by a consumer of its id that never joins it.

An admin client could be asked the same. But where the broker answers that it does not coordinate the group, as one does
that starts or has just handed it on, librdkafka (2.16, its issue 5315) ends the process of an admin client: it wants to
note that in the group that only a consumer has.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

_STABLE_SECONDS = 1.0  # an offset that is not told within this is withheld,
_SLOWER = 3  # or within so many times what an answer takes that nothing withholds


class GroupOffsets:
    """Asks for the offsets of `group`, by a client that is kept while it is answered.

    `stable`: offsets that an open transaction moves are waited for. For one thread.
    """

    def __init__(self, settings: Mapping[str, Any], group: str, *, stable: bool = False) -> None:
        isolation = "read_committed" if stable else "read_uncommitted"
        self._settings = {
            **settings, "group.id": group, "isolation.level": isolation, "enable.auto.commit": False,
        }  # fmt: skip
        self._client: Any = None

    def once(self, topic: str, partitions: Sequence[int], seconds: float) -> dict[int, int]:
        """The offset of each partition, below 0 where there is none. Raises `KafkaException` where nobody says."""
        client = self._client = self._client or Consumer(self._settings, logger=log)
        try:
            places = client.committed([TopicPartition(topic, partition) for partition in partitions], timeout=seconds)
        except KafkaException:
            self.close()
            raise
        for place in places:
            if place.error is not None:
                raise KafkaException(place.error)
        return {place.partition: place.offset for place in places}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class Withheld:
    """Finds the partitions whose offsets of `group` the broker withholds, as a transaction that moves them is open."""

    def __init__(self, settings: Mapping[str, Any], group: str) -> None:
        self._plain = GroupOffsets(settings, group)
        self._stable = GroupOffsets(settings, group, stable=True)

    def once(self, topic: str, partitions: Sequence[int], seconds: float) -> list[int]:
        """Look at `partitions`. Raises `KafkaException` where nobody answers within `seconds`.

        librdkafka does not tell which offset is withheld: it asks again until its time is over. So each is asked for
        by itself then, and what takes much longer than an answer does is taken for withheld.
        """
        began = time.monotonic()
        self._plain.once(topic, partitions, seconds)
        within = max(_STABLE_SECONDS, _SLOWER * (time.monotonic() - began))
        if self._told(topic, partitions, within):
            return []
        return [partition for partition in partitions if not self._told(topic, [partition], within)]

    def _told(self, topic: str, partitions: Sequence[int], within: float) -> bool:
        try:
            self._stable.once(topic, partitions, within)
        except KafkaException as error:
            cause = error.args[0]
            if cause.code() not in {KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT}:  # noqa: SLF001
                raise
            return False
        return True

    def close(self) -> None:
        self._plain.close()
        self._stable.close()
