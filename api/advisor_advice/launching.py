"""What somebody wants launched, as a spec: splits chosen, jobs frozen, the forecast next to it.

Nothing here loads numpy: a node without it can launch at a split that is given.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor.core.job import Job
from advisor.core.split import ADVISED_JOBS, MOST_JOBS, Split, parse_split
from advisor.core.units import vendor_of
from advisor.core.wording import count_of
from advisor.errors import InputError
from advisor.formats.job_file import find_job
from advisor.launch.records.folder import new_launch_id
from advisor.launch.records.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.settings import Settings
from advisor.wire.launch_request import LaunchRequest
from advisor.wire.requests import JobRequest
from advisor_advice.launch_counts import count_notes, host_safety, over_subscribed
from advisor_advice.resolved_launch import ResolvedLaunch


def make_spec(launch: ResolvedLaunch, settings: Settings) -> LaunchSpec:
    """A launch that can begin: everything that can be known before is decided here.

    Jobs are taken from their files now; a file that is changed later changes nothing. Only names
    of jobs are taken, never paths or commands.

    Raises:
        InputError: an unknown job, a split that cannot be read, or a recommendation without
        profiles. ModelError: there is no model to recommend by.
        NoSplitError: no way keeps every limit, or the jobs should not share a GPU.
        StoreError: what the check of the GPU model found cannot be read.
        UnsafeCountError: a given split has a count of units at which results are wrong.
    """
    request = launch.request
    _check(request)
    vendor = vendor_of(launch.gpu_model or "")
    made = [_make_pair(jobs, launch, settings) for jobs in request.pairs]
    return LaunchSpec(
        launch_id=new_launch_id(),
        gpu=launch.gpu,
        pairs=tuple(pair for pair, _ in made),
        when_one_ends=request.when_one_ends,
        duration_s=request.duration_s,
        hang_s=request.hang_s,
        stop_on_wrong_results=_stops(request),
        asked_by=launch.asked_by,
        notes=tuple(
            dict.fromkeys(
                note
                for pair, notes in made
                for note in (*over_subscribed(pair, launch.units_total, vendor), *notes)
            )
        ),
    )


def _stops(request: LaunchRequest) -> bool:
    """Who chose the split answers for its results."""
    if request.stop_on_wrong_results is not None:
        return request.stop_on_wrong_results
    return request.split is None


def parse_launch_split(text: str, jobs: int = ADVISED_JOBS) -> Split:
    """A split at which so many jobs can be launched.

    Raises:
        InputError: it is none, is for another number of jobs, or lets jobs wait for each other.
    """
    split = parse_split(text, jobs)
    if split.sharing == "exclusive":
        raise InputError(
            "jobs that run one after the other are not launched together",
            fix="start each alone, or give shares such as 30/70",
        )
    if len(split.shares) != jobs:
        raise InputError(
            f"{text} has {len(split.shares)} shares, and there are {jobs} jobs",
            fix="give one share for each job, 100 where it is to have no limit",
        )
    return split


def check_together(jobs: int) -> None:
    """Refuse more jobs than share a GPU, or fewer.

    Raises:
        InputError: said so.
    """
    if not ADVISED_JOBS <= jobs <= MOST_JOBS:
        raise InputError(
            f"{count_of(jobs, 'job')} cannot be launched together",
            why=f"a launch is of two to {MOST_JOBS} jobs on one GPU",
            fix="name one more, or start it without advisor" if jobs < 2 else "name fewer jobs",
        )


def _check(request: LaunchRequest) -> None:
    for name, value in (("duration_s", request.duration_s), ("hang_s", request.hang_s)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"{name} is {value:g}", fix="give a number of seconds above 0")


def _make_pair(
    asked_jobs: Sequence[JobRequest], launch: ResolvedLaunch, settings: Settings
) -> tuple[LaunchSet, tuple[str, ...]]:
    """Jobs that run together, and what is to be said of them."""
    check_together(len(asked_jobs))
    jobs = [_frozen(job.job, settings) for job in asked_jobs]
    split = launch.request.split
    try:
        from advisor_advice import forecasting
    except ImportError as error:
        if split is None:
            raise InputError(
                "recommendations need numpy",
                why=str(error),
                fix="pip install 'sm-advisor[advise]', or give --split",
            ) from error
        given = _given(jobs, split)
        host = host_safety(settings.home, launch.gpu_model, launch.units_total)
        notes = count_notes(given, [host] * len(jobs), allow_unsafe=launch.request.allow_unsafe)
        return given, ("no forecast: numpy is not installed", *notes)
    if split is None:
        return forecasting.recommended(jobs, launch, settings)
    return forecasting.with_forecast(_given(jobs, split), launch, settings)


def _given(jobs: Sequence[Job], split: str) -> LaunchSet:
    parts = tuple(LaunchPart(job=job) for job in jobs)
    return LaunchSet(split=parse_launch_split(split, len(jobs)), parts=parts)


def _frozen(name: str, settings: Settings) -> Job:
    if "/" in name or name.endswith((".yaml", ".yml")):
        raise InputError(
            f"{name!r} is not a valid job name",
            why="only jobs of the folder of jobs are launched",
            fix=f"put its file into {settings.jobs_dir} and give its name",
        )
    job = find_job(name, settings.jobs_dir, again=True)
    if job.workdir and not job.workdir.is_dir():
        raise InputError(
            f"the workdir of {name}, {job.workdir}, does not exist",
            fix=f"make it, or correct workdir in the file of {name}",
        )
    # What starts it later runs in another folder.
    return job if job.workdir else replace(job, workdir=Path.cwd())
