"""What exporters say of GPUs, under whichever names: channels, and who holds a GPU."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from advisor.core.telemetry import CLOCK_SM, ENERGY_GPU, MEMORY_USED, POWER_GPU, POWER_LIMIT
from advisor.core.telemetry import COUNTERS as COLUMNS
from advisor_profiling.telemetry.dcgm import COUNTERS, PREFIX, STATE, DcgmField

POWER, LIMIT, ENERGY = "power_w", "power_limit_w", "energy_j"
USED, FREE, BUSY = "memory_used_mib", "memory_free_mib", "gpu_busy_percent"
CLOCK = "sm_clock_mhz"

_STATES = {
    POWER: POWER_GPU,
    LIMIT: POWER_LIMIT,
    ENERGY: ENERGY_GPU,
    USED: MEMORY_USED,
    CLOCK: CLOCK_SM,
}

_FIELDS: Mapping[str, DcgmField] = {
    **{channel: STATE[name] for channel, name in _STATES.items()},
    FREE: DcgmField(("DEV_FB_FREE",)),
    **{COLUMNS[name]: field for name, field in COUNTERS.items()},
}

_AGENTS = "advisor_gpu_energy_joules_total"
"""What advisor's node agents say where there is no dcgm-exporter."""

_PLAIN = {
    channel: {PREFIX + name: field.scale for name in field.names}
    for channel, field in _FIELDS.items()
}

METRICS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        **_PLAIN,
        ENERGY: {**_PLAIN[ENERGY], _AGENTS: 1.0},
        # Percent under its later name, too.
        BUSY: {
            **_PLAIN[BUSY],
            f"{PREFIX}DEV_GPU_UTIL": 1.0,
            f"{PREFIX}DEV_GPU_UTIL_RATIO": 1.0,
        },
    }
)
"""Metrics of each channel, the best first, and their factor to its unit."""

CHANNELS = tuple(METRICS)

NAMES = frozenset(name for names in METRICS.values() for name in names)
"""Of all metrics that are asked for."""

ACTIVITY = ("sm_active_percent", BUSY)
"""What tells a job at work from one that waits, the best first."""

UUIDS = ("UUID", "uuid", "gpu_uuid")
"""Labels that name a GPU."""

_EXPORTER = "dcgm-exporter"
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_SUFFIXES = re.compile(rf"(-{_RANDOM}{{6,10}})?-{_RANDOM}{{5}}$|(-[0-9]+)+$")
"""Of pods: of a deployment, a job, or a set with numbers (k8s.io/apimachinery/pkg/util/rand)."""

_JOBS = ("hpc_job", "slurm_job_id", "jobid")
BLANK = 1e14
"""DCGM says "no value" with numbers above."""


class Owner(NamedTuple):
    """Who holds a GPU.

    Attributes:
        group: Namespace or user: who may share with whom.
        name: Of the pod, the batch job, or the GPU where nothing else is known.
        part: Container of the pod.
    """

    group: str
    name: str
    part: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One metric under one set of labels, over a page of time."""

    labels: Mapping[str, str]
    times_s: list[float]
    values: list[float]

    @property
    def metric(self) -> str:
        """Its name."""
        return self.labels.get("__name__", "")


def metrics_for(known: Iterable[str]) -> dict[str, tuple[str, float]]:
    """Of each channel the best metric that a site has, and its factor."""
    there = set(known)
    found = {
        channel: next(((name, scale) for name, scale in names.items() if name in there), None)
        for channel, names in METRICS.items()
    }
    best = {channel: one for channel, one in found.items() if one}
    if POWER in best:
        best.pop(ENERGY, None)
    return best


def gpu_of(labels: Mapping[str, str]) -> str | None:
    """The GPU of a row; None: it is of a MIG instance, or names no GPU."""
    if labels.get("GPU_I_ID"):
        return None
    named = next((labels[name] for name in UUIDS if labels.get(name)), None)
    # The device plugin names the replicas of a shared GPU "<uuid>::<number>".
    return named.split("::")[0] if named else None


def workload_name(pod: str) -> str:
    """The name of a pod without what controllers add to it."""
    return _SUFFIXES.sub("", pod)


def owner_of(labels: Mapping[str, str], within: str, exporters: Collection[str]) -> Owner | None:
    """Who held the GPU; None: the row does not say.

    Where Prometheus does not honour the labels of its targets, those of the job are called
    `exported_pod` and so on, and `pod` is that of the exporter.

    Args:
        labels: Of the row.
        within: Label that says who may share with whom.
        exporters: Workloads of exporters.
    """
    prefix = "exported_" if labels.get("exported_pod") else ""
    pod, part = (labels.get(prefix + name, "") for name in ("pod", "container"))
    is_exporter = not prefix and (
        _EXPORTER in pod or _EXPORTER in part or workload_name(pod) in exporters
    )
    group = labels.get(f"exported_{within}") or labels.get(within, "")
    if pod and not is_exporter:
        return Owner(group, pod, part)
    batch = next((labels[name] for name in _JOBS if labels.get(name)), "")
    return Owner("" if is_exporter else group, f"job {batch}") if batch else None
