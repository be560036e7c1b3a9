"""The truth, read from the bundled points that no cross-check speaks against."""

import statistics
from collections.abc import Collection, Iterable

from truth import WHOLE, Kinds, Shares, Site, Way

from advisor.core.finish import Rest
from advisor.core.split import EQUAL
from advisor.predict.profiles import Profile
from advisor_training.pairs import Measurement
from advisor_training.points import read_measured
from advisor_training.rows import Data, make_data


def read_data() -> Data:
    """The bundled points that no cross-check speaks against."""
    found = read_measured(None, None, with_bundled=True)
    return make_data(found.pairs, found.profiled, found.references, found.left_out)


def make_sites(data: Data) -> dict[str, Site]:
    """The truth of each GPU model, by its name."""
    return {model: _site(data, model) for model in sorted({m.gpu_model for m in data.measurements})}


def _site(data: Data, model: str) -> Site:
    found: dict[Kinds, dict[Shares, Way]] = {}
    numbers: dict[Kinds, int] = {}
    for number, measurement in enumerate(data.measurements):
        profiles = data.profiles_of(measurement)
        if measurement.gpu_model == model and _is_taken(measurement, profiles, numbers):
            _add(found, measurement, profiles)
            numbers[measurement.jobs] = number
    own = {(kind, WHOLE) for pair in found for kind in pair}
    own |= {(pair[0], shares[0]) for pair, known in found.items() for shares in known}
    idle_w = (data.profiles[kind, model].idle_power_w for kind in {kind for kind, _ in own})
    return Site(
        gpu_model=model,
        idle_power_w=statistics.median(idle_w),
        alone={(kind, s): _alone(data.profiles[kind, model], s) for kind, s in sorted(own)},
        ways=found,
        measured_as=numbers,
    )


def _is_taken(m: Measurement, profiles: Iterable[Profile], known: Collection[Kinds]) -> bool:
    """The first measurement of a pair with 50/50 and uncapped, of jobs that end.

    A job that answers requests does not end sooner or later with its speed.
    """
    has_all = EQUAL in m.nine and m.uncapped is not None
    return has_all and m.jobs not in known and all(p.serving is None for p in profiles)


def _add(
    found: dict[Kinds, dict[Shares, Way]], m: Measurement, profiles: tuple[Profile, Profile]
) -> None:
    """The ways of a measurement, on the card of the profiles.

    Cards differ in power, so that of the pair is scaled as that of its jobs alone. A job beside
    another one that was faster than alone (noise) is as fast as alone.
    """
    a, b = m.jobs
    here = sum(part.solo_power_w for part in m.exclusive.parts)
    scale = sum(profile.whole_gpu_power_w for profile in profiles) / here
    for kind in ("nine", "uncapped"):
        for split, result in m.splits[kind].items():
            one, other = (min(speed, 1.0) for speed in result.speeds)
            s, t = split.shares
            power_w = result.power_w * scale
            found.setdefault((a, b), {})[s, t] = Way((one, other), power_w)
            found.setdefault((b, a), {})[t, s] = Way((other, one), power_w)


def _alone(profile: Profile, share: float) -> Rest:
    at = profile.at([share])
    speed = float(at["rate"][0]) / profile.whole_gpu_rate
    return Rest(min(speed, 1.0), float(at["power_w"][0]))
