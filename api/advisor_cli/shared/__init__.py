"""Options and screens that several commands share."""
