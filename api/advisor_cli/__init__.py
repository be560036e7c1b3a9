"""The command line."""

from advisor_cli.app import main

__all__ = ["main"]
