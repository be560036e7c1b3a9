"""The chooser: which waiting pods share a GPU, where, and at which split."""
