"""Profiles of jobs by name: measured here, bundled, or estimated from one window."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.gpu import WHOLE, vendor_of
from advisor.core.job import check_one_gpu
from advisor.core.records import DOUBTFUL, Record, SoloPoint, grouped
from advisor.core.telemetry import NO_POWER
from advisor.core.wording import unknown_job
from advisor.errors import InputError
from advisor.predict.kernels import computes_in_bursts
from advisor.predict.one_window import mean_window, window_of_point
from advisor.predict.power_limit import under_limit
from advisor.predict.profiles import (
    IDLE,
    Profile,
    counted_kernels,
    make_profiles,
    serving_of,
    with_active_idle,
)
from advisor.settings import Settings
from advisor.validity.points import is_usable, undisputed, why_no_profile
from advisor.validity.safe_counts import CheckedCounts
from advisor_data import Store, is_begun, open_store
from advisor_data.bundled import GPU_MODEL, bundled_solo_points
from advisor_data.files import read_points
from advisor_data.known import checked_counts
from advisor_models.one_window import bundled_head

# How many jobs without a profile are named; a placement can have hundreds.
_NAMED = 3

# Profiles of one job by GPU model.
_Profiles = Mapping[str, Profile]


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """Profiles of jobs on one GPU model, one for each name that was asked for, in that order.

    Attributes:
        bundled: Names of the jobs whose profile came with advisor.
        other_models: On which all of them were profiled, too.
    """

    profiles: tuple[Profile, ...]
    bundled: tuple[str, ...]
    other_models: tuple[str, ...] = ()

    @property
    def a(self) -> Profile:
        """The first job's."""
        return self.profiles[0]


@dataclass(frozen=True, slots=True)
class ProfilesOfJob:
    """The profiles of one job by GPU model; empty: there is none.

    Attributes:
        bundled: GPU models of the profiles that came with advisor; a job's own go before these.
    """

    profiles: _Profiles
    bundled: frozenset[str] = frozenset()

    def before(self, other: "ProfilesOfJob") -> "ProfilesOfJob":
        """These, and those of the other on GPU models for which there is none here."""
        return ProfilesOfJob(
            {**other.profiles, **self.profiles}, self.bundled | other.bundled - self.profiles.keys()
        )


def find_profiles(
    names: Sequence[str],
    settings: Settings,
    gpu_model: str | None = None,
    file: Path | None = None,
    *,
    several_gpus: bool = False,
    power_limit_w: float | None = None,
) -> ProfileSet:
    """The profiles of jobs on a GPU model that all of them were measured on.

    Without a wish it is the one that all profiles have in common. Solo points of a file go before
    the stored and the bundled ones. Profiles are brought to `power_limit_w` of the card.

    Raises:
        InputError: a job has no profile, there is not just one GPU model in common, or it holds
            `several_gpus`, and that is not meant.
        StoreError: the store cannot be read.
    """
    stored = stored_points(settings, dict.fromkeys(names))
    known = known_profiles(stored, names)
    if file:
        given = known_profiles(points := _solo_points(read_points(file)), names)
        known = {name: given[name].before(of_job) for name, of_job in known.items()}
        stored += points
    if not _in_common(known, gpu_model):
        # Only now: reading the bundled points takes time.
        bundled = known_profiles(bundled_solo_points(set(names)), names, bundled=True)
        known = {name: of_job.before(bundled[name]) for name, of_job in known.items()}
    if not _in_common(known, gpu_model):
        known = or_estimated(known, stored)
    for name in names:
        if not known[name].profiles:
            raise no_profile(name, _known(settings, file), points=stored)
    return on_one_gpu(
        names, known, gpu_model, several_gpus=several_gpus, power_limit_w=power_limit_w
    )


def all_profiles(settings: Settings, gpu_model: str) -> dict[str, Profile]:
    """Profiles on one GPU of a model by name of job, those measured here first, estimates last.

    Raises:
        StoreError: the store cannot be read.
    """
    bundled, stored = bundled_solo_points(), stored_points(settings, [None])
    names = {point.job for point in (*bundled, *stored)}
    own, theirs = (known_profiles(points, names) for points in (stored, bundled))
    known = or_estimated({name: own[name].before(theirs[name]) for name in names}, stored)
    found = {n: of.profiles[gpu_model] for n, of in known.items() if gpu_model in of.profiles}
    return {name: profile for name, profile in found.items() if profile.gpus == 1}


def own_profiles(settings: Settings, file: Path | None = None) -> dict[tuple[str, str], Profile]:
    """Every profile that was measured here by GPU model and job; those of a file go before.

    Raises:
        InputError: the file cannot be read.
        StoreError: the store cannot be read.
    """
    sources = [stored_points(settings, [None]), _solo_points(read_points(file)) if file else []]
    found = [make_profiles(undisputed(points)) for points in sources]
    return {(model, job): p for of in found for (job, model), p in of.items() if p.gpus == 1}


def checked_on(profile_set: ProfileSet, settings: Settings) -> CheckedCounts | None:
    """What the check of these profiles' GPU model found; None: there was none.

    Raises:
        StoreError: it cannot be read.
    """
    return checked_counts(settings.home, profile_set.a.gpu_model, profile_set.a.units_total)


def known_profiles(
    points: Iterable[SoloPoint], names: Iterable[str], *, bundled: bool = False
) -> dict[str, ProfilesOfJob]:
    """The profiles that points make, of each of these jobs.

    Raises:
        InputError: points that make no profile.
    """
    by_job = {name: dict[str, Profile]() for name in names}
    profiles = make_profiles(undisputed(point for point in points if point.job in by_job))
    for (job, model), profile in profiles.items():
        by_job[job][model] = profile
    return {
        name: ProfilesOfJob(of_job, frozenset(of_job if bundled else ()))
        for name, of_job in by_job.items()
    }


def or_estimated(
    known: Mapping[str, ProfilesOfJob], points: Sequence[SoloPoint]
) -> dict[str, ProfilesOfJob]:
    """On GPU models where a job has no profile, what its windows on the whole GPU say.

    Raises:
        ModelError: the head that estimates is damaged.
    """
    lacking = (
        point
        for point in undisputed(points)
        if point.job in known and point.gpu_model not in known[point.job].profiles
    )
    by_job = grouped(lacking, lambda point: point.job)
    return {
        name: of_job.before(ProfilesOfJob(_estimated_profiles(by_job.get(name, ()))))
        for name, of_job in known.items()
    }


def on_one_gpu(
    names: Sequence[str],
    profiles_by_job: Mapping[str, ProfilesOfJob],
    gpu_model: str | None = None,
    *,
    several_gpus: bool = False,
    power_limit_w: float | None = None,
) -> ProfileSet:
    """The profiles of jobs, each of which has one, on a GPU model that all were measured on.

    Raises:
        InputError: no GPU model in common, several that were measured on here, or none of that
            name; or a job holds `several_gpus`, and that is not meant; or `power_limit_w` of the
            card is below half of that of a profile.
    """
    model = _common_model(names, profiles_by_job, gpu_model)
    in_common = _in_common({n: profiles_by_job[n] for n in names}, None)
    others = () if gpu_model else sorted(in_common - {model})
    bundled = tuple(name for name in dict.fromkeys(names) if model in profiles_by_job[name].bundled)
    profiles = tuple(profiles_by_job[name].profiles[model] for name in names)
    for profile in profiles:
        check_one_gpu(profile.job, 1 if several_gpus else profile.gpus)
    if power_limit_w is not None:
        profiles = tuple(under_limit(profile, power_limit_w) for profile in profiles)
    return ProfileSet(profiles, bundled, tuple(others))


def no_profile(
    name: str, known_jobs: Iterable[str], points: Iterable[SoloPoint] = ()
) -> InputError:
    """What to do about a job without a profile: measure it, or spell it as it is spelled."""
    known = set(known_jobs)
    if name not in known:
        return unknown_job(name, known)
    mine = [point for point in points if point.job == name]
    if len(undisputed(mine)) < len(mine):
        return InputError(
            f"{name} has no profile",
            why="of windows that it needs there are unlike copies, and nobody can say which are "
            "true",
            fix="measure it again, or remove what one wrote: advisor data delete --written-by NAME",
        )
    why = why_no_profile(mine) if mine else None
    return InputError(
        f"{name} has no profile",
        why=why or "a profile needs 100 % and one smaller share at least, with right results",
        steps=(
            f"advisor profile {name}   # on {'another' if why == NO_POWER else 'the'} GPU",
            "this command again",
        ),
    )


def stored_points(settings: Settings, jobs: Iterable[str | None]) -> list[SoloPoint]:
    """The stored points of some jobs; of all with None."""
    with begun_store(settings) as store:
        # What is not UTF-8 on a command line has parts that no database takes, and names no job.
        asked = [job for job in jobs if job is None or job.isprintable()]
        return [p for job in asked for p in store.solo_points(job=job)] if store else []


def begun_store(settings: Settings) -> AbstractContextManager[Store | None]:
    """The store; None where nothing was ever written: to open a database would make one."""
    url, home = settings.database_url, settings.home
    return open_store(url, home) if is_begun(url, home) else nullcontext()


def _in_common(known: Mapping[str, ProfilesOfJob], wanted: str | None) -> set[str]:
    """GPU models that all jobs were profiled on; only the wanted one, or those it is a part of."""
    models = set[str].intersection(*(set(of_job.profiles) for of_job in known.values()))
    return models if wanted is None else _named(models, wanted)


def _named(models: Iterable[str], wanted: str) -> set[str]:
    """Of GPU models that one, or those that it is a part of."""
    found = set(models)
    return found & {wanted} or {m for m in found if wanted.casefold() in m.casefold()}


def _common_model(
    names: Sequence[str], known: Mapping[str, ProfilesOfJob], wanted: str | None
) -> str:
    chosen = {name: known[name] for name in names}
    found = {name: of_job.profiles for name, of_job in chosen.items()}
    common = _in_common(chosen, wanted)
    # What was measured here goes before what came with advisor.
    own = {m for m in common if not any(m in of_job.bundled for of_job in chosen.values())}
    candidates = sorted(own or common & {GPU_MODEL} or common)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InputError(
            f"all of them were profiled on {', '.join(candidates)}",
            fix="choose one of them: --gpu-model, or `gpu_model` in a request",
        )
    models = dict.fromkeys(model for name in names for model in found[name])
    near = models if wanted is None else sorted(_named(models, wanted)) or [wanted]
    lacking = {model: [n for n in chosen if model not in found[n]] for model in near}
    nearest = min(lacking, key=lambda model: len(lacking[model]))
    named, rest = lacking[nearest][:_NAMED], len(lacking[nearest]) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    is_amd = vendor_of(nearest) == "amd"
    untried = "; on AMD nobody has tried it yet, so check what it measures" if is_amd else ""
    profiled = "; ".join(f"{name} on {', '.join(found[name])}" for name in named)
    raise InputError(
        f"no profile on {nearest}: {', '.join(named)}{more}",
        why=f"profiled were {profiled}, and rates and power of a job differ between GPU models",
        fix=f"on that GPU: {' && '.join(f'advisor profile {name}' for name in named)}; then there "
        f"are recommendations for it, whether the model has seen it or not{untried}",
    )


def _known(settings: Settings, file: Path | None) -> set[str]:
    """Names of the jobs that are defined or measured."""
    from advisor.formats.job_file import sound_jobs  # only here: what reads YAML takes time to load

    given = _solo_points(read_points(file)) if file else []
    points = (*given, *stored_points(settings, [None]), *bundled_solo_points())
    defined, _ = sound_jobs(settings.jobs_dir)
    return {job.name for job in defined} | {point.job for point in points}


def _solo_points(points: Iterable[Record]) -> list[SoloPoint]:
    return [point for point in points if isinstance(point, SoloPoint)]


def _estimated_profiles(points: Iterable[SoloPoint]) -> dict[str, Profile]:
    """Of one job by GPU model, from its windows on the whole GPU that nothing speaks against.

    Raises:
        ModelError: the head that estimates is damaged.
    """
    windows = (
        point
        for point in sorted(points, key=lambda p: p.started_at)
        if point.share_percent == WHOLE and is_usable(point) and DOUBTFUL.isdisjoint(point.flags)
    )
    found: dict[str, Profile] = {}
    for gpu_model, of_model in grouped(windows, lambda point: point.gpu_model).items():
        point = mean_window(of_model[-20:])  # the newest: programs change
        if window := window_of_point(point):
            serving = serving_of(of_model)
            profile = bundled_head().profile(window, is_server=serving is not None)
            found[gpu_model] = replace(
                profile,
                rate_unit=point.rate_unit,
                idle_power_w=math.nan if point.idle_power_w is None else point.idle_power_w,
                active_idle_power_w=point.active_idle_power_w or profile.active_idle_power_w,
                values={**profile.values, "rate": point.rate * profile.values["rate"]},
                flags=(*point.flags, *profile.flags),
                serving=serving,
                in_bursts=computes_in_bursts(point),
                gpu_uuids=frozenset(p.gpu_uuid for p in of_model),
                kernels=counted_kernels(of_model),
                gpus=point.gpus or 1,
            )
    return found


def with_idle_power(
    profile_set: ProfileSet, fill: Mapping[str, float]
) -> tuple[ProfileSet, tuple[str, ...]]:
    """The profiles with both idle powers each, and what is to be said of those without the first.

    `fill` is what the manifest of the model takes for columns that are missing.

    Returns:
        Where it was missing, the median of the other profiles, else the model's; unchanged where
        nobody knows.
    """
    profiles = profile_set.profiles
    lacking = tuple(dict.fromkeys(p.job for p in profiles if math.isnan(p.idle_power_w)))
    known = [p.idle_power_w for p in profiles if not math.isnan(p.idle_power_w)]
    assumed_w = statistics.median(known) if known else fill.get(IDLE)
    if lacking and assumed_w is not None:
        profiles = tuple(
            replace(p, idle_power_w=assumed_w) if p.job in lacking else p for p in profiles
        )
    profiles = tuple(with_active_idle(profile, fill) for profile in profiles)
    given = replace(profile_set, profiles=profiles)
    if not lacking or assumed_w is None:
        return given, ()
    source = "as in the other profiles" if known else "as in the profiles of the model"
    said = f"{IDLE} is missing in the profile of {', '.join(lacking)}: {assumed_w:.0f} W, {source}"
    return given, (said,)
