"""The papers' evaluations and contests with other systems: `python -m benchmarks`. Not installed."""
