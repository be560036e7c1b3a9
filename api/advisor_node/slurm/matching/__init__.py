"""Which of Slurm's waiting jobs share a GPU: decided on the controller, told by `scontrol`."""
