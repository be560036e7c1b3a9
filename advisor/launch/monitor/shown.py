"""Jobs that run together, as the status of their launch shows them."""

from dataclasses import replace
from typing import Any

from advisor.launch.monitor.job_monitor import relative
from advisor.launch.monitor.set_monitor import SetMonitor
from advisor.launch.records.ledger import Ledger, add
from advisor.launch.records.status import JobStatus


def shown(monitor: SetMonitor, earlier: Ledger | None = None) -> dict[str, Any]:
    """Fields of a status; `earlier` is of the sets of the launch that are over.

    What is a mean over the last seconds goes with the last job, and what is one over the whole
    time stays.
    """
    account = monitor.account
    return {
        "jobs": tuple(_job(monitor, n) for n in range(len(monitor.jobs))),
        "power_w": None if monitor.over else account.power_w(),
        "mean_power_w": account.settled_power_w(),
        "predicted_power_w": monitor.expected_power_w,
        "energy_j": account.energy_j,
        "work_per_joule": monitor.work_per_joule(),
        "energy_saved": None if monitor.over else account.recent_energy_saved(),
        "mean_energy_saved": account.mean_energy_saved(),
        "ledger": add(earlier, None if monitor.is_void else account.ledger()),
        "overlap_s": account.overlap_s,
        "rest_s": account.rest_s,
        "rest_energy_j": account.rest_energy_j,
        "stranded_unit_s": account.stranded_unit_s,
    }


def _job(monitor: SetMonitor, n: int) -> JobStatus:
    # Those with whom it began or whom it joined: what was predicted is of these.
    stretch = next((one for one in monitor.account.stretches if n in one.numbers), None)
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
