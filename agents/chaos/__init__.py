"""Workers that stall, slow down and die on purpose, by a seeded schedule (`spillway chaos`)."""
