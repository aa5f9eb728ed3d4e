"""How many queries have come to a pipeline: by the offsets of its ingress, whoever takes them, if anybody does."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, TopicPartition

from spillway.producers.cluster import Reader
from spillway.topology import topics

if TYPE_CHECKING:
    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

_LATEST: Final = -1  # the protocol's timestamp of a partition's end
_SECONDS: Final = 1.0  # for an answer


class Ingress:
    """Counts without reading. For one thread."""

    def __init__(self, settings: ClientSettings, pipeline: str, partitions: int) -> None:
        self._topic = topics.ingress(pipeline)
        self._partitions = partitions
        self._reader = Reader(settings, {"isolation.level": "read_uncommitted"})

    def total(self) -> int | None:
        """All queries so far, of which each append is one; None while the cluster does not say."""
        ends = self._offsets(_LATEST)
        return None if ends is None else sum(ends)

    def history(self, seconds: int) -> list[tuple[float, int]]:
        """(age in seconds, total then) for each of the last `seconds`, oldest first; nothing where it is not known.

        What came in a second is by the broker's times of appending; when that was, by our clock, which may be off. What
        the broker has beyond would seem to have come at once, so it counts as having come before all this.
        """
        now, ends = time.time(), self._offsets(_LATEST)
        found = []
        for age in range(seconds, 0, -1):
            then = self._offsets(int(1000 * (now - age)))
            if ends is None or then is None:
                return []
            found.append((float(age), sum(end if at < 0 else at for at, end in zip(then, ends, strict=True))))
        beyond = sum(ends) - found[-1][1] if ends is not None and found else 0
        return [(age, total + beyond) for age, total in found]

    def close(self) -> None:
        self._reader.close()

    def _offsets(self, timestamp: int) -> list[int] | None:
        """Of each partition, the first offset appended at this time (unix milliseconds) or later; below 0: none."""
        asked = [TopicPartition(self._topic, number, timestamp) for number in range(self._partitions)]
        try:
            answers: list[Any] = self._reader.consumer.offsets_for_times(asked, timeout=_SECONDS)
        except KafkaException as error:
            log.debug("%s: %s", self._topic, error)
            self._reader.unanswered()
            return None
        if any(each.error is not None for each in answers) or (
            timestamp == _LATEST and min(each.offset for each in answers) < 0
        ):
            return None
        self._reader.answered()
        return [each.offset for each in answers]
