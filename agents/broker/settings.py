"""The settings of the embedded broker: KRaft nodes on loopback, small, quick to start, quick to rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

HOST = "127.0.0.1"
DEFAULT_PORT = 9092

# Why each differs from Kafka's default is beside it; what is not here is Kafka's default.
_FIXED: dict[str, str | int] = {
    "process.roles": "broker,controller",
    "inter.broker.listener.name": "BROKER",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    # One node: every internal topic has one replica, and few partitions, each of which costs files and start time.
    "default.replication.factor": 1,
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 4,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    # A pipeline's topics are planned: a typing error must not make one.
    "auto.create.topics.enable": "false",
    # Members join at once, and a dead one is noticed soon where it asks for that.
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    # The broker's session is Kafka's 9 s: one that stands still for longer, as on a machine that is much too busy,
    # leads nothing until its controller has heard of it again, and every client has to find its way anew. (After a
    # crash, Kafka waits for the session of its earlier self to end before it serves again.)
    "broker.heartbeat.interval.ms": 500,
    # The same work in less memory, with fewer threads, for one machine.
    "num.network.threads": 2,
    "num.io.threads": 4,
    "background.threads": 4,
    "group.coordinator.threads": 2,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    "log.index.size.max.bytes": 1024 * 1024,
    "log.segment.bytes": 128 * 1024 * 1024,
    "metric.reporters": "",
    "metadata.max.idle.interval.ms": 5000,
    # Deleted and compacted records leave the disk soon.
    "log.retention.hours": 24,
    "log.retention.check.interval.ms": 30000,
    "log.segment.delete.delay.ms": 1000,
    "log.cleaner.backoff.ms": 5000,
}

# Several nodes: every record is on three disks, and acknowledged once it is on two.
_REPLICATED: dict[str, str | int] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.replication.factor": 3,
    "share.coordinator.state.topic.min.isr": 2,
    # A dead node's partitions have other leaders within about one second. One that only stood still for so long loses
    # its leaderships and nothing else, so it is not worth Kafka's 9 s.
    "broker.session.timeout.ms": 1000,
    "broker.heartbeat.interval.ms": 150,
    # The same for the controller: its successor is elected, and then waits for the sessions of all nodes.
    "controller.quorum.fetch.timeout.ms": 700,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.election.backoff.max.ms": 150,
    "controller.quorum.request.timeout.ms": 1000,
    # What waits for all replicas in sync waits for one that stands still, until it is no longer counted among them.
    "replica.lag.time.max.ms": 2000,
    "replica.socket.timeout.ms": 2000,
    "replica.fetch.backoff.ms": 200,
    # A node that comes back leads again what it led, without a person's help.
    "leader.imbalance.check.interval.seconds": 10,
    # Three of them share one machine.
    "num.network.threads": 1,
    "num.io.threads": 2,
    "background.threads": 2,
    "log.cleaner.dedupe.buffer.size": 4 * 1024 * 1024,
}

_LOG_LEVELS = {
    "org.slf4j.simpleLogger.defaultLogLevel": "info",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "yyyy-MM-dd HH:mm:ss.SSS",
    # Thousands of lines of settings at every start say nothing that server.properties does not.
    "org.slf4j.simpleLogger.log.org.apache.kafka.common.config": "warn",
    "org.slf4j.simpleLogger.log.org.apache.kafka.clients": "warn",
}


def server_properties(
    log_dir: Path, port: int, controllers: Sequence[int], extra: dict[str, str] | None = None, *, node: int = 1
) -> str:
    """The text of `server.properties` of a node; `extra` overrides anything, for tests that need another setting.

    `controllers`: the ports of all nodes' controllers, those of node 1 first.
    """
    here: dict[str, str | int] = {
        "node.id": node,
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controllers[node - 1]}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
        "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{at}" for voter, at in enumerate(controllers, 1)),
        "log.dirs": str(log_dir).replace("\\", "\\\\"),
    }
    replicated = _REPLICATED if len(controllers) > 1 else {}
    return "".join(f"{key}={value}\n" for key, value in {**_FIXED, **replicated, **here, **(extra or {})}.items())


def java_options(heap: str) -> list[str]:
    """Options of the Java machine: little memory and a quick start before peak speed."""
    options = [
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
    ]
    return options + [f"-D{key}={value}" for key, value in _LOG_LEVELS.items()]
