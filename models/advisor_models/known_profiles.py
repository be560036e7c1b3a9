"""Profiles by name of job: measured here, else those that come with advisor."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.profiles import Profile, make_profiles
from advisor.records import Point, SoloPoint
from advisor.settings import Settings
from advisor_data import open_store
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points

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
    own = _of(points, names)
    lacking = [] if file else [name for name in own if not own[name]]
    others = _of(bundled_solo_points(), lacking) if lacking else {}
    found = own | others
    for name in names:
        if not found[name]:
            raise _unknown(name, settings, file)
    model = _common_model(names, found, gpu_model)
    return Found(tuple(found[name][model] for name in names), tuple(lacking))


def _stored(settings: Settings, jobs: Iterable[str | None]) -> list[SoloPoint]:
    """The stored points of some jobs; of all with None."""
    # Opening a database takes longer than the rest, and would make one where there is none.
    if settings.database_url is None and not settings.home.exists():
        return []
    with open_store(settings.database_url, settings.home) as store:
        return [point for job in jobs for point in store.solo_points(job=job)]


def _of(points: Iterable[SoloPoint], names: Iterable[str]) -> dict[str, Profiles]:
    profiles = make_profiles(point for point in points if point.job in set(names))
    return {
        name: {model: p for (job, model), p in profiles.items() if job == name} for name in names
    }


def _common_model(names: Sequence[str], found: Mapping[str, Profiles], wanted: str | None) -> str:
    common = [model for model in found[names[0]] if all(model in found[name] for name in names)]
    if wanted is not None:
        for name in names:
            if wanted not in found[name]:
                raise InputError(
                    f"{name} was not profiled on {wanted}",
                    why=f"its profiles are of {', '.join(found[name])}",
                    fix=f"on that GPU: advisor profile {name}",
                )
        return wanted
    if not common:
        raise InputError(
            f"{' and '.join(names)} were not profiled on the same GPU model",
            why="; ".join(f"{name} on {', '.join(found[name])}" for name in names),
            fix="profile them on one GPU: advisor profile JOB",
        )
    if len(common) > 1:
        raise InputError(
            f"all of them were profiled on {', '.join(common)}",
            fix="choose one with --gpu-model",
        )
    return common[0]


def _unknown(name: str, settings: Settings, file: Path | None) -> InputError:
    """What to do about a job without a profile: measure it, or spell it as it is spelled."""
    known = _known(settings, file)
    if name in known:
        return InputError(
            f"{name} has no profile",
            why="a profile needs 100 % and one smaller share at least",
            fix=f"on the GPU: advisor profile {name}",
        )
    near = difflib.get_close_matches(name, sorted(known))
    return InputError(
        f"there is no job {name}" + (f" in {file}" if file else ""),
        fix=(f"did you mean {' or '.join(near)}? Else " if near else "")
        + f"measure it: advisor profile --name {name} -- COMMAND",
    )


def _known(settings: Settings, file: Path | None) -> set[str]:
    """Names of the jobs that are defined or measured."""
    from advisor.job_file import list_jobs  # only here: what reads YAML takes time to load

    if file:
        return {point.job for point in _solo(read_points(file))}
    points = (*_stored(settings, [None]), *bundled_solo_points())
    return {job.name for job in list_jobs(settings.jobs_dir)} | {point.job for point in points}


def _solo(points: Iterable[Point]) -> list[SoloPoint]:
    return [point for point in points if isinstance(point, SoloPoint)]
