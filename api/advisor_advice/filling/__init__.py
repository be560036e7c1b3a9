"""Runs a queue of jobs on the GPUs of one host."""
