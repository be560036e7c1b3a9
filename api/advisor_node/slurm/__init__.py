"""The agent of a Slurm node: looks at jobs that share a GPU, and reports what they did."""
