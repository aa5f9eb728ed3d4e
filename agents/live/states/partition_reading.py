"""A consumer of its own that reads given partitions from the beginning, in no group, through broker restarts.

Records come as soon as the broker has them (`poll` returns with the first; the rest of what was fetched comes with it),
ends are asked for, and errors that time heals are waited out. Not for use from several threads.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from spillway.lineage.errors import BrokerError, CheckpointError
from spillway.producers.cluster import Reader
from spillway.producers.patience import AnswerTime, passes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.producers.connection import ClientSettings

log = logging.getLogger(__name__)

Slot = tuple[str, int]  # a topic and a partition of it
AT_ONCE: Final = 500
PROPERTIES: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,  # says how far reading has come where the last offsets hold no records
    "auto.offset.reset": "error",  # a log never ends before where it was read to
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,  # the broker answers as soon as there is a record; this is for when there is none
    "fetch.error.backoff.ms": 50,
    "fetch.queue.backoff.ms": 5,
    "queued.max.messages.kbytes": 65_536,
    "socket.nagle.disable": True,
    "check.crcs": True,
}
# A broker that has just started does not know its topics yet; those of a pipeline are there before its members start.
_NOT_YET: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - librdkafka's own codes
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)


class PartitionReading:
    """Reads partitions, each from its beginning, or from where `start` says."""

    def __init__(
        self,
        settings: ClientSettings,
        slots: Iterable[Slot],
        properties: Mapping[str, Any],
        start: int = OFFSET_BEGINNING,
    ) -> None:
        self._bootstrap = settings.bootstrap
        self._reader = Reader(settings, {**PROPERTIES, **properties})
        self._slots = tuple(slots)
        self._start = start
        self._given = AnswerTime()
        for topic in dict.fromkeys(topic for topic, _ in self._slots):
            self._refresh(topic)  # librdkafka looks for the start of a partition of unknown leader half a second later
        self.rewind()

    @property
    def consumer(self) -> Any:
        """librdkafka's, which is another one once it did not hear the cluster for long."""
        return self._reader.consumer

    def rewind(self) -> None:
        self._reader.assign([TopicPartition(topic, partition, self._start) for topic, partition in self._slots])

    def poll(self, seconds: float, at_once: int = AT_ONCE) -> tuple[list[Any], dict[Slot, int]]:
        """The records that are there, waiting for the first; and up to which offset the partitions were read.

        Raises BrokerError for what time does not heal, CheckpointError where a log ends before where it was read to.
        """
        records, positions = [], {}
        for message in self._reader.read(seconds, at_once):
            slot = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                records.append(message)
                positions[slot] = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes
                positions[slot] = message.offset()
            else:
                self._judge(error, slot)
        return records, positions

    def end(self, slot: Slot) -> int | None:
        """Where a partition ends now; None while the broker does not say. Nothing is read meanwhile."""
        asked_at = time.monotonic()
        answer = self._watermarks(slot)
        if answer is None:
            self._reader.unanswered()
            return None
        self._given.answered(time.monotonic() - asked_at)
        self._reader.answered()
        return int(answer[1])

    def heed(self, quiet: float, within: float) -> None:
        """For who asks for no ends: look whether the cluster still answers (`spillway.producers.cluster.Reader`)."""
        self._reader.heed(quiet, within)

    def close(self) -> None:
        self._reader.close()

    def _watermarks(self, slot: Slot) -> Any:
        try:
            answer = self.consumer.get_watermark_offsets(TopicPartition(*slot), timeout=self._given.seconds)
        except KafkaException as error:
            cause = error.args[0]
            if not _heals(cause):
                raise BrokerError(f"cannot ask where {slot[0]}[{slot[1]}] ends: {cause.str()}") from error
            if cause.code() == KafkaError._TIMED_OUT:  # noqa: SLF001
                self._given.late()
            self._refresh(slot[0])
            return None
        if answer is None:
            self._given.late()
        return answer

    def _refresh(self, topic: str) -> None:
        try:
            self.consumer.list_topics(topic, timeout=self._given.seconds)
        except KafkaException as error:
            log.debug("no metadata of %s: %s", topic, error)

    def _judge(self, error: KafkaError, slot: Slot) -> None:
        place = f"{slot[0]}[{slot[1]}] on {self._bootstrap}"
        if error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:  # noqa: SLF001
            raise shortened(place)
        if error.code() == KafkaError._BAD_MSG:  # noqa: SLF001
            raise corrupt(f"{place} holds a batch with a wrong CRC: {error.str()}")
        if not _heals(error):
            raise BrokerError(f"cannot read {place}: {error.str()} ({error.name()})")
        log.debug("%s: %s", place, error)


def shortened(place: str) -> CheckpointError:
    return CheckpointError(
        f"{place} ends before the offset that was read: the topic was recreated, or a broker lost records; "
        "stop the pipeline, and compare the members' states before you serve it again"
    )


def corrupt(what: str) -> CheckpointError:
    return CheckpointError(
        f"{what}; make another replica of the partition its leader; if there is none, export the states "
        "('spillway state export') and import them under a new name of the pipeline"
    )


def _heals(error: KafkaError) -> bool:
    return passes(error) or error.code() in _NOT_YET
