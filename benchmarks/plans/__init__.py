"""How far plans are from the cheapest: random pipelines, and a search that spares no estimates."""
