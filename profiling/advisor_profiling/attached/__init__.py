"""Looks at a process that runs already, and that nobody started to be measured."""
