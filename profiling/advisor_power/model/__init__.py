"""The model of power by data: its manifest, where it lies, and what it predicts."""
