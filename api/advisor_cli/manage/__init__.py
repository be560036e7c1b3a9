"""The commands that look after data, jobs, tokens and the service."""
