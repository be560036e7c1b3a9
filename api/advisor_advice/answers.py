"""Answers about one to seven jobs on one GPU, and the best partners of a job."""

import math
import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from advisor.core.gpu import (
    ADVISED_JOBS,
    ISOLATING,
    MEMORY_PART,
    MPS_CLIENTS,
    WHOLE,
    Split,
    units_for_share,
    vendor_of,
)
from advisor.core.job import Job
from advisor.core.objectives import (
    ADVISED,
    DEFAULT_OBJECTIVE,
    Finish,
    Interval,
    Objective,
)
from advisor.core.records import DOUBTFUL, SINGLE_WINDOW, SoloPoint
from advisor.core.wording import count_of, listed
from advisor.decide.decision import (
    Decision,
    Outlook,
    RatedSplit,
    Running,
    decide,
    gain_to_the_end,
    reasons,
    replicas,
    savings_of,
    wanted_splits,
    warnings,
    why_unsure,
)
from advisor.decide.limits import Request, cores_wanted
from advisor.errors import InputError, NoSplitError
from advisor.predict.predictions import lower_limit
from advisor.predict.profiles import MEASURED_ON, Profile, hold_several
from advisor.predict.sets import OptionPredictor, active_idle_w, fills, is_by_physics
from advisor.settings import SUITE, Settings, job_folders
from advisor.validity.points import is_usable, with_solo_flags
from advisor.validity.safe_counts import CheckedCounts, avoided_texts
from advisor.wire import answers as wire
from advisor.wire.answers import (
    CardPower,
    ComponentsOfJob,
    Copies,
    DriftedJob,
    JobCurve,
    MeasuredTogether,
    Needs,
    Partner,
    Partners,
    Replicas,
    ShareParts,
    Size,
)
from advisor.wire.requests import RecommendationRequest
from advisor_advice.conditions import (
    AdvisorInputs,
    ProfileSet,
    all_profiles,
    find_profiles,
    stored_points,
)
from advisor_data.bundled import bundled_solo_points
from advisor_models.registry import MOST_PAIRS, Manifest, OtherGpu

# How many features outside of the training data are named; there can be dozens.
_NAMED = 3


def request_of(request: RecommendationRequest, settings: Settings) -> Request:
    """The request for a decision; settings and job files say what it leaves out.

    Raises:
        InputError: invalid limits, or limits that do not apply to so many jobs.
    """
    request.check()
    return Request(
        policy=request.policy(settings.policy),
        fine=request.fine,
        min_speed=request.min_speeds(),
        max_p99_ms=promised_p99_ms(request.names, settings.jobs_dir) | request.p99_by_job_ms,
        default_max_p99_ms=request.max_p99_ms,
        max_power_w=request.max_power_w,
        memory_mib=request.memory_mib,
        isolate=request.isolate,
        host_cores=request.host_cores,
        work=request.work,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelAdvice:
    """A decision, and what it is by.

    Attributes:
        warnings: What a reader should know before doing it.
        reasons: Why this option.
        card: By which power was corrected for the card; None: it was not.
        measured: Of these jobs together; the answer takes it in.
        gpus: What each GPU runs, where the jobs do not share one.
        replicas: Of one job alone, how many copies of it; the decision is on the best number.
        options: Of the command that starts the jobs, beside their limits.
    """

    decision: Decision
    manifest: Manifest
    warnings: tuple[str, ...]
    reasons: tuple[str, ...]
    card: CardPower | None = None
    drifts: tuple[DriftedJob, ...] = ()
    measured: MeasuredTogether | None = None
    gpus: tuple[str, ...] = ()
    replicas: Replicas | None = None
    options: str = ""

    def to_wire(self, *, every: bool = False) -> wire.Recommendation:
        """The answer as JSON; docs/recommend.md explains each key."""
        d, model = self.decision, self.manifest
        work, shown = d.same_work(d.chosen), d.picks() if every else None
        objectives = dict.fromkeys((d.request.objective.name, *(shown or ())))
        options_on_wire = {
            id(option): option_of(option, d, objectives)
            for option in (d.options if every else d.best_of_each())
        }
        saved, lower = d.choice and d.choice.prediction.energy_saved.value, lower_limits(d)
        return wire.Recommendation(
            jobs=tuple(
                wire.RequestedJob(
                    job=profile.job,
                    rate_unit=profile.rate_unit,
                    alone=wire.Alone(
                        rate=profile.whole_gpu_rate,
                        power_w=profile.whole_gpu_power_w,
                        memory_used_mib=profile.memory_used_mib,
                        latency_p99_ms=profile.whole_gpu_p99_ms,
                    ),
                    energy=_energy_per_unit(profile, saved, lower),
                    one_window=SINGLE_WINDOW in profile.flags,
                )
                for profile in d.profiles
            ),
            gpu_model=d.profiles[0].gpu_model,
            objective=d.request.objective.name,
            verdict=d.verdict,
            choice=d.choice and options_on_wire[id(d.choice)],
            call=d.call and options_on_wire[id(d.call)],
            candidates=tuple(options_on_wire.values()),
            searched=len(d.options),
            needs=needs_of(d),
            same_work=wire.SameWork(
                work_s=work.work.alone_s,
                choice=_ending(work.choice),
                restarted=_ending(work.restarted),
                baselines={"exclusive": _ending(work.exclusive)},
            ),
            reasons=self.reasons,
            warnings=self.warnings,
            coverage=model.coverage,
            model=wire.ModelName(version=model.version, gpu_models=model.gpu_models)
            if len(d.profiles) == ADVISED_JOBS and not hold_several(d.profiles)
            else None,
            lower_limits=lower,
            picks=None if shown is None else {name: o.name for name, o in shown.items()},
            near=d.near_miss(),
            gpus=self.gpus,
            replicas=self.replicas,
            card=self.card,
            drifts=self.drifts,
            measured=self.measured,
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SetAdvisor:
    """Two to seven jobs with their predictions and warnings, ready for any request.

    Attributes:
        warnings: Whatever is wanted.
    """

    inputs: AdvisorInputs
    outlook: Outlook
    warnings: tuple[str, ...]
    # Features that no training data had, by the split that was chosen.
    _outside: dict[Split, list[str]] = field(default_factory=dict[Split, list[str]])

    def decide(self, request: Request, running: Running | None = None) -> Decision:
        """How the jobs are to run; all but the last may be running.

        Raises:
            InputError: the request does not fit the jobs.
            NoSplitError: nothing keeps every limit, not even a GPU for each.
        """
        return decide(self.outlook, request, running=running)

    def answer(self, request: Request, running: Running | None = None) -> ModelAdvice:
        """The decision with its reasons and warnings.

        Raises:
            As `decide`.
        """
        decision = self.decide(request, running)
        profiles, conditions = self.outlook.profiles, self.inputs.conditions
        option, profiled = decision.sharing_option, self.inputs.profile_set.profiles
        split = option and option.prediction.split
        measured = conditions.measured_of(profiles, split)
        return ModelAdvice(
            decision=decision,
            manifest=self.inputs.model.manifest,
            warnings=tuple(
                dict.fromkeys(
                    (
                        *warnings(decision),
                        *why_unsure(decision, self.inputs.checked),
                        *self._of_predictor(split, measured),
                        *self.warnings,
                    )
                )
            ),
            reasons=(*reasons(decision), *self._avoided(fine=request.fine)),
            card=conditions.card_of(profiled),
            drifts=conditions.drifts_of(profiled),
            measured=measured,
        )

    def advise(self, wire_request: RecommendationRequest, request: Request) -> ModelAdvice:
        """The answer to a request; of one job alone this is a set of most copies.

        Raises:
            As `decide`.
        """
        # The MPS daemon that runs sets no lower limit.
        there = (
            Running(split=Split(wire_request.running), cap_percent=WHOLE)
            if wire_request.running
            else None
        )
        given = (
            self._copies(request) if len(wire_request.names) == 1 else self.answer(request, there)
        )
        profile_set, jobs_dir = self.inputs.profile_set, self.inputs.jobs_dir
        # Files of the suite are what its profiles are of.
        own = jobs_dir and jobs_dir.absolute() != SUITE / "jobs" and jobs_dir
        local = [
            profile
            for profile in profile_set.profiles
            if profile.job not in profile_set.bundled
            or (own and (own / f"{profile.job}.yaml").exists())
        ]
        files = (jobs_dir and _job_file(profile.job, jobs_dir) for profile in local)
        return replace(given, warnings=(*changed_jobs(files, local), *given.warnings))

    def _copies(self, request: Request) -> ModelAdvice:
        profile_set = self.inputs.profile_set
        sets = [
            SetAdvisor.of(
                replace(
                    self.inputs,
                    profile_set=replace(profile_set, profiles=profile_set.profiles[:number]),
                )
            )
            for number in range(ADVISED_JOBS, len(profile_set.profiles) + 1)
        ]
        decisions, best_number = replicas(
            (advisor_of_set.outlook for advisor_of_set in sets), request
        )
        job = self.outlook.profiles[0]
        # One was measured, so the bounds are the values.
        copies = (
            Copies(
                number=1,
                verdict=None,
                split=None,
                rate=Interval.sure(job.whole_gpu_rate),
                speed=Interval.sure(1.0),
                power_w=Interval.sure(job.whole_gpu_power_w),
                joules=Interval.sure(job.whole_gpu_power_w / job.whole_gpu_rate),
                energy_saved=Interval.sure(0.0),
                energy_saved_idle=Interval.sure(0.0),
                latency_p99_ms=Interval.sure(p99_ms) if (p99_ms := job.whole_gpu_p99_ms) else None,
            ),
            *map(_so_many, sets, decisions),
        )
        of_best = sets[max(best_number.best, ADVISED_JOBS) - ADVISED_JOBS]
        return replace(of_best.answer(request), replicas=replace(best_number, copies=copies))

    def _avoided(self, *, fine: bool) -> tuple[str, ...]:
        """Counts of the splits of two jobs that are not used, since results are wrong there."""
        profiles, checked = self.outlook.profiles, self.inputs.checked
        safeties, jobs = [p.safety(checked) for p in profiles], [p.job for p in profiles]
        wanted = wanted_splits(profiles, fine=fine)
        return tuple(dict.fromkeys(avoided_texts(wanted, jobs, safeties))) if wanted else ()

    def _of_predictor(
        self, split: Split | None, measured: MeasuredTogether | None
    ) -> Iterator[str]:
        profiles, model = self.outlook.profiles, self.inputs.model
        by_physics = len(profiles) > ADVISED_JOBS or hold_several(profiles)
        if by_physics or (split and is_by_physics(split)):
            yield from _of_physics(profiles, measured)
            return
        yield from gpu_warnings(model.manifest, profiles)
        if split is None or split.sharing in ISOLATING:
            return
        if split not in self._outside:
            self._outside[split] = model.extrapolation(profiles, [split])
        if outside := self._outside[split]:
            more = f" and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
            yield f"unlike anything the model has seen in {', '.join(outside[:_NAMED])}{more}"

    @classmethod
    def of(cls, inputs: AdvisorInputs) -> "SetAdvisor":
        """Jobs made ready for whatever is asked of them.

        Raises:
            InputError: fewer than two, or more than seven.
        """
        profile_set, assumed = inputs.profile_set.with_idle_power_filled(inputs.model.manifest.fill)
        there, profiles = inputs.conditions.applied(
            OptionPredictor(inputs.model), profile_set.profiles
        )
        return SetAdvisor(
            inputs=inputs,
            outlook=Outlook(profiles, there, inputs.checked, inputs.conditions.splits_of(profiles)),
            warnings=(
                *of_check(profile_set, inputs.checked),
                *_of_input(profile_set),
                *assumed,
                *inputs.conditions.warnings(profile_set.profiles),
            ),
        )


def of_check(profile_set: ProfileSet, checked: CheckedCounts | None) -> Iterator[str]:
    """Whether anybody knows which counts are safe on the GPU model of these profiles."""
    if checked is None and not any(p.right_units or p.wrong_units for p in profile_set.profiles):
        yield (
            f"no check of SM counts was run on {profile_set.a.gpu_model}, so libraries may compute "
            "wrong results at some: advisor check"
        )


def _of_input(profile_set: ProfileSet) -> Iterator[str]:
    """Bundled points have random input (their data card)."""
    if profile_set.other_models:
        yield (
            f"all were profiled on {listed(profile_set.other_models)}, too: --gpu-model, or "
            "`gpu_model` in a request"
        )
    if names := " and ".join(profile_set.bundled):
        yield f"bundled, so measured with random input, on which power depends: {names}"


def gpu_warnings(manifest: Manifest, profiles: Sequence[Profile]) -> Iterator[str]:
    """Sentences on a GPU model that the model has not seen, and on one without a known limit."""
    if (gpu_model := profiles[0].gpu_model) not in manifest.gpu_models:
        figures = manifest.other_gpu
        jobs = ",".join(dict.fromkeys(profile.job for profile in profiles))
        yield (
            f"the model has not seen the {gpu_model}, only {', '.join(manifest.gpu_models)}: "
            f"{_width(figures)}. {_pairs(figures)}: advisor colocate --among {jobs}; "
            "docs/training.md says how to learn from them"
        )
    if all(profile.power_limit_w is None for profile in profiles):
        yield (
            f"the power limit of the {gpu_model} is not known: watts are compared with the most "
            "that these jobs drew alone, and nothing is expected to hold their power down"
        )


def _width(figures: OtherGpu) -> str:
    if all(factor == 1 for factor in figures.widening.values()):
        return f"intervals are no wider, since leaving out the {_left_out(figures)} took none"
    factors = [f"{factor:.2g} times for {name}" for name, factor in figures.widening.items()]
    by_what = (
        f"which leaving out the {_left_out(figures)} took"
        if figures.left_out
        else "somewhat more than for GPUs of one model that were left out"
    )
    return f"intervals are wider: {listed(factors)}, {by_what}"


def _left_out(figures: OtherGpu) -> str:
    return " or the ".join(figures.left_out)


def _pairs(figures: OtherGpu) -> str:
    if figures.pairs_to_par == 0:
        return "It took no pairs measured there; to be sure of this one, measure some"
    if figures.pairs_to_par is None:
        return f"It takes more than {MOST_PAIRS} pairs measured there to need no wider ones"
    return f"About {count_of(figures.pairs_to_par, 'pair')} measured there, and none need be wider"


def promised_p99_ms(jobs: Iterable[str], jobs_dir: Path) -> dict[str, float]:
    """The longest p99 latency of each job whose file in `jobs_dir` names one, ms.

    A job without a file, or with a faulty one, has promised nothing: advice needs no job files.
    """
    return {
        job: file.max_p99_ms
        for job in jobs
        if (file := _job_file(job, jobs_dir, b"max_p99_ms")) and file.max_p99_ms is not None
    }


def changed_jobs(jobs: Iterable[Job | None], profiles: Iterable[Profile]) -> Iterable[str]:
    """What is to be said of jobs that are not what was profiled; copies of one once."""
    return dict.fromkeys(
        f"the job file of {job.name} has changed since it was profiled: advisor profile {job.name}"
        for job, profile in zip(jobs, profiles, strict=True)
        if job and not profile.is_of(job.job_hash)
    )


def _job_file(job: str, jobs_dir: Path, holds: bytes = b"") -> Job | None:
    """The job of a file with this text in it; None: there is none, or it is faulty."""
    # A question stats two to fourteen files: of texts, which takes a fifth of the time of paths.
    for path in (f"{folder}/{job}.yaml" for folder in job_folders(jobs_dir)):
        with suppress(OSError):
            return _read(path, os.stat(path).st_mtime_ns, holds)  # noqa: PTH116
    return None


@lru_cache(maxsize=1024)
def _read(name: str, _changed_ns: int, holds: bytes) -> Job | None:
    """A service is asked thousands of times of the same files; one takes 2 ms to read."""
    path = Path(name)
    with suppress(InputError):
        if holds in path.read_bytes():
            # Loading YAML takes a tenth of a short answer.
            from advisor.formats.job_file import load_job

            return load_job(path)
    return None


def _energy_per_unit(
    profile: Profile, saved: float | None, lower: Iterable[wire.LowerLimit]
) -> wire.EnergyPerUnit | None:
    """Of the same work all jobs save the same part of their energy."""
    if not profile.whole_gpu_rate:
        return None
    alone_j = profile.whole_gpu_power_w / profile.whole_gpu_rate
    shared_j = None if saved is None else alone_j * (1 - saved)
    less = next((of.energy_saved.value for of in lower if profile.job in of.jobs), None)
    return wire.EnergyPerUnit(
        alone_j=alone_j,
        shared_j=shared_j,
        lower_limit_j=None if less is None else (shared_j or alone_j) * (1 - less),
    )


def lower_limits(d: Decision) -> tuple[wire.LowerLimit, ...]:
    """Of the GPU that is shared as advised, else of the GPU of each job."""
    chosen, request = d.choice, d.request
    if hold_several(d.profiles):
        return ()
    if chosen is None:
        limits = (
            lower_limit([profile], profile.whole_gpu_power_w, [request.floor(profile)])
            for profile in {profile.job: profile for profile in d.profiles}.values()
        )
    else:
        p = chosen.prediction
        floors = (
            request.floor(profile) / part.speed.value
            for profile, part in zip(d.profiles, p.parts, strict=True)
        )
        limits = iter([lower_limit(d.profiles, p.power_w.value, floors)])
    return tuple(limit for limit in limits if limit)


def option_of(option: RatedSplit, d: Decision, objectives: Iterable[str] = ()) -> wire.Option:
    """An option as in JSON."""
    p, prices, vendor = (
        option.prediction,
        d.request.policy.prices,
        vendor_of(d.profiles[0].gpu_model),
    )
    total = next((profile.units_total for profile in d.profiles if profile.units_total), None)
    savings = savings_of(
        p, prices, statistics.fmean(profile.idle_power_w for profile in d.profiles)
    )
    return wire.Option(
        split=option.name,
        sharing=option.sharing,
        isolates=option.sharing in ISOLATING,
        jobs=tuple(
            wire.JobShare(
                job=profile.job,
                share_percent=share,
                units=total and units_for_share(share, total, vendor),
                rate=part.rate,
                speed=part.speed,
                environment=environment,
                latency_p99_ms=part.latency_p99_ms,
            )
            for profile, share, part, environment in zip(
                d.profiles, p.split.shares, p.parts, option.environments(d.profiles), strict=True
            )
        ),
        power_w=p.power_w,
        memory_power_w=p.memory_power_w,
        energy_saved=_saved_to_the_end(option, d) or savings.energy,
        energy_saved_idle=savings.energy_idle,
        gpu_time_saved=savings.gpu_time,
        cost_saved=savings.cost,
        stp=p.stp,
        objectives={n: p.objective_value(prices.priced(ADVISED[n])) for n in objectives},
        violations=tuple(violation.text for violation in option.violations),
    )


def _ending(finish: Finish | None) -> Finish | None:
    # Infinity is not JSON: what never ends has no end.
    return finish if finish and math.isfinite(finish.time_s) else None


def _saved_to_the_end(option: RatedSplit, d: Decision) -> Interval | None:
    """Of the work of the request, until all have ended; None: nothing is said of it."""
    if d.request.work is None:
        return None
    p, by = option.prediction, Objective.find(DEFAULT_OBJECTIVE)
    gain = gain_to_the_end(p.split, d.profiles, d.request.work, by)
    return p.range_of(lambda result: 1 - 1 / gain(result))


def needs_of(d: Decision) -> Needs:
    """What the jobs take beside SMs and power."""
    memory = [profile.memory_used_mib for profile in d.profiles]
    return Needs(
        memory_mib=max(sum(memory[n] or 0 for n in on) for on in d.chosen.split.each_gpu)
        if all(memory)
        else None,
        memory_of_mib=d.request.memory_mib,
        host_cores=cores_wanted(d.profiles),
        mps_clients=sum(profile.mps_clients for profile in d.profiles),
        mps_clients_most=MPS_CLIENTS,
    )


def _so_many(of: SetAdvisor, d: Decision) -> Copies:
    """A decision on copies of a job, in the numbers of all of them together."""
    option = option_of(shown := d.sharing_or_nearest, d)
    rate = Interval(*map(sum, zip(*(astuple(job.rate) for job in option.jobs), strict=True)))
    joules = option.power_w.value / rate.value
    low, high = shown.prediction.efficiency_factors or (1.0, 1.0)
    p99s = [job.latency_p99_ms for job in option.jobs if job.latency_p99_ms]
    return Copies(
        number=len(d.profiles),
        verdict=d.verdict,
        split=option.split,
        rate=rate,
        speed=min((job.speed for job in option.jobs), key=lambda speed: speed.value),
        power_w=option.power_w,
        joules=Interval(joules, joules / high, joules / low),
        energy_saved=option.energy_saved,
        energy_saved_idle=option.energy_saved_idle,
        latency_p99_ms=max(p99s, key=lambda p99: p99.value, default=None),
        measured=of.inputs.conditions.measured_of(d.profiles, shown.prediction.split),
    )


def _of_physics(profiles: Sequence[Profile], measured: MeasuredTogether | None) -> Iterator[str]:
    basis = f"{measured.text}; else it is" if measured else "nothing was measured of these: all is"
    yield f"{basis} by physics fitted to measured sets (how far off: docs/measurements/sets.md)"
    if (model := profiles[0].gpu_model) not in MEASURED_ON:
        yield f"no set was measured on {model}"
    for profile in profiles:
        if profile.gpus > 1:
            yield (
                f"{profile.job} holds {profile.gpus} GPUs: each step waits for the rank that takes "
                f"longer, so its speed is that on the GPU where it keeps least; it is taken to "
                f"exchange gradients once for each of its {profile.rate_unit}"
            )
        if fills(profile) and "sm_active_percent" in profile.missing:
            yield f"{profile.job} has no counters, and is taken to fill the GPU"
    if guessed := sorted({profile.job for profile in profiles if profile.kernels is None}):
        yield (
            f"kernels of {', '.join(guessed)} were not counted, and are guessed from the CPU time "
            "of the job, so speeds beside jobs that fill the GPU are less certain"
        )
    for source, basis in (
        ("fitted", "were not counted, and are taken from its launches"),
        ("counted", "are those that its job file declares"),
        ("elsewhere", "were counted on another GPU model, and are taken to last as long here"),
    ):
        if of := sorted({p.job for p in profiles if p.kernels and p.kernels.source == source}):
            yield f"kernels of {', '.join(of)} {basis}"
    if all(math.isnan(profile.active_idle_power_w) for profile in profiles):
        yield (
            "active idle power was not measured with these jobs, and is taken as "
            f"{statistics.fmean(map(active_idle_w, profiles)):.0f} W: advisor colocate measures it"
        )


DIGITS = 4
"""Of a part of 1, which hundreds of pairs give; none is known better."""

# Of the whole GPU: a size that keeps it costs a job alone next to nothing.
_ENOUGH_SPEED = 0.95


def best_partners(
    job: str, settings: Settings, request: Request, gpu_model: str | None = None
) -> Partners:
    """The ten partners with which most GPU time is saved, where the jobs are to share.

    Jobs that did not come with advisor go first: the others are examples.

    Raises:
        InputError: the job has no profile, there is not just one GPU model that it could be on, or
            a limit is not for this job.
        ModelError: there is no model, or it is damaged.
        NoSplitError: the job does not even keep its limits alone.
        StoreError: the store cannot be read.
    """
    profile_set = find_profiles([job, job], settings, gpu_model)
    others = sorted(all_profiles(settings, profile_set.a.gpu_model).items())
    every = (profile_set.a, *(p for name, p in others if name != job))
    inputs = AdvisorInputs.read(ProfileSet(every, ()), settings, any_of=True)
    filled, _ = inputs.profile_set.with_idle_power_filled(inputs.model.manifest.fill)
    there, profiles = inputs.conditions.applied(OptionPredictor(inputs.model), filled.profiles)
    request.check_limits(profile_set.profiles)
    promised = promised_p99_ms((p.job for p in profiles), settings.jobs_dir)
    request = replace(
        request.with_card_memory(profile_set.a.gpu_model),
        max_p99_ms={**promised, **request.max_p99_ms},
    )
    if broken := request.violations_alone(profile_set.a):
        raise NoSplitError(f"{job} cannot keep its limits beside any job: {broken[0].text}")
    partners: list[Partner] = []
    for other in profiles:
        pair = (profiles[0], other)
        outlook = Outlook(pair, there, inputs.checked, inputs.conditions.splits_of(pair))
        with suppress(InputError, NoSplitError):
            partners += partner_of(decide(outlook, request.of(pair)))
    examples = {point.job for point in bundled_solo_points()}
    partners.sort(
        key=lambda p: (p.partner in examples, p.verdict != "share", -p.gpu_time_saved.value)
    )
    used_mib, card_mib = profile_set.a.memory_used_mib, request.memory_mib
    return Partners(
        job=job,
        gpu_model=profile_set.a.gpu_model,
        looked_at=len(profiles),
        partners=tuple(partners[:10]),
        size=_best_size(profile_set.a),
        copies_by_memory=int(MEMORY_PART * card_mib / used_mib)
        if used_mib and card_mib is not None
        else None,
    )


def _best_size(profile: Profile) -> Size | None:
    """The smallest measured share that keeps `_ENOUGH_SPEED`; None: only the whole GPU does."""
    speeds = profile.values["rate"] / profile.whole_gpu_rate
    enough = (
        Size(
            share_percent=share,
            speed=speed,
            latency_p99_ms=profile.serving and profile.serving.p99_alone_ms(share),
        )
        for share, speed in zip(profile.shares.tolist(), speeds.tolist(), strict=True)
        if speed >= _ENOUGH_SPEED and share < profile.shares[-1]
    )
    return next(enough, None)


def curve_of(profile: Profile, *, bundled: bool) -> JobCurve:
    """What a job does alone at its measured shares."""
    speeds = (profile.values["rate"] / profile.whole_gpu_rate).tolist()
    return JobCurve(
        job=profile.job,
        rate_unit=profile.rate_unit,
        rate=profile.whole_gpu_rate,
        power_w=profile.whole_gpu_power_w,
        shares=tuple(profile.shares.tolist()),
        speeds=tuple(round(speed, DIGITS) for speed in speeds),
        size=_best_size(profile),
        bundled=bundled,
    )


def partner_of(decision: Decision) -> Iterator[Partner]:
    """The second job as the first one's partner; nothing where they are not to share."""
    if (option := decision.sharing_option) is None:
        return
    savings = savings_of(option.prediction, decision.request.policy.prices)
    part, other = option.prediction.parts
    yield Partner(
        partner=decision.profiles[1].job,
        verdict=decision.verdict,
        split=option.name,
        speed=part.speed,
        partner_speed=other.speed,
        gpu_time_saved=savings.gpu_time,
        energy_saved=savings.energy,
        cost_saved=savings.cost,
    )


def components_of_job(
    name: str, settings: Settings, gpu_model: str | None = None
) -> ComponentsOfJob:
    """What is known of where a job's power goes, at each share.

    Raises:
        InputError: the job has no profile, or no window that can be trusted.
        StoreError: the store cannot be read.
    """
    return components_by_share(
        find_profiles([name], settings, gpu_model).a,
        [*stored_points(settings, [name]), *bundled_solo_points()],
    )


def components_by_share(profile: Profile, points: Iterable[SoloPoint]) -> ComponentsOfJob:
    """The newest trusted window at each share; points may be of other jobs.

    Watts of single pipes are not told: by no weights do they agree with work of one kind
    (docs/component-power.md).

    Raises:
        InputError: there is no such window.
    """
    mine = [p for p in points if (p.job, p.gpu_model) == (profile.job, profile.gpu_model)]
    trusted = [p for p in with_solo_flags(mine) if is_usable(p) and DOUBTFUL.isdisjoint(p.flags)]
    newest = {p.share_percent: p for p in sorted(trusted, key=lambda p: p.started_at)}
    if not newest:
        raise InputError(
            f"no window of {profile.job} on {profile.gpu_model} can be trusted",
            why="each failed a check of its readings",
            fix=f"measure it again: advisor profile {profile.job}",
        )
    limit_w = profile.power_limit_w
    return ComponentsOfJob(
        job=profile.job,
        gpu_model=profile.gpu_model,
        power_limit_w=limit_w,
        floor_w=active_idle_w(profile),
        floor_is_measured=not math.isnan(profile.active_idle_power_w),
        shares=tuple(
            ShareParts(
                share_percent=share,
                power_w=(power_w := point.power_w or 0.0),
                headroom_w=None if limit_w is None else limit_w - power_w,
                memory_w=point.memory_power_w,
                clock_mhz=point.sm_clock_mhz,
            )
            for share, point in sorted(newest.items())
        ),
    )
