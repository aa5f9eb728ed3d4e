"""Pages for people: a run's report as one HTML file that needs nothing else to be read."""
