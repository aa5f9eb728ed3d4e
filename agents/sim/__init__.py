"""The simulator driver: the same cores in virtual time, with profiled durations and scripted crashes."""
