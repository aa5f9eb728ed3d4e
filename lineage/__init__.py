"""Spillway's lineage: what travels with a message.

Ids, hops, deadline, headers, Avro schemas, tensors, trace context, metric names.
"""
