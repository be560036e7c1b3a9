"""Rows of made-up pairs, as learners take them."""

import dataclasses

import synthetic_pairs as made_up

from advisor.records import SoloPoint
from advisor_training.train import TrainingSet, make_training_set


def solo_points() -> list[SoloPoint]:
    """Each made-up job alone, with the power of the idle GPU."""
    idle_w = made_up.IDLE_W
    return [dataclasses.replace(p, idle_power_w=idle_w) for p in made_up.solo_points()]


def training_set() -> TrainingSet:
    """Every made-up pair once."""
    return make_training_set(made_up.pair_points(), solo_points())
