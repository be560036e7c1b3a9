"""Plans and starts jobs together."""
