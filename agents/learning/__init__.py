"""Learning while serving: selection among models by feedback (Clipper)."""
