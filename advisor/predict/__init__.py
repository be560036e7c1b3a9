"""Profiles, what models see of them, and what is expected of a pair."""
