"""A member of a stateful shard: a Faust app that reads the shard's input, and is its primary or a backup."""
