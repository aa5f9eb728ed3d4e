"""A stage replica: a Faust app around a stage's core."""
