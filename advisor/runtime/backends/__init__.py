"""The ways of limiting a job to part of a GPU, and the proof that a limit is in force."""
