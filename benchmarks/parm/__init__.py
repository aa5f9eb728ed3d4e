"""ParM's coded computation, measured: `python -m benchmarks parm`."""
