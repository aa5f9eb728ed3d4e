"""What lies unread in the inputs of stages that a pipeline's file does not have any more: nobody answers these queries.

A stage's input and its consumer group have one name. What only looks like an input, as no group of ours reads it, is
left out.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from spillway.agents.live.admin import ANSWER_SECONDS, Admin
from spillway.agents.live.committed import GroupOffsets
from spillway.agents.live.spans import bounds
from spillway.producers.patience import patiently
from spillway.topology.names import RESERVED
from spillway.topology.topics import topic_plan

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

_WITHIN = 30.0


class Left(NamedTuple):
    """The input of a stage that left: the groups that read it, and how many records none of them has."""

    topic: str
    groups: list[str]
    unread: int

    def __str__(self) -> str:
        stage = self.topic.rpartition(".")[2]
        return (
            f"{self.unread} records wait in {self.topic} for stage {stage!r}, which the file does not have: their "
            "queries are not answered. Serve the file that has it until they are, or end them by 'spillway broker "
            "topics delete'"
        )


def left(settings: ClientSettings, spec: PipelineSpec) -> list[Left]:
    """Return the inputs of stages that the pipeline has no more. Raises BrokerError."""
    admin = Admin(settings.confluent())
    planned = {topic.name for topic in topic_plan(spec)} | {f"{spec.name}.{name}" for name in RESERVED}

    def inputs(client: AdminClient) -> dict[str, list[int]]:
        listed = client.list_topics(timeout=ANSWER_SECONDS).topics
        own = [name for name in listed if name.rpartition(".")[0] == spec.name and name not in planned]
        return {name: list(listed[name].partitions) for name in own}

    def groups(client: AdminClient) -> list[str]:
        listed = client.list_consumer_groups(request_timeout=ANSWER_SECONDS).result().valid
        return [group.group_id for group in listed]

    there = admin.ask(inputs, "list topics", _WITHIN)
    known = admin.ask(groups, "list consumer groups", _WITHIN) if there else []
    found = []
    for topic, partitions in there.items():
        readers = [group for group in known if f"{group}.".startswith(f"{topic}.")]  # a shard's members have some each
        if readers:
            places = [_committed(settings, group, topic, partitions) for group in readers]
            waiting = sum(
                max(0, span.end - max(span.start, *(each[partition] for each in places)))
                for partition, span in bounds(admin, topic, partitions, _WITHIN).items()
            )
            found.append(Left(topic, readers, waiting))
    return found


def _committed(settings: ClientSettings, group: str, topic: str, partitions: list[int]) -> dict[int, int]:
    with closing(GroupOffsets(settings.confluent(), group)) as asked:
        return patiently(lambda seconds: asked.once(topic, partitions, seconds), f"see offsets of {group}", _WITHIN)
