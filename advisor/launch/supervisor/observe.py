"""What jobs really did together, as the records that are kept of it, and whether that can be.

Where a job is faster than its share lets it be, its limit may be gone.
"""

import socket
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace

import advisor
from advisor.core.flags import LIMIT_BROKEN, TOO_FAST, TOO_SLOW
from advisor.core.gpu import Gpu
from advisor.core.job_energy import with_job_energy
from advisor.core.observations import JUDGE_S, Observation, ObservedPart
from advisor.core.results import verdict_flags
from advisor.core.split import ADVISED_JOBS
from advisor.launch.monitor.account import energy_saved, work_per_joule
from advisor.launch.monitor.job_monitor import relative
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.monitor.stretch import Stretch
from advisor.launch.records.spec import Forecast, LaunchPart
from advisor.launch.records.status import State

FASTEST = 1.3
"""A rate may be above that of the profile by the noise of both: launch-bound jobs moved by 18 %
between runs. A job that is bound by SMs and got all instead of 70 % of them is faster than this."""

SLOWEST = 0.05
"""No neighbour takes so much: six others that fill the GPU leave a seventh. What is slower waits
for something else, such as requests or files, or counts something else."""


def observe(
    monitor: SetMonitor,
    gpu: Gpu,
    *,
    launch_id: str,
    started_at: str,
    state: State,
    without: Collection[int] = (),
) -> tuple[Observation, ...]:
    """The records so far of jobs whose gates opened at `started_at` (ISO 8601, UTC).

    The first is of all; each next one of those, two at least, who were left after an end. One that
    began alone shared nothing until somebody joined it: only what came then is there. Stretches
    `without` which it should be are left out.
    """
    found = [
        _of_stretch(monitor, number, gpu, launch_id=launch_id, state=state)
        for number, stretch in enumerate(monitor.account.stretches)
        if len(stretch.numbers) >= ADVISED_JOBS and number not in without
    ]
    if not found or found[0].stretch > 0:
        return tuple(found)
    whole, *later = found
    account = monitor.account
    # It is of the work of all, also of those who joined, whose results no flag of this one tells.
    of_work = not monitor.is_void
    whole = replace(
        whole,
        started_at=started_at,
        rest_s=account.rest_s,
        rest_energy_j=account.rest_energy_j,
        rest_energy_saved=account.rest_energy_saved() if of_work else None,
        energy_saved_to_end=account.energy_saved_to_end() if of_work else None,
        stranded_unit_s=account.stranded_unit_s,
    )
    if whole.model_version:
        whole = replace(whole, predicted_rest_energy_saved=_predicted_rest(monitor))
    return whole, *later


def _of_stretch(
    monitor: SetMonitor, number: int, gpu: Gpu, *, launch_id: str, state: State
) -> Observation:
    """What those did who ran together in one of the stretches."""
    stretch = monitor.account.stretches[number]
    rates, power_w = stretch.rates(), stretch.power_w()
    known = [monitor.pair.parts[n] for n in stretch.numbers]
    forecast = monitor.forecasts.get(stretch.numbers)
    speeds = [relative(rate, part.solo_rate) for rate, part in zip(rates, known, strict=True)]
    seen = Observation(
        launch_id=launch_id,
        stretch=number,
        parts=_parts(monitor, stretch, forecast),
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        units_total=gpu.units_total,
        power_limit_w=gpu.power_limit_w,
        driver=gpu.driver,
        mode=monitor.mode,
        power_w=power_w,
        energy_j=stretch.energy_j,
        overlap_s=stretch.overlap_s,
        settled_s=stretch.settled_s(),
        work_per_joule=work_per_joule(speeds, power_w),
        energy_saved=energy_saved(power_w, rates, known),
        model_version=forecast and forecast.model_version,
        predicted_power_w=forecast and forecast.power_w.value,
        predicted_work_per_joule=forecast and forecast.work_per_joule.value,
        predicted_energy_saved=forecast and forecast.energy_saved and forecast.energy_saved.value,
        state=state if number == 0 else _state(monitor, stretch),
        started_at=stretch.started_at,
        host=socket.gethostname(),
        tool_version=advisor.__version__,
        flags=tuple(_flags(monitor, stretch, rates, known)),
    )
    idle = [part.idle_power_w for part in monitor.pair.parts if part.idle_power_w is not None]
    return with_job_energy(seen, min(idle, default=None))


def _flags(
    monitor: SetMonitor,
    stretch: Stretch,
    rates: Sequence[float | None],
    known: Iterable[LaunchPart],
) -> Iterator[str]:
    """What was wrong with it."""
    if None in rates:
        yield "not-settled"
    if monitor.limit_broken:
        yield LIMIT_BROKEN
    yield from sorted(stretch.flags)
    yield from pace_flags(zip(rates, (part.share_rate for part in known), strict=True))
    yield from verdict_flags(monitor.jobs[n].results for n in stretch.numbers)


def _state(monitor: SetMonitor, stretch: Stretch) -> State:
    """How it ended, by what is known now: who had failed before is no part of it."""
    jobs = [monitor.jobs[n] for n in stretch.numbers]
    if any(one.code for one in jobs):
        return "failed"
    # One that lasts is read only where its jobs were killed with their supervisor.
    lasts = stretch.numbers == monitor.running_numbers()
    return "stopped" if lasts or any(one.outcome == "stopped" for one in jobs) else "finished"


def _parts(
    monitor: SetMonitor, stretch: Stretch, forecast: Forecast | None
) -> tuple[ObservedPart, ...]:
    """What each job did; what it did later is of the first stretch."""
    pair, is_first = monitor.pair, stretch is monitor.account.stretches[0]
    expected = forecast.jobs if forecast else (None,) * len(stretch.numbers)
    ended = monitor.first_ended if is_first else stretch.ended
    return tuple(
        ObservedPart(
            job=pair.jobs[n].name,
            share_percent=pair.split.shares[n],
            units=monitor.jobs[n].job.granted.units,
            rate=rate,
            rate_unit=pair.jobs[n].progress.unit,
            solo_rate=pair.parts[n].solo_rate,
            solo_power_w=pair.parts[n].solo_power_w,
            predicted_rate=known and known.rate.value,
            results=monitor.jobs[n].results,
            job_hash=pair.jobs[n].job_hash,
            libraries=monitor.jobs[n].libraries,
            rest_rate=monitor.jobs[n].rest.rate() if is_first else None,
            latency_p50_ms=stretch.latency_ms(n, 50),
            latency_p99_ms=stretch.latency_ms(n, 99),
            ended_first=n in ended,
        )
        for n, rate, known in zip(stretch.numbers, stretch.rates(), expected, strict=True)
    )


def pace_flags(rates: Iterable[tuple[float | None, float | None]]) -> Iterator[str]:
    """Whether a job went far beyond what its profile says of its share alone, or stood still.

    Of each job its rate and that of the profile; None: not known.
    """
    known = [rate / alone for rate, alone in rates if rate is not None and alone]
    if any(pace > FASTEST for pace in known):
        yield TOO_FAST
    if any(pace < SLOWEST for pace in known):
        yield TOO_SLOW


def _predicted_rest(monitor: SetMonitor) -> float | None:
    """What is predicted of one job that goes on alone."""
    forecast = monitor.pair.forecast
    left = [*enumerate(forecast.jobs if forecast else ())]
    rests = [job.rest_energy_saved for n, job in left if n not in monitor.first_ended]
    return rests[0] if monitor.account.rest_s and len(rests) == 1 else None


class PaceCheck:
    """Holds jobs against their profiles at their shares; one that is too fast is not proven."""

    def __init__(self) -> None:
        self._told = set[int]()

    def look(self, monitor: SetMonitor) -> Iterator[str]:
        """Judge those that run together now; what is to be said, once of each."""
        stretch = monitor.account.stretches[-1]
        if stretch.settled_s() < JUDGE_S:
            return
        for number, rate in zip(stretch.numbers, stretch.rates(), strict=True):
            one, part = monitor.jobs[number], monitor.pair.parts[number]
            alone = part.share_rate
            one.too_fast = _gains(part) and TOO_FAST in pace_flags([(rate, alone)])
            if one.too_fast and rate and alone and number not in self._told:
                self._told.add(number)
                yield (
                    f"{one.job.job.name} makes {rate / alone:.2g} times the progress that its "
                    f"profile says of {one.job.share} %, alone: it may have changed its limit "
                    "before its first work on the GPU, so that is not proven"
                )


def _gains(part: LaunchPart) -> bool:
    """Whether a job without its limit would be seen by its speed.

    One that waits for its host makes the same progress at any share, and more than its profile
    says on a faster host (1.3 to 1.5 times, docs/measurements/launches.md): that tells nothing.
    """
    whole, share = part.solo_rate, part.share_rate
    return whole is not None and share is not None and whole > FASTEST * share
