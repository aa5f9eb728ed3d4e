"""Clipper's serving layer (section 3.4 of Crankshaw's thesis), measured: `python -m benchmarks clipper`."""
