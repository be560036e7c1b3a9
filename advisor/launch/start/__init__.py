"""Plans and starts a pair."""
