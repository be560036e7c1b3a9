"""What a sweep, a campaign and a host look like to a person."""
