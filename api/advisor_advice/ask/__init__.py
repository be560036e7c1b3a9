"""What command line and Python ask, with the same options by the same names."""
