"""What is shown of power on a page."""
