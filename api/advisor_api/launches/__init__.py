"""Launches as the service starts, follows and shows them."""
