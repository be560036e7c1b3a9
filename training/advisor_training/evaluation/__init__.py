"""How good a model is for jobs, runs and cards that it has not seen."""
