"""HAMS' services (figures 8 and 9) in small: their pipeline files, models and requests. A CPU computes them."""
