"""Which node of a cluster does what: leads a partition, coordinates a group or a transaction, controls them all."""

from __future__ import annotations

import os
import signal
import socket
import struct
from functools import reduce
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from spillway.agents.broker.settings import HOST
from tests.waiting import until

if TYPE_CHECKING:
    from spillway.agents.broker import EmbeddedCluster

_QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "socket.timeout.ms": 3000}
_DESCRIBE_QUORUM = 55
_SECONDS = 5.0
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


class ClusterBench:
    """A cluster, and what to ask it: for runs that strike its nodes."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.broker = cluster  # as of a bench of one broker: where its straight way is
        self.nodes = Nodes(cluster)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def mend(self) -> None:
        for node in self.cluster.nodes:
            if node.pid is None:
                node.start()
            else:
                os.kill(node.pid, signal.SIGCONT)
        until(self.nodes.whole, 60, "all replicas are in sync")


class Nodes:
    """Asks a cluster; nodes are told by their numbers, from 1 on. Everything is waited for within bounds."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **_QUIET})

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic as the cluster would have it, and wait until every partition has a leader."""
        self._admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)
        until(lambda: len(self._leaders(topic)) == partitions, 60, f"all of {topic} has leaders")

    def controller(self) -> int:
        """The node whose controller is active. A client's metadata do not say: there, any node stands for it."""
        return until(self._quorum_leader, 60, "a controller is active")

    def leader(self, topic: str, partition: int = 0) -> int:
        return until(lambda: self._leaders(topic).get(partition), 60, f"{topic}[{partition}] has a leader")

    def group_coordinator(self, group: str) -> int:
        return self.leader(GROUPS, self._slot(GROUPS, group))

    def transaction_coordinator(self, transactional_id: str) -> int:
        return self.leader(TRANSACTIONS, self._slot(TRANSACTIONS, transactional_id))

    def in_sync(self, topic: str, count: int) -> bool:
        found = self._partitions(topic)
        return bool(found) and all(len(partition.isrs) >= count for partition in found)

    def whole(self) -> bool:
        found = self._partitions()
        return found is not None and all(len(partition.isrs) == len(partition.replicas) for partition in found)

    def _leaders(self, topic: str) -> dict[int, int]:
        return {partition.id: partition.leader for partition in self._partitions(topic) or () if partition.leader > 0}

    def _partitions(self, topic: str | None = None) -> list[Any] | None:
        """What the cluster says of the partitions of a topic, or of all; None where nobody answered."""
        try:
            listed = self._admin.list_topics(topic, timeout=_SECONDS).topics
        except KafkaException:
            return None
        return [partition for found in listed.values() for partition in found.partitions.values()]

    def _slot(self, topic: str, name: str) -> int:
        return _java_hash(name) % len(until(lambda: self._partitions(topic), 60, f"{topic} is there") or ())

    def _quorum_leader(self) -> int | None:
        for node in self._cluster.nodes:
            try:
                leader = _asked_for_quorum(node.port)
            except (OSError, struct.error):
                continue
            if leader > 0:
                return leader
        return None


def _java_hash(text: str) -> int:
    """What Kafka finds a coordinator's partition by: Java's hash of the name, without its sign."""
    return reduce(lambda made, code: (31 * made + code) & 0xFFFFFFFF, text.encode(), 0) & 0x7FFFFFFF


def _asked_for_quorum(port: int) -> int:
    """The leader of the metadata quorum as the node on the port sees it; -1 where it knows of none."""
    topic = b"__cluster_metadata"
    # DescribeQuorum, version 0: one topic, one partition, in the compact notation (lengths are one more; 0: no tags).
    head = struct.pack(">hhih", _DESCRIBE_QUORUM, 0, 1, 1) + b"t\0"
    request = head + b"\2" + bytes([len(topic) + 1]) + topic + b"\2" + struct.pack(">i", 0) + b"\0\0\0"
    with socket.create_connection((HOST, port), _SECONDS) as connection:
        connection.settimeout(_SECONDS)
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answer:
            (size,) = struct.unpack(">i", answer.read(4))
            body = answer.read(size)
    # Correlation id, tags, error, topics, name, partitions, index, error, leader.
    at = 4 + 1 + 2 + 1 + 1 + len(topic) + 1 + 4
    error, leader = struct.unpack_from(">hi", body, at)
    return leader if error == 0 else -1
