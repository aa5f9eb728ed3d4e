"""What travels with a message: ids, hops, deadline, headers, Avro schemas, tensors, trace context, metric names."""
