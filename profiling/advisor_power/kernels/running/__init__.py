"""Runs executions of an operation and reads the sensors meanwhile."""
