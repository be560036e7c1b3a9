"""Where the power of jobs goes."""
