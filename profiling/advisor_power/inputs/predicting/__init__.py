"""What a model of power by data is learned from, and what it is asked."""
