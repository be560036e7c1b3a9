"""Learners, what they may see, and intervals for what they have not seen."""
