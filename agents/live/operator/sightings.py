"""Where the records of one query lie, searched for on its pipeline's topics.

A query keeps its partition along its whole way. Its id, or its key, says which that is; as it may have a key that is
not known here, the other partitions are searched after that one. Each is read from the query's own time on, for
`SECONDS` of records at most: so a search takes as long as a minute's traffic does, whatever the topics hold. First the
egress alone, as nearly every query that is asked about has an outcome.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from spillway.agents.live.committed import GroupOffsets
from spillway.agents.live.groups import group_id, member_label
from spillway.agents.live.operator.histories import read_histories
from spillway.agents.live.operator.inspection import Search, Sighting
from spillway.agents.live.operator.partitions import PATIENCE, Partitions
from spillway.lineage import headers as wire
from spillway.lineage.errors import BrokerError, UsageError, WireError
from spillway.lineage.ids import made_at
from spillway.lineage.keys import partition_for
from spillway.lineage.metric_names import GATE
from spillway.lineage.values.codec import Decoder
from spillway.producers.cluster import Reader
from spillway.producers.header_pairs import header_pairs
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spillway.lineage.marks import Mark
    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

SECONDS: Final = 60.0  # of records, from the query's own time on
_EARLIER: Final = 5.0  # before it: clocks differ
_ASK_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class _Hit:
    """A record of the query."""

    message: Any
    headers: wire.Headers


def search(
    settings: ClientSettings, spec: PipelineSpec, request_id: str, *, at: float | None = None, key: str | None = None
) -> Search:
    """Find a query's outcome, or where it was seen last. `at`: unix seconds from which to read, if not the id's own.

    Raises UsageError for an id of a foreign client without `at` or `key`; BrokerError, TopicError.
    """
    since = made_at(request_id) if at is None else at
    if since is None and key is None:
        raise UsageError(
            f"the id {request_id} was not made by a client of Spillway, so it does not say when its query was sent: "
            "give --at TIME (from which a minute of records is searched) or --key TEXT (the query's key)"
        )
    return _Searching(settings, spec, request_id, since, key).run()


class _Searching:
    def __init__(
        self, settings: ClientSettings, spec: PipelineSpec, request_id: str, since: float | None, key: str | None
    ) -> None:
        self._settings = settings
        self._spec = spec
        self._id = request_id
        self._since = since
        self._key = key
        with closing(Reader(settings, {})) as reader:
            self._count = reader.partitions(topics.egress(spec.name), PATIENCE)
        self._own = partition_for((key or request_id).encode(), self._count)
        self._schemas = SchemaLog(settings, spec.name, timeout=PATIENCE)

    def run(self) -> Search:
        egress = topics.egress(self._spec.name)
        readers = self._readers()
        others = [number for number in range(self._count) if number != self._own] if self._key is None else []
        passes = [([egress], [self._own]), (list(readers), [self._own]), ([egress, *readers], others)]
        for names, numbers in passes:
            hits = self._scan([(name, number) for name in names for number in numbers])
            if hits:
                break
        released = next((hit for hit in hits if hit.message.topic() == egress), None)
        found = Search(self._id, self._since, SECONDS, self._own, [])
        if released is not None:
            return replace(found, seen=[self._sighting(released)], outcome=self._outcome(released))
        return replace(
            found,
            seen=[self._sighting(hit, readers[hit.message.topic()]) for hit in hits],
            waits_for=self._fates([hit for hit in hits if hit.message.topic() == topics.outcomes(self._spec.name)]),
            oldest=None if hits else self._oldest((egress, self._own)),
        )

    def _readers(self) -> dict[str, list[str]]:
        """Who reads each topic that a query passes, in the order of its way."""
        name = self._spec.name
        roots = [stage.name for stage in self._spec.stages if not stage.after]
        inner = {topics.stage_input(name, stage.name): [stage.name] for stage in self._spec.stages if stage.after}
        return {topics.ingress(name): roots, **inner, topics.outcomes(name): [GATE]}

    def _scan(self, slots: Sequence[tuple[str, int]]) -> list[_Hit]:
        """The query's records on some partitions, in the time that is searched; up to the first on the egress."""
        egress, hits = topics.egress(self._spec.name), []
        if not slots:
            return []
        wanted = self._id.encode()
        start = None if self._since is None else self._since - _EARLIER
        with Partitions(self._settings, slots, since=start) as reading:
            for message in reading.to_the_end():
                if self._since is not None and message.timestamp()[1] > (self._since + SECONDS) * 1000:
                    reading.leave((message.topic(), message.partition()))
                    continue
                pairs = header_pairs(message)
                # Nearly every record has its id first, as our own encoder puts it.
                if not pairs or (pairs[0][0] == wire.REQUEST_ID and pairs[0][1] != wanted):
                    continue
                if wire.identify(pairs) == self._id:
                    hits.append(_Hit(message, self._headers(message, pairs)))
                    if message.topic() == egress:
                        return hits
        return hits

    def _headers(self, message: Any, pairs: Iterable[tuple[str, bytes | None]]) -> wire.Headers:
        appended_us = max(0, message.timestamp()[1] * 1000)
        try:
            return wire.decode(pairs, appended_us=appended_us, slo_us=int(self._spec.slo * 1e6))
        except WireError:
            return wire.Headers(self._id, appended_us, appended_us)

    def _sighting(self, hit: _Hit, readers: Sequence[str] = ()) -> Sighting:
        message = hit.message
        return Sighting(
            message.topic(),
            message.partition(),
            message.offset(),
            message.timestamp()[1] / 1000,
            hit.headers,
            message.key(),
            {reader: self._is_done(reader, message) for reader in readers},
        )

    def _is_done(self, reader: str, message: Any) -> bool | None:
        """Whether a stage, or the gate, has committed beyond a record; None where nobody says."""
        labels = [reader]
        if reader != GATE and (stage := self._spec.stage(reader)).stateful:
            labels = [member_label(stage, replica) for replica in range(stage.processes)]
        told = []
        for label in labels:
            group = GroupOffsets(self._settings.confluent(), group_id(self._spec.name, label))
            with closing(group):
                try:
                    offsets = group.once(message.topic(), [message.partition()], _ASK_SECONDS)
                except KafkaException:
                    continue
            told.append(offsets[message.partition()])
        return max(told) > message.offset() if told else None

    def _outcome(self, hit: _Hit) -> Outcome:
        self._schemas.relearn()
        try:
            outcome = Decoder(self._spec.limits.merged(), self._schemas.book).released(hit.message.value() or b"")
        except WireError as error:
            raise BrokerError(f"the outcome of {self._id} is on the egress, but cannot be read: {error}") from error
        outcome.request_id = self._id
        return outcome

    def _fates(self, hits: Sequence[_Hit]) -> dict[Mark, str]:
        """What has become of the versions that reports at the gate rest on."""
        marks = {mark for hit in hits if hit.headers.hop is not None for mark in hit.headers.hop.marks}
        if not marks:
            return {}
        logs = read_histories(self._settings, self._spec).logs
        return {mark: logs.fate(mark).value for mark in marks}

    def _oldest(self, slot: tuple[str, int]) -> float | None:
        """When the first record that a partition still has was written; None where it has none."""
        with Partitions(self._settings, [slot]) as reading:
            first = next(reading.to_the_end(), None)
        return None if first is None else first.timestamp()[1] / 1000
