"""What runs on a GPU node whose jobs a scheduler places: Kubernetes, Slurm."""
