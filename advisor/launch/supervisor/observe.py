"""What a pair really did, as the record that is kept of it."""

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import advisor
from advisor.core.flags import LIMIT_BROKEN, TOO_FAST
from advisor.core.gpu import Gpu
from advisor.core.job_energy import with_job_energy
from advisor.core.observations import Observation, ObservedPart
from advisor.core.results import verdict_flags
from advisor.files.safe_files import writing_private
from advisor.formats.rows import to_row
from advisor.launch.monitor.pair_monitor import PairMonitor
from advisor.launch.records.spec import Forecast, LaunchPair
from advisor.launch.records.status import State

OBSERVATIONS = "observations.jsonl"

FASTEST = 1.3
"""A rate may be above that of the profile by the noise of both: launch-bound jobs moved by 18 %
between runs. A job that is bound by SMs and got all instead of 70 % of them is faster than this."""


def observe(
    monitor: PairMonitor, gpu: Gpu, *, launch_id: str, started_at: str, state: State
) -> Observation:
    """The record of jobs that are over, whose gates opened at `started_at` (ISO 8601, UTC)."""
    account, rates = monitor.account, monitor.settled_rates()
    seen = Observation(
        launch_id=launch_id,
        parts=_parts(monitor),
        gpu_model=gpu.model,
        gpu_uuid=gpu.uuid,
        units_total=gpu.units_total,
        power_limit_w=gpu.power_limit_w,
        driver=gpu.driver,
        mode=monitor.mode,
        power_w=account.settled_power_w(),
        energy_j=account.energy_j,
        overlap_s=account.overlap_s,
        settled_s=monitor.settled_s(),
        work_per_joule=monitor.settled_work_per_joule(),
        energy_saved=account.settled_energy_saved(),
        rest_s=account.rest_s,
        rest_energy_j=account.rest_energy_j,
        rest_energy_saved=account.rest_energy_saved(),
        energy_saved_to_end=account.energy_saved_to_end(),
        stranded_unit_s=account.stranded_unit_s,
        state=state,
        started_at=started_at,
        host=socket.gethostname(),
        tool_version=advisor.__version__,
        flags=(
            *(("not-settled",) if None in rates else ()),
            *((LIMIT_BROKEN,) if monitor.limit_broken else ()),
            *((TOO_FAST,) if is_too_fast(monitor.pair, rates) else ()),
            *verdict_flags(one.results for one in monitor.jobs),
        ),
    )
    idle = [part.idle_power_w for part in monitor.pair.parts if part.idle_power_w is not None]
    seen = with_job_energy(seen, min(idle, default=None))
    forecast = monitor.pair.forecast
    return _with_forecast(seen, forecast, monitor.first_ended) if forecast else seen


def _parts(monitor: PairMonitor) -> tuple[ObservedPart, ...]:
    """What each job did, and what was expected of it."""
    pair, forecast, rates = monitor.pair, monitor.pair.forecast, monitor.settled_rates()
    predicted = [job.rate.value for job in forecast.jobs] if forecast else [None] * len(rates)
    return tuple(
        ObservedPart(
            job=job.name,
            share_percent=pair.split.shares[n],
            units=monitor.jobs[n].job.granted.units,
            rate=rates[n],
            rate_unit=job.progress.unit,
            solo_rate=pair.parts[n].solo_rate,
            solo_power_w=pair.parts[n].solo_power_w,
            predicted_rate=predicted[n],
            results=monitor.jobs[n].results,
            job_hash=job.job_hash,
            libraries=monitor.jobs[n].libraries,
            rest_rate=monitor.jobs[n].rest.rate(),
            latency_p50_ms=monitor.jobs[n].latency_ms(50),
            latency_p99_ms=monitor.jobs[n].latency_ms(99),
            ended_first=n in monitor.first_ended,
        )
        for n, job in enumerate(pair.jobs)
    )


def is_too_fast(pair: LaunchPair, rates: Sequence[float | None]) -> bool:
    """Whether a job went far beyond what its profile says of its share alone."""
    alone = [part.share_rate for part in pair.parts]
    of_jobs = zip(rates, alone, strict=True)
    return any(rate and known and rate > FASTEST * known for rate, known in of_jobs)


def append_observation(folder: Path, observation: Observation) -> None:
    """Add a line to the launch's observations; it is on disk when this returns.

    Raises:
        OSError: it cannot be written; the lines before are as they were.
    """
    with writing_private(folder / OBSERVATIONS, "ab") as file:
        before = os.fstat(file.fileno()).st_size
        try:
            _write_all(file.fileno(), json.dumps(to_row(observation)).encode() + b"\n")
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
    # It is predicted of one job that goes on alone.
    rests = [job.rest_energy_saved for n, job in enumerate(forecast.jobs) if n not in first_ended]
    return replace(
        seen,
        model_version=forecast.model_version,
        predicted_power_w=forecast.power_w.value,
        predicted_work_per_joule=forecast.work_per_joule.value,
        predicted_energy_saved=forecast.energy_saved and forecast.energy_saved.value,
        predicted_rest_energy_saved=rests[0] if seen.rest_s and len(rests) == 1 else None,
    )
