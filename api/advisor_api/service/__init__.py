"""What one process of the service has open, and what it does with it."""
