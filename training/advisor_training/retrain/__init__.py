"""A nightly run: new points are checked, a challenger is trained, and the better model serves."""
