"""One hop from topic to topic, beside other stream processors: `python -m benchmarks hop`."""
