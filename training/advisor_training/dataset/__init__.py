"""Measured pairs as values and arrays."""
