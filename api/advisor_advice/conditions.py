"""What a host knows of jobs: profiles by name, its card, drift, and jobs measured together.

Profiles are measured here, bundled, or estimated from one window. A job drifts by what the model in
use expects of its launches today, not by what was expected when they began: a model that has
learned since then, or a job that was profiled again, may be right now.
"""

import functools
import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from advisor.core.gpu import ADVISED_JOBS, WHOLE, Split, named_model, vendor_of, without_limits
from advisor.core.job import check_single_gpu
from advisor.core.objectives import NORMAL_90
from advisor.core.records import (
    DOUBTFUL,
    NO_POWER,
    REPLAY_SOURCE,
    UNCOUNTED_UNIT,
    Observation,
    PairPoint,
    SoloPoint,
    grouped,
)
from advisor.core.wording import unknown_job
from advisor.errors import InputError
from advisor.predict.kernels import Kernels, MeanEstimate, computes_in_bursts, kernels_beside
from advisor.predict.measured import (
    POWER,
    SPEED,
    MeasuredPredictor,
    Window,
    Windows,
    narrowed,
    windows_of,
)
from advisor.predict.predictions import (
    CardPredictor,
    LimitPredictor,
    Prediction,
    Predictions,
    Predictor,
    card_factor,
    is_within,
    limit_warnings,
    observation_ratio,
    reference_logs,
    under_limit,
)
from advisor.predict.profiles import (
    IDLE,
    Floats,
    Profile,
    counted_kernels,
    hold_several,
    make_profiles,
    serving_of,
)
from advisor.predict.sets import OptionPredictor, has_short_blocks
from advisor.settings import Settings
from advisor.validity.drift import Compared, drifts_of, find_drifts, widened
from advisor.validity.points import is_usable, newest_program, undisputed, why_no_profile
from advisor.validity.safe_counts import CheckedCounts, check_for
from advisor.wire.answers import CardPower, DriftedJob, MeasuredTogether
from advisor_data import Store, is_begun, open_store
from advisor_data.bundled import (
    GPU_MODEL,
    all_checks,
    bundled_points_together,
    bundled_reference_points,
    bundled_set_references,
    bundled_solo_points,
    checked_counts,
    select,
)
from advisor_data.files import read_points
from advisor_data.lists import Span
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import Registry
from advisor_models.single_window import bundled_head, mean_window, window_of_point

# How many jobs without a profile are named; a placement can have hundreds.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """Profiles of jobs on one GPU model, one for each name that was asked for, in that order.

    Attributes:
        bundled: Names of the jobs whose profile came with advisor.
        other_models: On which all of them were profiled, too.
        only_on: Cards of the host to whose rates they were brought: what was measured of them
            together counts from there alone. Empty: from anywhere.
    """

    profiles: tuple[Profile, ...]
    bundled: tuple[str, ...]
    other_models: tuple[str, ...] = ()
    only_on: frozenset[str] = frozenset()

    @property
    def a(self) -> Profile:
        """The first job's."""
        return self.profiles[0]

    def checked(self, settings: Settings) -> CheckedCounts | None:
        """What the check of these profiles' GPU model found; None: there was none.

        Raises:
            StoreError: it cannot be read.
        """
        return checked_counts(settings.home, self.a.gpu_model, self.a.units_total)

    def with_idle_power_filled(
        self, fill: Mapping[str, float]
    ) -> tuple["ProfileSet", tuple[str, ...]]:
        """The profiles with the idle power of the empty card, and what to say of those without it.

        Predictors have their own number for open jobs. `fill` is what the manifest of the model
        takes for columns that are missing.

        Returns:
            Where it was missing, the median of the other profiles, else the model's; unchanged
            if neither is known.
        """
        lacking = tuple(dict.fromkeys(p.job for p in self.profiles if math.isnan(p.idle_power_w)))
        idles_w = [p.idle_power_w for p in self.profiles if not math.isnan(p.idle_power_w)]
        assumed_w = statistics.median(idles_w) if idles_w else fill.get(IDLE)
        if not lacking or assumed_w is None:
            return self, ()
        filled = (
            replace(p, idle_power_w=assumed_w) if p.job in lacking else p for p in self.profiles
        )
        source = "as in the other profiles" if idles_w else "as in the profiles of the model"
        said = (
            f"{IDLE} is missing in the profile of {', '.join(lacking)}: {assumed_w:.0f} W, {source}"
        )
        return replace(self, profiles=tuple(filled)), (said,)


@dataclass(frozen=True, slots=True)
class ProfilesOfJob:
    """The profiles of one job by GPU model; empty: there is none.

    Attributes:
        bundled: GPU models of the profiles that came with advisor; a job's own go before these.
    """

    profiles: Mapping[str, Profile]
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
    given, stored = _solo_points(file), stored_points(settings, dict.fromkeys(names))
    first, then = (profiles_by_name(points, names) for points in (given, stored))
    by_name = {name: first[name].before(then[name]) for name in names}
    if not _in_common(by_name, gpu_model):
        # Only now: reading the bundled points takes time.
        bundled = profiles_by_name(bundled_solo_points(set(names)), names, bundled=True)
        by_name = {name: of_job.before(bundled[name]) for name, of_job in by_name.items()}
    if not _in_common(by_name, gpu_model):
        by_name = or_estimated(by_name, [*stored, *given])
    for name in names:
        if not by_name[name].profiles:
            raise no_profile(name, _profiled_jobs(settings, given), points=[*stored, *given])
    return on_single_gpu(
        names, by_name, gpu_model, several_gpus=several_gpus, power_limit_w=power_limit_w
    )


def all_profiles(settings: Settings, gpu_model: str) -> dict[str, Profile]:
    """Profiles on one GPU of a model by name of job, those measured here first, estimates last.

    Raises:
        StoreError: the store cannot be read.
    """
    bundled, stored = bundled_solo_points(), stored_points(settings, [None])
    names = {point.job for point in (*bundled, *stored)}
    local, theirs = (profiles_by_name(points, names) for points in (stored, bundled))
    by_name = or_estimated({name: local[name].before(theirs[name]) for name in names}, stored)
    profiles = {n: of.profiles[gpu_model] for n, of in by_name.items() if gpu_model in of.profiles}
    return {name: profile for name, profile in profiles.items() if profile.gpus == 1}


def local_profiles(settings: Settings, file: Path | None = None) -> dict[tuple[str, str], Profile]:
    """Every profile that was measured here by GPU model and job; those of a file go before.

    Raises:
        InputError: the file cannot be read.
        StoreError: the store cannot be read.
    """
    return {
        (model, job): profile
        for points in (stored_points(settings, [None]), _solo_points(file))
        for (job, model), profile in make_profiles(undisputed(points)).items()
        if profile.gpus == 1
    }


def profiles_by_name(
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
    by_name: Mapping[str, ProfilesOfJob], points: Sequence[SoloPoint]
) -> dict[str, ProfilesOfJob]:
    """On GPU models where a job has no profile, what its windows on the whole GPU say.

    Raises:
        ModelError: the head that estimates is damaged.
    """
    lacking = (
        point
        for point in undisputed(points)
        if point.job in by_name and point.gpu_model not in by_name[point.job].profiles
    )
    by_job = grouped(lacking, lambda point: point.job)
    return {
        name: of_job.before(ProfilesOfJob(_estimated_profiles(by_job.get(name, ()))))
        for name, of_job in by_name.items()
    }


def on_single_gpu(
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
    bundled = tuple(name for name in dict.fromkeys(names) if model in profiles_by_job[name].bundled)
    profiles = tuple(profiles_by_job[name].profiles[model] for name in names)
    for profile in profiles:
        check_single_gpu(profile.job, 1 if several_gpus else profile.gpus)
    if power_limit_w is not None:
        profiles = tuple(under_limit(profile, power_limit_w) for profile in profiles)
    return ProfileSet(profiles, bundled, () if gpu_model else tuple(sorted(in_common - {model})))


def no_profile(
    name: str, profiled_jobs: Iterable[str], points: Iterable[SoloPoint] = ()
) -> InputError:
    """What to do about a job without a profile: measure it, or spell it as it is spelled."""
    if name not in (profiled := set(profiled_jobs)):
        return unknown_job(name, profiled)
    mine = [point for point in points if point.job == name]
    if len(undisputed(mine)) < len(mine):
        return InputError(
            f"{name} has no profile",
            why="windows that it needs have copies that differ, and the right one is unknown",
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
        printable = [job for job in jobs if job is None or job.isprintable()]
        return [p for job in printable for p in store.solo_points(job=job)] if store else []


def begun_store(settings: Settings) -> AbstractContextManager[Store | None]:
    """The store; None where nothing was ever written: to open a database would make one."""
    url, home = settings.database_url, settings.home
    return open_store(url, home) if is_begun(url, home) else nullcontext()


def _in_common(by_name: Mapping[str, ProfilesOfJob], wanted: str | None) -> set[str]:
    """GPU models that all jobs were profiled on; only the wanted one, if any is."""
    models = set[str].intersection(*(set(of_job.profiles) for of_job in by_name.values()))
    return models if wanted is None else models & {named_model(wanted, models)}


def _common_model(
    names: Sequence[str], by_name: Mapping[str, ProfilesOfJob], wanted: str | None
) -> str:
    chosen = {name: by_name[name] for name in names}
    profiles = {name: of_job.profiles for name, of_job in chosen.items()}
    common = _in_common(chosen, wanted)
    # What was measured here goes before what came with advisor.
    local_models = {m for m in common if not any(m in of_job.bundled for of_job in chosen.values())}
    candidates = sorted(local_models or common & {GPU_MODEL} or common)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InputError(
            f"all of them were profiled on {', '.join(candidates)}",
            fix="choose one of them: --gpu-model, or `gpu_model` in a request",
        )
    models = dict.fromkeys(model for name in names for model in profiles[name])
    near = models if wanted is None else [named_model(wanted, models)]
    lacking = {model: [n for n in chosen if model not in profiles[n]] for model in near}
    nearest = min(lacking, key=lambda model: len(lacking[model]))
    named, rest = lacking[nearest][:_NAMED], len(lacking[nearest]) - _NAMED
    more = f" and {rest} more" if rest > 0 else ""
    untried = "; profiling was not tested on AMD: check its figures"
    profiled = "; ".join(f"{name} on {', '.join(profiles[name])}" for name in named)
    raise InputError(
        f"no profile on {nearest}: {', '.join(named)}{more}",
        why=f"profiled were {profiled}, and rates and power of a job differ between GPU models",
        fix=f"on that GPU: {' && '.join(f'advisor profile {name}' for name in named)}; then there "
        "are recommendations for it, whether the model has seen it or not"
        f"{untried if vendor_of(nearest) == 'amd' else ''}",
    )


def _profiled_jobs(settings: Settings, given: Iterable[SoloPoint]) -> set[str]:
    """Names of the jobs that are defined or measured."""
    from advisor.formats.job_file import sound_jobs  # only here: what reads YAML takes time to load

    points = (*given, *stored_points(settings, [None]), *bundled_solo_points())
    return {of.name for of in sound_jobs(settings.jobs_dir)[0]} | {point.job for point in points}


def _solo_points(file: Path | None) -> list[SoloPoint]:
    return [point for point in (read_points(file) if file else ()) if isinstance(point, SoloPoint)]


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
    estimated: dict[str, Profile] = {}
    for gpu_model, of_programs in grouped(windows, lambda point: point.gpu_model).items():
        of_model = newest_program(of_programs)
        point = mean_window(of_model[-20:])  # the newest: programs change
        if window := window_of_point(point):
            serving = serving_of(of_model)
            profile = bundled_head().profile(window, is_server=serving is not None)
            estimated[gpu_model] = replace(
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
                job_hash=next((p.job_hash for p in of_model if p.job_hash), None),
                profiled_at=of_model[-1].started_at,
            )
    return estimated


# By job and GPU model.
_ProfilesByModel: TypeAlias = Mapping[tuple[str, str], Profile]

# What the check of a GPU model found.
_Checked: TypeAlias = Callable[[str], CheckedCounts | None]


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """One observation, and what the model in use expects of it on a usual card."""

    observation: Observation
    profiles: tuple[Profile, ...]
    prediction: Prediction


def profiles_of(
    jobs: Iterable[str], store: Store | None, *, or_watched: bool = False
) -> _ProfilesByModel:
    """Profiles of jobs by name; those measured here go before the bundled ones.

    With `or_watched` also what is estimated of jobs that were seen only.

    Raises:
        StoreError: the store cannot be read.
        ModelError: the head that estimates is damaged.
    """
    names = sorted(set(jobs))
    points = [p for name in names for p in store.solo_points(job=name)] if store else []
    local = profiles_by_name(points, names)
    bundled = profiles_by_name(bundled_solo_points(set(names)), names, bundled=True)
    by_name = {name: local[name].before(bundled[name]) for name in names}
    by_name = or_estimated(by_name, points) if or_watched else by_name
    return {
        (name, model): profile
        for name, of_job in by_name.items()
        for model, profile in of_job.profiles.items()
    }


def expected_of(
    observations: Iterable[Observation],
    profiles: _ProfilesByModel,
    predictor: Predictor,
    checked: _Checked,
) -> list[Expected]:
    """The observations that can be compared, each with what is expected of it.

    Without a profile of each job there is no expectation; at unsafe counts only jobs that reported
    right results are compared.
    """
    groups: defaultdict[tuple[Profile, ...], list[tuple[Observation, Split]]] = defaultdict(list)
    for observation in observations:
        profiled = tuple(
            p for job in observation.jobs if (p := profiles.get((job, observation.gpu_model)))
        )
        split = _launched_split(observation)
        if (
            split
            and len(profiled) == len(observation.parts)
            and is_within(split, profiled)
            and not _is_doubtful(observation, profiled, checked)
        ):
            groups[profiled].append((observation, split))
    predictions: list[Expected] = []
    for profiled, together in groups.items():
        splits = list(dict.fromkeys(split for _, split in together))
        of_splits = OptionPredictor(predictor).predict(profiled, splits)
        expected = dict(zip(splits, of_splits, strict=True))
        predictions += [
            Expected(observation, profiled, expected[split])
            for observation, split in together
            # Physics needs idle power, which a profile may lack.
            if not math.isnan(expected[split].power_w.value)
        ]
    return predictions


def compared(expected: Iterable[Expected]) -> Iterator[Compared]:
    """All rates, and the power once for each job, of every observation."""
    for pair in expected:
        observation = pair.observation
        rates = zip(
            observation.jobs,
            _rates_as_profiled(observation, pair.profiles),
            pair.prediction.parts,
            strict=True,
        )
        values = (
            *((job, "rate", rate, predicted.rate) for job, rate, predicted in rates),
            *(
                (job, "power", observation.power_w, pair.prediction.power_w)
                for job in observation.jobs
            ),
        )
        yield from (
            Compared(
                job=job,
                gpu_model=observation.gpu_model,
                gpu_uuid=observation.gpu_uuid,
                quantity="rate" if quantity == "rate" else "power",
                setting=f"{' + '.join(observation.jobs)} {pair.prediction.split}",
                observed=observed,
                expected=interval,
                at=observation.started_at,
                software=_software_of(observation),
            )
            for job, quantity, observed, interval in dict.fromkeys(values)
            if observed
        )


def _rates_as_profiled(
    observation: Observation, profiles: Sequence[Profile]
) -> tuple[float | None, ...]:
    """Rates of a launch as on the hosts of the profiles, where it ran beside none of their cards.

    A speed is the rate over the rate alone on the same host, which the launch has measured. Rates
    say nothing of a job that was not counted when it was seen.
    """
    return tuple(
        None
        if profile.rate_unit == UNCOUNTED_UNIT != part.rate_unit
        else part.rate and part.rate / part.solo_rate * profile.whole_gpu_rate
        if part.solo_rate and observation.gpu_uuid not in profile.gpu_uuids
        else part.rate
        for part, profile in zip(observation.parts, profiles, strict=True)
    )


def card_logs(expected: Iterable[Expected], gpu_uuid: str) -> dict[tuple[str, ...], list[float]]:
    """By jobs, log of observed over expected power on a card: of those that tell of the card."""
    ratios: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for pair in expected:
        observation, limit_w = pair.observation, pair.profiles[0].power_limit_w
        rates = [part.rate for part in observation.parts if part.rate]
        if (
            observation.gpu_uuid == gpu_uuid
            and not any(gpu_uuid in profile.gpu_uuids for profile in pair.profiles)
            # Of more than two jobs physics errs by more than cards differ.
            and len(rates) == len(observation.parts) == ADVISED_JOBS
            and pair.prediction.split.is_limited
            and observation.power_w
        ):
            ratio = observation_ratio(observation.power_w, rates, pair.prediction, limit_w)
            if ratio is not None:
                ratios[observation.jobs].append(ratio)
    return dict(ratios)


def _launched_split(observation: Observation) -> Split | None:
    split = measured_split(observation.mode, (part.share_percent for part in observation.parts))
    return split and replace(
        split,
        below_normal=tuple(n for n, part in enumerate(observation.parts) if part.below_normal),
    )


def measured_split(mode: str, shares_percent: Iterable[float]) -> Split | None:
    """The split of a window or a launch; None where nothing is predicted: two time-sliced jobs."""
    shares = tuple(shares_percent)
    if mode == "uncapped" or (mode == "mps" and set(shares) == {WHOLE}):
        return without_limits("uncapped", len(shares))
    if mode == "time-sliced" and len(shares) > ADVISED_JOBS:
        return without_limits("time-sliced", len(shares))
    return Split(shares) if mode in ("mps", "cu_mask") else None


def _is_of(point: PairPoint | Observation, profiles: Collection[Profile]) -> bool:
    """Whether it may be of the programs that were profiled."""
    return all(
        profile.is_of(part.job_hash)
        for part in point.parts
        for profile in profiles
        if profile.job == part.job
    )


def _is_doubtful(
    observation: Observation, profiles: Collection[Profile], checked: _Checked
) -> bool:
    """Whether it says nothing of what the profiled jobs do at that split."""
    if observation.doubt or not _is_of(observation, profiles):
        return True
    host = checked(observation.gpu_model)
    return any(
        part.units in profile.safety(host).unsafe and part.results != "right"
        for part, profile in zip(observation.parts, profiles, strict=True)
    )


def outdated_check(home: Path, gpu_model: str, versions: Mapping[str, str]) -> str:
    """What has changed since `advisor check`, and what to do; empty where nothing has.

    Versions are those in use now: `driver`, and libraries by name, as far as they are known.

    Raises:
        StoreError: a stored check cannot be read.
    """
    check = check_for(gpu_model, all_checks(home)) if versions else None
    libraries = {name: version for name, version in versions.items() if name != "driver"}
    changed = check and check.differs_from(versions.get("driver", check.driver), libraries)
    text = f"safe counts of the {gpu_model} were found with other software"
    return f"{text} ({changed}): advisor check" if changed else ""


def outdated_checks(observations: Iterable[Observation], home: Path) -> dict[str, str]:
    """The same by GPU model, for what the newest launch on each wrote down.

    Raises:
        StoreError: a stored check cannot be read.
    """
    newest = {
        observation.gpu_model: software
        for observation in sorted(observations, key=lambda o: o.started_at)
        if (software := _software_of(observation))
    }
    changes = {
        # Texts such as `driver 580.159.04`.
        model: outdated_check(home, model, dict(t.split(" ", 1) for t in software if " " in t))
        for model, software in newest.items()
    }
    return {model: text for model, text in changes.items() if text}


def _software_of(observation: Observation) -> tuple[str, ...]:
    """Versions that were in use, such as `driver 580.159.04`, as far as the launch wrote them."""
    texts = [part.libraries for part in observation.parts if part.libraries]
    libraries = {name.strip() for text in texts for name in text.split(",")}
    return (*((f"driver {observation.driver}",) if observation.driver else ()), *sorted(libraries))


# Stored jobs whose runs alone may tell of a card, and points of each.
_MOST_JOBS, _MOST_POINTS = 50, 100

# Of a rate in a launch, and of kernels per unit of work that a launch may tell, relative.
_RATE_ERROR, _MOST_ERROR = 0.03, 0.2


FittedKernels: TypeAlias = Mapping[tuple[str, str], Kernels]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Conditions:
    """What advice takes in beyond profiles and model; by default nothing.

    Attributes:
        gpu_uuid: The card; None: it may be any.
        factor: What it draws; None: nothing was seen of it.
        outdated: By GPU model, what has changed since `advisor check`, in words.
        windows: What was measured of jobs together.
        kernels: By job and GPU model, of jobs that no probe ran beside.
        hours: Launches of one job that was only seen beside others that are known.
        expected: The newest other launches, by which a card's factor is found.
    """

    gpu_uuid: str | None = None
    factor: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    outdated: Mapping[str, str] = field(default_factory=dict[str, str])
    windows: Windows = field(default_factory=dict[tuple[str, ...], Sequence[Window]])
    kernels: FittedKernels = field(default_factory=dict[tuple[str, str], Kernels])
    hours: tuple[Expected, ...] = ()
    expected: tuple[Expected, ...] = ()

    def on_card(self, gpu_model: str, gpu_uuid: str | None, store: Store | None) -> "Conditions":
        """For jobs on a GPU model, and on a card where it is known.

        Raises:
            StoreError: the store cannot be read.
        """
        return replace(
            self,
            gpu_uuid=gpu_uuid,
            factor=stored_factor(gpu_model, gpu_uuid, self.expected, store),
        )

    def only_card(self, gpu_model: str) -> str | None:
        """The card of that model that all launches ran on; None: there are none, or several."""
        cards = {
            x.observation.gpu_uuid for x in self.expected if x.observation.gpu_model == gpu_model
        }
        return cards.pop() if len(cards) == 1 else None

    def applied(
        self, predictor: Predictor, profiles: Sequence[Profile]
    ) -> tuple[Predictor, tuple[Profile, ...]]:
        """Predictor and profiles for these conditions; both as they are where there are none."""
        profiles = tuple(
            replace(p, kernels=fitted)
            if (fitted := self.kernels.get((p.job, p.gpu_model))) and not p.kernels
            else p
            for p in profiles
        )
        lower_w = min(filter(None, (p.lowered_w for p in profiles)), default=None)
        profiles = tuple(
            replace(p.measured, active_idle_power_w=p.active_idle_power_w, kernels=p.kernels)
            if p.measured
            else p
            for p in profiles
        )
        hours = self._hours(profiles)
        profiles = tuple(narrowed_by(p, hours) for p in profiles)
        if factor := self.card_of(profiles):
            predictor = CardPredictor(predictor, profiles, factor)
            profiles = predictor.brought
        if drifts := self._drifts(profiles):
            predictor = DriftPredictor(predictor, drifts)
        if windows := self._windows(profiles):
            predictor = MeasuredPredictor(predictor, windows, self.gpu_uuid)
        if lower_w is not None:
            predictor = LimitPredictor(predictor, profiles, lower_w)
            profiles = predictor.brought
        return predictor, tuple(profiles)

    def card_of(self, profiles: Sequence[Profile]) -> CardPower | None:
        """The factor, where it changes the power of these jobs."""
        factor = None if hold_several(profiles) else self.factor
        is_used = factor and any(factor.gpu_uuid not in p.gpu_uuids for p in profiles)
        return factor if is_used else None

    def drifts_of(self, profiles: Sequence[Profile]) -> tuple[DriftedJob, ...]:
        """Those of these jobs."""
        return tuple(self._drifts(profiles).values())

    def measured_of(
        self, profiles: Sequence[Profile], split: Split | None
    ) -> MeasuredTogether | None:
        """What was measured of these jobs together, and how often at a split; None: nothing."""
        if not (windows := windows_of(profiles, self._windows(profiles))):
            return None
        launches, bundled = sum(w.is_launch for w in windows), sum(w.is_bundled for w in windows)
        return MeasuredTogether(
            launches=launches,
            windows=len(windows) - launches - bundled,
            bundled=bundled,
            at_choice=sum(w.split == split for w in windows),
        )

    def splits_of(self, profiles: Sequence[Profile]) -> tuple[Split, ...]:
        """At which these jobs were measured together."""
        windows = windows_of(profiles, self._windows(profiles))
        return tuple(dict.fromkeys(w.split for w in windows if is_within(w.split, profiles)))

    def warnings(self, profiles: Sequence[Profile]) -> Iterator[str]:
        """What is to be said of it."""
        card = self.card_of(profiles)
        if card and abs(math.log(card.power_factor.value)) > card.log_stderr:
            yield card.text
        for drift in self.drifts_of(profiles):
            yield f"{drift.text}; intervals are wider: advisor profile {drift.job}"
        if text := self.outdated.get(profiles[0].gpu_model):
            yield text
        yield from dict.fromkeys(limit_warnings(profiles))
        beside = Counter(job for hour in self._hours(profiles) for job in hour.observation.jobs)
        for job in dict.fromkeys(p.job for p in profiles if p.doubt is not None and beside[p.job]):
            yield f"of {job} also {beside[job]} launches beside profiled jobs tell"

    def _hours(self, profiles: Sequence[Profile]) -> list[Expected]:
        """Those on their GPU model; what these very jobs did is among the windows."""
        model, jobs = profiles[0].gpu_model, tuple(sorted(p.job for p in profiles))
        return [
            hour
            for hour in self.hours
            if hour.observation.gpu_model == model and hour.observation.jobs != jobs
        ]

    def _windows(self, profiles: Sequence[Profile]) -> Windows:
        """What was measured; of jobs that drift only what was measured since then."""
        if hold_several(profiles):
            return {}  # what was measured of its neighbours was on one GPU
        if not (since := max((drift.since for drift in self.drifts_of(profiles)), default="")):
            return self.windows
        return {
            jobs: windows
            for jobs, of in self.windows.items()
            if (windows := [w for w in of if w.started_at >= since])
        }

    def _drifts(self, profiles: Sequence[Profile]) -> Mapping[tuple[str, str], DriftedJob]:
        return drifts_of(
            self.drifts, [p.job for p in profiles], profiles[0].gpu_model, self.gpu_uuid
        )


NOTHING = Conditions()


def read_conditions(
    settings: Settings,
    predictor: Predictor,
    profiles: Sequence[Profile],
    gpu_uuid: str | None,
    driver: str | None = None,
    *,
    any_of: bool = False,
    newest: Sequence[Observation] = (),
    only_on: Collection[str] = (),
) -> Conditions:
    """The conditions of a host for these jobs, from its store and from what comes with advisor.

    The card is None where it is not known: the only one of its model that jobs were launched on,
    if there is just one. The driver is None where it is that of the newest launch. `any_of` and
    `newest` are as in `measured_windows`; `only_on` as of a `ProfileSet`.

    Raises:
        StoreError: the store, or what a check found, cannot be read.
    """
    gpu_model, checks = profiles[0].gpu_model, checks_of(settings)
    with begun_store(settings) as store:
        experience = experience_of(store, predictor, checks, settings.home, newest)
        conditions = experience.on_card(
            gpu_model, gpu_uuid or experience.only_card(gpu_model), store
        )
        windows = measured_windows(profiles, checks, store, any_of=any_of, newest=newest)
    if only_on:
        windows = {
            jobs: tuple(window for window in of if window.gpu_uuid in only_on)
            for jobs, of in windows.items()
        }
    outdated = dict(conditions.outdated)
    if driver is not None:
        outdated[gpu_model] = outdated_check(settings.home, gpu_model, {"driver": driver})
    return replace(conditions, windows=windows, outdated=outdated)


def experience_of(
    store: Store | None,
    predictor: Predictor,
    checked: _Checked,
    home: Path,
    newest: Iterable[Observation] = (),
) -> Conditions:
    """Of any card: what a store has seen, and what is not in it yet, against the model in use.

    Raises:
        StoreError: the store, or what a check found, cannot be read.
    """
    # The newest ones: so many take about a second.
    page = store.observation_page(None, Span(limit=2000)).records if store else ()
    if not (observations := tuple(undisputed([*newest, *page]))):
        return NOTHING
    profiles = profiles_of(
        {job for observation in observations for job in observation.jobs}, store, or_watched=True
    )
    all_ = expected_of(observations, profiles, predictor, checked)
    by_unsure = grouped(all_, lambda e: sum(p.doubt is not None for p in e.profiles))
    # An estimate that is off is no drift, nor is it the card.
    expected = by_unsure.get(0, [])
    return Conditions(
        expected=tuple(expected),
        drifts=find_drifts(compared(expected)),
        outdated=outdated_checks(observations, home),
        kernels=fitted_kernels(all_),
        hours=tuple(by_unsure.get(1, ())),
    )


def narrowed_by(profile: Profile, launches: Iterable[Expected]) -> Profile:
    """The estimated profile of a job after what it did in these.

    Launches of the same jobs at one split are off alike, by what is not known of sets: with their
    number only the noise falls.
    """
    key, evidence = (profile.job, profile.gpu_model), list[tuple[float, Floats, Floats]]()
    is_meant = profile.doubt is not None and not profile.serving
    together = grouped(
        (o for o in launches if is_meant and key in {(p.job, p.gpu_model) for p in o.profiles}),
        lambda e: (e.observation.jobs, e.prediction.split),
    )
    for (jobs, split), alike in together.items():
        n, expected = jobs.index(profile.job), alike[0].prediction
        measured = [
            both
            for e in alike
            for rates in [_rates_as_profiled(e.observation, e.profiles)]
            if all(both := (rates[n], e.observation.power_w))
        ]
        if measured:
            share = np.array([split.shares[n]])
            ends = expected.parts[n].rate, expected.power_w
            value, low, high = np.array([astuple(of) for of in ends]).T
            # Of what the job draws more, the card shows a part.
            times = np.array([1.0, value[1] / profile.at(share, "power_w")["power_w"][0]])
            errors = np.array([(of.noise, of.least, of.of_card) for of in (SPEED, POWER)])
            noise, least, card = times * errors.T
            whole = times * np.log(np.maximum(value / low, high / value)) / NORMAL_90
            of_sets = np.maximum(whole**2 - profile.doubt_at(share)[:, 0] ** 2, least**2)
            spread = np.sqrt(of_sets + card**2 + noise**2 / len(measured))
            evidence.append(
                (split.shares[n], times * np.log(measured / value).mean(axis=0), spread)
            )
    if not evidence:
        return profile
    shares, logs, spreads = (np.array([*of]) for of in zip(*evidence, strict=True))
    return narrowed(profile, shares, logs.T, spreads.T)


def fitted_kernels(launches: Iterable[Expected]) -> FittedKernels:
    """Kernels of jobs that no probe ran beside, in the median of the launches that tell them.

    Two jobs without limits get as many kernels each, so a neighbour with short blocks that fills
    the GPU and whose own kernels are known stands for the probe. From one bundled pair they are 7 %
    off where the job fills the GPU and 24 % where it does not (medians of 152 and 72;
    docs/measurements/own/kernels_per_unit.py --fitted).
    """
    fitted: defaultdict[tuple[str, str], list[Kernels]] = defaultdict(list)
    for launch in launches:
        seats = [*zip(launch.profiles, launch.observation.parts, strict=True)]
        if len(seats) != ADVISED_JOBS or launch.prediction.split != without_limits("uncapped", 2):
            continue
        for (profile, part), (probe, beside) in itertools.permutations(seats):
            if (
                profile.kernels
                or profile.serving
                or probe.serving
                or not (has_short_blocks(probe) and probe.kernels and part.rate and beside.rate)
                or profile.rate_unit != part.rate_unit
            ):
                continue
            n = probe.kernels.per_unit
            fit = kernels_beside(
                *(
                    MeanEstimate(rate, _RATE_ERROR * rate)
                    for rate in (
                        profile.whole_gpu_rate,
                        part.rate,
                        n * probe.whole_gpu_rate,
                        n * beside.rate,
                    )
                )
            )
            if fit["kernels_per_unit_stderr"] < _MOST_ERROR * fit["kernels_per_unit"]:
                fitted[profile.job, profile.gpu_model].append(
                    Kernels(
                        per_unit=fit["kernels_per_unit"],
                        hold_s=fit["kernel_hold_s"],
                        source="fitted",
                    )
                )
    return {
        key: sorted(of, key=lambda kernels: kernels.per_unit)[len(of) // 2]
        for key, of in fitted.items()
    }


def checks_of(settings: Settings) -> _Checked:
    """What checks of this host found, by GPU model, each read once."""
    return functools.cache(functools.partial(checked_counts, settings.home))


def stored_factor(
    gpu_model: str, gpu_uuid: str | None, expected: Iterable[Expected], store: Store | None
) -> CardPower | None:
    """The factor of a card, by what is known of it and of others of its model.

    A card that is not known has none. Without a store there are only the bundled points.

    Raises:
        StoreError: the store cannot be read.
    """
    if gpu_uuid is None:
        return None
    points, span = [*bundled_reference_points()], Span(limit=_MOST_POINTS, gpu_model=gpu_model)
    if store:
        for name in store.profile_names(limit=_MOST_JOBS):
            points += undisputed(store.page(SoloPoint, [name], span).records)
    references: dict[str, dict[str, float]] = {}
    if any(point.gpu_uuid == gpu_uuid for point in points):
        references = reference_logs(
            points, profiles_of({point.job for point in points}, store), gpu_model
        )
    return card_factor(gpu_uuid, references, card_logs(expected, gpu_uuid))


class DriftPredictor:
    """Predicts with wider bounds for jobs that drift, by job and quantity."""

    def __init__(self, predictor: Predictor, drifts: Mapping[tuple[str, str], DriftedJob]) -> None:
        self._predictor, self._drifts = predictor, drifts

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        """One prediction for each split, in their order.

        Raises:
            InputError: as the predictor does.
        """
        names = [profile.job for profile in profiles]
        predictions = self._predictor.predict(profiles, splits)
        return Predictions.of([self._wider(prediction, names) for prediction in predictions])

    def _wider(self, prediction: Prediction, names: Sequence[str]) -> Prediction:
        drifts = self._drifts
        parts = tuple(
            replace(part, speed=widened(part.speed, drift.ratio))
            if (drift := drifts.get((name, "rate")))
            else part
            for name, part in zip(names, prediction.parts, strict=True)
        )
        power_w = prediction.power_w
        for name in dict.fromkeys(names):
            if drift := drifts.get((name, "power")):
                power_w = widened(power_w, drift.ratio)
        if parts == prediction.parts and power_w == prediction.power_w:
            return prediction
        # The errors of the quotient are known of jobs that do as expected, so not of these.
        return replace(prediction, parts=parts, power_w=power_w, efficiency_factors=None)


# Rate and power of jobs alone on the whole GPU, by run, card and job.
_Alone: TypeAlias = Mapping[tuple[str, str, str], tuple[float, float]]


def measured_windows(
    profiles: Sequence[Profile],
    checked: _Checked,
    store: Store | None,
    bundled: Iterable[PairPoint] | None = None,
    *,
    any_of: bool = False,
    newest: Iterable[Observation] = (),
) -> Windows:
    """Windows and launches of these jobs on their GPU model that nothing speaks against.

    Args:
        profiles: Of the jobs on one GPU model.
        checked: Says which counts are unsafe: launches there count with right results only.
        store: None: there is nothing but what comes with advisor.
        bundled: Points that come with advisor, of any jobs; None: they are read.
        any_of: Of any of them beside each other, as in a queue or of copies; else of all together,
            and what came with advisor, or is of copies of one job, of fewer of them, too.
        newest: Observations that are not in the store yet.

    Raises:
        StoreError: the store cannot be read.
    """
    by_job, gpu_model = {p.job: p for p in profiles}, profiles[0].gpu_model
    windows: list[tuple[tuple[str, ...], Window]] = []
    on_model = [
        point
        for point in (bundled_points_together(by_job) if bundled is None else bundled)
        if point.gpu_model == gpu_model
    ]
    if on_model:
        # A process that keeps the points reads the references of all jobs once.
        references = _bundled_alone(*by_job) if bundled is None else _bundled_alone()
        windows += _of_points(on_model, by_job, references, is_bundled=True)
    stored = list[Observation]()
    if store is not None:
        # Of a queue all are read at once: asking for each pair takes longer.
        sets = [None] if any_of else sets_of([p.job for p in profiles])
        points = [p for jobs in sets for p in store.pair_points(jobs=jobs, gpu_model=gpu_model)]
        windows += _of_points(
            undisputed(points),
            by_job,
            _alone_of(p for job in by_job if points for p in store.solo_points(job=job)),
        )
        stored = [o for jobs in sets for o in store.observations(jobs=jobs, gpu_model=gpu_model)]
    for observation in undisputed([*newest, *stored]):
        profiled = [by_job[job] for job in observation.jobs if job in by_job]
        split = _launched_split(observation) if len(profiled) == len(observation.jobs) else None
        if split and not _is_doubtful(observation, profiled, checked):
            window = replace(
                _window(split, observation),
                is_launch=True,
                rates=_rates_as_profiled(observation, profiled),
            )
            windows.append((observation.jobs, window))
    return {
        names: tuple(window for _, window in of_jobs)
        for names, of_jobs in grouped(windows, lambda pair: pair[0]).items()
        if by_job.keys() >= {*names}
    }


@functools.cache
def _bundled_alone(*jobs: str) -> _Alone:
    """Of these jobs, or of all, in the campaigns that come with advisor."""
    names = jobs or None
    return _alone_of((*bundled_reference_points(names), *bundled_set_references(names)))


def _alone_of(points: Iterable[SoloPoint]) -> _Alone:
    whole = (p for p in points if p.share_percent == WHOLE and p.power_w)
    figures = grouped(whole, lambda p: (p.run, p.gpu_uuid, p.job))
    return {
        key: (
            statistics.median(p.rate for p in of),
            statistics.median(p.power_w or 0.0 for p in of),
        )
        for key, of in figures.items()
    }


def sets_of(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The jobs to look for in a store: all of them; of copies fewer as well."""
    fewer = range(2, len(names)) if len(set(names)) == 1 else ()
    return [tuple(names[:number]) for number in (len(names), *fewer)]


def _of_points(
    points: Iterable[PairPoint],
    profiles: Mapping[str, Profile],
    alone: _Alone,
    *,
    is_bundled: bool = False,
) -> Iterator[tuple[tuple[str, ...], Window]]:
    measured = (
        point
        for point in points
        if point.source != REPLAY_SOURCE and _is_of(point, profiles.values())
    )
    for point in select(measured)[0]:
        if split := measured_split(point.mode, point.shares_percent):
            window = replace(_window(split, point), is_bundled=is_bundled)
            yield point.jobs, _as_profiled(window, point, profiles, alone)


def _as_profiled(
    window: Window, point: PairPoint, profiles: Mapping[str, Profile], alone: _Alone
) -> Window:
    """The window as on the host of the profiles, where its own run has measured all jobs alone.

    A speed is the rate over the rate alone on the same host: small kernels run at 0.4 to 2.2 times
    the rate of the profile, as fast as the CPU of a host starts them. The energy that the window
    saved against its own run stays as well.
    """
    references = [alone.get((point.run, point.gpu_uuid, part.job)) for part in point.parts]
    rates = [part.rate for part in point.parts]
    if None in references or None in rates or window.power_w is None:
        return window
    seats = [
        (part, rate or 0.0, reference or (1.0, 1.0), profiles[part.job])
        for part, rate, reference in zip(point.parts, rates, references, strict=True)
    ]
    same_work_w = sum(
        rate / reference_rate * reference_w for _, rate, (reference_rate, reference_w), _ in seats
    )
    as_profiled_w = sum(
        rate / reference_rate * profile.whole_gpu_power_w
        for _, rate, (reference_rate, _), profile in seats
    )
    power_w = window.power_w * as_profiled_w / same_work_w if same_work_w else window.power_w
    # A faster host does not lift the power limit: all of them wait for the GPU then.
    slower = min(1.0, (point.power_limit_w or math.inf) / power_w)
    return replace(
        window,
        rates=tuple(
            rate if part.offered_rate else slower * rate * profile.whole_gpu_rate / reference_rate
            for part, rate, (reference_rate, _), profile in seats
        ),
        power_w=slower * power_w,
    )


def _window(split: Split, point: PairPoint | Observation) -> Window:
    tails = tuple(part.latency_p99_ms for part in point.parts)
    return Window(
        split,
        tuple(part.rate for part in point.parts),
        point.power_w,
        point.gpu_uuid,
        point.started_at,
        latencies_p99_ms=tails if any(tails) else (),
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AdvisorInputs:
    """What an answer about jobs is made of.

    Attributes:
        profile_set: Their profiles.
        model: What predicts; sets take from it what stands in for idle power.
        jobs_dir: With their job files; None: these are not looked at.
        checked: What a check of the GPU model found; None: there was none.
        conditions: What was seen of the card, of drifting jobs, and of these jobs together.
    """

    profile_set: ProfileSet
    model: ModelPredictor
    jobs_dir: Path | None = None
    checked: CheckedCounts | None = None
    conditions: Conditions = NOTHING

    @classmethod
    def read(
        cls,
        profile_set: ProfileSet,
        settings: Settings,
        gpu_uuid: str | None = None,
        *,
        any_of: bool = False,
        newest: Sequence[Observation] = (),
    ) -> "AdvisorInputs":
        """What this host knows, by the model in use; the last two are as in `measured_windows`.

        Raises:
            ModelError: there is no model, or it is damaged.
            StoreError: observations, or what the check of this GPU model found, cannot be read.
        """
        model = Registry(settings.home / "models").open_champion()
        return cls(
            profile_set=profile_set,
            model=model,
            jobs_dir=settings.jobs_dir,
            checked=profile_set.checked(settings),
            conditions=read_conditions(
                settings,
                model,
                profile_set.profiles,
                gpu_uuid,
                any_of=any_of,
                newest=newest,
                only_on=profile_set.only_on,
            ),
        )
