"""Faust's consumer of one stage replica: its app, its transport and its place in the group."""
