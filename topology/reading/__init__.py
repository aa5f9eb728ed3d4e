"""From a file to fields: YAML with positions, the paper's JSON, one field after the other."""
