"""Where power and counters come from."""
