"""Which way of running two jobs is best within the limits, and why."""
