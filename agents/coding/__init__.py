"""ParM: codes over queries and outputs, and the parity models that make them work for what is not linear."""
