"""Points in a database or in files, and lists of them."""
