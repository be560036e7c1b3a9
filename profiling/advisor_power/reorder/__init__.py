"""Orders of hidden units in which fewer bits switch, with the function of a network unchanged."""
