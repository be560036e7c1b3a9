"""A service that plays recorded launches: for a laptop without a GPU."""
