"""From a file to fields: YAML with positions, one field after the other."""
