"""Velox: a linear model for each user over features that all share, learned while it serves (thesis, chapter 2)."""
