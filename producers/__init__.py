"""What talks to a pipeline from outside: client, load generator, record, replay, trace import, report."""
