"""What the power sensors of a card do: a known load is switched on and off, and readings fitted."""
