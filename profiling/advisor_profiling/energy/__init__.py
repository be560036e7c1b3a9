"""Joules and watts of the GPUs while a piece of Python runs."""
