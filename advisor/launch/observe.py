"""Observations of a launch: shown in its status, kept as records, compared with predictions.

Where a job is faster than its share lets it be, its limit may be gone.
"""

import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import partial
from statistics import fmean
from typing import Any

import advisor
from advisor.core.gpu import ADVISED_JOBS, Gpu
from advisor.core.job import verdict_flags
from advisor.core.records import (
    FOREIGN_HOST,
    JUDGE_S,
    KEPT_S,
    LIMIT_BROKEN,
    SEVERAL_GPUS,
    TOO_FAST,
    TOO_SLOW,
    Observation,
    ObservedPart,
    Record,
    SoloPoint,
    is_far,
)
from advisor.core.wording import in_digits
from advisor.errors import AdvisorError
from advisor.launch.account import Stretch, energy_saved, relative, work_per_joule
from advisor.launch.folder import DRAFT, LaunchFolder, append_observation, draft_observations
from advisor.launch.set_monitor import SetMonitor
from advisor.launch.spec import (
    Drift,
    Forecast,
    JobStatus,
    LaunchSet,
    Ledger,
    State,
    add,
)
from advisor.runtime.processes import beating

# A rate may be above that of the profile by the noise of both: launch-bound jobs moved by 18 %
# between runs. A job that is bound by SMs and got all instead of 70 % of them is faster than this.
_FASTEST = 1.3


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

    The first is of all jobs; each next one of the remaining jobs, two at least, after an end. A job
    that began alone is counted from the first join on. Stretches `without` are left out.
    """
    observations = [
        _of_stretch(monitor, number, gpu, launch_id=launch_id, state=state)
        for number, stretch in enumerate(monitor.account.stretches)
        if len(stretch.numbers) >= ADVISED_JOBS and number not in without
    ]
    if not observations or observations[0].stretch > 0:
        return tuple(observations)
    whole, *later = observations
    account, forecast = monitor.account, monitor.pair.forecast if whole.model_version else None
    rests = [
        job.rest_energy_saved
        for n, job in enumerate(forecast.jobs if forecast else ())
        if n not in monitor.first_ended
    ]
    # It covers all work, also of joined jobs, whose wrong results are no flag of this stretch.
    of_work = not monitor.is_void
    whole = replace(
        whole,
        started_at=started_at,
        rest_s=account.rest_s,
        rest_energy_j=account.rest_energy_j,
        rest_energy_saved=account.rest_energy_saved() if of_work else None,
        energy_saved_to_end=account.energy_saved_to_end() if of_work else None,
        predicted_rest_energy_saved=rests[0] if account.rest_s and len(rests) == 1 else None,
        stranded_unit_s=account.stranded_unit_s,
    )
    return whole, *later


def _of_stretch(
    monitor: SetMonitor, number: int, gpu: Gpu, *, launch_id: str, state: State
) -> Observation:
    stretch = monitor.account.stretches[number]
    forecast = monitor.forecasts.get(stretch.numbers)
    idle = [part.idle_power_w for part in monitor.pair.parts if part.idle_power_w is not None]
    held = max(job.gpus for job in monitor.pair.jobs)
    is_foreign = not monitor.account.foreign().keys().isdisjoint(stretch.numbers)
    return observed(
        gpu,
        _parts(monitor, stretch, forecast),
        [monitor.pair.parts[n].share_rate for n in stretch.numbers],
        held * min(idle) if idle else None,
        (
            *((LIMIT_BROKEN,) if monitor.limit_broken else ()),
            *sorted(stretch.flags),
            *((SEVERAL_GPUS,) if held > 1 else ()),
            *((FOREIGN_HOST,) if is_foreign else ()),
        ),
        launch_id=launch_id,
        stretch=number,
        mode=monitor.mode,
        power_w=stretch.power_w(),
        energy_j=stretch.energy_j,
        overlap_s=stretch.overlap_s,
        settled_s=stretch.settled_s(),
        model_version=forecast and forecast.model_version,
        predicted_power_w=forecast and forecast.power_w.value,
        predicted_work_per_joule=forecast and forecast.work_per_joule.value,
        predicted_energy_saved=forecast and forecast.energy_saved and forecast.energy_saved.value,
        state=state if number == 0 else _state(monitor, stretch),
        started_at=stretch.started_at,
        host=socket.gethostname(),
    )


def observed(
    gpu: Gpu,
    parts: tuple[ObservedPart, ...],
    share_rates: Iterable[float | None],
    idle_power_w: float | None,
    flags: Sequence[str],
    **columns: Any,
) -> Observation:
    """The record of jobs that ran together, with what follows from what each did.

    Args:
        gpu: On which they ran.
        parts: Of each job.
        share_rates: Of each job alone at its share; None: not known.
        idle_power_w: Of the GPU without them.
        flags: Flags of what was found wrong meanwhile; of another host's profile nothing is saved.
        columns: Other columns.
    """
    rates, power_w = [part.rate for part in parts], columns["power_w"]
    return Observation(
        parts=parts,
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        units_total=gpu.units_total,
        power_limit_w=gpu.power_limit_w,
        driver=gpu.driver,
        work_per_joule=work_per_joule(
            [relative(part.rate, part.solo_rate) for part in parts], power_w
        ),
        energy_saved=None if FOREIGN_HOST in flags else energy_saved(power_w, rates, parts),
        tool_version=advisor.__version__,
        flags=(
            *(("not-settled",) if None in rates else ()),
            *flags,
            *_pace_flags(zip(rates, share_rates, strict=True)),
            *verdict_flags(part.results for part in parts),
        ),
        **columns,
    ).with_job_energy(idle_power_w)


def _state(monitor: SetMonitor, stretch: Stretch) -> State:
    """How it ended, as known now, without jobs that had failed before."""
    jobs = [monitor.jobs[n] for n in stretch.numbers]
    if any(job.code for job in jobs):
        return "failed"
    # One that lasts is read only where its jobs were killed with their supervisor.
    return (
        "stopped"
        if stretch.numbers == monitor.running_numbers()
        or any(job.outcome == "stopped" for job in jobs)
        else "finished"
    )


def _parts(
    monitor: SetMonitor, stretch: Stretch, forecast: Forecast | None
) -> tuple[ObservedPart, ...]:
    """What each job did; what it did later is of the first stretch."""
    pair, is_first = monitor.pair, stretch is monitor.account.first
    expected = forecast.jobs if forecast else (None,) * len(stretch.numbers)
    return tuple(
        ObservedPart(
            job=pair.jobs[n].name,
            share_percent=pair.split.shares[n],
            units=monitor.jobs[n].job.granted.units,
            rate=rate,
            rate_unit=pair.jobs[n].progress.unit,
            solo_rate=pair.parts[n].solo_rate,
            solo_power_w=pair.parts[n].solo_power_w,
            predicted_rate=forecast and forecast.rate.value,
            results=monitor.jobs[n].results,
            job_hash=pair.jobs[n].job_hash,
            libraries=monitor.jobs[n].libraries,
            rest_rate=monitor.jobs[n].rest.rate() if is_first else None,
            latency_p50_ms=stretch.latency_ms(n, 50),
            latency_p99_ms=stretch.latency_ms(n, 99),
            ended_first=n in (monitor.first_ended if is_first else stretch.ended),
            below_normal=n in pair.split.below_normal,
        )
        for n, rate, forecast in zip(stretch.numbers, stretch.rates(), expected, strict=True)
    )


def _pace_flags(rates: Iterable[tuple[float | None, float | None]]) -> Iterator[str]:
    """Whether a job went far beyond what its profile says of its share alone, or stood still.

    Of each job its rate and that of the profile; None: not known.
    """
    paces = [rate / alone for rate, alone in rates if rate is not None and alone]
    if any(pace > _FASTEST for pace in paces):
        yield TOO_FAST
    # Even one of seven jobs is faster: it is not bound by the GPU, or counts something else.
    if any(pace < 0.05 for pace in paces):
        yield TOO_SLOW


# How the names of news begin that are said once of all sets of a launch.
_HOST = "host of "


def pace_news(monitor: SetMonitor) -> Iterator[tuple[str, str]]:
    """Hold jobs against their profiles at their shares; one that is too fast is not proven.

    Returns:
        Of each such job what tells its news from others, and the text.
    """
    stretch = monitor.account.stretches[-1]
    if stretch.settled_s() < JUDGE_S:
        return
    for number, rate in zip(stretch.numbers, stretch.rates(), strict=True):
        job_monitor, part = monitor.jobs[number], monitor.pair.parts[number]
        whole, alone = part.solo_rate, part.share_rate
        # One that waits for its host makes the same progress at any share, and more than its
        # profile says on a faster host (1.3 to 1.5 times, docs/measurements/pairs.md): its
        # speed does not tell whether it has a limit.
        tells = whole is not None and alone is not None and whole > _FASTEST * alone
        job_monitor.too_fast = tells and TOO_FAST in _pace_flags([(rate, alone)])
        if job_monitor.too_fast and rate and alone:
            yield (
                f"pace {number}",
                f"{job_monitor.job.job.name} runs at {rate / alone:.2g} times the rate of its "
                f"profile at {job_monitor.job.share} %, alone: it may have changed its limit "
                "before its first work on the GPU, so the limit is not proven",
            )
    for number, speed in monitor.account.foreign().items():
        job = monitor.jobs[number].job.job
        yield (
            f"{_HOST}{job.name}",
            f"{job.name} runs at {speed:.2f} times the rate alone of its profile, which is of "
            "another host: no energy counts as saved, and nothing is learned; "
            f"{'advisor launch --alone, or ' * job.progress.gate}advisor profile {job.name}",
        )


def shown(
    monitor: SetMonitor,
    earlier: Ledger | None = None,
    starts: tuple[float, float] = (0.0, 0.0),
    unwatched_s: float = 0.0,
) -> dict[str, Any]:
    """Fields of a status.

    What is a mean over the last seconds goes with the last job, and what is one over the whole
    time stays.

    Args:
        monitor: Of the set that runs now.
        earlier: Of the sets of the launch that are over.
        starts: Seconds and joules of the start of this set.
        unwatched_s: Of the sets that are over.
    """
    account = monitor.account
    ledger = None if monitor.is_void else account.ledger()
    ledger = ledger and replace(ledger, starts_s=starts[0], starts_j=starts[1])
    running, promised = monitor.running_numbers(), account.promised is not None
    # The remaining jobs have no forecast until it is renewed; at the end the last one stays.
    drifts, work_drift = account.drifts() if running in ((), account.kept.numbers) else ({}, None)
    of_jobs = [astuple(drift) for drift in drifts.values()]
    return {
        "updated_at": monitor.looked_at,
        "jobs": tuple(
            replace(_job(monitor, n), drift=drifts.get(n)) for n in range(len(monitor.jobs))
        ),
        "promised_at": account.kept.started_at if promised else None,
        "promise_renewed": (promised and account.renewed) or None,
        "speed_drift": Drift(*map(fmean, zip(*of_jobs, strict=True))) if of_jobs else None,
        "work_drift": work_drift,
        "power_w": None if monitor.over else account.power_w(),
        "mean_power_w": account.first.power_w(),
        "predicted_power_w": monitor.expected_power_w,
        "energy_j": account.first.energy_j,
        "work_per_joule": monitor.work_per_joule(),
        "energy_saved": None if monitor.over else account.recent_energy_saved(),
        "mean_energy_saved": account.mean_energy_saved(),
        "ledger": add(earlier, ledger),
        "unwatched_s": unwatched_s + account.unwatched_s,
        "overlap_s": account.first.overlap_s,
        "rest_s": account.rest_s,
        "rest_energy_j": account.rest_energy_j,
        "stranded_unit_s": account.stranded_unit_s,
    }


def _job(monitor: SetMonitor, n: int) -> JobStatus:
    # The stretch that it began or joined: the forecast is of its jobs.
    stretch = next((stretch for stretch in monitor.account.stretches if n in stretch.numbers), None)
    status = monitor.jobs[n].status()
    if stretch is None:
        return status
    rate = dict(zip(stretch.numbers, stretch.rates(), strict=True))[n]
    return replace(
        status,
        mean_rate=rate,
        mean_speed=relative(rate, monitor.pair.parts[n].solo_rate),
        mean_p99_ms=stretch.latency_ms(n, 99),
    )


def unsaid(news: Iterable[tuple[str, str]], said: set[str], number: int = 0) -> list[str]:
    """Texts of news, each with its name, that were not said before of a set, by its number.

    They are added to `said`.
    """
    named = ((n if n.startswith(_HOST) else f"{number} {n}", text) for n, text in news)
    new = [(name, text) for name, text in named if name not in said]
    said.update(name for name, _ in new)
    return [text for _, text in new]


def forecast_news(pair: LaunchSet, monitor: SetMonitor) -> Iterator[tuple[str, str]]:
    """What is far from the prediction of those that began together, as `pace_news`."""
    forecast, first = pair.forecast, monitor.account.first
    if (
        forecast is None
        # One that was renewed is the promise from then on.
        or monitor.forecasts.get(first.numbers) is not forecast
        or first.settled_s() < JUDGE_S
    ):
        return
    work = monitor.account.trial().work_per_joule
    once = len({job.name for job in pair.jobs}) == len(pair.jobs)
    for name, unit, observed, predicted in (
        *(
            (f"rate of {job.name}", f"{job.progress.unit}/s", rate, expected.rate)
            for job, rate, expected in zip(pair.jobs, first.rates(), forecast.jobs, strict=True)
        ),
        ("power", "W", first.power_w(), forecast.power_w),
        (
            "work per joule",
            "per kJ",
            work and 1000.0 * work,
            forecast.work_per_joule.times(1000.0),
        ),
    ):
        if observed is not None and is_far(observed, predicted):
            off = (
                f"{observed / predicted.value - 1:+.0%} against" if predicted.value else "far from"
            )
            yield (
                name if once else f"{name} {predicted}",
                f"{name} is {in_digits(observed, 4)} {unit}, {off} the prediction of "
                f"{in_digits(predicted.value, 4)} "
                f"({in_digits(predicted.low, 4)} to {in_digits(predicted.high, 4)})",
            )


# What is not known for good is written so often.
DRAFT_S = 5.0

# What computes beside its limit is found in less: until then a stretch that is over may turn out
# to be of no use.
SURE_S = 30.0


class Keeper:
    """The observations of jobs whose gates opened at `started_at` (ISO 8601, UTC).

    A stretch is kept for good soon after its end. The first one, which says what came after it, and
    the one that lasts are a draft until the end of all.

    Args:
        remember: Keeps an observation where others find it; may fail without harm.
        warn: Takes what could not be kept.
    """

    def __init__(
        self,
        folder: LaunchFolder,
        monitor: SetMonitor,
        gpu: Gpu,
        started_at: str,
        remember: Callable[[Record], None],
        warn: Callable[[str], None],
    ) -> None:
        self._folder, self._monitor, self._gpu = folder, monitor, gpu
        self._started_at, self._remember, self._warn = started_at, remember, warn
        self._running = monitor.running_numbers()
        self._drafted_s = time.monotonic()
        self._kept: list[Observation] = []
        self._alone: dict[str, Any] | None = None

    def look(self) -> None:
        """Write what is due: at each end or join, and every few seconds."""
        now_s, running = time.monotonic(), self._monitor.running_numbers()
        changed = running != self._running
        if not changed and now_s - self._drafted_s < DRAFT_S:
            return
        self._running, self._drafted_s = running, now_s
        with suppress(AdvisorError):
            self._alone = self._monitor.of_only_job() or self._alone
        # Read only where the supervisor is killed, and the jobs with it.
        observations = self._observe(
            "failed" if any(job.code for job in self._monitor.jobs) else "stopped"
        )
        # On a full disk all wait: the room that was reserved is for the end.
        with suppress(OSError):
            for observation in observations:
                ended_s = self._monitor.account.stretches[observation.stretch].updated_s
                if observation.stretch and now_s - ended_s >= SURE_S:
                    append_observation(self._folder.path, observation)
                    self._kept.append(observation)
            draft_observations(
                self._folder.path,
                [observation for observation in observations if observation not in self._kept],
                durable=changed,
            )

    def so_far(self) -> tuple[Observation, ...]:
        """Of all stretches, as if the jobs were stopped now."""
        return (*self._kept, *self._observe("stopped"))

    def close(self, state: State) -> None:
        """Keep all that is not kept yet; the jobs are over."""
        observations = self._observe(state)
        try:
            for observation in observations:
                try:
                    append_observation(self._folder.path, observation)
                except OSError:
                    # A disk that is full: hours of running are worth the room kept for this.
                    self._folder.free_reserve()
                    append_observation(self._folder.path, observation)
            (self._folder.path / DRAFT).unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"the observation could not be written: {error.strerror}")
        # Only now: while jobs run, their watcher waits for no database.
        for observation in (*self._kept, *observations, *self._solo_points()):
            try:
                beating(partial(self._remember, observation))
            except (AdvisorError, OSError) as error:
                # It is in the folder, from where it can be brought in.
                self._warn(f"the observation is not in the store: {error}")

    def _solo_points(self) -> Iterator[SoloPoint]:
        """The point of the only job, or of the one without a limit that was left.

        Where it ran for long enough and nothing speaks against it.
        """
        monitor, account = self._monitor, self._monitor.account
        stretch = account.first if len(monitor.jobs) == 1 else account.alone
        if stretch is None:
            return
        (n,), (rate,), power_w = stretch.numbers, stretch.rates(), stretch.power_w()
        several = any(job.gpus > 1 for job in monitor.pair.jobs)
        flagged = any(one.flags for one in (*account.stretches, stretch))
        is_sound = not (several or flagged or monitor.is_void or account.foreign())
        measured_s = stretch.settled_s()
        if is_sound and self._alone and measured_s >= KEPT_S and rate and power_w is not None:
            part = monitor.pair.parts[n]
            yield SoloPoint.watched(
                part.job,
                self._gpu,
                rate=rate,
                rate_unit=part.job.progress.unit,
                power_w=power_w,
                idle_power_w=part.idle_power_w,
                latency_p50_ms=stretch.latency_ms(n, 50),
                latency_p99_ms=stretch.latency_ms(n, 99),
                window_s=measured_s,
                started_at=stretch.started_at,
                run=self._folder.launch_id,
                **self._alone,
            )

    def _observe(self, state: State) -> tuple[Observation, ...]:
        return observe(
            self._monitor,
            self._gpu,
            launch_id=self._folder.launch_id,
            started_at=self._started_at,
            state=state,
            without={observation.stretch for observation in self._kept},
        )
