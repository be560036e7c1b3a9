"""Commands about the power of a card: how it is read, and where it goes."""
