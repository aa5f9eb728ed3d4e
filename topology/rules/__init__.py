"""What has to fit together in a pipeline, and how problems are told."""
