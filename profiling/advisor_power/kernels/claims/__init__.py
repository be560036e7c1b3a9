"""Claims of FinGraV about its GPU, which figures of another one confirm, refute or leave open."""
