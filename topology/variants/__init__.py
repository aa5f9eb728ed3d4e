"""INFaaS (Romero et al.): which variant of a model answers a query, and which are loaded, scaled and stopped."""
