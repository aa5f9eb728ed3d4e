"""The ports on Kafka that librdkafka alone serves."""
