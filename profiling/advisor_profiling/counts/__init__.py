"""At which numbers of SMs the libraries compute right results."""
