"""Which way of running jobs on one GPU is best within the limits, and why."""
