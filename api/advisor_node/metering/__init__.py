"""What jobs on a shared GPU do, whichever scheduler has placed them there."""
