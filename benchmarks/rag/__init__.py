"""Dropping in a RAG pipeline with autoregressive stages, simulated: `python -m benchmarks rag`."""

from benchmarks.rag.command import rag

__all__ = ["rag"]
