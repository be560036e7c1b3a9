"""`advisor launch` and `advisor launches`: jobs run together, followed, shown, stopped, cleaned up.

A launch is followed from outside: as a live table, as plain lines, or as JSON lines.
"""

import getpass
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.text import Text

from advisor.core.gpu import ADVISED_JOBS, UNIT_NAMES, Gpu, MemoryFit, read_bound, vendor_of
from advisor.core.objectives import Interval, Policy, Prices
from advisor.core.records import (
    FLAGS,
    FOREIGN_HOST,
    LIMIT_BROKEN,
    Observation,
    ObservedPart,
)
from advisor.core.wording import (
    as_requested,
    below_normal_text,
    count_of,
    counted,
    energy_text,
    folded,
    in_digits,
    less_or_more,
    listed,
    option_words,
)
from advisor.errors import AdvisorError, InputError, JobError, NoSplitError, SourceError
from advisor.formats.moments import duration_text
from advisor.formats.rows import from_row, to_row
from advisor.formats.wire import to_plain
from advisor.launch.folder import (
    LaunchFolder,
    LaunchList,
    ask_join,
    close_unclaimed,
    create_folder,
    find_folder,
    first_status,
    join_status,
    list_folders,
    observation_lines,
    withdraw,
)
from advisor.launch.guard import LAUNCH_MARK, LOG, Stopping, spawn_supervisor
from advisor.launch.set_monitor import limit_environment
from advisor.launch.spec import (
    Forecast,
    JobForecast,
    JobStatus,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
    split_of,
)
from advisor.runtime.job_process import check_none
from advisor.runtime.processes import marked_pids, wait_until
from advisor.settings import Settings, read_settings
from advisor.validity.points import FASTEST
from advisor.wire.answers import Said
from advisor.wire.requests import (
    LaunchRequest,
    WhenOneEnds,
    WhenP99Breaks,
)
from advisor_advice.launching import ResolvedLaunch, check_arguments, make_join, make_spec
from advisor_advice.options import every_job, job_requests, longest_p99_ms
from advisor_cli.console import (
    PIPE_WIDTH,
    AllowUnsafe,
    AsJson,
    Columns,
    LimitOptions,
    ObjectiveOption,
    Tries,
    as_json_text,
    grouped,
    job_names,
    plain_console,
    plain_table,
    print_screen,
    print_table,
    say,
    say_lines,
    table_of,
)
from advisor_data import open_store
from advisor_profiling import SUPERVISOR
from advisor_profiling.testbed import find_gpus, with_units

_EXIT_CODES = dict.fromkeys(("job-hung", "time-limit", "mps-fault"), JobError.exit_code)


def statuses(
    folder: LaunchFolder, supervisor: subprocess.Popen[bytes] | None = None
) -> Iterator[LaunchStatus]:
    """Each new status until the launch, whose supervisor may have been started just now, is over.

    Raises:
        JobError: the supervisor never began.
    """
    shown_status = None
    while True:
        # Asked first: it may begin and end between the two.
        gone = supervisor is not None and supervisor.poll() is not None
        if (status := folder.read_status()) != shown_status:
            yield status
        if status.over:
            return
        if gone and not folder.claimed():
            raise JobError(
                f"the supervisor of {folder.launch_id} did not begin",
                why=_log_tail(folder),
                fix=f"see {folder.path / LOG}",
            )
        shown_status = status
        time.sleep(0.2)


def show_lines(progress: Iterator[LaunchStatus]) -> LaunchStatus:
    """A line for each change of state or pair, and one now and then."""
    said: object = None
    said_s = 0.0
    status = None
    for status in progress:
        key = (status.state, status.pair_number, [job.outcome for job in status.jobs])
        if key != said or time.monotonic() - said_s > 10:
            said, said_s = key, time.monotonic()
            say(line(status))
    assert status is not None
    return status


def show_live(progress: Iterator[LaunchStatus]) -> LaunchStatus:
    """A table that is drawn again with each status."""
    console = plain_console()
    with Live(console=console, auto_refresh=False) as live:
        return _last(
            progress, lambda status: live.update(table(status, console.width), refresh=True)
        )


def _show_json(progress: Iterator[LaunchStatus], folder: LaunchFolder) -> LaunchStatus:
    """One object a line as in status.json; the last one has the observations, too."""
    status = _last(progress, lambda status: None if status.over else say(as_json_text(status)))
    say(as_json_text(_final_json(folder, status)))
    return status


def _last(progress: Iterator[LaunchStatus], show: Callable[[LaunchStatus], object]) -> LaunchStatus:
    """The last of some statuses, each of which is shown."""
    status = None
    for status in progress:
        show(status)
    assert status is not None
    return status


def _final_json(folder: LaunchFolder, status: LaunchStatus) -> dict[str, Any]:
    """A status with what its pairs did; docs/launch.md explains the keys."""
    return {**to_plain(status), "observations": [*map(to_row, observations(folder))]}


def observations(folder: LaunchFolder) -> list[Observation]:
    """What those that are over did together; a line that was cut off is left out."""
    rows: list[Observation] = []
    with suppress(OSError):
        for text in observation_lines(folder):
            with suppress(ValueError, InputError):
                rows.append(from_row(Observation, json.loads(text)))
    return rows


def exit_code(status: LaunchStatus) -> int:
    """Exit code of a command about a launch: 0 unless it failed."""
    return _code_of(status.code) if status.state == "failed" else 0


def _code_of(code: str | None) -> int:
    """Exit code by the `code` of an error."""
    codes = {error.code: error.exit_code for error in AdvisorError.__subclasses__()}
    return (codes | _EXIT_CODES).get(code or "", AdvisorError.exit_code)


@contextmanager
def asking_to_stop(ask: Callable[[], object]) -> Generator[None]:
    """Ctrl-C and SIGTERM ask what runs to stop, and the block goes on until it has.

    A lost terminal, or an end by force, leaves it running.
    """
    before = {
        number: signal.signal(number, lambda _number, _frame: ask())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _log_tail(folder: LaunchFolder) -> str:
    with suppress(OSError):
        return (folder.path / LOG).read_bytes()[-500:].decode(errors="replace").strip()
    return ""


# Characters of a line in a pipe.
_LINE_WIDTH = 80

_LIVE_COLUMNS = (
    "",
    "share",
    "units",
    "memory",
    "state",
    "now",
    "predicted",
    "off",
    "speed",
    "progress",
)
_OVER = tuple("mean" if name == "now" else name for name in _LIVE_COLUMNS)

# Columns that a narrow screen leaves out: a number that is cut off looks like another number.
_SPARE = ("units", "memory")


def table(status: LaunchStatus, width: int) -> Group:
    """Everything on one screen of so many characters; where names are too long they wrap."""
    columns = list(zip(_OVER if status.over else _LIVE_COLUMNS, *_rows(status), strict=True))
    if sum(max(map(len, column)) + 2 for column in columns) - 2 > width:
        columns = [column for column in columns if column[0] not in _SPARE]
    names, *rows = zip(*columns, strict=True)
    return Group(
        Text(_head(status), style="bold"),
        plain_table(names, rows, whole=names[1:]),
        *map(Text, _tail(status)),
    )


def unread_text(unread: str | None, unread_since: str | None, stalled_since: str | None) -> str:
    """What is not known of a job, or that it makes no progress; empty: neither."""
    if unread is not None:
        return f"not known since {(unread_since or '')[11:19]}: {unread}"
    return f"stalled: no progress since {stalled_since[11:19]}" if stalled_since else ""


def line(status: LaunchStatus) -> str:
    """The same in a line for the launch and one for each job, 80 columns wide."""
    name = f"{status.launch_id} "
    parts = (
        _head(status),
        "" if status.power_w is None else f"{status.power_w:.0f} W",
        "" if status.energy_saved is None else f"{less_or_more(status.energy_saved)} energy",
        f"speed {status.speed_drift.text} of promised" if status.speed_drift else "",
        f"{status.code}: {status.cause}" if status.code else "",
    )
    rest = ", ".join(filter(None, parts)).removeprefix(name)
    jobs = (folded(_job(job), _LINE_WIDTH, "  ") for job in status.jobs)
    return "\n".join((folded(rest, _LINE_WIDTH, name), *jobs))


def _head(status: LaunchStatus) -> str:
    counts = status.pairs > 1 and not status.try_s
    pair = f", pair {status.pair_number + 1} of {status.pairs}" if counts else ""
    gpu = f" on {status.gpu_model}" if status.gpu_model else ""
    overlap = f", {status.overlap_s:.0f} s together" if status.overlap_s else ""
    return f"{status.launch_id} {status.standing}{gpu}{pair}{overlap}"


def _rows(status: LaunchStatus) -> Iterator[tuple[str, ...]]:
    for job in status.jobs:
        # Of one that is over its mean, which is what was predicted.
        rate = job.mean_rate if job.rate is None else job.rate
        yield (
            job.job,
            job.share_text,
            "" if job.units_granted is None else str(job.units_granted),
            _memory(job),
            job.outcome,
            *_beside(rate, job.predicted_rate, f"{job.rate_unit}/s"),
            "" if job.speed is None else speed_text(job.speed),
            f"{job.steps:,.0f}",
        )
    yield "power", "", "", "", "", *_beside(status.watts, status.predicted_power_w, "W"), "", ""
    # Of the jobs that began together, until another joins.
    forecast = None if any(job.joined_at for job in status.jobs) else status.forecast
    predicted = forecast and forecast.energy_saved and forecast.energy_saved.value
    # A difference: how far off it is in percent of itself says nothing.
    saved = _percent(status.part_saved), _percent(predicted)
    yield "energy saved", "", "", "", "", *saved, "", "", ""


def _memory(job: JobStatus) -> str:
    """At how much it is bounded; only what was started has a limit, or none."""
    if job.memory_limit_mib is not None:
        return f"{job.memory_limit_mib:,} MiB"
    return "" if job.units_granted is None else "no limit"


def _moves(status: LaunchStatus) -> list[str]:
    """Joins and ends while other jobs ran, in the order of time; UTC."""
    came = [
        (job.joined_at, f"{job.job} joined with {job.share_text}")
        for job in status.jobs
        if job.joined_at
    ]
    # A job stopped with the launch has not left the others; one ended for another has a reason.
    left = [
        (job.ended_at, f"{job.job} left: {job.outcome}")
        for job in status.jobs
        if job.ended_at and (job.outcome != "stopped" or job.error)
    ]
    moments = () if status.over and not came else sorted((*came, *left))
    return [f"{moment[11:19]} {text}" for moment, text in moments]


def _beside(now: float | None, predicted: Interval | None, unit: str) -> tuple[str, str, str]:
    off = "" if now is None or not predicted else f"{now / predicted.value - 1:+.0%}"
    return _number(now, unit), _number(predicted and predicted.value, ""), off


def _tail(status: LaunchStatus) -> Iterator[str]:
    energy, unit_s = status.energy_j, status.stranded_unit_s
    rest = "" if status.rest_energy_j is None else f", {status.rest_energy_j:,.0f} J"
    measured = (
        "" if energy is None else f"{energy:,.0f} J in {status.overlap_s:.0f} s together",
        f"{status.rest_s:.0f} s of others after the first had ended{rest}" if status.rest_s else "",
        f"{unit_s:,.0f} unit-seconds held for jobs that have ended" if unit_s else "",
    )
    yield from filter(None, measured)
    for job in status.jobs:
        if job.max_p99_ms is not None:
            now = "not known yet" if job.latency_p99_ms is None else f"{job.latency_p99_ms:.3g} ms"
            yield f"p99 of {job.job}: {now}, {job.max_p99_ms:g} ms promised"
        if job.demand is not None:
            yield f"{in_digits(job.demand)} {job.rate_unit}/s arrive at {job.job}"
    for job in status.jobs:
        if text := unread_text(job.unread, job.unread_since, job.stalled_since):
            yield f"{job.job}: {text}"
        if job.paused:
            yield f"{job.job}: paused, stopped by a signal or frozen"
    drift, offer = _drift_text(status), status.resplit
    only_set = listed(job.job for job in status.jobs if job.proof == "set")
    silent = (
        f"! its supervisor has not been heard of since {status.updated_at[11:19]}: all that "
        "stands here is as of then, and no limit is proven"
    )
    remarks = (
        f"drift {drift}" if drift else "",
        f"another split, {offer.split}, would do {offer.text}: advisor launches resplit "
        f"{status.launch_id}"
        if offer and not offer.refused
        else "",
        f"{status.unwatched_s:.1f} s without monitoring" if status.unwatched_s else "",
        f"limit of {only_set}: set, not read back from the job" if only_set else "",
        *_moves(status),
        "" if status.silent_s is None else silent,
        f"{status.code}: {status.cause}" if status.code else "",
        *(f"! {warning}" for warning in status.warnings),
    )
    yield from filter(None, remarks)


def _drift_text(status: LaunchStatus) -> str:
    """Speeds of late and work per joule so far, of what is promised; empty: neither is known."""
    drifts = [f"{job.job} {job.drift.text}" for job in status.jobs if job.drift]
    drifts += [f"all {status.speed_drift.text}"] if status.speed_drift and len(drifts) > 1 else []
    parts = [f"speed of {', '.join(drifts)}"] if drifts else []
    parts += [f"work per joule {status.work_drift.text}"] if status.work_drift else []
    since = f"since {(status.promised_at or '')[11:19]}"
    if status.promise_renewed:
        since += f", when the promise was renewed ({status.promise_renewed})"
    return f"{since}: {'; '.join(parts)}" if parts else ""


def _job(job: JobStatus) -> str:
    only_set = " set" if job.proof == "set" else ""
    units = f" ({job.units_granted} units{only_set})" if job.units_granted is not None else ""
    rate = f", {in_digits(job.rate, 4)} {job.rate_unit}/s" if job.rate is not None else ""
    speed = "" if (speed_now := job.relative_speed) is None else f", speed {speed_text(speed_now)}"
    joined = f" (joined {job.joined_at[11:19]})" if job.joined_at else ""
    unread = unread_text(job.unread, job.unread_since, job.stalled_since)
    tail = f" ({unread})" if unread else ""
    return f"{job.job} {job.share_text}{units}{joined} {job.outcome}{rate}{speed}{tail}"


def speed_text(speed: float) -> str:
    """A relative speed; on one host no job is faster than alone: a higher one is another host's."""
    return f"{100 * speed:.0f} %" if speed <= FASTEST else f"{speed:.2f}x its profile"


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"


def _number(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{in_digits(value, 4)} {unit}".strip()


_RESULTS: Mapping[str | None, str] = {
    "right": "match the whole GPU",
    "wrong": "WRONG, not finite",
    "differ": "DIFFER from the whole GPU",
    None: "not compared",
}

_FREE = {"uncapped": "without limits", "time-sliced": "by time slicing"}


@dataclass(frozen=True, slots=True)
class _Job:
    """What one job did; `status` and `forecast` are of those that ran last only."""

    part: ObservedPart
    status: JobStatus | None = None
    forecast: JobForecast | None = None


def end_screens(
    status: LaunchStatus, observed: Sequence[Observation], policy: Policy, folder: LaunchFolder
) -> Iterator[Said]:
    """A screen for each set of jobs that ran together, and how the launch ended once it has."""
    begins = [n for n, o in enumerate(observed) if o.stretch == 0]
    together = [observed[n] for n in begins]
    began = tuple(job for job in status.jobs if job.joined_at is None)
    seats = sorted((job.job, job.share_percent) for job in began)
    last = together.pop() if together and seats == _seats(together[-1]) else None
    for observation in together:
        jobs = [_Job(part) for part in observation.parts]
        yield Said(
            headline=_headline(observation.state, observation, jobs),
            lines=tuple(_of_pair(observation, jobs, policy.prices)),
        )
    if not status.over:
        return
    jobs, ending = list[_Job](), list[tuple[str, str]]()
    if last:
        jobs = _in_order(last, status, len(began))
        joined = _moved(status, observed[begins[-1] + 1 :]) if len(began) < len(status.jobs) else ()
        ending = [
            *_of_pair(last, jobs, policy.prices),
            *joined,
            *_judged(last, jobs, status.forecast),
        ]
    ending += [("Drift", text)] if (text := _drift_text(status)) else []
    ending += _whole(status)
    if jobs:
        is_faster = any((job.mean_speed or 0.0) > FASTEST for job in began)
        names, split = as_requested(job.job for job in began), split_of(began, status.sharing)
        how = f"--split {split}{_limits(folder, status, policy)}{' --alone' * is_faster}"
        ending.append(("Again", f"advisor launch {names} {how}"))
    yield Said(headline=_headline(status.state, last, jobs), lines=tuple(ending))


def _limits(folder: LaunchFolder, status: LaunchStatus, policy: Policy) -> str:
    """What the jobs that began together had to keep, but for what they keep anyway."""
    with suppress(InputError):
        spec = folder.read_spec()
        parts = spec.pairs[status.pair_number].parts
        return option_words(
            {
                "min_speed": [
                    f"{part.job.name}={part.min_speed:.10g}"
                    for part in parts
                    if part.min_speed not in (None, policy.min_speed)
                    and not (part.job.offered_rate and part.min_speed)
                ],
                "max_p99": [
                    f"{part.job.name}={part.max_p99_ms:.10g}ms"
                    for part in parts
                    if part.max_p99_ms not in (None, part.job.max_p99_ms)
                ],
                "max_power": parts[0].max_power_w,
                "power_limit": spec.power_limit_w,
            }
        )
    return ""


def _seats(observation: Observation) -> list[tuple[str, float]]:
    return sorted((part.job, part.share_percent) for part in observation.parts)


def _whole(status: LaunchStatus) -> Iterator[tuple[str, str]]:
    """What failed, energy of the whole launch, and how long it was not watched."""
    if status.code:
        yield "Cause", f"{status.code}: {status.cause}"
    yield from (("", f"{job.job} {job.outcome}: {job.error}") for job in status.jobs if job.error)
    if status.whole_energy_j is not None:
        starts, whole = map(energy_text, (status.starts_energy_j or 0.0, status.whole_energy_j))
        yield "In all", f"{whole} since the GPU was taken, {starts} of it before jobs ran"
    if status.unwatched_s:
        yield "Gaps", f"{status.unwatched_s:.1f} s without monitoring"


def _moved(status: LaunchStatus, later: Sequence[Observation]) -> Iterator[tuple[str, str]]:
    """Jobs that came and left, and what a job that joined did beside what was predicted."""
    yield from (("" if n else "Moves", text) for n, text in enumerate(_moves(status)))
    for job in status.jobs:
        seat = job.job, job.share_percent
        if observation := next((o for o in later if job.joined_at and seat in _seats(o)), None):
            part = next(p for p in observation.parts if p.job == job.job)
            power = "" if observation.power_w is None else f"; all draw {observation.power_w:.0f} W"
            if power and (said := observation.predicted_power_w) is not None:
                power += f" ({said:.0f} predicted)"
            yield "Joined", f"{_each(_Job(part, job), len(job.job))}{power}"


def _in_order(observation: Observation, status: LaunchStatus, began: int) -> list[_Job]:
    """The jobs that began together, as launched; an observation has them by name."""
    places = sorted(range(began), key=lambda n: status.jobs[n].job)
    forecasts = status.forecast.jobs if status.forecast else (None,) * began
    by_place = {
        n: _Job(part, status.jobs[n], forecasts[n])
        for n, part in zip(places, observation.parts, strict=True)
    }
    return [by_place[n] for n in range(began)]


def _headline(state: str, observation: Observation | None, jobs: Sequence[_Job]) -> str:
    if observation is None:
        return f"{state.upper()}: nothing ran together."
    names = counted(job.part.job for job in jobs)
    return (
        f"{state.upper()} after {duration_text(_took_s(observation))}: {names} "
        f"{_split(observation, jobs)}."
    )


def _split(observation: Observation, jobs: Sequence[_Job]) -> str:
    low = below_normal_text(job.part.job for job in jobs if job.part.below_normal)
    if observation.mode in _FREE:
        return _FREE[observation.mode] + low
    units = " + ".join(str(job.part.units) for job in jobs)
    if not observation.units_total or "None" in units:
        return f"at {'/'.join(f'{job.part.share_percent:g}' for job in jobs)}{low}"
    return (
        f"on {units} of {observation.units_total} "
        f"{UNIT_NAMES[vendor_of(observation.gpu_model)]}{low}"
    )


def _of_pair(
    observation: Observation, jobs: Sequence[_Job], prices: Prices
) -> Iterator[tuple[str, str]]:
    """What it took and saved, what each job did, and whether its work was right."""
    whole_j, apart_s, apart_j = (
        observation.energy_to_end_j,
        _apart_s(observation),
        observation.energy_apart_j,
    )
    width = max(len(job.part.job) for job in jobs)
    yield from (("" if n else "Speed", _each(job, width)) for n, job in enumerate(jobs))
    if (stp := _stp(observation)) is not None:
        yield "Time", _time(observation, stp, apart_s)
    yield "Energy", _energy(observation, whole_j, apart_j)
    if prices.are_set and whole_j is not None and apart_s and apart_j:
        yield "Cost", prices.text((_took_s(observation), whole_j), (apart_s, apart_j))
    verdicts = {part.results for part in observation.parts}
    each = (f"{job.part.job} {_RESULTS[job.part.results]}" for job in jobs)
    results = ", ".join(each) if len(verdicts) > 1 else _RESULTS[verdicts.pop()]
    held = "a limit was BROKEN" if LIMIT_BROKEN in observation.flags else "limits held all the time"
    yield "Results", f"{results}; {'no limits were set' if observation.mode in _FREE else held}"


def _took_s(observation: Observation) -> float:
    return observation.overlap_s + (observation.rest_s or 0.0)


def _apart_s(observation: Observation) -> float | None:
    """The same work one after the other, by the rates alone in the profiles."""
    stp = _stp(observation)
    rests = [_speed(part, part.rest_rate) or 0.0 for part in observation.parts]
    if stp is None or (observation.rest_s and not any(rests)):
        return None
    return stp * observation.overlap_s + sum(rests) * (observation.rest_s or 0.0)


def _energy(observation: Observation, whole_j: float | None, apart_j: float | None) -> str:
    if whole_j is None:
        return "not read"
    if apart_j is None:
        is_profiled = all(part.solo_rate and part.solo_power_w for part in observation.parts)
        why = "too short" if is_profiled else "not every job has a profile"
        why = FLAGS[FOREIGN_HOST] if FOREIGN_HOST in observation.flags else why
        return f"{energy_text(whole_j)}; one after the other is not known: {why}"
    saved = less_or_more(1 - whole_j / apart_j, 0)
    now, predicted = observation.energy_saved, observation.predicted_energy_saved
    notes = (
        f"{less_or_more(now, 0)} while all ran" if observation.rest_s and now is not None else "",
        "" if predicted is None else f"{less_or_more(predicted, 0)} predicted",
    )
    beside = f" ({', '.join(filter(None, notes))})" if any(notes) else ""
    return f"{energy_text(whole_j)} instead of {energy_text(apart_j)}: {saved}{beside}"


def _time(seen: Observation, stp: float, apart_s: float | None) -> str:
    """Time of the work, and the part of it that is saved against one after the other."""
    predicted = _stp(seen, predicted=True)
    beside = f" ({less_or_more(1 - 1 / predicted, 0)} predicted)" if predicted else ""
    took = f"{duration_text(_took_s(seen))} instead of {duration_text(apart_s or 0.0)}"
    saved = less_or_more(1 - 1 / stp, 0) if stp else "no end"
    return (
        f"{f'{took}: ' if apart_s else ''}{saved}{' while all ran' if seen.rest_s else ''}{beside}"
    )


def _stp(observation: Observation, *, predicted: bool = False) -> float | None:
    """Sum of relative speeds, observed or predicted; None where one is not known here."""
    rates = [(part, part.predicted_rate if predicted else part.rate) for part in observation.parts]
    speeds = [speed for part, rate in rates if (speed := _speed(part, rate)) is not None]
    is_complete = len(speeds) == len(rates) and FOREIGN_HOST not in observation.flags
    return sum(speeds) if is_complete else None


def _speed(part: ObservedPart, rate: float | None) -> float | None:
    return rate / part.solo_rate if rate is not None and part.solo_rate else None


def _each(job: _Job, width: int) -> str:
    """Its speed beside what was predicted, how much it did, and how it ended."""
    part, status = job.part, job.status
    speed, predicted = _speed(part, part.rate), _speed(part, part.predicted_rate)
    rate = "" if part.rate is None else f"{in_digits(part.rate, 4)} {part.rate_unit}/s"
    beside = "" if predicted is None else f" ({100 * predicted:.0f} % predicted)"
    most = status and status.max_p99_ms
    promised = "" if most is None else f" ({most:g} promised)"
    did = (
        rate if speed is None else f"{speed_text(speed):>5}{beside}",
        "" if part.latency_p99_ms is None else f"p99 {part.latency_p99_ms:.3g} ms{promised}",
        status and f"{status.steps:,.0f} {status.rate_unit}",
        status and (status.outcome if status.exit_code is None else f"exit {status.exit_code}"),
        "" if part.energy_j is None else f"about {energy_text(part.energy_j)}",
    )
    return f"{part.job:<{width}}  {', '.join(filter(None, did))}"


def _judged(
    observation: Observation, jobs: Sequence[_Job], forecast: Forecast | None
) -> Iterator[tuple[str, str]]:
    """Better or worse than predicted, values out of their ranges, and use of the observation."""
    remarks = filter(None, [_better(observation), *_outside(observation, jobs, forecast)])
    is_profiled = all(part.solo_rate for part in observation.parts)
    kept = f"Later answers use it{'' if is_profiled else ' once each job has a profile'}."
    if why := observation.doubt:
        kept = f"Later answers do not use it: {why}."
    without = "not compared with what was predicted" if forecast else "nothing was predicted"
    yield "Model", f"{'; '.join(remarks) or without}. {kept}"


def _better(observation: Observation) -> str:
    """By the energy saved, else by the work an hour."""
    gains = [
        measured - said
        for measured, said in (
            (observation.energy_saved, observation.predicted_energy_saved),
            (_stp(observation), _stp(observation, predicted=True)),
        )
        if measured is not None and said is not None
    ]
    if not gains:
        return ""
    if abs(gains[0]) < 0.005:  # the same to a person
        return "as predicted"
    return f"{'better' if gains[0] > 0 else 'worse'} than predicted"


def _outside(
    observation: Observation, jobs: Sequence[_Job], forecast: Forecast | None
) -> Iterator[str]:
    values = [
        (f"rate of {j.part.job}", j.part.rate, j.forecast.rate, f" {j.part.rate_unit}/s")
        for j in jobs
        if j.forecast
    ]
    values += [("power", observation.power_w, forecast.power_w, " W")] if forecast else []
    outside: dict[tuple[str, str], list[str]] = {}
    for name, value, said, unit in values:
        if value is not None and not said.low <= value <= said.high:
            expected = f"{unit}, outside {in_digits(said.low, 4)} to {in_digits(said.high, 4)}"
            outside.setdefault((name, expected), []).append(f"{value:.4g}")
    yield from (f"{name} {listed(names)}{expected}" for (name, expected), names in outside.items())


app = typer.Typer(help="List, show, stop, split again and clean up the launches of this host.")

LaunchId = Annotated[
    str, typer.Argument(help="Launch ID, as listed by `advisor launches`", metavar="ID")
]

_LOOK_S = 0.2

_COLUMNS: Columns[LaunchStatus] = (
    ("launch", lambda status: status.launch_id),
    ("state", lambda status: status.standing),
    ("GPU", lambda status: status.gpu_uuid),
    ("pair", lambda status: f"{status.pair_number + 1} of {status.pairs}"),
    ("jobs", lambda status: " + ".join(map(_seat, status.jobs))),
    ("together", lambda status: f"{status.overlap_s:.0f} s"),
    ("power", lambda status: "-" if status.watts is None else f"{status.watts:.0f} W"),
    ("energy saved", lambda s: "-" if s.part_saved is None else f"{100 * s.part_saved:.0f} %"),
    ("what went wrong", lambda status: status.code),
)


@app.callback(invoke_without_command=True)
def group(context: typer.Context, as_json: AsJson = False) -> None:
    """List, show, stop, split again and clean up the launches of this host."""
    if context.invoked_subcommand is not None:
        return
    statuses = [folder.read_status() for folder in list_folders(_root())]
    if as_json:
        say(as_json_text(LaunchList(launches=tuple(statuses))))
    elif statuses:
        # Of these columns, `show` and `stop` need the first one whole.
        print_table(table_of(_COLUMNS, statuses, whole=["launch"]))
    else:
        say("nothing was launched on this host")


@app.command("show")
def show(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Show the state of a launch, and the results of its sets.

    Example: advisor launches show 20261125-030728-cb7096
    """
    folder = find_folder(_root(), launch_id)
    status = folder.read_status()
    if as_json:
        say(as_json_text(_final_json(folder, status)))
        return
    console = plain_console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table(status, console.width))
    for screen in end_screens(status, observations(folder), read_settings().policy, folder):
        print_screen(screen)


@app.command("stop")
def stop(
    launch_id: LaunchId,
    job: Annotated[
        str | None,
        typer.Argument(help="End this job alone, all copies of it; the others go on"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stop all jobs of a launch in the safe order, or one job, and wait until they have ended.

    Example: advisor launches stop 20261125-030728-cb7096 train
    """
    folder = find_folder(_root(), launch_id)
    if job is None:
        folder.ask_stop()
        close_unclaimed(folder)
        status = await_end(folder)
    else:
        request = folder.ask_end(job)
        while request.exists() and not folder.read_status().over:
            time.sleep(_LOOK_S)
        status = folder.read_status()
    say(as_json_text(_final_json(folder, status)) if as_json else line(status))
    raise typer.Exit(exit_code(status))


@app.command("resplit")
def resplit(launch_id: LaunchId, as_json: AsJson = False) -> None:
    """Start the jobs of a launch again at the split that `show` offers; they must be restartable.

    Example: advisor launches resplit 20261125-030728-cb7096
    """
    folder = find_folder(_root(), launch_id)
    split = folder.ask_resplit()
    # In this order: the next set begins before its request is answered.
    while (folder.resplit.exists(), (status := folder.read_status()).state) != (False, "running"):
        if status.over:
            break
        time.sleep(_LOOK_S)
    if not status.over and split != str(split_of(status.jobs, status.sharing)):
        raise NoSplitError("they go on as they were", why="it is not offered any more")
    say(as_json_text(status) if as_json else line(status))
    raise typer.Exit(exit_code(status))


@app.command("clean")
def clean(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be removed, and remove nothing")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove folders of launches that ended long ago, or that take too much room.

    The bounds are ADVISOR_KEEP_LAUNCHES_DAYS and ADVISOR_KEEP_LAUNCHES_GIB. Observations are
    stored before a folder is removed.

    Example: advisor launches clean
    """
    from advisor_data.state import ServiceState, clean_launches  # SQLAlchemy takes time to load

    settings = read_settings()
    with (
        open_store(settings.database_url, settings.home) as store,
        ServiceState(settings.database_url, settings.home) as state,
    ):
        who, bounds = f"user id {os.getuid()}", settings.retention
        cleaned = clean_launches(_root(), bounds, store, state, who, dry_run=dry_run)
    if as_json:
        say(as_json_text(cleaned))
        return
    verb = "would be removed" if dry_run else "removed"
    say_lines(
        f"{launch.launch_id} {verb}: ended {launch.ended_at}, "
        f"{launch.size_bytes / 2**20:.1f} MiB, for its {launch.reason}"
        for launch in cleaned.removed
    )
    say_lines(f"{launch.launch_id} is kept: {launch.why}" for launch in cleaned.kept)
    total_mib = sum(launch.size_bytes for launch in cleaned.removed) / 2**20
    say(f"{count_of(len(cleaned.removed), 'folder')} {verb}, {total_mib:.1f} MiB")


def await_end(folder: LaunchFolder) -> LaunchStatus:
    """The last status of a launch that was asked to stop; a supervisor that hangs is killed."""
    stopping, last = Stopping(folder), folder.read_status()
    mark = {LAUNCH_MARK: str(folder.path)}
    for last in statuses(folder):
        if fault := stopping.look(last):
            say(fault, err=True)
            # Guard and shims take less, also where jobs ignore signals.
            wait_until(lambda: not marked_pids(mark), 30.0)
            check_none(marked_pids(mark))
    return last


def _root() -> Path:
    return read_settings().home / "launches"


def _seat(job: JobStatus) -> str:
    joined = f" joined {job.joined_at[11:19]}" if job.joined_at else ""
    left = f" left {job.ended_at[11:19]}" if job.ended_at else ""
    of_whom = " its profile" if (job.speed or 0.0) > FASTEST else ""
    speed = f" at {job.speed:.2f}x{of_whom}" if job.speed is not None else ""
    unknown = " (progress unknown)" if job.unread else " (stalled)" if job.stalled_since else ""
    return f"{job.job} {job.share_text}{speed}{unknown}{joined}{left}"


@grouped
def launch(
    jobs: Annotated[
        list[str],
        typer.Argument(
            help="Names of two to seven jobs with job files; A*3 for three of A",
            metavar="A B ...",
            autocompletion=job_names,
        ),
    ],
    *,
    split: Annotated[
        str | None,
        typer.Option(
            help="Split: 30/70, 100:low/50 (100: no limit, low: low priority), uncapped or"
            " time-sliced (default: the recommended one)"
        ),
    ] = None,
    share_percent: Annotated[
        float | None,
        typer.Option(
            "--share",
            help="Share of the joining job, percent (default: the best one)",
        ),
    ] = None,
    gpu: Annotated[str, typer.Option(help="GPU index or UUID; 0,1 for a job on two GPUs")] = "0",
    objective: ObjectiveOption = None,
    allow_unsafe: AllowUnsafe = False,
    stop_on_wrong_results: Annotated[
        bool,
        typer.Option(
            "--stop-on-wrong-results", help="Stop all jobs when one reports a wrong result"
        ),
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="End all jobs when another process computes on the GPU")
    ] = False,
    alone: Annotated[
        bool | None,
        typer.Option(
            "--alone/--no-alone",
            help="First measure each job alone for some seconds, if it has a gate "
            "(default: if a profile is of another host)",
        ),
    ] = None,
    limit_memory: Annotated[
        bool,
        typer.Option(
            "--limit-memory/--no-memory-limit",
            help="Limit the GPU memory of each job to what the needs of the others leave "
            "(MPS; default)",
        ),
    ] = True,
    when_one_ends: Annotated[
        WhenOneEnds,
        typer.Option(
            help="When a job ends, keep the others running under their limits, or stop them"
        ),
    ] = "keep",
    when_p99_breaks: Annotated[
        WhenP99Breaks,
        typer.Option(
            help="When a server exceeds its p99 limit, report it, or end the newest batch job"
        ),
    ] = "tell",
    duration_s: Annotated[
        float | None,
        typer.Option("--duration", help="Stop the jobs after this many seconds"),
    ] = None,
    hang_s: Annotated[
        float | None,
        typer.Option(
            "--hang-after",
            help="End a job (not an idle server) after this many seconds without progress "
            "(default: show it as stalled)",
        ),
    ] = None,
    tries: Tries = 1,
    power_limit_w: Annotated[
        float | None,
        typer.Option(
            "--power-limit",
            help="Lower the GPU's power limit, W, until the end of the launch; needs root",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would start, and start nothing")
    ] = False,
    limits: LimitOptions,
    then: Annotated[
        list[str] | None, typer.Option(help="Jobs to launch afterwards, C+D*2; repeatable")
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="Add one job to a running launch", metavar="ID")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all jobs run under proven limits")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run two to seven jobs together on one GPU at a proven split, and watch them.

    Without --split it uses the recommended split. Ctrl-C stops all jobs in the safe order. Closing
    the terminal or killing this command leaves them running and watched.

    Example: advisor launch train score --split 66/34 --detach
    """
    settings = read_settings()
    together = [every_job(jobs), *map(_together, then or ())]
    names = [name for each in together for name in each]
    by_job_ms, for_all_ms = longest_p99_ms(limits.max_p99 or (), names)
    first, *rest = (
        job_requests(each, names, limits.min_speed or (), by_job_ms) for each in together
    )
    request = LaunchRequest(
        jobs=first,
        then=tuple(rest),
        split=split,
        share_percent=share_percent,
        gpu=gpu,
        objective=objective,
        max_p99_ms=for_all_ms,
        max_power_w=limits.max_power,
        memory_mib=limits.memory,
        gpu_model=limits.gpu_model,
        allow_unsafe=allow_unsafe,
        stop_on_wrong_results=stop_on_wrong_results,
        strict=strict,
        alone=alone,
        limit_memory=limit_memory,
        when_one_ends=when_one_ends,
        when_p99_breaks=when_p99_breaks,
        duration_s=duration_s,
        hang_s=hang_s,
        tries=tries,
        power_limit_w=power_limit_w,
        dry_run=dry_run,
    )
    wanted = ResolvedLaunch(request=request, profiles=limits.profiles, asked_by=user_name())
    if join is not None:
        request.check_join()
        folder = find_folder(settings.home / "launches", join)
        # A launch without a GPU yet cannot be joined; the requested GPU is shown.
        card = _see_gpu(folder.read_status().gpu_uuid or folder.read_spec().gpu, settings)
        raise typer.Exit(join_launch(folder, replace(wanted, card=card), settings, as_json=as_json))
    request.check()
    check_arguments(request, settings)
    card = _see_gpu(gpu, settings, needed=not dry_run)
    spec = make_spec(replace(wanted, card=card), settings)
    if dry_run:
        say_lines([as_json_text(spec)] if as_json else _plan_lines(spec, card, settings))
        return
    raise typer.Exit(_launch(spec, settings, detach=detach, as_json=as_json))


def user_name() -> str:
    """The user, as launches keep it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container a user may be a number only.
        return str(os.getuid())


def _together(text: str) -> tuple[str, ...]:
    names = every_job(text.split("+"))
    if len(names) < ADVISED_JOBS or not all(names):
        raise InputError(f"--then {text} names no jobs to share a GPU", fix="write --then C+D")
    return names


def _see_gpu(name: str, settings: Settings, *, needed: bool = True) -> Gpu | None:
    """The GPU; None where there is none and it is not needed."""
    with nullcontext() if needed else suppress(SourceError):
        return with_units(find_gpus(name), settings)
    return None


def _launch(spec: LaunchSpec, settings: Settings, *, detach: bool, as_json: bool) -> int:
    """Start the jobs and follow them; the exit code of the command."""
    folder = create_folder(settings.home / "launches", spec)
    progress = statuses(folder, spawn_supervisor(folder, settings, SUPERVISOR))
    if detach:
        # Once the limits are proven and all run, or it has failed.
        status = next(status for status in progress if status.over or status.state == "running")
        say(as_json_text(_final_json(folder, status)) if as_json else folder.launch_id)
        if status.state == "failed":
            say(line(status), err=True)
        return exit_code(status)
    if not as_json:
        say_lines((f"! {note}" for note in spec.notes), err=True)
    show = show_live if plain_console().is_terminal else show_lines
    with asking_to_stop(folder.ask_stop):
        status = _show_json(progress, folder) if as_json else show(progress)
    if not as_json:
        for screen in end_screens(status, observations(folder), settings.policy, folder):
            print_screen(screen)
    return exit_code(status)


def join_launch(
    folder: LaunchFolder, wanted: ResolvedLaunch, settings: Settings, *, as_json: bool
) -> int:
    """Ask the supervisor of a launch, and wait for its answer; the exit code of the command.

    Raises:
        InputError: the launch is not running.
        NoSplitError: no share for the job is worth it, or keeps the limits.
    """
    (name,) = wanted.request.names
    request = make_join(folder, name, wanted.request.share_percent, wanted, settings)
    if not as_json:
        (made,) = request.pairs
        share = f"{first_status(request, '').jobs[-1].share_text} for {name}"
        expected = [f"with {share}: {_expected(made, made.forecast)}"] if made.forecast else []
        say_lines((*expected, *(f"! {note}" for note in request.notes)), err=True)
    join_name = ask_join(folder, request)
    try:
        while (said := join_status(folder, join_name, request)).outcome == "waiting":
            time.sleep(0.2)
    except KeyboardInterrupt:
        withdraw(folder, join_name)
        raise
    say(as_json_text(said) if as_json else _join_text(folder.launch_id, said))
    return _code_of(said.code) if said.outcome == "refused" else 0


def _join_text(launch_id: str, said: JobStatus) -> str:
    if said.outcome == "refused":
        return f"{said.job} did not join {launch_id}, which goes on as it was: {said.error}"
    units = (
        f" ({said.units_granted} units, memory {_memory(said)})"
        if said.units_granted is not None
        else ""
    )
    return f"{said.job} joined {launch_id} with {said.share_text}{units} at {said.joined_at}"


def _plan_lines(spec: LaunchSpec, gpu: Gpu | None, settings: Settings) -> Iterator[str]:
    model = gpu.model if gpu else "not seen"
    tried = f", each way for {spec.try_s:g} s and the best to its end" if spec.try_s else ""
    yield f"nothing is started; on GPU {spec.gpu} ({model}){tried}:"
    for pair in spec.pairs:
        card_mib = gpu and gpu.memory_mib
        yield f"{as_requested(job.name for job in pair.jobs)} at {pair.split}"
        for (part, share), alike in groupby(zip(pair.parts, pair.shares(card_mib), strict=True)):
            units = f", {part.units} units" if part.units is not None else ""
            yield f"  {as_requested([part.job.name] * len([*alike]))}: {share.percent:g} %{units}"
            yield f"    {' '.join(part.job.command)}"
            bound, _ = read_bound(part.memory_bound)
            variables = bound | dict(part.job.env) | limit_environment(pair, share, gpu, settings)
            yield from (f"    {name}={text}" for name, text in variables.items())
        if pair.alone_s:
            yield f"  first those with a gate run alone for {pair.alone_s:g} s each"
        yield from (f"  memory: {_memory_text(memory)}" for memory in pair.memory(card_mib))
        if pair.forecast:
            yield folded(_expected(pair, pair.forecast), _LINE_WIDTH, "  ")
            if spec.when_one_ends == "keep":
                rests = dict.fromkeys(_rests(pair, pair.forecast))
                yield from (folded(rest, _LINE_WIDTH, "  ") for rest in rests)
    yield from (folded(note, _LINE_WIDTH, "! ") for note in spec.notes)


def _memory_text(memory: MemoryFit) -> str:
    needs = " + ".join("?" if need is None else f"{need:g}" for need in memory.needs_mib)
    if memory.most_mib is None:
        return f"{needs} MiB"
    verdict = "fits" if memory.fits else "not known whether it fits"
    return f"{needs} of {memory.most_mib:.0f} MiB: {verdict}"


def _expected(pair: LaunchSet, forecast: Forecast) -> str:
    rates = counted(
        f"{job.name} {in_digits(expected.rate.value, 4)} {job.progress.unit}/s"
        for job, expected in zip(pair.jobs, forecast.jobs, strict=True)
    )
    saved = forecast.energy_saved
    than = " energy for the same work than each alone on a GPU"
    energy = f", {less_or_more(saved.value)}{than}" if saved else ""
    return f"expected: {rates}, {forecast.power_w.value:.0f} W{energy}"


def _rests(pair: LaunchSet, forecast: Forecast) -> Iterator[str]:
    """What it costs that a limit stays when the other jobs have ended."""
    names = [job.name for job in pair.jobs]
    for n in reversed(range(len(names))):
        if saved := forecast.jobs[n].rest_energy_saved:
            ended = (*names[:n], *names[n + 1 :])
            yield (
                f"once {counted(ended)} {'have' if len(ended) > 1 else 'has'} ended, {names[n]} "
                f"goes on under its limit: {less_or_more(saved)} energy than its work takes on the "
                "whole GPU"
            )
