"""The embedded Apache Kafka: found, started, watched and stopped as a child process on loopback."""

from spillway.agents.broker.cluster import EmbeddedCluster
from spillway.agents.broker.embedded import EmbeddedBroker, stop_broker

__all__ = ["EmbeddedBroker", "EmbeddedCluster", "stop_broker"]
