"""What a GPU's power is, and where it goes."""
