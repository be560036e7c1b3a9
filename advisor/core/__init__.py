"""What everybody talks about: GPUs, shares, jobs, points and objectives. Standard library only."""
