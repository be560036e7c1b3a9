"""Files and folders that are whole, and that no other user of the host has a hand in."""
