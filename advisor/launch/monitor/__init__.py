"""Watches a pair while it runs."""
