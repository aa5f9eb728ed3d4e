"""Which replica of a stage gets which partitions: the same ones every time.

aiokafka's assignors sort members by member id, which changes at every join, so that one replica's restart reshuffles
all partitions. Here members are told apart by their static instance id, which each sends along as its user data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aiokafka.cluster import ClusterMetadata

_VERSION = 0


class InstanceAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """Round-robin over the instances of a group, in the order of their instance ids.

    A group may leave partitions alone: a member of a shard is a group of its own, and reads the shard's.
    """

    name = "spillway-instances"

    def __init__(self, instance: str, reads: Callable[[int], bool] | None = None) -> None:
        self._instance = instance.encode()
        self._reads = reads

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), self._instance)

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        ordered = sorted(members, key=lambda member: (natural(bytes(members[member].user_data or b"")), member))
        shares: dict[str, dict[str, list[int]]] = {member: {} for member in members}
        for topic in sorted({topic for metadata in members.values() for topic in metadata.subscription}):
            readers = [member for member in ordered if topic in members[member].subscription]
            partitions = sorted(cluster.partitions_for_topic(topic) or ())
            wanted = partitions if self._reads is None else filter(self._reads, partitions)
            for index, partition in enumerate(wanted):
                shares[readers[index % len(readers)]].setdefault(topic, []).append(partition)
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, sorted(share.items()), b"")
            for member, share in shares.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Nothing to remember: an assignment follows from the members alone."""


def natural(instance: bytes) -> tuple[bytes, int]:
    """Order instance ids by their trailing replica number as a number: replica 10 comes after replica 2."""
    stem, _, number = instance.rpartition(b".")
    return (stem, int(number)) if number.isdigit() else (instance, -1)
