"""A queue of jobs on several GPUs: who shares with whom, when and where."""
