"""What is known of a card and of drifting jobs beyond profiles, and advice that takes it in."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.advice.observed.expected import (
    Checked,
    Expected,
    card_logs,
    compared,
    expected_of,
    newest_observations,
    profiles_of,
)
from advisor.core.observations import Observation
from advisor.core.records import SoloPoint
from advisor.predict.card_factor import CardFactor, CardPredictor, card_factor, reference_logs
from advisor.predict.drift_predictor import DriftPredictor
from advisor.predict.predictions import Predictor
from advisor.predict.profiles import Profile
from advisor.settings import Settings
from advisor.validity.drift import Drift, Quantity, drifts_of, find_drifts
from advisor.validity.safe_counts import CheckedCounts
from advisor_data import Store, open_store
from advisor_data.files.bundled import bundled_reference_points
from advisor_data.files.checked import checked_counts
from advisor_data.store.pages import Span
from advisor_data.store.store import is_begun

MOST_JOBS = 50
"""Stored jobs whose runs alone may tell of a card, and MOST_POINTS of each."""

MOST_POINTS = 100


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Conditions:
    """What advice takes in beyond profiles and model; by default nothing.

    Attributes:
        gpu_uuid: The card; None: it may be any.
        factor: What it draws; None: nothing was seen of it.
        drifts: Of all jobs.
    """

    gpu_uuid: str | None = None
    factor: CardFactor | None = None
    drifts: tuple[Drift, ...] = ()

    def applied(
        self, predictor: Predictor, profiles: Sequence[Profile]
    ) -> tuple[Predictor, tuple[Profile, ...]]:
        """Predictor and profiles for these conditions; both as they are where there are none."""
        if self._is_used(profiles) and self.factor:
            predictor = CardPredictor(predictor, profiles, self.factor)
            profiles = predictor.brought(profiles)
        drifts = self._drifts(profiles)
        return (DriftPredictor(predictor, drifts) if drifts else predictor), tuple(profiles)

    def card_of(self, profiles: Iterable[Profile]) -> CardFactor | None:
        """The factor, where it changes the power of these jobs."""
        return self.factor if self._is_used(profiles) else None

    def drifts_of(self, profiles: Sequence[Profile]) -> tuple[Drift, ...]:
        """Those of these jobs."""
        return tuple(self._drifts(profiles).values())

    def warnings(self, profiles: Sequence[Profile]) -> Iterator[str]:
        """What is to be said of it."""
        if factor := self.card_of(profiles):
            yield factor.text
        elif self.gpu_uuid and self.factor is None:
            yield (
                f"nothing that was measured on the card {self.gpu_uuid} tells what it draws beside "
                "others of its model: cards differ by some percent"
            )
        for drift in self.drifts_of(profiles):
            yield f"{drift.text}; intervals are wider: advisor profile {drift.job}"

    def _is_used(self, profiles: Iterable[Profile]) -> bool:
        factor = self.factor
        return factor is not None and any(factor.gpu_uuid not in p.gpu_uuids for p in profiles)

    def _drifts(self, profiles: Sequence[Profile]) -> Mapping[tuple[str, Quantity], Drift]:
        names = [profile.job for profile in profiles]
        return drifts_of(self.drifts, names, profiles[0].gpu_model, self.gpu_uuid)


NOTHING = Conditions()


def read_conditions(
    settings: Settings, predictor: Predictor, gpu_model: str, gpu_uuid: str | None
) -> Conditions:
    """The conditions of a host, from its store and from what comes with advisor.

    Args:
        settings: Say where points are kept.
        predictor: The model in use.
        gpu_model: Of the jobs' profiles.
        gpu_uuid: The card that they are to run on; None: not known.

    Raises:
        StoreError: the store, or what a check found, cannot be read.
    """
    if not is_begun(settings.database_url, settings.home):
        return Conditions(gpu_uuid=gpu_uuid, factor=stored_factor(gpu_model, gpu_uuid, (), None))
    with open_store(settings.database_url, settings.home) as store:
        found = observed(newest_observations(store), store, predictor, checks_of(settings))
        return Conditions(
            gpu_uuid=gpu_uuid,
            factor=stored_factor(gpu_model, gpu_uuid, found, store),
            drifts=find_drifts(compared(found)),
        )


def checks_of(settings: Settings) -> Checked:
    """What checks of this host found, by GPU model, each read once."""

    @functools.cache
    def checked(gpu_model: str) -> CheckedCounts | None:
        return checked_counts(settings.home, gpu_model)

    return checked


def observed(
    seen: Sequence[Observation], store: Store, predictor: Predictor, checked: Checked
) -> list[Expected]:
    """Observations beside what the model in use expects of them.

    Raises:
        StoreError: the store, or what a check found, cannot be read.
    """
    jobs = {job for one in seen for job in one.jobs}
    return expected_of(seen, profiles_of(jobs, store), predictor, checked) if seen else []


def stored_factor(
    gpu_model: str, gpu_uuid: str | None, expected: Iterable[Expected], store: Store | None
) -> CardFactor | None:
    """The factor of a card, by what is known of it and of others of its model.

    Args:
        gpu_model: Of the card.
        gpu_uuid: The card; None: it is not known, and has no factor.
        expected: Observations, of any card.
        store: Of solo points; None: there are only the bundled ones.

    Raises:
        StoreError: the store cannot be read.
    """
    if gpu_uuid is None:
        return None
    points = [*bundled_reference_points(), *(_stored(gpu_model, store) if store else ())]
    references: dict[str, dict[str, float]] = {}
    if any(point.gpu_uuid == gpu_uuid for point in points):
        profiles = profiles_of({point.job for point in points}, store)
        references = reference_logs(points, profiles, gpu_model)
    return card_factor(gpu_uuid, references, card_logs(expected, gpu_uuid))


def _stored(gpu_model: str, store: Store) -> Iterator[SoloPoint]:
    span = Span(limit=MOST_POINTS, gpu_model=gpu_model)
    for name in store.profile_names(limit=MOST_JOBS):
        yield from store.solo_page(name, span).records
