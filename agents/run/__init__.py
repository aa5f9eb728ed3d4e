"""Drivers: they move records between ports and a decision core, and know neither Kafka nor a clock of their own."""
