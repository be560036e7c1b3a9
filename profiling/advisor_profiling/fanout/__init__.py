"""Parts of a plan on the GPUs of many nodes, which Slurm or Ray places and starts again."""
