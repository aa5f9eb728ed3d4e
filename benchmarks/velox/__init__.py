"""Velox (chapter 2 of Crankshaw's thesis), measured in process: `python -m benchmarks velox`."""
