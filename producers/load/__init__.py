"""Open-loop loads: when queries are due, what they ask, sending them on time, and counting what became of them."""
