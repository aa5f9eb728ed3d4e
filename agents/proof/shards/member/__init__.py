"""A member of a shard: it follows as a backup, is promoted, computes and writes as the primary."""
