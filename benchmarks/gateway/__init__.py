"""What the gateway costs and withstands: `python -m benchmarks gateway`."""
