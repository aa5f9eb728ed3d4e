"""Pipelines served whole in one process, in a memory world: for the tests of those who build them."""
