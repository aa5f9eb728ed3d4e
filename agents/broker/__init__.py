"""The embedded Apache Kafka: found, started, watched and stopped as a child process on loopback."""
