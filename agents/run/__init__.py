"""The drivers: a stage and the gate, written once over the ports, and run on Kafka and in memory."""
