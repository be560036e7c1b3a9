"""Commands about the power of a card: how it is read, what draws it, and where it goes."""
