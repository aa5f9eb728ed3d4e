"""The figures of PARD's evaluation for all policies, from the simulator: `python -m benchmarks pard`."""
