"""Commands about the power of a card."""
