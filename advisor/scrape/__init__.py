"""Counts a server's progress by what it shows Prometheus: `python -m advisor.scrape`."""
