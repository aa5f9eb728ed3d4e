"""Random pipelines of stateless stages, by the drivers that ship, under random failures in a memory world."""
