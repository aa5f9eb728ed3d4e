"""What a pipeline costs beside its models: `python -m benchmarks overhead`."""
