"""Spillway's lineage: what travels with a message.

Ids, hops, deadline, headers, Avro schemas, tensors, trace context, metric names.
"""

if not __name__.startswith("spillway."):
    raise ImportError(f"{__name__!r} is part of Spillway: import it as 'spillway.{__name__}'")
