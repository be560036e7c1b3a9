"""Text to values and back: rows, JSON, YAML and job files, every fault with its place."""
