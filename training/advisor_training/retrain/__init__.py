"""A nightly run: new points are checked, a challenger is trained, and serves if no worse."""
