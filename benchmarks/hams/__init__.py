"""The figures of HAMS' evaluation, from live runs on a Kafka of their own: `python -m benchmarks hams`."""

from benchmarks.hams.command import hams

__all__ = ["hams"]
