"""What the processes of a run live in: time, the broker and its logs, the model, and what the oracle remembers."""
