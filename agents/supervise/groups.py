"""What stages' consumer groups have committed, asked of the broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from agents.live.groups import group_id, replica_of
from agents.supervise.watchdog import GroupSight, PartitionSight
from lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from producers.connection import ClientSettings

log = logging.getLogger(__name__)
_SECONDS = 5.0


class KafkaGroups:
    """Looks at the groups of one pipeline's stages; `inputs` names each stage's input topic."""

    def __init__(self, settings: ClientSettings, pipeline: str, inputs: Mapping[str, str], partitions: int) -> None:
        self._admin = AdminClient(settings.confluent(), logger=log)
        self._pipeline = pipeline
        self._inputs = inputs
        self._partitions = range(partitions)

    def look(self, stages: Sequence[str]) -> dict[str, GroupSight]:
        """Every stage's group now. Raises `BrokerError` where the broker does not say."""
        try:
            owners = self._owners(stages)
            committed = {stage: self._committed(stage) for stage in stages}
            ends = self._offsets(stages, OffsetSpec.latest())
            begins = self._offsets(stages, OffsetSpec.earliest())
        except KafkaException as error:
            raise BrokerError(error.args[0].str()) from error
        return {
            stage: GroupSight(
                {
                    # A position that was never committed, or was deleted by retention, is the beginning.
                    p: PartitionSight(max(committed[stage].get(p, -1), begin), ends[stage, p], owners[stage].get(p))
                    for p in self._partitions
                    if (begin := begins[stage, p]) >= 0
                },
                frozenset(owners[stage].members),
            )
            for stage in stages
        }

    def _committed(self, stage: str) -> dict[int, int]:
        topic = self._inputs[stage]
        asked = ConsumerGroupTopicPartitions(
            group_id(self._pipeline, stage), [TopicPartition(topic, p) for p in self._partitions]
        )
        (future,) = self._admin.list_consumer_group_offsets([asked], request_timeout=_SECONDS).values()
        return {part.partition: part.offset for part in future.result().topic_partitions}

    def _offsets(self, stages: Sequence[str], spec: Any) -> dict[tuple[str, int], int]:
        asked = {TopicPartition(self._inputs[stage], p): spec for stage in stages for p in self._partitions}
        answers = self._admin.list_offsets(asked, request_timeout=_SECONDS)
        try:
            by_topic = {(part.topic, part.partition): future.result().offset for part, future in answers.items()}
        except KafkaException:
            # Else librdkafka asks with the leader epochs of before the broker's restart, for ever.
            self._admin.list_topics(timeout=_SECONDS)
            raise
        return {(stage, p): by_topic[self._inputs[stage], p] for stage in stages for p in self._partitions}

    def _owners(self, stages: Sequence[str]) -> dict[str, _Owners]:
        names = {group_id(self._pipeline, stage): stage for stage in stages}
        described = self._admin.describe_consumer_groups(list(names), request_timeout=_SECONDS)
        return {names[name]: _Owners(future.result().members) for name, future in described.items()}


class _Owners(dict[int, int]):
    """partition -> replica; `members` are the replicas in the group, with or without partitions."""

    def __init__(self, members: Sequence[Any]) -> None:
        super().__init__()
        self.members: set[int] = set()
        for member in members:
            replica = replica_of(member.group_instance_id)
            if replica is None:
                continue
            self.members.add(replica)
            if member.assignment is not None:
                self.update({part.partition: replica for part in member.assignment.topic_partitions})
