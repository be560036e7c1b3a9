"""The commands that learn from points and judge models: train, evaluate, report, models."""
