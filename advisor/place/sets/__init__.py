"""Jobs that run together from now on, in sets of up to seven on a card: who shares with whom."""
