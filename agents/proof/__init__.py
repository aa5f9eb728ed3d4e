"""The proof: pipelines by the drivers that ship, in a memory world, with faults by a seed, judged by an oracle."""
