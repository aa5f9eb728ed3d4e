"""Draining what aiokafka has fetched, in lists, without ever being stopped by a record that it cannot parse.

Runs on the consumer's own thread and loop. It replaces `Fetcher.fetched_records`, which loses the records of the
partitions it has already drained when the next partition raises.
"""
# ruff: noqa: SLF001 - faust and aiokafka have no public way to do what this replaces; their versions are pinned

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.errors import ConsumerStoppedError, CorruptRecordException, OffsetOutOfRangeError

from agents.live.consumer.lenient_records import salvage

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import ConsumerRecord

log = logging.getLogger(__name__)

Drained = dict[TopicPartition, list["ConsumerRecord"]]


class KeepingClient:
    """The consumer's network client, remembering the bytes of the last fetch of each partition.

    They are needed only when a batch in them cannot be parsed; until its next fetch, each partition keeps one.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.fetched: dict[TopicPartition, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node_id: int, request: Any, **options: Any) -> Any:
        response = await self._client.send(node_id, request, **options)
        if type(request).__name__.startswith("FetchRequest"):
            for topic, partitions in response.topics:
                for partition, *rest in partitions:
                    self.fetched[TopicPartition(topic, partition)] = rest[-1]
        return response


class Drain:
    """Takes whatever is fetched for the assigned partitions, waiting up to a timeout for the first of it."""

    def __init__(
        self, consumer: AIOKafkaConsumer, max_records: int, out_of_range: Callable[[TopicPartition, int], object]
    ) -> None:
        """`out_of_range` hears of a partition whose log does not have the position, and seeks or stops it."""
        self._consumer = consumer
        self._fetcher = consumer._fetcher
        self._client = KeepingClient(self._fetcher._client)
        self._fetcher._client = self._client
        self._max_records = max_records
        self._out_of_range = out_of_range
        self._told: dict[TopicPartition, Any] = {}  # the errors that were told of last

    async def take(self, active: Callable[[], frozenset[TopicPartition]], within: float) -> Drained:
        """Return records by partition; empty after `within` seconds without any, or when nothing is active.

        `active` is asked again each time before anything is taken, with no await in between: a caller that closes the
        flow can rely on it that nothing moves a position afterwards.
        """
        fetcher = self._fetcher
        if self._consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        with fetcher._subscriptions.fetch_context():
            drained = self._take_ready(active())
            if drained or not active():
                return drained
            waiter = fetcher._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=within)
            if not done:
                waiter.cancel()
                return {}
            waiter.result()  # a fatal error of the coordinator surfaces here
            return self._take_ready(active())

    def _take_ready(self, active: frozenset[TopicPartition]) -> Drained:
        fetcher = self._fetcher
        if fetcher._subscriptions.reassignment_in_progress:
            return {}
        drained: Drained = {}
        room = self._max_records
        for tp in list(fetcher._records):
            if tp not in active:
                if not fetcher._subscriptions.is_assigned(tp):
                    del fetcher._records[tp]
                continue
            records = self._take_partition(tp, room)
            if records:
                drained[tp] = records
                room -= len(records)
                if room <= 0:
                    break
        return drained

    def _take_partition(self, tp: TopicPartition, room: int) -> list[ConsumerRecord]:
        fetcher = self._fetcher
        fetched = fetcher._records[tp]
        if type(fetched) is not FetchResult:
            if isinstance(fetched._error, OffsetOutOfRangeError):
                self._tell(tp, fetched)
                return []
            self._release(tp)
            fetched.check_raise()
        try:
            records: list[ConsumerRecord] = fetched.getall(room)
        except (CorruptRecordException, UnicodeDecodeError) as error:
            self._release(tp)
            return self._salvage(tp, fetched, error)
        if not fetched.has_more():
            self._release(tp)
        return records

    def _tell(self, tp: TopicPartition, failed: Any) -> None:
        """Tell of a position out of range, once; what was fetched stays, so that nothing is fetched before a seek."""
        if self._told.get(tp) is not failed:
            self._told[tp] = failed
            self._out_of_range(tp, failed._error.args[0][tp])

    def _release(self, tp: TopicPartition) -> None:
        del self._fetcher._records[tp]
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def _salvage(self, tp: TopicPartition, fetched: FetchResult, error: Exception) -> list[ConsumerRecord]:
        state = fetched._assignment.state_value(tp)
        raw = self._client.fetched.get(tp)
        if state is None or raw is None or "Invalid CRC" in str(error):
            log.error("%s: a fetch arrived damaged and is read again: %s", tp, error)
            return []
        records, next_offset = salvage(tp, bytes(raw), state.position)
        log.warning("%s: offsets %d to %d were read leniently: %s", tp, state.position, next_offset - 1, error)
        state.consumed_to(next_offset)
        return records
