"""Replicated states on Kafka: reading and writing the logs of stateful shards. What decides is in `checkpoint`."""
