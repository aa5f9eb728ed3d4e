"""What a pipeline is and how it is laid out: the spec, its validation, its routes, its topics, its profiles."""
