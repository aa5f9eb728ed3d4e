"""The ports in one process: a model of Kafka, processes that can be killed, and virtual time."""
