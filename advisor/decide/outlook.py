"""What is to be expected of two jobs, before anybody says what is wanted of them."""

from collections.abc import Iterable, Sequence

from advisor.core.split import NINE, UNCAPPED, Split, check_advised, fine_splits
from advisor.core.units import UNIT_NAMES, vendor_of
from advisor.errors import InputError
from advisor.predict.predictions import (
    Prediction,
    Predictor,
    is_within,
    predict_exclusive,
    safe_splits_of,
)
from advisor.predict.profiles import Profile
from advisor.validity.safe_counts import CheckedCounts
from advisor.validity.safe_splits import avoided_texts


class Outlook:
    """Ways of running two jobs and what they would do, each worked out once for all requests.

    Args:
        profiles: Of two jobs on one GPU model; the second may be the first one again.
        predictor: Says what to expect of splits, and of turns.
        checked: What the check of this GPU model found; no split has a count that is unsafe.

    Raises:
        InputError: not two profiles.
    """

    def __init__(
        self,
        profiles: Sequence[Profile],
        predictor: Predictor,
        checked: CheckedCounts | None = None,
    ) -> None:
        check_advised(len(profiles))
        self.profiles, self.checked = tuple(profiles), checked
        self._predictor = predictor
        # Several threads may ask: then the same is worked out twice, and kept once.
        self._splits = dict[bool, tuple[Split, ...]]()
        self._expected = dict[tuple[Split, ...], list[Prediction]]()
        self._avoided = dict[bool, tuple[str, ...]]()

    def splits(self, *, fine: bool) -> tuple[Split, ...]:
        """`candidate_splits` of them.

        Raises:
            InputError: as that says.
        """
        if fine not in self._splits:
            self._splits[fine] = candidate_splits(self.profiles, self.checked, fine=fine)
        return self._splits[fine]

    def avoided(self, *, fine: bool) -> tuple[str, ...]:
        """Which counts of all splits are not used, since results are wrong there."""
        if fine not in self._avoided:
            wanted, names = _wanted_splits(self.profiles, fine=fine), [p.job for p in self.profiles]
            safeties = [profile.safety(self.checked) for profile in self.profiles]
            self._avoided[fine] = tuple(dict.fromkeys(avoided_texts(wanted, names, safeties)))
        return self._avoided[fine]

    def expected(self, splits: Iterable[Split], turns: Sequence[Split] = ()) -> list[Prediction]:
        """Of these splits, of no limits, of turns where wanted, and of one after the other.

        Raises:
            InputError: as the predictor does.
        """
        key = (*sorted(splits), UNCAPPED, *turns)
        if key not in self._expected:
            found = self._predictor.predict(self.profiles, key)
            self._expected[key] = [*found, predict_exclusive(self.profiles)]
        return self._expected[key]


def candidate_splits(
    profiles: Sequence[Profile], checked: CheckedCounts | None = None, *, fine: bool = False
) -> tuple[Split, ...]:
    """The nine splits, or all in steps of the GPU's quantum, as far as the profiles reach.

    In the place of a split with an unsafe count stands the nearest safe one.

    Raises:
        InputError: steps of units on a GPU whose number of units is not known.
    """
    splits = safe_splits_of(profiles, _wanted_splits(profiles, fine=fine), checked)
    reached = (split for split in splits if split and is_within(split, profiles))
    return tuple(sorted(dict.fromkeys(reached), key=lambda s: (s.shares[0], -s.shares[1])))


def _wanted_splits(profiles: Sequence[Profile], *, fine: bool) -> tuple[Split, ...]:
    """The nine, or those in steps of units as well, before any is replaced or left out.

    Raises:
        InputError: as for `candidate_splits`.
    """
    return (*NINE, *_unit_splits(profiles)) if fine else NINE


def _unit_splits(profiles: Sequence[Profile]) -> tuple[Split, ...]:
    gpu_model = profiles[0].gpu_model
    vendor = vendor_of(gpu_model)
    total = next((p.units_total for p in profiles if p.units_total), None)
    if total is None:
        raise InputError(
            f"the number of {UNIT_NAMES[vendor]} of {gpu_model} is not known",
            why="no point of the profiles has units_total",
            fix="leave out the fine splits",
        )
    return fine_splits(total, vendor)
