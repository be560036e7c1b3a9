"""One measured window, from steady readings to a point."""
