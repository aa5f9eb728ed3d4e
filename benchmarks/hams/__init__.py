"""The figures of HAMS' evaluation, from live runs on a Kafka of their own: `python -m benchmarks hams`."""
