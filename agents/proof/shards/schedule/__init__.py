"""What is run: pipelines, who queries them, and what goes wrong when."""
