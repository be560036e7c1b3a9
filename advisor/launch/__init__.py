"""Runs jobs together at a split, watches them, and remembers what they did."""
