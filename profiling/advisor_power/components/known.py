"""The windows that component weights are fitted to, and those of some jobs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from advisor.core.records import SoloPoint
from advisor.errors import InputError
from advisor.predict.profiles import Profile
from advisor.wire.answers import Basis, FittedTo, PowerParts
from advisor_power.components.activity import Activity, activity_of
from advisor_power.components.parts import Components
from advisor_power.components.weights import ComponentWeights, fit_components, trusted


@dataclass(frozen=True, slots=True, eq=False)
class KnownPower:
    """What is known of the power of jobs on one GPU model."""

    profiles: tuple[Profile, ...]
    """Of the jobs, one or two."""
    solos: tuple[SoloPoint, ...]
    """Of these jobs on the GPU model, doubtful ones too."""
    weights: ComponentWeights

    @property
    def gpu_model(self) -> str:
        """On which they were measured."""
        return self.profiles[0].gpu_model

    @property
    def power_limit_w(self) -> float | None:
        """Of the GPU; None: not known."""
        return self.profiles[0].power_limit_w

    @property
    def pair_names(self) -> tuple[str, ...]:
        """Of the jobs, as pair points have them."""
        return tuple(sorted(profile.job for profile in self.profiles))

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
                f"no window of {job} on {self.gpu_model} has all counters",
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


def known_power(
    profiles: Sequence[Profile], points: Iterable[SoloPoint], weights: ComponentWeights
) -> KnownPower:
    """What is known of the power of jobs on one GPU model; points may be of other jobs."""
    names = {profile.job for profile in profiles}
    mine = each_once((p for p in points if p.job in names), profiles[0].gpu_model)
    return KnownPower(tuple(profiles), tuple(mine), weights)


def fitted_weights(points: Iterable[SoloPoint], gpu_model: str) -> ComponentWeights:
    """The component weights of a GPU model, by all that was measured on it.

    Raises:
        InputError: too few jobs were.
    """
    return fit_components(each_once(points, gpu_model))


def each_once(points: Iterable[SoloPoint], gpu_model: str) -> list[SoloPoint]:
    """Those of a GPU model; what was imported from the bundle is the same measurement."""
    return list({p.point_id: p for p in points if p.gpu_model == gpu_model}.values())
