"""Instead of the real package, which breaks `import ray` where it does not find its library."""

raise ImportError("left out")
