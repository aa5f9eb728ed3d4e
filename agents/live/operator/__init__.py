"""States as an operator sees them: from outside, by the logs alone, through a broker and with no process of a stage."""
