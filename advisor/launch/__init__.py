"""Runs a pair of jobs at a split, watches both, and remembers what they did."""
