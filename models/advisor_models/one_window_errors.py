"""How far off jobs were whose family the head for one window had not seen: worlds drawn from that.

Jobs of a family are off alike, and so are families of like windows. So a world is a few families
that are drawn: in it each job is off by what that one was of these, and of its kind (server or
not), whose window is most like its own. What jobs have in common is so in each world.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.errors import ModelError
from advisor.formats.typed_json import parse
from advisor.predict.one_window import COUNTERS, SoloWindow, WindowEstimate, estimated_profile
from advisor.predict.profiles import Profile
from advisor_models.one_window import OneWindowModel, bundled_file, bundled_one_window

ERRORS = "errors.json"

OF_WORLD, WIDER = 3, 1.25
"""Families of a world, and how much larger errors are in it, as few families were measured. Of all
families the nearest would mostly be the same one, and what a world says too sure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutJob:
    """One job whose family was left out.

    Attributes:
        missing: Counters that it was estimated without.
        sm: SM activity as it was estimated, or read; fraction.
        part_of_power: Of its window.
        errors: True less told of each of `Estimate.numbers`.
    """

    family: str
    is_server: bool
    missing: tuple[str, ...]
    sm: float
    part_of_power: float
    errors: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Estimates profiles, and what they might be."""

    model: OneWindowModel
    left_out: tuple[LeftOutJob, ...]

    def profile(self, window: SoloWindow) -> Profile:
        """As `OneWindowModel.profile`."""
        return self.model.profile(window)

    def guesses(self, window: SoloWindow, *, is_server: bool) -> Callable[[int], Profile]:
        """Its profile in each world, by number; those of all windows belong together."""
        told = self.model.estimate(window)
        # Without SM activity, that of the DRAM makes little difference.
        missing = COUNTERS if COUNTERS[0] in window.missing else ()
        alike = [o for o in self.left_out if (o.is_server, o.missing) == (is_server, missing)]
        alike.sort(key=lambda one: _away(one, window, told))
        families = sorted({one.family for one in self.left_out})

        def guess(world: int) -> Profile:
            random, count = np.random.default_rng(world), min(OF_WORLD, len(families))
            drawn = set(random.choice(families, count, replace=False).tolist())
            # Where none of its kind is drawn, the nearest of all.
            near = next((one for one in alike if one.family in drawn), alike[0])
            return estimated_profile(window, told.off_by(WIDER * np.array(near.errors)))

        return guess


def _away(one: LeftOutJob, window: SoloWindow, told: WindowEstimate) -> float:
    return abs(one.sm - told.sm) + abs(one.part_of_power - window.part_of_power)


@dataclass(frozen=True, slots=True)
class ErrorsFile:
    """What stands in `ERRORS`."""

    left_out: tuple[LeftOutJob, ...]


@functools.cache
def bundled_head() -> Head:
    """The one that comes with the package.

    Raises:
        ModelError: it is not whole.
    """
    with ModelError.instead_of(ValueError, f"{ERRORS} cannot be read", fix="install advisor again"):
        left_out = parse(ErrorsFile, bundled_file(ERRORS)).left_out
    return Head(model=bundled_one_window(), left_out=left_out)
