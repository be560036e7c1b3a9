"""The last lines of a launch: what it took and saved beside what was predicted, and what next.

Everything is of the observation and the status; `advisor launches show` has the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.core.gpu import UNIT_NAMES, vendor_of
from advisor.core.objectives import Prices
from advisor.core.records import (
    LIMIT_BROKEN,
    Observation,
    ObservedPart,
    doubt,
    energy_apart_j,
    energy_to_end_j,
)
from advisor.core.wording import as_asked, energy_text, less_or_more, listed
from advisor.formats.moments import duration_text
from advisor.launch.spec import Forecast, JobForecast
from advisor.launch.status import JobStatus, LaunchStatus
from advisor_advice.words.price import price_text
from advisor_cli.launching.text import moves
from advisor_cli.shared.screen import Screen

_SAME = 0.005
"""Parts that are this near are the same to a person."""

_RESULTS: Mapping[str | None, str] = {
    "right": "as on the whole GPU",
    "wrong": "WRONG, not finite",
    "differ": "DIFFER from those on the whole GPU",
    None: "not compared",
}

_FREE = {"uncapped": "without limits", "time-sliced": "in turns"}


@dataclass(frozen=True, slots=True)
class _Job:
    """What one job did; `status` and `forecast` are of those that ran last only."""

    part: ObservedPart
    status: JobStatus | None = None
    forecast: JobForecast | None = None


def end_screens(
    status: LaunchStatus, observed: Sequence[Observation], prices: Prices
) -> Iterator[Screen]:
    """One for those that ran together; the last one says how the launch ended."""
    later = _of_last(observed)
    observed = [seen for seen in observed if seen.stretch == 0]
    last = observed[-1] if observed and _is_of(observed[-1], status) else None
    for seen in observed[:-1] if last else observed:
        jobs = [_Job(part) for part in seen.parts]
        yield Screen(_headline(seen.state, seen, jobs), [*_of_pair(seen, jobs, prices)])
    jobs, lines = [], [*_errors(status)]
    if last:
        jobs = _in_order(last, status)
        came = _moved(status, later)
        lines = [
            *_of_pair(last, jobs, prices),
            *came,
            *_judged(last, jobs, status.forecast),
            *lines,
        ]
    tail = [*_whole(status), *_next(status, jobs)]
    yield Screen(_headline(status.state, last, jobs), [*lines, *tail])


def _whole(status: LaunchStatus) -> Iterator[tuple[str, str]]:
    """Energy of the whole launch, and how long nobody looked."""
    if status.whole_energy_j is not None:
        starts = energy_text(status.starts_energy_j or 0.0)
        whole = energy_text(status.whole_energy_j)
        yield "In all", f"{whole} since the GPU was taken, {starts} of them before jobs ran"
    if status.unwatched_s:
        yield "Unwatched", f"{status.unwatched_s:.1f} s between two looks at the jobs beyond 2 s"


def _of_last(observed: Sequence[Observation]) -> list[Observation]:
    """The stretches after the first of those that ran last."""
    begins = [n for n, seen in enumerate(observed) if seen.stretch == 0]
    return [*observed[begins[-1] + 1 :]] if begins else []


def _moved(status: LaunchStatus, later: Sequence[Observation]) -> Iterator[tuple[str, str]]:
    """Who came and left, and what those who joined did beside what was predicted."""
    label = "Moves"
    for text in moves(status) if len(_first(status)) < len(status.jobs) else ():
        yield label, text
        label = ""
    for job in status.jobs:
        seen = next((seen for seen in later if job.joined_at and _has(seen, job)), None)
        if seen is not None:
            part = next(p for p in seen.parts if p.job == job.job)
            power = "" if seen.power_w is None else f"; all draw {seen.power_w:.0f} W"
            said = seen.predicted_power_w
            beside = "" if not power or said is None else f" ({said:.0f} predicted)"
            yield "Joined", f"{_each(_Job(part, job))}{power}{beside}"


def _has(seen: Observation, job: JobStatus) -> bool:
    return any((p.job, p.share_percent) == (job.job, job.share_percent) for p in seen.parts)


def _is_of(seen: Observation, status: LaunchStatus) -> bool:
    """Whether an observation is of the jobs that the status is of."""
    own = sorted((job.job, job.share_percent) for job in _first(status))
    return own == sorted((part.job, part.share_percent) for part in seen.parts)


def _first(status: LaunchStatus) -> tuple[JobStatus, ...]:
    """Those that began together, which an observation of all is of."""
    return tuple(job for job in status.jobs if job.joined_at is None)


def _in_order(seen: Observation, status: LaunchStatus) -> list[_Job]:
    """The jobs as they were asked for; an observation has them by name."""
    places = sorted(range(len(_first(status))), key=lambda n: status.jobs[n].job)
    forecasts = status.forecast.jobs if status.forecast else (None,) * len(places)
    by_place = {
        n: _Job(part, status.jobs[n], forecasts[n])
        for n, part in zip(places, seen.parts, strict=True)
    }
    return [by_place[n] for n in range(len(places))]


def _headline(state: str, seen: Observation | None, jobs: Sequence[_Job]) -> str:
    if seen is None:
        return f"{state.upper()}: nothing ran together."
    names = listed(as_asked(job.part.job for job in jobs).split())
    return f"{state.upper()} after {duration_text(_took_s(seen))}: {names} {_split(seen, jobs)}."


def _split(seen: Observation, jobs: Sequence[_Job]) -> str:
    if seen.mode in _FREE:
        return _FREE[seen.mode]
    units = " + ".join(str(job.part.units) for job in jobs)
    if not seen.units_total or "None" in units:
        return f"at {'/'.join(f'{job.part.share_percent:g}' for job in jobs)}"
    return f"at {units} of {seen.units_total} {UNIT_NAMES[vendor_of(seen.gpu_model)]}"


def _of_pair(seen: Observation, jobs: Sequence[_Job], prices: Prices) -> Iterator[tuple[str, str]]:
    """What it took and saved, what each job did, and whether its work was right."""
    whole_j, apart_s, apart_j = energy_to_end_j(seen), _apart_s(seen), energy_apart_j(seen)
    yield "Energy", _energy(seen, whole_j, apart_j)
    if (stp := _stp(seen)) is not None:
        yield "Work", _work(seen, stp, apart_s)
    if prices.are_set and whole_j is not None and apart_s and apart_j:
        yield "Price", price_text(prices, (_took_s(seen), whole_j), (apart_s, apart_j))
    for n, job in enumerate(jobs):
        yield "" if n else "Each", _each(job)
    yield "Results", f"{_results(jobs)}; {_limits(seen)}"


def _took_s(seen: Observation) -> float:
    return seen.overlap_s + (seen.rest_s or 0.0)


def _apart_s(seen: Observation) -> float | None:
    """The same work one after the other, by the rates alone in the profiles."""
    stp = _stp(seen)
    rests = [_speed(part, part.rest_rate) or 0.0 for part in seen.parts]
    if stp is None or (seen.rest_s and not any(rests)):
        return None
    return stp * seen.overlap_s + sum(rests) * (seen.rest_s or 0.0)


def _energy(seen: Observation, whole_j: float | None, apart_j: float | None) -> str:
    if whole_j is None:
        return "not read"
    if apart_j is None:
        known = all(part.solo_rate and part.solo_power_w for part in seen.parts)
        why = "too short" if known else "not every job has a profile"
        return f"{energy_text(whole_j)}; one after the other is not known: {why}"
    saved = 1 - whole_j / apart_j
    notes = [f"{100 * abs(saved):.0f} %"]
    if seen.rest_s and seen.energy_saved is not None:
        notes.append(f"while all ran {less_or_more(seen.energy_saved, 0)}")
    if (predicted := seen.predicted_energy_saved) is not None:
        alike = (predicted >= 0) == (saved >= 0)
        said = f"{100 * abs(predicted):.0f}" if alike else less_or_more(predicted, 0)
        notes.append(f"{said} predicted")
    amount = f"{energy_text(abs(apart_j - whole_j))} {'saved' if saved >= 0 else 'more'}"
    whole, apart = energy_text(whole_j), energy_text(apart_j)
    return f"{whole}; one after the other {apart}: {amount} ({', '.join(notes)})"


def _work(seen: Observation, stp: float, apart_s: float | None) -> str:
    predicted = _stp(seen, predicted=True)
    beside = "" if predicted is None else f" ({predicted:.2f} predicted)"
    times = f": {duration_text(_took_s(seen))} instead of {duration_text(apart_s or 0.0)}"
    while_all = " while all ran" if seen.rest_s else ""
    return f"{stp:.2f}x an hour{while_all}{beside}{times if apart_s else ''}"


def _stp(seen: Observation, *, predicted: bool = False) -> float | None:
    """Sum of relative speeds, observed or predicted; None where one is not known."""
    rates = [(part, part.predicted_rate if predicted else part.rate) for part in seen.parts]
    speeds = [speed for part, rate in rates if (speed := _speed(part, rate)) is not None]
    return sum(speeds) if len(speeds) == len(rates) else None


def _speed(part: ObservedPart, rate: float | None) -> float | None:
    return rate / part.solo_rate if rate is not None and part.solo_rate else None


def _each(job: _Job) -> str:
    """Its speed beside what was predicted, how much it did, and how it ended."""
    part, status = job.part, job.status
    speed, predicted = _speed(part, part.rate), _speed(part, part.predicted_rate)
    did: list[str] = []
    if speed is not None:
        beside = "" if predicted is None else f" ({100 * predicted:.0f} predicted)"
        did.append(f"{100 * speed:.0f} % of its speed{beside}")
    elif part.rate is not None:
        did.append(f"{part.rate:.4g} {part.rate_unit}/s")
    if part.latency_p99_ms is not None:
        most = status and status.max_p99_ms
        promised = "" if most is None else f" ({most:g} promised)"
        did.append(f"p99 {part.latency_p99_ms:.3g} ms{promised}")
    if status:
        did.append(f"{status.steps:,.0f} {status.rate_unit}")
        did.append(status.outcome if status.exit_code is None else f"exit {status.exit_code}")
    return f"{part.job} {', '.join(did)}"


def _results(jobs: Sequence[_Job]) -> str:
    found = {job.part.results for job in jobs}
    if len(found) == 1:
        return _RESULTS[found.pop()]
    return ", ".join(f"{job.part.job} {_RESULTS[job.part.results]}" for job in jobs)


def _limits(seen: Observation) -> str:
    if seen.mode in _FREE:
        return "no limits were set"
    return "a limit was BROKEN" if LIMIT_BROKEN in seen.flags else "limits held all the time"


def _judged(
    seen: Observation, jobs: Sequence[_Job], forecast: Forecast | None
) -> Iterator[tuple[str, str]]:
    """Better or worse than predicted, what was out of its range, and what becomes of it."""
    told = [_better(seen), *_outside(seen, jobs, forecast)]
    text = "; ".join(filter(None, told)) or "nothing was predicted"
    yield "Model", f"{text}. {_kept(seen)}"


def _better(seen: Observation) -> str:
    """By the energy saved, else by the work an hour."""
    pairs = [
        (seen.energy_saved, seen.predicted_energy_saved),
        (_stp(seen), _stp(seen, predicted=True)),
    ]
    gains = [own - said for own, said in pairs if own is not None and said is not None]
    if not gains:
        return ""
    if abs(gains[0]) < _SAME:
        return "as predicted"
    return f"{'better' if gains[0] > 0 else 'worse'} than predicted"


def _outside(seen: Observation, jobs: Sequence[_Job], forecast: Forecast | None) -> Iterator[str]:
    values = [
        (f"rate of {j.part.job}", j.part.rate, j.forecast.rate, f" {j.part.rate_unit}/s")
        for j in jobs
        if j.forecast
    ]
    values += [("power", seen.power_w, forecast.power_w, " W")] if forecast else []
    outside: dict[tuple[str, str], list[str]] = {}
    for name, value, said, unit in values:
        if value is not None and not said.low <= value <= said.high:
            expected = f"{unit}, not {said.low:.4g} to {said.high:.4g}"
            outside.setdefault((name, expected), []).append(f"{value:.4g}")
    for (name, expected), found in outside.items():
        yield f"{name} {listed(found)}{expected}"


def _kept(seen: Observation) -> str:
    if why := doubt(seen):
        return f"Later answers leave it out: {why}."
    if all(part.solo_rate for part in seen.parts):
        return "The next answer for these jobs takes it in."
    return "Later answers take it in once each job has a profile."


def _errors(status: LaunchStatus) -> Iterator[tuple[str, str]]:
    if status.code:
        yield "Cause", f"{status.code}: {status.cause}"
    for job in status.jobs:
        if job.error:
            yield "", f"{job.job} {job.outcome}: {job.error}"


def _next(status: LaunchStatus, jobs: Sequence[_Job]) -> Iterator[tuple[str, str]]:
    if jobs:
        shares = "/".join(f"{job.share_percent:g}" for job in status.jobs)
        split = shares if status.sharing == "limited" else status.sharing
        names = as_asked(job.job for job in status.jobs)
        yield "Again", f"advisor launch {names} --split {split}"
    yield "Details", f"advisor launches show {status.launch_id}"
