"""The processes around a shard: stateless stages, the gate, a stage whose state nobody replicates."""
