"""The process that runs a launch to its end, and the guard that ends it otherwise."""
