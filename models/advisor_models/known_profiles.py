"""Profiles by name of job: measured here, else those that come with advisor."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.observations import Record
from advisor.profiles import Profile, make_profiles
from advisor.records import SoloPoint
from advisor.safe_counts import CheckedCounts
from advisor.settings import Settings
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points
from advisor_data.checked import checked_counts
from advisor_data.files import read_points
from advisor_data.store import is_begun

_NAMED = 3
"""How many jobs without a profile are named; a placement can have hundreds."""

Profiles = Mapping[str, Profile]
"""Profiles of one job by GPU model."""


@dataclass(frozen=True, slots=True)
class Found:
    """Profiles of jobs on one GPU model.

    Attributes:
        profiles: One for each name that was asked for, in that order.
        bundled: Names of the jobs whose profile came with advisor.
    """

    profiles: tuple[Profile, ...]
    bundled: tuple[str, ...]

    @property
    def a(self) -> Profile:
        """The first job's."""
        return self.profiles[0]

    @property
    def b(self) -> Profile:
        """The second job's."""
        return self.profiles[1]


@dataclass(frozen=True, slots=True)
class Known:
    """The profiles of one job.

    Attributes:
        profiles: By GPU model; empty: there is none.
        bundled: Whether they came with advisor; a job's own profiles go before these.
    """

    profiles: Profiles
    bundled: bool


def find_profiles(
    names: Sequence[str],
    settings: Settings,
    gpu_model: str | None = None,
    file: Path | None = None,
) -> Found:
    """The profiles of jobs on a GPU model that all of them were measured on.

    Args:
        names: Of the jobs; one may come twice.
        settings: Say where points are kept, and which jobs are defined.
        gpu_model: None: the one that all profiles have in common.
        file: Solo points to take instead of the stored and the bundled ones.

    Raises:
        InputError: a job has no profile, or there is not just one GPU model in common.
        StoreError: the store cannot be read.
    """
    points = _solo(read_points(file)) if file else _stored(settings, dict.fromkeys(names))
    own = known_profiles(points, names)
    lacking = [] if file else [name for name in own if not own[name].profiles]
    known = own | (known_profiles(bundled_solo_points(), lacking, bundled=True) if lacking else {})
    for name in names:
        if not known[name].profiles:
            raise unknown_job(name, _known(settings, file), f" in {file}" if file else "")
    return on_one_gpu(names, known, gpu_model)


def checked_on(found: Found, settings: Settings) -> CheckedCounts | None:
    """What the check of these profiles' GPU model found; None: there was none.

    Raises:
        StoreError: it cannot be read.
    """
    return checked_counts(settings.home, found.a.gpu_model, found.a.units_total)


def known_profiles(
    points: Iterable[SoloPoint], names: Iterable[str], *, bundled: bool = False
) -> dict[str, Known]:
    """The profiles that points make, of each of these jobs.

    Raises:
        InputError: points that make no profile.
    """
    wanted = set(names)
    profiles = make_profiles(point for point in points if point.job in wanted)
    return {
        name: Known({model: p for (job, model), p in profiles.items() if job == name}, bundled)
        for name in dict.fromkeys(names)
    }


def on_one_gpu(
    names: Sequence[str], known: Mapping[str, Known], gpu_model: str | None = None
) -> Found:
    """The profiles of jobs, each of which has one, on a GPU model that all were measured on.

    Raises:
        InputError: there is not just one GPU model in common, or none of that name.
    """
    model = _common_model(names, {name: known[name].profiles for name in names}, gpu_model)
    bundled = tuple(name for name in dict.fromkeys(names) if known[name].bundled)
    return Found(tuple(known[name].profiles[model] for name in names), bundled)


def unknown_job(name: str, known: Iterable[str], place: str = "") -> InputError:
    """What to do about a job without a profile: measure it, or spell it as it is spelled.

    Args:
        name: Of the job.
        known: Names of the jobs that are defined or measured.
        place: Where they were looked for, such as " in points.csv".
    """
    names = sorted(set(known))
    if name in names:
        return InputError(
            f"{name} has no profile",
            why="a profile needs 100 % and one smaller share at least, with right results",
            fix=f"on the GPU: advisor profile {name}",
        )
    near = difflib.get_close_matches(name, names)
    return InputError(
        f"there is no job {name}{place}",
        fix=(f"did you mean {' or '.join(near)}? Else " if near else "")
        + f"measure it: advisor profile --name {name} -- COMMAND",
    )


def _stored(settings: Settings, jobs: Iterable[str | None]) -> list[SoloPoint]:
    """The stored points of some jobs; of all with None."""
    # Opening a database takes longer than the rest, and would make one where there is none.
    if not is_begun(settings.database_url, settings.home):
        return []
    with open_store(settings.database_url, settings.home) as store:
        return [point for job in jobs for point in store.solo_points(job=job)]


def _common_model(names: Sequence[str], found: Mapping[str, Profiles], wanted: str | None) -> str:
    common = [model for model in found[names[0]] if all(model in found[name] for name in names)]
    if wanted is not None:
        if lacking := [name for name in dict.fromkeys(names) if wanted not in found[name]]:
            raise _not_profiled_on(wanted, lacking, found)
        return wanted
    if not common:
        models = {model: None for name in names for model in found[name]}
        lacking = {m: [n for n in dict.fromkeys(names) if m not in found[n]] for m in models}
        nearest = min(lacking, key=lambda model: len(lacking[model]))
        raise _not_profiled_on(nearest, lacking[nearest], found)
    if len(common) > 1:
        raise InputError(
            f"all of them were profiled on {', '.join(common)}",
            fix="choose one of them: --gpu-model, or `gpu` in a request",
        )
    return common[0]


def _not_profiled_on(
    gpu_model: str, lacking: Sequence[str], found: Mapping[str, Profiles]
) -> InputError:
    """Which profiles are missing, and what they add: rates of one GPU tell none of another."""
    named = lacking[:_NAMED]
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    profiled = "; ".join(f"{name} on {', '.join(found[name])}" for name in named)
    return InputError(
        f"no profile on {gpu_model}: {', '.join(named)}{more}",
        why=f"profiled were {profiled}, and rates and power of a job differ between GPU models",
        fix=f"on that GPU: {' && '.join(f'advisor profile {name}' for name in named)}; then there "
        "are recommendations for it, whether the model has seen it or not",
    )


def _known(settings: Settings, file: Path | None) -> set[str]:
    """Names of the jobs that are defined or measured."""
    from advisor.job_file import list_jobs  # only here: what reads YAML takes time to load

    if file:
        return {point.job for point in _solo(read_points(file))}
    points = (*_stored(settings, [None]), *bundled_solo_points())
    return {job.name for job in list_jobs(settings.jobs_dir)} | {point.job for point in points}


def _solo(points: Iterable[Record]) -> list[SoloPoint]:
    return [point for point in points if isinstance(point, SoloPoint)]
