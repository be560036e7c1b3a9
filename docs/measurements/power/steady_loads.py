"""Records what sensors read while one job runs alone: first for long, then again and again.

`shorter_windows.py --live` uses it. Half of the time the job is on in one go; in the other half it
is held at its gate for a second and let go for three, so that it begins several times.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from advisor.core.gpu import WHOLE, Share
from advisor.core.job import Job
from advisor.errors import InputError
from advisor.formats.job_file import find_job
from advisor.runtime.jobs.launcher import check_program
from advisor.settings import Settings, read_settings
from advisor_power.sensor.poller import Poller, recorders
from advisor_power.sensor.recording import header_of
from advisor_power.sensor.trace import Span, append, begin_trace, read_trace
from advisor_profiling.testbed.live import live_testbed
from advisor_profiling.testbed.process_pool import ProcessPool
from advisor_profiling.testbed.testbed import WarmProcess
from advisor_profiling.window.targets import ProcessSpec

LEAST_S, MOST_S = 8.0, 60.0
"""Of each job; below, not even its longest time on is as long as the analysis asks for."""

_IDLE_S, _AGAIN_S, _HELD_S, _WRITTEN_S, _LOOK_S = 2.0, 3.0, 1.0, 1.0, 0.25


def record_jobs(
    names: Sequence[str], gpu: str, python: str, seconds: float, folder: Path
) -> list[Path]:
    """A recording of each job; those that are in the folder are not made again.

    Args:
        names: Of job files.
        gpu: Index or UUID; nobody else may compute on it.
        python: In place of `python3` in the commands of the jobs.
        seconds: Of load for each job, held or not.
        folder: Made when needed.

    Raises:
        InputError: too short, too long, no such job, or one without a gate.
        JobError: a job does not start or ends by itself.
        BusyError: somebody else computes on the card.
        SourceError: the sensors cannot be read.
    """
    if not LEAST_S <= seconds <= MOST_S:
        raise InputError(
            f"{seconds:g} s of each job were asked for",
            fix=f"give --seconds between {LEAST_S:g} and {MOST_S:g}",
        )
    settings = read_settings()
    jobs = [_job(name, python, settings) for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if not _is_whole(file := _file(folder, job)):
            file.unlink(missing_ok=True)
            _record(job, gpu, seconds, file, settings)
    return [_file(folder, job) for job in jobs]


def on_spans(seconds: float) -> Iterator[Span]:
    """When the job is let go and held, s after it is first let go."""
    yield 0.0, seconds / 2
    begins_s = seconds / 2 + _HELD_S
    while begins_s + _AGAIN_S <= seconds:
        yield begins_s, begins_s + _AGAIN_S
        begins_s += _AGAIN_S + _HELD_S


def _job(name: str, python: str, settings: Settings) -> Job:
    job = find_job(name, settings.jobs_dir)
    if not job.progress.gate:
        raise InputError(f"{job.name} has no gate", why="nothing tells when its load begins")
    # Jobs run in a folder of their own, where a path of ours leads elsewhere.
    python = str(Path(python).absolute()) if "/" in python else python
    program, *words = job.command
    job = replace(job, command=(python if program == "python3" else program, *words))
    check_program(job, settings.job_environment())
    return job


def _file(folder: Path, job: Job) -> Path:
    return folder / f"{job.name}.jsonl"


def _is_whole(file: Path) -> bool:
    return file.exists() and read_trace(file).whole


def _record(job: Job, gpu: str, seconds: float, file: Path, settings: Settings) -> None:
    spec = ProcessSpec(job, Share(WHOLE))
    with live_testbed(settings, gpu, None, "uncapped", f"steady-{time.time_ns()}") as testbed:
        begin_trace(file, header_of(testbed.gpu))
        environment = settings.job_environment()
        with (
            ProcessPool(testbed) as pool,
            recorders(testbed.gpu.uuid, file, environment) as watching,
        ):
            _tell(f"{job.name}: starts")
            pool.change([spec])
            if error := pool.errors.get(spec):
                raise error
            append(file, ["stage", "idle", time.monotonic()])
            time.sleep(_IDLE_S)
            _load(pool.processes[spec], job.name, seconds, file, watching)
            time.sleep(_WRITTEN_S)
            append(file, ["end", time.monotonic()])


def _load(
    process: WarmProcess,
    name: str,
    seconds: float,
    file: Path,
    watching: Sequence[Poller],
) -> None:
    """Let the job go and hold it; each time is written when it is over."""
    started_s = time.monotonic()
    append(file, ["stage", name, started_s])
    for begin_s, end_s in on_spans(seconds):
        _wait(started_s + begin_s, process, watching)
        _tell(f"{name}: {seconds - begin_s:.0f} s to go")
        begun_s = time.monotonic()
        process.go()
        _wait(started_s + end_s, process, watching)
        append(file, ["on", begun_s, time.monotonic()])
        process.hold()


def _wait(until_s: float, process: WarmProcess, watching: Sequence[Poller]) -> None:
    while (left_s := until_s - time.monotonic()) > 0:
        process.check()
        for poller in watching:
            poller.check()
        time.sleep(min(_LOOK_S, left_s))


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
