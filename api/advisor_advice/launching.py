"""Specs of requested launches: splits chosen, jobs frozen, the forecast next to them.

Nothing here loads numpy: a node without it can launch at a split that is given.
"""

import itertools
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.core.gpu import (
    ADVISED_JOBS,
    ALL_GPUS,
    MOST_GPUS,
    MOST_JOBS,
    UNIT_NAMES,
    WHOLE,
    Gpu,
    Share,
    Split,
    Vendor,
    units_for_share,
    vendor_of,
    visible,
)
from advisor.core.job import Job, check_single_gpu
from advisor.core.records import SETTLE_S
from advisor.core.wording import count_of, counted, listed
from advisor.errors import InputError, NoSplitError, install
from advisor.formats.job_file import find_job
from advisor.launch.folder import LaunchFolder, new_launch_id, parts_of
from advisor.launch.set_monitor import check_set_memory
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec, split_of
from advisor.settings import Settings
from advisor.validity.safe_counts import (
    Safety,
    check_share,
    check_split,
    unchecked_texts,
    unsafe_texts,
)
from advisor.wire.requests import JobRequest, LaunchRequest
from advisor_data.bundled import checked_counts

# How long a job runs alone before all do, s. Windows of 2 s of a launch-bound job differ by 9 %
# on one host (docs/measurements/own/asked-h200.jsonl), so longer ones tell little more.
_ALONE_S = SETTLE_S + 3.0

TRY_S = 10.0
"""How long a way is tried: 3 s to settle and 7 s of measuring, s."""


def count_notes(
    pair: LaunchSet, safeties: Sequence[Safety], *, allow_unsafe: bool, joins: bool = False
) -> tuple[str, ...]:
    """What is to be said of the counts at which jobs are limited; the last one may be to join.

    Raises:
        UnsafeCountError: a count is unsafe, and that was not asked for.
    """
    if not pair.split.is_limited:
        return ()
    names = [job.name for job in pair.jobs]
    if not allow_unsafe and joins:
        check_share(pair.split.shares[-1], safeties[-1], "--share")
    elif not allow_unsafe and len(names) == ADVISED_JOBS:
        check_split(pair.split, safeties, mirrored=names[0] > names[1])
    elif not allow_unsafe:
        # Limits of more jobs add up to more than the GPU: each is looked at by itself.
        for share, safety in zip(pair.split.shares, safeties, strict=True):
            check_share(share, safety, "--split")
    unsafe = unsafe_texts(*zip(pair.split.shares, safeties, strict=True))
    return (
        *(f"{text}: launched as asked, and watched" for text in unsafe),
        *unchecked_texts(pair.split, names, safeties),
    )


def host_safety(home: Path, gpu_model: str | None, units_total: int | None) -> Safety:
    """What the check of this host says of any job; nothing where the GPU is not known.

    Raises:
        StoreError: it cannot be read.
    """
    host = checked_counts(home, gpu_model, units_total) if gpu_model else None
    return Safety(units_total=host.units_total, host=host) if host else Safety()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedLaunch:
    """A launch request with its user and its GPU.

    Attributes:
        card: The GPU; None: it was not seen.
        profiles: File of solo points; None: the stored and the bundled ones.
    """

    request: LaunchRequest
    card: Gpu | None = None
    profiles: Path | None = None
    asked_by: str = ""

    @property
    def gpu_model(self) -> str | None:
        """None: the one that the profiles have in common."""
        return self.request.gpu_model or (self.card and self.card.model)

    @property
    def vendor(self) -> Vendor:
        """Of the GPU; where it is not known, the one of most."""
        return vendor_of(self.gpu_model or "")

    @property
    def gpu_uuid(self) -> str | None:
        """The card, where it was seen."""
        return self.card and self.card.uuid

    @property
    def units_total(self) -> int | None:
        """SMs or CUs of the GPU, where they are known."""
        return self.card and self.card.units_total

    @property
    def memory_mib(self) -> float | None:
        """Of the card: what was asked for, and no more than it has."""
        return min(
            (
                value
                for value in (self.request.memory_mib, self.card and self.card.memory_mib)
                if value is not None
            ),
            default=None,
        )


def make_spec(launch: ResolvedLaunch, settings: Settings) -> LaunchSpec:
    """A launch that can begin: everything that can be known before is decided here.

    Jobs are taken from their files now; a file that is changed later changes nothing. Only names
    of jobs are taken, never paths or commands.

    Raises:
        InputError: an unknown job, a split that cannot be read, or a recommendation without
        profiles. ModelError: there is no model to recommend by.
        NoSplitError: no way keeps every limit, the jobs should not share a GPU, or do not fit
        into its memory.
        StoreError: what the check of the GPU model found cannot be read.
        UnsafeCountError: a given split has a count of units at which results are wrong.
    """
    request = launch.request
    for name, value in (("duration_s", request.duration_s), ("hang_s", request.hang_s)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value:g}", fix="give a number of seconds above 0")
    made = [pair for jobs in request.pairs for pair in _make_pairs(jobs, launch, settings)]
    if launch.card:
        for pair, _ in made:
            check_set_memory(pair, launch.card)
    return _spec(
        new_launch_id(),
        [
            (
                replace(pair, alone_s=_ALONE_S if _begins_alone(pair, request) else None),
                (*_over_subscribed(pair, launch), *notes),
            )
            for pair, notes in made
        ],
        launch,
    )


def _over_subscribed(pair: LaunchSet, launch: ResolvedLaunch) -> tuple[str, ...]:
    """A word on limits that add up to more than the GPU, where each job has one."""
    if WHOLE in pair.split.shares:
        return ()
    shares, name = pair.split.shares, UNIT_NAMES[launch.vendor]
    if total := launch.units_total:
        units = sum(units_for_share(share, total, launch.vendor) for share in shares)
        over = f"{units} of {total} {name}" if units > total else ""
    else:
        # Exact counts are asked for as whole percentages, rounded up: two of them can reach 101.
        over = f"{sum(shares):g} %" if sum(shares) >= WHOLE + 2 else ""
    text = f"{pair.split} is over-subscribed: {over}, so the jobs compete for {name}"
    return (text,) if over else ()


def _begins_alone(pair: LaunchSet, request: LaunchRequest) -> bool:
    if holds := [job.name for job in pair.jobs if job.gpus > 1]:
        if request.alone:
            raise InputError(
                f"jobs beside {holds[0]}, which holds several GPUs, cannot run alone first yet",
                why="power is that of all its GPUs",
                fix="leave out --alone",
            )
        return False
    if request.alone is not None:
        return request.alone
    is_foreign = any(part.host_spread for part in pair.parts)
    # A trial starts all again for each way.
    return is_foreign and request.tries == 1 and all(job.progress.gate for job in pair.jobs)


def make_join(
    folder: LaunchFolder,
    name: str,
    share_percent: float | None,
    wanted: ResolvedLaunch,
    settings: Settings,
    *,
    is_low: bool = False,
) -> LaunchSpec:
    """What a job asks that is to join: those that run now in one set, and the job as the last.

    Where no share is given it is the one that is worth most beside those that run now, and so is
    the priority.

    Raises:
        InputError: the launch does not run, or a job has no profile.
        ModelError: there is no model to advise by.
        NoSplitError: no share keeps every limit, or none is worth it.
        UnsafeCountError: the given share has an unsafe count.
    """
    status = folder.read_status()
    if status.state != "running" or status.silent_s is not None or status.try_s:
        raise InputError(
            f"{status.launch_id} cannot be joined: it is {status.standing}",
            fix="launch the job with others: advisor launch A B"
            if status.try_s is None
            else "ask again once one way is kept",
        )
    if sum(job.outcome == "running" for job in status.jobs) >= MOST_JOBS:
        raise NoSplitError(
            f"{MOST_JOBS} jobs run together in {status.launch_id} already",
            why=f"at most {MOST_JOBS} share a GPU",
            fix="ask again when one has ended",
        )
    job = frozen(name, settings)
    seats = zip(status.jobs, parts_of(folder, status), strict=True)
    running = [(job, part) for job, part in seats if job.outcome == "running"]
    parts = tuple(part for _, part in running)
    low = [job.job for job, _ in running if job.below_normal]
    if low and len(running) >= ADVISED_JOBS:
        raise NoSplitError(
            f"no job can join {status.launch_id} beside {counted(low)} below normal priority",
            why="only two jobs were measured so",
            fix="ask again when one of them has ended",
        )
    if not parts:
        raise InputError(f"no job runs in {status.launch_id} any more")
    for part in parts:
        check_single_gpu(part.job.name, part.job.gpus)
    split = split_of((job for job, _ in running), status.sharing)
    if share_percent is not None:
        made = LaunchSet(
            split=split.joined_by(Share(share_percent).percent, is_low),
            parts=(*parts, LaunchPart(job=job)),
        )
        made, notes = _with_forecast(made, wanted, settings, joins=True)
        return _spec(status.launch_id, [(made, notes)], wanted)
    with _needing_numpy("--share"):
        from advisor.decide.decision import Running
        from advisor_advice import forecasting
    there = Running(
        split=split, cap_percent=max(job.share_percent for job in status.jobs), may_be_low=True
    )
    made = forecasting.joining(parts, job, there, wanted, settings)
    return _spec(status.launch_id, [made], wanted)


def _spec(
    launch_id: str, made: Sequence[tuple[LaunchSet, tuple[str, ...]]], launch: ResolvedLaunch
) -> LaunchSpec:
    """What is to start, of sets and notes about each."""
    request, notes = launch.request, [note for _, notes in made for note in notes]
    notes += ["no more ways of sharing can be tried"] if request.tries > len(made) else []
    return LaunchSpec(
        launch_id=launch_id,
        gpu=visible(launch.card.each) if launch.card else str(request.gpu),
        pairs=tuple(_as_requested(pair, launch) for pair, _ in made),
        when_one_ends=request.when_one_ends,
        duration_s=request.duration_s,
        hang_s=request.hang_s,
        when_p99_breaks=request.when_p99_breaks,
        stop_on_wrong_results=request.stop_on_wrong_results,
        strict=request.strict,
        power_limit_w=request.power_limit_w,
        try_s=TRY_S if request.tries > 1 and len(made) > 1 else None,
        asked_by=launch.asked_by,
        notes=tuple(dict.fromkeys(notes)),
    )


def _as_requested(pair: LaunchSet, launch: ResolvedLaunch) -> LaunchSet:
    """The set with what holds for each job of the request, and the units of each."""
    total = launch.units_total
    parts = (
        replace(
            part,
            units=units_for_share(share, total, launch.vendor) if total else None,
            limit_memory=launch.request.limit_memory,
        )
        for part, share in zip(pair.parts, pair.split.shares, strict=True)
    )
    return replace(pair, parts=tuple(parts))


def _make_pairs(
    job_requests: Sequence[JobRequest], launch: ResolvedLaunch, settings: Settings
) -> list[tuple[LaunchSet, tuple[str, ...]]]:
    """Jobs that run together, and notes about them; in each way that is to be tried."""
    jobs, split = _jobs_and_split(job_requests, launch.request, settings)
    if split is not None:
        split.check_masks(launch.vendor)
        request = launch.request
        # With the limits that need no profile.
        parts = tuple(
            LaunchPart(
                job=job,
                min_speed=request.min_speed if of_job.min_speed is None else of_job.min_speed,
                max_p99_ms=of_job.max_p99_ms
                or job.max_p99_ms
                or (request.max_p99_ms if job.offered_rate else None),
                max_power_w=request.max_power_w,
            )
            for job, of_job in zip(jobs, job_requests, strict=True)
        )
        return [_with_forecast(LaunchSet(split=split, parts=parts), launch, settings)]
    if once := [job.name for job in jobs if launch.request.tries > 1 and not job.restartable]:
        raise InputError(
            f"{counted(once)} cannot be tried",
            why="a trial stops a job after seconds and starts it again",
            fix="if that loses no work, write restartable: true into the job file",
        )
    with _needing_numpy("--split"):
        from advisor_advice import forecasting
    return forecasting.recommended(jobs, launch, settings)


def check_arguments(request: LaunchRequest, settings: Settings) -> None:
    """Refuse jobs and splits that no GPU can launch.

    Raises:
        InputError: an unknown job, too many or too few, or a split that is not for so many.
    """
    for jobs in request.pairs:
        _jobs_and_split(jobs, request, settings)


def _jobs_and_split(
    job_requests: Sequence[JobRequest], request: LaunchRequest, settings: Settings
) -> tuple[list[Job], Split | None]:
    count, text = len(job_requests), request.split
    if not ADVISED_JOBS <= count <= MOST_JOBS:
        raise InputError(
            f"{count_of(count, 'job')} cannot be launched together",
            why=f"a launch is of two to {MOST_JOBS} jobs on one GPU",
            fix="name one more, or start it without advisor" if count < 2 else "name fewer jobs",
        )
    if request.share_percent is not None:
        raise InputError("a share is of a job that joins", fix="give a split, or the launch")
    jobs = [frozen(job.job, settings, several_gpus=True) for job in job_requests]
    gpus = _gpus_of(jobs, str(request.gpu))
    if text is None:
        return jobs, None
    split = Split.parse(text, count, gpus=gpus)
    if split.sharing == "exclusive":
        raise InputError(
            "jobs that run one after the other are not launched together",
            fix="start each alone, or give shares such as 30/70",
        )
    if len(split.shares) != count:
        raise InputError(
            f"{text} has {len(split.shares)} shares, and there are {count} jobs",
            fix="give one share for each job, 100 where it is to have no limit",
        )
    return jobs, _on_gpus(split, jobs) if gpus > 1 else split


def _gpus_of(jobs: Sequence[Job], named: str) -> int:
    """How many GPUs are held together; one job at most holds several.

    Raises:
        InputError: several such jobs, or another number of GPUs is named.
    """
    several = [job.name for job in jobs if job.gpus > 1]
    held, count = max(job.gpus for job in jobs), len(named.split(","))
    if len(several) > 1:
        raise InputError(
            f"{listed(several)} hold several GPUs each",
            why="one such job is launched with neighbours",
            fix="launch the others elsewhere",
        )
    if held != count:
        who = f"{several[0]} holds" if several else f"{counted(job.name for job in jobs)} share"
        raise InputError(
            f"--gpu {named} names {count_of(count, 'GPU')}, and {who} {held}",
            fix="name as many, such as --gpu 0,1" if several else "name one",
        )
    return held


def _on_gpus(split: Split, jobs: Sequence[Job]) -> Split:
    """The split with a GPU for each neighbour, in turn where it does not say.

    Raises:
        InputError: the job of several GPUs cannot share them so.
    """
    if split.sharing == "time-sliced" or split.below_normal:
        raise InputError(
            f"jobs of several GPUs are not launched {split} yet",
            why="ranks that are time-sliced at different times wait for each other, and priority "
            "was not measured",
            fix="give shares under MPS, such as 100/50@0/50@1",
        )
    if split.gpus:
        if [job.gpus > 1 for job in jobs] != [gpu == ALL_GPUS for gpu in split.gpus]:
            raise InputError(
                f"{split} names no GPU for a neighbour, or one for the job that holds all",
                fix="write @0 or @1 behind the share of each neighbour, such as 100/50@0/50@1",
            )
        return split
    turn = itertools.cycle(range(MOST_GPUS))
    return replace(split, gpus=tuple(ALL_GPUS if j.gpus > 1 else next(turn) for j in jobs))


def _with_forecast(
    made: LaunchSet, launch: ResolvedLaunch, settings: Settings, *, joins: bool = False
) -> tuple[LaunchSet, tuple[str, ...]]:
    """Jobs at a given split with a forecast, which needs numpy; a node may be without it."""
    try:
        from advisor_advice import forecasting
    except ImportError:
        host = host_safety(settings.home, launch.gpu_model, launch.units_total)
        safeties, allow = [host] * len(made.jobs), launch.request.allow_unsafe
        notes = () if joins else count_notes(made, safeties, allow_unsafe=allow)
        return made, ("no forecast: numpy is not installed", *notes)
    return forecasting.with_forecast(made, launch, settings, joins=joins)


def _needing_numpy(option: str) -> AbstractContextManager[None]:
    what, fix = "recommendations need numpy", f"{install('advise')}, or give {option}"
    return InputError.instead_of(ImportError, what, fix=fix)


def frozen(name: str, settings: Settings, *, several_gpus: bool = False) -> Job:
    """A job of the folder of jobs, as its file is now.

    Raises:
        InputError: it cannot be launched, or holds `several_gpus`, and that is not meant.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise InputError(
            f"{name!r} is not a valid job name",
            why="only jobs of the folder of jobs are launched",
            fix=f"put its file into {settings.jobs_dir} and give its name",
        )
    job = find_job(name, settings.jobs_dir, again=True)
    check_single_gpu(name, 1 if several_gpus else job.gpus)
    if job.workdir and not job.workdir.is_dir():
        raise InputError(
            f"the workdir of {name}, {job.workdir}, does not exist",
            fix=f"make it, or correct workdir in the file of {name}",
        )
    # What starts it later runs in another folder.
    return job if job.workdir else replace(job, workdir=Path.cwd())
