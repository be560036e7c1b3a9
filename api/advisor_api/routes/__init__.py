"""One module per resource; each has a `router` and no logic."""
