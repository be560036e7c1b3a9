"""Answers from what is kept in memory, and the numbers of this process."""
