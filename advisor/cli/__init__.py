"""The command line."""

from advisor.cli.app import main

__all__ = ["main"]
