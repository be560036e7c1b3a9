"""What a launch is, where it stands, and the folder that says so."""
