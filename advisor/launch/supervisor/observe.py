"""What a pair really did, as the record that is kept of it."""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import advisor
from advisor.core.flags import LIMIT_BROKEN, TOO_FAST
from advisor.core.gpu import Gpu
from advisor.core.observations import Observation
from advisor.core.results import verdict_flags
from advisor.files.safe_files import writing_private
from advisor.launch.monitor.watch import Watch
from advisor.launch.records.folder import dumps
from advisor.launch.records.spec import Forecast, Pair
from advisor.launch.records.status import State

OBSERVATIONS = "observations.jsonl"

_FASTEST = 1.3
"""A rate may be above that of the profile by the noise of both: launch-bound jobs moved by 18 %
between runs. A job that is bound by SMs and got all instead of 70 % of them is faster than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A pair that ran.

    Attributes:
        mode: How the GPU was shared, as points have it.
        started_at: When the gates opened, ISO 8601, UTC.
    """

    launch_id: str
    pair: Pair
    gpu: Gpu
    mode: str
    started_at: str
    watch: Watch
    state: State


def observe(ran: Ran) -> Observation:
    """The record of a pair that is over, with its jobs in the order of their names."""
    pair, watch, forecast = ran.pair, ran.watch, ran.pair.forecast
    (a, b), (rate_a, rate_b) = pair.jobs, watch.settled_rates()
    account = watch.account
    units = [one.job.granted.units for one in watch.jobs]
    seen = Observation(
        launch_id=ran.launch_id,
        job_a=a.name,
        job_b=b.name,
        gpu_model=ran.gpu.model,
        gpu_uuid=ran.gpu.uuid,
        mode=ran.mode,
        share_a_percent=pair.split.shares[0],
        share_b_percent=pair.split.shares[1],
        units_a=units[0],
        units_b=units[1],
        rate_unit_a=a.progress.unit,
        rate_unit_b=b.progress.unit,
        rate_a=rate_a,
        rate_b=rate_b,
        solo_rate_a=pair.parts[0].solo_rate,
        solo_rate_b=pair.parts[1].solo_rate,
        solo_power_a_w=pair.parts[0].solo_power_w,
        solo_power_b_w=pair.parts[1].solo_power_w,
        power_w=account.settled_power_w(),
        energy_j=account.energy_j,
        overlap_s=account.overlap_s,
        work_per_joule=watch.settled_work_per_joule(),
        energy_saved=account.settled_energy_saved(),
        first_ended=_first_ended(watch.first_ended),
        rest_s=account.rest_s,
        rest_energy_j=account.rest_energy_j,
        rest_energy_saved=account.rest_energy_saved(),
        energy_saved_to_end=account.energy_saved_to_end(),
        stranded_unit_s=account.stranded_unit_s,
        state=ran.state,
        started_at=ran.started_at,
        host=socket.gethostname(),
        tool_version=advisor.__version__,
        results_a=watch.jobs[0].results,
        results_b=watch.jobs[1].results,
        flags=(
            *(() if rate_a is not None and rate_b is not None else ("not-settled",)),
            *((LIMIT_BROKEN,) if watch.limit_broken else ()),
            *((TOO_FAST,) if is_too_fast(pair, (rate_a, rate_b)) else ()),
            *verdict_flags(one.results for one in watch.jobs),
        ),
    )
    seen = _with_forecast(seen, forecast, watch.first_ended) if forecast else seen
    return swapped(seen) if seen.job_a > seen.job_b else seen


def is_too_fast(pair: Pair, rates: Sequence[float | None]) -> bool:
    """Whether a job went far beyond what its profile says of its share alone."""
    alone = [part.share_rate for part in pair.parts]
    of_jobs = zip(rates, alone, strict=True)
    return any(rate and known and rate > _FASTEST * known for rate, known in of_jobs)


def swapped(seen: Observation) -> Observation:
    """The same with its jobs the other way round."""
    return replace(
        seen,
        job_a=seen.job_b,
        job_b=seen.job_a,
        share_a_percent=seen.share_b_percent,
        share_b_percent=seen.share_a_percent,
        units_a=seen.units_b,
        units_b=seen.units_a,
        rate_unit_a=seen.rate_unit_b,
        rate_unit_b=seen.rate_unit_a,
        rate_a=seen.rate_b,
        rate_b=seen.rate_a,
        solo_rate_a=seen.solo_rate_b,
        solo_rate_b=seen.solo_rate_a,
        solo_power_a_w=seen.solo_power_b_w,
        solo_power_b_w=seen.solo_power_a_w,
        predicted_rate_a=seen.predicted_rate_b,
        predicted_rate_b=seen.predicted_rate_a,
        results_a=seen.results_b,
        results_b=seen.results_a,
        first_ended={"job_a": "job_b", "job_b": "job_a"}.get(seen.first_ended, seen.first_ended),
    )


def append_observation(folder: Path, seen: Observation) -> None:
    """Add a line to the launch's observations; it is on disk when this returns.

    Raises:
        OSError: it cannot be written; the lines before are as they were.
    """
    with writing_private(folder / OBSERVATIONS, "ab") as file:
        before = os.fstat(file.fileno()).st_size
        try:
            _write_all(file.fileno(), dumps(seen) + b"\n")
            os.fsync(file.fileno())
        except OSError:
            os.ftruncate(file.fileno(), before)
            raise


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _with_forecast(
    seen: Observation, forecast: Forecast, first_ended: tuple[int, ...]
) -> Observation:
    # Of the job that goes on.
    rests = [job.rest_energy_saved for job in reversed(forecast.jobs)]
    return replace(
        seen,
        model_version=forecast.model_version,
        predicted_rate_a=forecast.jobs[0].rate.value,
        predicted_rate_b=forecast.jobs[1].rate.value,
        predicted_power_w=forecast.power_w.value,
        predicted_work_per_joule=forecast.work_per_joule.value,
        predicted_energy_saved=forecast.energy_saved and forecast.energy_saved.value,
        predicted_rest_energy_saved=rests[first_ended[0]] if seen.rest_s else None,
    )


def _first_ended(first: tuple[int, ...]) -> str:
    if len(first) > 1:
        return "both"
    return ("job_a", "job_b")[first[0]] if first else "none"
