"""The figures of HAMS' evaluation, from live runs on a Kafka of their own: `spillway bench hams`."""

from agents.bench.hams.command import hams

__all__ = ["hams"]
