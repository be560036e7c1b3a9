"""What a dataset of pairs says: gains, groups, losses."""
