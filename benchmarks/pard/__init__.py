"""The figures of PARD's evaluation for all policies, from the simulator: `spillway bench pard`."""

from agents.bench.pard.command import pard

__all__ = ["pard"]
