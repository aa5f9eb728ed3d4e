"""Everything that decides, pure: stage, batches, policies, joins, gate. `now` is an argument; no I/O, no clock."""
