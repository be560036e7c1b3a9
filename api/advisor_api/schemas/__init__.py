"""What requests may say and what answers hold."""
