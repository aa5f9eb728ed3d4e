"""The gate: a transactional consumer and producer around the gate's core."""
