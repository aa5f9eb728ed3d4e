"""The processes around a shard: stateless stages and the gate."""
