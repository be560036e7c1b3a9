"""The windows that component weights are fitted to, and those of some jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.core.flags import DOUBTFUL
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import InputError
from advisor.settings import Settings
from advisor.validity.degenerate import with_pair_flags, with_solo_flags
from advisor.wire.components import Basis, FittedTo, PowerParts
from advisor_advice.site.known_profiles import ProfileSet, find_profiles
from advisor_data import open_store
from advisor_data.files.bundled import bundled_pair_points, bundled_solo_points
from advisor_data.store.store import is_begun
from advisor_power.components.activity import Activity, activity_of
from advisor_power.components.parts import Components
from advisor_power.components.weights import ComponentWeights, fit_components, trusted


@dataclass(frozen=True, slots=True, eq=False)
class KnownPower:
    """What is known of the power of jobs on one GPU model.

    Attributes:
        found: Profiles of the jobs.
        solos: Of these jobs on the GPU model, doubtful ones too.
    """

    found: ProfileSet
    solos: tuple[SoloPoint, ...]
    weights: ComponentWeights

    @property
    def power_limit_w(self) -> float | None:
        """Of the GPU; None: not known."""
        return self.found.a.power_limit_w

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Of the jobs, as pair points have them."""
        return tuple(sorted(profile.job for profile in self.found.profiles))

    @property
    def fitted_to(self) -> FittedTo:
        """What the weights come from."""
        return FittedTo(windows=len(self.weights.terms), jobs=len(self.weights.jobs))

    def windows(self, job: str) -> dict[float, tuple[SoloPoint, Activity]]:
        """The newest trusted window of a job at each share, in the order of the shares.

        Raises:
            InputError: there is none with all readings.
        """
        mine = trusted(p for p in self.solos if p.job == job)
        mine.sort(key=lambda p: p.started_at)
        read = {p.share_percent: (p, a) for p in mine if (a := activity_of(p)) is not None}
        if not read:
            raise InputError(
                f"no window of {job} on {self.found.a.gpu_model} has all counters",
                why="what the parts of the GPU draw follows from counters, clock and temperature",
                fix=f"measure it with counters: advisor doctor, then advisor profile {job}",
            )
        return dict(sorted(read.items()))

    def told(self, parts: Components, basis: Basis, clock_mhz: float) -> PowerParts:
        """The parts as they leave the process."""
        limit = self.power_limit_w
        return PowerParts(
            power_w=parts.total_w,
            power_basis=basis,
            headroom_w=None if limit is None else limit - parts.total_w,
            clock_mhz=clock_mhz,
            components_w={str(name): value for name, value in parts.parts_w.items()},
            memory_basis=parts.memory,
            others_basis=parts.others,
            unlike=parts.unlike,
        )


def known_power(names: Sequence[str], settings: Settings, gpu_model: str | None) -> KnownPower:
    """What is known of these jobs' power, from the store and what comes with advisor.

    Raises:
        InputError: a job has no profile, or too few jobs were measured on the GPU model.
        StoreError: the store cannot be read.
    """
    return known_power_of(find_profiles(names, settings, gpu_model), settings)


def known_power_of(
    found: ProfileSet, settings: Settings, more: Iterable[SoloPoint] = ()
) -> KnownPower:
    """The same of jobs whose profiles were found.

    Args:
        found: The profiles.
        settings: Say where points are kept.
        more: Points beside those of the store and the bundle.

    Raises:
        InputError: too few jobs were measured on the GPU model.
        StoreError: the store cannot be read.
    """
    model = found.a.gpu_model
    points = each_once([*more, *_stored_solo(settings, model), *bundled_solo_points()], model)
    names = {profile.job for profile in found.profiles}
    mine = tuple(p for p in points if p.job in names)
    return KnownPower(found, mine, fit_components(points))


def each_once(points: Iterable[SoloPoint], gpu_model: str) -> list[SoloPoint]:
    """Those of a GPU model; what was imported from the bundle is the same measurement."""
    return list({p.point_id: p for p in points if p.gpu_model == gpu_model}.values())


def measured_pairs(known: KnownPower, settings: Settings) -> list[PairPoint]:
    """Trusted windows of two jobs together, from the store and the bundle, the newest last."""
    names, stored = known.pair_names, list[PairPoint]()
    if is_begun(settings.database_url, settings.home):
        with open_store(settings.database_url, settings.home) as store:
            stored = store.pair_points(jobs=names, gpu_model=known.found.a.gpu_model)
    return trusted_pairs(known, [*stored, *(p for p in bundled_pair_points() if p.jobs == names)])


def trusted_pairs(known: KnownPower, points: Iterable[PairPoint]) -> list[PairPoint]:
    """Windows of these jobs together that passed every cross-check, the newest last."""
    model = known.found.a.gpu_model
    mine = [p for p in points if p.jobs == known.pair_names and p.gpu_model == model]
    flagged = with_pair_flags(mine, with_solo_flags(known.solos))
    return sorted(filter(_is_together, flagged), key=lambda p: p.started_at)


def _is_together(point: PairPoint) -> bool:
    right = DOUBTFUL.isdisjoint(point.flags) and (point.power_w or 0) > 0
    # In turns of the driver the jobs are not on the GPU at once.
    return right and point.mode != "time-sliced"


def _stored_solo(settings: Settings, gpu_model: str) -> Iterable[SoloPoint]:
    if not is_begun(settings.database_url, settings.home):
        return ()
    with open_store(settings.database_url, settings.home) as store:
        return store.solo_points(gpu_model=gpu_model)
