"""Runs a job at a share and proves that the share is in force."""
