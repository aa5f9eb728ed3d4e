"""Random pipelines of stateless stages and their gate, on a modelled Kafka, under random failures."""
