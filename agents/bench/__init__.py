"""Benchmarks behind `spillway bench`: side by side, interleaved, repeated, with the spread shown."""
