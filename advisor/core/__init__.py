"""GPUs, shares, jobs, points and objectives: the terms of all rooms. Standard library only."""
