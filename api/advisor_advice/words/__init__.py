"""Answers in words, as the command line prints and the pages show them."""
