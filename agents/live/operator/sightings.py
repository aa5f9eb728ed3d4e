"""Where the records of one query lie, searched for on its pipeline's topics.

A query keeps its partition along its whole way. Its id, or its key, says which that is; as it may have a key that is
not known here, the other partitions are searched after that one. Each is read from the query's own time on, for
`SECONDS` of records at most: so a search takes as long as a minute's traffic does, whatever the topics hold. First the
egress alone, as nearly every query that is asked about has an outcome.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException

from spillway.agents.live.committed import GroupOffsets
from spillway.agents.live.groups import group_id, member_label
from spillway.agents.live.operator.histories import read_histories
from spillway.agents.live.operator.inspection import Search, Sighting
from spillway.lineage import headers as wire
from spillway.lineage.errors import BrokerError, UsageError, WireError
from spillway.lineage.ids import made_at
from spillway.lineage.keys import partition_for
from spillway.lineage.metric_names import GATE
from spillway.lineage.values.codec import Decoder
from spillway.producers.kafka.reading import Reading, slots_of
from spillway.producers.schema_log import known_schemas
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.lineage.message import Outcome
    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

SECONDS: Final = 60.0  # of records, from the query's own time on
_EARLIER: Final = 5.0  # before it: clocks differ
_ASK_SECONDS: Final = 10.0


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
            "give the time from which to search a minute of records (--at, or at= by HTTP) or its key (--key, key=)"
        )
    count = len(slots_of(settings, topics.egress(spec.name)))
    own = partition_for((key or request_id).encode(), count)
    others = [number for number in range(count) if number != own] if key is None else []
    return _Searching(settings, spec, Search(request_id, since, SECONDS, own)).run(others)


class _Searching:
    def __init__(self, settings: ClientSettings, spec: PipelineSpec, search: Search) -> None:
        self._settings = settings
        self._spec = spec
        self._search = search
        self._egress = topics.egress(spec.name)

    def run(self, others: Sequence[int]) -> Search:
        name, own = self._spec.name, self._search.partition
        roots = [stage.name for stage in self._spec.stages if not stage.after]
        inner = {topics.stage_input(name, stage.name): [stage.name] for stage in self._spec.stages if stage.after}
        readers = {topics.ingress(name): roots, **inner, topics.outcomes(name): [GATE]}
        for names, numbers in (([self._egress], [own]), (readers, [own]), ([self._egress, *readers], others)):
            seen = self._scan([(topic, number) for topic in names for number in numbers])
            if seen:
                break
        else:
            return replace(self._search, oldest=self._oldest())
        if seen[-1].topic == self._egress:
            return replace(self._search, seen=seen[-1:], outcome=self._outcome(seen[-1]))
        seen = [
            replace(each, done={reader: self._is_done(reader, each) for reader in readers[each.topic]}) for each in seen
        ]
        return replace(self._search, seen=seen, waits_for=self._fates(seen))

    def _scan(self, slots: Sequence[tuple[str, int]]) -> list[Sighting]:
        """The query's records on some partitions, in the time that is searched; one on the egress is the last."""
        wanted, since = self._search.request_id, self._search.since
        seen: list[Sighting] = []
        if not slots:
            return seen
        with Reading(self._settings, slots, since=None if since is None else since - _EARLIER) as reading:
            for record in reading.to_the_end():
                if since is not None and record.timestamp > (since + SECONDS) * 1000:
                    reading.leave((record.topic, record.partition))
                    continue
                pairs = record.headers
                # Nearly every record has its id first, as our own encoder puts it.
                if not pairs or (pairs[0][0] == wire.REQUEST_ID and pairs[0][1] != wanted.encode()):
                    continue
                if wire.identify(pairs) == wanted:
                    seen.append(self._sighting(record))
                    if record.topic == self._egress:
                        break
        return seen

    def _sighting(self, record: Record) -> Sighting:
        at = record.timestamp
        try:
            headers = wire.decode(record.headers, appended_us=max(0, at * 1000), slo_us=int(self._spec.slo * 1e6))
        except WireError:
            headers = wire.Headers(self._search.request_id, max(0, at * 1000), max(0, at * 1000))
        place = record.topic, record.partition, record.offset
        return Sighting(*place, at / 1000, headers, record.key, record.value)

    def _is_done(self, reader: str, sighting: Sighting) -> bool | None:
        """Whether a stage, or the gate, has committed beyond a record; None where nobody says."""
        labels = [reader]
        if reader != GATE and (stage := self._spec.stage(reader)).stateful:
            labels = [member_label(stage, replica) for replica in range(stage.processes)]
        told: list[int] = []
        for label in labels:
            with closing(GroupOffsets(self._settings.confluent(), group_id(self._spec.name, label))) as group:
                try:
                    told += group.once(sighting.topic, [sighting.partition], _ASK_SECONDS).values()
                except KafkaException:
                    continue
        return max(told) > sighting.offset if told else None

    def _outcome(self, sighting: Sighting) -> Outcome:
        schemas = known_schemas(self._settings, self._spec.name)
        try:
            return Decoder(self._spec.limits.merged(), schemas).released(sighting.value or b"")
        except WireError as error:
            raise BrokerError(f"the query's outcome is on the egress, but cannot be read: {error}") from error

    def _fates(self, seen: Sequence[Sighting]) -> dict[str, str]:
        """What has become of the versions that reports at the gate rest on."""
        at_gate = [each for each in seen if each.topic == topics.outcomes(self._spec.name)]
        marks = {mark for each in at_gate if each.headers.hop is not None for mark in each.headers.hop.marks}
        logs = read_histories(self._settings, self._spec).logs if marks else None
        return {str(mark): logs.fate(mark).value for mark in marks} if logs is not None else {}

    def _oldest(self) -> float | None:
        """When the oldest outcome that the partition still has was written; None where it has none."""
        with Reading(self._settings, [(self._egress, self._search.partition)]) as reading:
            first = next(reading.to_the_end(), None)
        return None if first is None else first.timestamp / 1000
