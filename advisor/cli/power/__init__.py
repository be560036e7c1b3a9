"""What a GPU draws: its sensors, and single operations over time."""
