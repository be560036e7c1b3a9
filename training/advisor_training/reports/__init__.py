"""Pages and images of what was measured and of what the model is worth, and the words in them."""
