"""What a simulation came to: energy, completion, queueing and fairness. And means over seeds."""

import statistics
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cluster import Ran
from partition import Finished
from scipy.special import stdtrit
from workload import DAY_S, HOUR_S

J_PER_MWH = 3.6e9
SLOW = 0.4
"""Mean speed of a job while it ran, below which it counts as slow."""

LEAST_JOBS = 20
"""A user or a kind of job counts with so many jobs."""

Figures = Mapping[str, float]


def figures(ran: Ran, horizon_s: float) -> dict[str, float]:
    """All figures of one simulation.

    Args:
        ran: The simulation.
        horizon_s: Idle GPUs draw power until then: the same moment for all that are compared.
    """
    busy_j = sum(meter.energy_j for meter in ran.metered.values())
    idle_j = sum(m.idle_power_w * (m.gpus * horizon_s - m.busy_s) for m in ran.metered.values())
    busy_s = sum(meter.busy_s for meter in ran.metered.values())
    shared_s = sum(meter.shared_s for meter in ran.metered.values())
    stranded_s = sum(meter.stranded_s for meter in ran.metered.values())
    work_s = sum(done.job.work_s for done in ran.finished)
    return {
        "jobs": len(ran.finished),
        "work_gpu_h": work_s / HOUR_S,
        "energy_mwh": (busy_j + idle_j) / J_PER_MWH,
        "busy_mwh": busy_j / J_PER_MWH,
        "idle_percent": 100 * idle_j / (busy_j + idle_j),
        "mwh_per_day": (busy_j + idle_j) / J_PER_MWH / (horizon_s / DAY_S),
        "work_gpu_h_per_mwh": work_s / HOUR_S / ((busy_j + idle_j) / J_PER_MWH),
        "busy_gpu_h": busy_s / HOUR_S,
        "most_gpus": sum(meter.most for meter in ran.metered.values()),
        "shared_percent": 100 * shared_s / busy_s,
        "stranded_percent": 100 * stranded_s / busy_s,
        "end_h": ran.end_s / HOUR_S,
        **_times(ran.finished),
        **_fairness(ran.finished),
        **_tails(ran.finished),
    }


def _times(finished: Sequence[Finished]) -> dict[str, float]:
    completion_h = np.array([done.end_s - done.job.arrival_s for done in finished]) / HOUR_S
    wait_h = np.array([done.start_s - done.job.arrival_s for done in finished]) / HOUR_S
    slowdown = np.array([_slowdown(done) for done in finished])
    return {
        "completion_h": float(completion_h.mean()),
        "completion_p50_h": float(np.quantile(completion_h, 0.5)),
        "completion_p95_h": float(np.quantile(completion_h, 0.95)),
        "wait_h": float(wait_h.mean()),
        "wait_p95_h": float(np.quantile(wait_h, 0.95)),
        "slowdown": float(slowdown.mean()),
        "slowdown_p95": float(np.quantile(slowdown, 0.95)),
    }


def _fairness(finished: Sequence[Finished]) -> dict[str, float]:
    """The worst mean slowdowns, and how many jobs ran at less than `SLOW` of their speed."""
    stretch = [(done.end_s - done.start_s) / done.job.work_s for done in finished]
    slow = sum(one > 1 / SLOW for one in stretch)
    return {
        "worst_user_slowdown": _worst((done.job.user, _slowdown(done)) for done in finished),
        "worst_kind_slowdown": _worst((done.job.kind, _slowdown(done)) for done in finished),
        "worst_kind_stretch": _worst(
            (done.job.kind, one) for done, one in zip(finished, stretch, strict=True)
        ),
        "slow_percent": 100 * slow / len(stretch),
    }


def _tails(finished: Sequence[Finished]) -> dict[str, float]:
    """Part of the time in which servers missed what they promise, and their tails."""
    servers = [done for done in finished if done.tail]
    if not servers:
        return {"servers_missed_percent": 0.0, "tail_p95": 0.0}
    missed_s = sum(done.missed_s for done in servers)
    ran_s = sum(done.end_s - done.start_s for done in servers)
    return {
        "servers_missed_percent": 100 * missed_s / ran_s,
        "tail_p95": float(np.quantile([done.tail for done in servers], 0.95)),
    }


def _slowdown(done: Finished) -> float:
    """From arrival to end, for each second that the job takes alone without a queue."""
    return (done.end_s - done.job.arrival_s) / done.job.work_s


def _worst(values: Iterable[tuple[str, float]]) -> float:
    of: dict[str, list[float]] = {}
    for name, value in values:
        of.setdefault(name, []).append(value)
    counted = [found for found in of.values() if len(found) >= LEAST_JOBS]
    return max(map(statistics.fmean, counted or of.values()))


def mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval (Student's t); not a number for a single value."""
    middle = statistics.fmean(values)
    if len(values) < 2:
        return middle, float("nan")
    quantile = float(stdtrit(len(values) - 1, 0.975))
    return middle, quantile * statistics.stdev(values) / len(values) ** 0.5


def change(values: Sequence[float], against: Sequence[float]) -> tuple[float, float]:
    """Mean relative change in percent, seed by seed, and half of its interval."""
    return mean([100 * (a / b - 1) for a, b in zip(values, against, strict=True)])
