"""Watches jobs while they run together."""
