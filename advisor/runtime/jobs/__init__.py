"""Runs one job under its limit: started, counted, stopped, and ended with all that came of it."""
