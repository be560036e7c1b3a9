"""What the measurements say together: the dataset's report."""
