"""Dropping in a RAG pipeline with autoregressive stages, simulated: `python -m benchmarks rag`."""
