"""What to measure next: which jobs alone and which pairs teach a model most for GPU time."""
