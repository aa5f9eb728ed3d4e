"""The `spillway` command: one module per command, the only place that reads environment variables."""
