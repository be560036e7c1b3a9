"""Which counts of units and which points can be trusted."""
