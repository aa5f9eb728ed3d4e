"""The State Planner of a live stage: what replicas tell each other on `<p>.plan`."""
