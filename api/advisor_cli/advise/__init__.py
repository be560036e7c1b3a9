"""The commands that advise: recommend and place."""
