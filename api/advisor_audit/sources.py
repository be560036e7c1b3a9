"""Where series of GPUs come from: a Prometheus, exporters, this host, or a file.

A Prometheus, or what speaks like one, is read in pages: groups of GPUs, a few hours each.
One request at a time, for one metric of one page, so that neither side holds more than a few
megabytes. A server that is busy is asked again later, and one that says a page is too much gets
smaller ones (https://prometheus.io/docs/prometheus/latest/querying/api/).

Series in a file are the same: a line of JSON for each, as Prometheus answers range queries:

    {"metric": {"__name__": "DCGM_FI_DEV_POWER_USAGE", "UUID": "GPU-..."}, "values": [[0, "251.5"]]}

What `jq -c '.data.result[]'` makes of an answer is such a file, and so is what `--keep` writes.

Exporters, and their scrapers, name the job of a GPU in labels of their own. `FAMILIES` are the
known ones, the finest first: a batch job goes before the pod of the worker that it runs in, and
the pod of a job before that of its exporter. Pods of the latter two kinds carry the labels of
others: if they are named alone, no job is on the GPU.
"""

import csv
import json
import math
import random
import re
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import requests
import urllib3
import yaml
from requests.utils import get_auth_from_url

from advisor.core.telemetry import (
    CLOCK_SM,
    COUNTERS as COLUMNS,
    ENERGY_GPU,
    MEMORY_USED,
    POWER_GPU,
    POWER_LIMIT,
    power_scope,
)
from advisor.errors import InputError, SourceError, TooMuchError
from advisor.formats.wire import values_in
from advisor_models.single_window import BUSY, DRAM, MEMORY_BUSY, SM
from advisor_profiling.attached import HostGpus
from advisor_profiling.telemetry.dcgm import (
    COUNTERS,
    PREFIX,
    STATE,
    DcgmField,
    exchange,
    fetch,
    samples,
)

_EXPORTER = "dcgm-exporter"
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
# Of pods: of a deployment, a job, or a set with numbers (k8s.io/apimachinery/pkg/util/rand).
_SUFFIXES = re.compile(rf"(-{_RANDOM}{{6,10}})?-{_RANDOM}{{5}}$|(-[0-9]+)+$")

# Of --within: what a family calls a namespace; any other is a label itself.
_NAMESPACE = "namespace"


class Owner(NamedTuple):
    """The job of a GPU.

    Attributes:
        group: Namespace or user; only jobs of one group share.
        name: Of the pod, the batch job, or the GPU where nothing else is known.
        part: Container of the pod.
    """

    group: str
    name: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class _Family:
    """Labels that together name the job of a GPU.

    Attributes:
        job: Label that names the job.
        taken_for: What that is.
        group: Label of its namespace; empty: the job has none.
        part: Label of its container.
    """

    job: str
    taken_for: str = "batch job"
    group: str = ""
    part: str = ""


# Of a job, or of the exporter, as Prometheus names its targets, too.
_TARGET = _Family("pod", "pod", "namespace", "container")

FAMILIES = (
    _Family("hpc_job"),  # dcgm-exporter --hpc-job-mapping-dir, which a prolog of Slurm fills
    _Family("slurm_job_id"),
    _Family("slurmjobid"),  # slurm-job-exporter
    _Family("jobid"),
    _Family("exported_pod", "pod", "exported_namespace", "exported_container"),
    _Family("pod_name", "pod", "pod_namespace", "container_name"),  # pod-devices-exporter
    _Family("k8s_pod_name", "pod", "k8s_namespace_name", "k8s_container_name"),  # OpenTelemetry
    _TARGET,
)
"""Those that are known; of a row the first that is there counts."""


def families_of(job_label: str | None) -> Sequence[_Family]:
    """All families, that of `job_label` before the others."""
    chosen = next(
        (f for f in FAMILIES if f.job == job_label), _Family(job_label or "", "job", _TARGET.group)
    )
    return (chosen, *(f for f in FAMILIES if f != chosen)) if job_label else FAMILIES


def workload_name(pod: str) -> str:
    """The name of a pod without what controllers add to it."""
    return _SUFFIXES.sub("", pod)


def _carriers_of(labels: Mapping[str, str], families: Sequence[_Family]) -> Iterator[str]:
    """Workloads of pods in a row that a finer label names: of an exporter, or a worker."""
    there = [f for f in families if labels.get(f.job)]
    yield from (workload_name(labels[f.job]) for f in there[1:] if f.part)


def owner_of(
    labels: Mapping[str, str],
    within: str,
    carriers: Collection[str],
    families: Sequence[_Family] = FAMILIES,
) -> tuple[Owner, str] | None:
    """The owner of the GPU, and the label that names it; None: no label does.

    Args:
        labels: Of the row.
        within: Label; jobs share only where its value is equal.
        carriers: Workloads whose pods are of exporters or workers.
        families: Labels that may name the job, the first that does counts.
    """
    # Whether the pod of a row is the target that was scraped.
    pod, part = labels.get(_TARGET.job, ""), labels.get(_TARGET.part, "")
    # A monitor of services names its targets after the service, one of pods "namespace/name".
    scraped = {labels.get(name, "").rpartition("/")[2] for name in ("job", "service")} - {""}
    named = _EXPORTER in pod or _EXPORTER in part or part == "exporter"
    of_exporter = named or workload_name(pod) in scraped
    carried = {*carriers, workload_name(labels.get(_TARGET.job, ""))} if of_exporter else carriers
    for family in families:
        name = labels.get(family.job)
        if not name or (family.part and workload_name(name) in carried):
            continue
        label = family.group if within == _NAMESPACE else within
        # The namespace of an exporter is not that of the job.
        plain = labels.get(label, "") if not of_exporter or label != _TARGET.group else ""
        return Owner(
            labels.get(f"exported_{label}") or plain,
            f"job {name}" if family.taken_for == "batch job" else name,
            labels.get(family.part, ""),
        ), family.job
    return None


POWER, LIMIT, ENERGY = "power_w", "power_limit_w", "energy_j"
USED, FREE, TOTAL = "memory_used_mib", "memory_free_mib", "memory_total_mib"
TENSOR_ACTIVE, CLOCK, MIG_MODE = "tensor_active_percent", "sm_clock_mhz", "mig_mode"

_PLAIN = {
    channel: {PREFIX + name: field.scale for name in field.names}
    for channel, field in {
        POWER: STATE[POWER_GPU],
        LIMIT: STATE[POWER_LIMIT],
        ENERGY: STATE[ENERGY_GPU],
        USED: STATE[MEMORY_USED],
        CLOCK: STATE[CLOCK_SM],
        FREE: DcgmField(("DEV_FB_FREE",)),
        **{COLUMNS[name]: field for name, field in COUNTERS.items()},
    }.items()
}

_MIB, _MHZ, _MILLI, _GPU = 1 / 2**20, 1e-6, 1e-3, "GPU-"
_UUID, _MODEL, _HOST, INSTANCE = "UUID", "modelName", "Hostname", "GPU_I_ID"
_PARTITION = "gpu_compute_partition_type"


SM_OR_BUSY = "slurm_job_utilization_gpu"
"""SM activity where tensor cores are read beside it, so by DCGM, else GPU activity: that of
slurm-job-exporter with --monitor=nvml, or on a node without nv-hostengine. So is its memory's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Adapter:
    """How a program writes the metrics of GPUs.

    Attributes:
        program: As it is called in messages.
        gpu: Labels that name a GPU, the best first; with a slash, those that do so together.
        labels: Those of dcgm-exporter, and where else this program writes the same.
        metrics: Of each channel its names, the best first, and their factor to its unit.
        number: Label with the number of a GPU on its host.
        by: Label by which rows are asked for: of two dies one alone has the watts.
        info: A metric whose labels have the model, where the others have none.
        cut: How UUIDs begin, which it leaves out: another exporter may show the same GPU.
    """

    program: str
    gpu: Sequence[str]
    metrics: Mapping[str, Mapping[str, float]]
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    number: str = ""
    by: str = ""
    info: str = ""
    cut: str = ""


# Programs whose metrics are read; each name and unit is quoted from the source that is named.
_ADAPTERS = (
    _Adapter(
        program="dcgm-exporter",
        gpu=(_UUID, "uuid", "gpu_uuid"),
        labels={_MODEL: ("modelname",), _HOST: ("hostname",), INSTANCE: ("gpu_i_id",)},
        metrics={
            **_PLAIN,
            # What advisor's node agents say where there is no dcgm-exporter.
            ENERGY: {**_PLAIN[ENERGY], "advisor_gpu_energy_joules_total": 1.0},
            # Percent under its later name, too.
            BUSY: {
                **_PLAIN[BUSY],
                f"{PREFIX}DEV_GPU_UTIL": 1.0,
                f"{PREFIX}DEV_GPU_UTIL_RATIO": 1.0,
            },
        },
    ),
    # NVIDIA/gpu-monitoring-tools: etc/dcgm-exporter/1.x-compatibility-metrics.csv.
    _Adapter(
        program="dcgm-exporter 1.x",
        gpu=("uuid", _UUID),
        metrics={
            POWER: {"dcgm_power_usage": 1.0},
            ENERGY: {"dcgm_total_energy_consumption": _MILLI},
            USED: {"dcgm_fb_used": 1.0},
            FREE: {"dcgm_fb_free": 1.0},
            CLOCK: {"dcgm_sm_clock": 1.0},
            BUSY: {"dcgm_fi_prof_gr_engine_active": 100.0, "dcgm_gpu_utilization": 1.0},
            SM: {"dcgm_fi_prof_sm_active": 100.0},
            DRAM: {"dcgm_fi_prof_dram_active": 100.0},
            TENSOR_ACTIVE: {"dcgm_fi_prof_pipe_tensor_active": 100.0},
            MEMORY_BUSY: {"dcgm_mem_copy_utilization": 1.0},
        },
    ),
    # ROCm/device-metrics-exporter: pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go; its examples set
    # the prefix amd_. The serial number is there by default, the UUID is not.
    *(
        _Adapter(
            program="AMD's device-metrics-exporter",
            gpu=("gpu_uuid", "serial_number"),
            number="gpu_id",
            by="hostname",
            labels={
                _MODEL: ("card_series", "card_model"),
                _HOST: ("hostname",),
                "slurm_job_id": ("job_id",),
                "user": ("job_user",),
            },
            metrics={
                channel: {f"{prefix}{name}": scale for name, scale in names.items()}
                for channel, names in {
                    # Of the socket: MI3xx has the first, MI2xx the second.
                    POWER: {
                        "gpu_package_power": 1.0,
                        "gpu_average_package_power": 1.0,
                        "gpu_power_usage": 1.0,
                    },
                    ENERGY: {"gpu_energy_consumed": 1e-6},
                    USED: {"gpu_used_vram": 1.0},
                    FREE: {"gpu_free_vram": 1.0},
                    TOTAL: {"gpu_total_vram": 1.0},
                    BUSY: {"gpu_gfx_activity": 1.0},
                    MEMORY_BUSY: {"gpu_umc_activity": 1.0},
                }.items()
            },
        )
        for prefix in ("", "amd_")
    ),
    # utkuozdemir/nvidia_gpu_exporter: internal/integration/testdata, docs/METRICS.md.
    _Adapter(
        program="nvidia_gpu_exporter",
        gpu=("uuid",),
        labels={_MODEL: ("name",)},
        info="nvidia_smi_gpu_info",
        cut=_GPU,
        metrics={
            POWER: {"nvidia_smi_power_draw_instant_watts": 1.0, "nvidia_smi_power_draw_watts": 1.0},
            ENERGY: {"nvidia_smi_energy_joules_total": 1.0},
            LIMIT: {"nvidia_smi_enforced_power_limit_watts": 1.0},
            USED: {"nvidia_smi_memory_used_bytes": _MIB},
            FREE: {"nvidia_smi_memory_free_bytes": _MIB},
            CLOCK: {"nvidia_smi_clocks_current_sm_clock_hz": _MHZ},
            MIG_MODE: {"nvidia_smi_mig_mode_current": 1.0},
            BUSY: {"nvidia_smi_utilization_gpu_ratio": 100.0},
            MEMORY_BUSY: {"nvidia_smi_utilization_memory_ratio": 100.0},
        },
    ),
    # plazonic/nvidia_gpu_prometheus_exporter: main.go, which writes GPM's percents as parts of 1.
    _Adapter(
        program="the GPU exporter of jobstats",
        gpu=("uuid",),
        labels={_MODEL: ("name",), "user": ("userid",)},
        metrics={
            POWER: {"nvidia_gpu_power_usage_milliwatts": _MILLI},
            USED: {"nvidia_gpu_memory_used_bytes": _MIB},
            TOTAL: {"nvidia_gpu_memory_total_bytes": _MIB},
            BUSY: {"nvidia_gpu_graphics_util_percent": 100.0, "nvidia_gpu_duty_cycle": 1.0},
            SM: {"nvidia_gpu_sm_util_percent": 100.0},
            TENSOR_ACTIVE: {"nvidia_gpu_any_tensor_util_percent": 100.0},
            DRAM: {"nvidia_gpu_dram_bw_util_percent": 100.0},
        },
    ),
    # guilbaults/slurm-job-exporter: slurm-job-exporter.py.
    _Adapter(
        program="slurm-job-exporter",
        gpu=("instance/gpu",),
        labels={_MODEL: ("gpu_type",), _HOST: ("instance",)},
        metrics={
            POWER: {"slurm_job_power_gpu": _MILLI},
            USED: {"slurm_job_memory_usage_gpu": _MIB},
            TOTAL: {"slurm_job_memory_total_gpu": _MIB},
            SM: {SM_OR_BUSY: 1.0},
            DRAM: {"slurm_job_utilization_gpu_memory": 1.0},
            TENSOR_ACTIVE: {"slurm_job_tensor_gpu": 1.0},
        },
    ),
    # What nvidia-smi --query-gpu=... --format=csv writes above its columns (--help-query-gpu).
    _Adapter(
        program="nvidia-smi --format=csv",
        gpu=("uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "serial", "index"),
        labels={_MODEL: ("name", "gpu_name"), _HOST: ("hostname",)},
        metrics={
            POWER: {
                "power.draw.instant [W]": 1.0,
                "power.draw [W]": 1.0,
                "power.draw.average [W]": 1.0,
            },
            LIMIT: {"enforced.power.limit [W]": 1.0, "power.limit [W]": 1.0},
            USED: {"memory.used [MiB]": 1.0},
            FREE: {"memory.free [MiB]": 1.0},
            TOTAL: {"memory.total [MiB]": 1.0},
            CLOCK: {"clocks.current.sm [MHz]": 1.0, "clocks.sm [MHz]": 1.0},
            BUSY: {"utilization.gpu [%]": 1.0},
            MEMORY_BUSY: {"utilization.memory [%]": 1.0},
            MIG_MODE: {"mig.mode.current": 1.0},
        },
    ),
    # ROCm/rocm_smi_lib: python_smi_tools/rocm_smi.py, ROCm 5.0 to 6.3.
    _Adapter(
        program="rocm-smi --json",
        gpu=("Unique ID", "Serial Number", "card"),
        number="card",
        labels={_MODEL: ("Card Series", "Card series"), _PARTITION: ("Compute Partition",)},
        metrics={
            POWER: {
                "Current Socket Graphics Package Power (W)": 1.0,
                "Average Graphics Package Power (W)": 1.0,
            },
            LIMIT: {"Max Graphics Package Power (W)": 1.0},
            ENERGY: {"Accumulated Energy (uJ)": 1e-6},
            USED: {"VRAM Total Used Memory (B)": _MIB},
            TOTAL: {"VRAM Total Memory (B)": _MIB},
            CLOCK: {"sclk clock speed:": 1.0},
            BUSY: {"GPU use (%)": 1.0},
            MEMORY_BUSY: {"GPU Memory Read/Write Activity (%)": 1.0, "GPU memory use (%)": 1.0},
        },
    ),
)

METRICS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        channel: {
            name: scale
            for adapter in _ADAPTERS
            for name, scale in adapter.metrics.get(channel, {}).items()
        }
        for channel in dict.fromkeys(metric for adapter in _ADAPTERS for metric in adapter.metrics)
    }
)
"""Metrics of each channel, the best first, and their factor to its unit."""

# Of all metrics that are asked for.
_NAMES = frozenset(name for names in METRICS.values() for name in names)

_ADAPTER_OF = {
    name: adapter
    for adapter in _ADAPTERS
    for name in (adapter.info, *(name for names in adapter.metrics.values() for name in names))
    if name
}
_INFOS = frozenset(adapter.info for adapter in _ADAPTERS if adapter.info)
# Of an AMD GPU: the first part shows what the sensors of the whole read, the others do not.
_PARTED = ("cpx", "dpx", "qpx", "tpx")

ACTIVITY = (SM, BUSY)
"""What tells a job at work from one that waits, the best first."""


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


def metrics_for(names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Of each channel the metrics that a site has, the best first, and their factors.

    GPUs of one site differ: older cards, cards in MIG, and cards of which another client holds the
    counters have fewer. Which of these a GPU has is seen GPU by GPU.
    """
    there = set(names)
    return {
        channel: kept
        for channel, names in METRICS.items()
        if (kept := {name: scale for name, scale in names.items() if name in there})
    }


def _with_plain_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Labels of a row with those that dcgm-exporter would write beside them."""
    adapter = _ADAPTER_OF.get(labels.get("__name__", ""))
    if adapter is None:
        return labels
    named = (
        "/".join(values)
        for form in adapter.gpu
        if all(values := [labels.get(part, "") for part in form.split("/")])
    )
    uuid = next(named, "")
    # Series that were kept are known already.
    plain = {_UUID: uuid and adapter.cut + uuid.removeprefix(adapter.cut)}
    for name, others in adapter.labels.items():
        plain[name] = next((labels[label] for label in (*others, name) if labels.get(label)), "")
    if (plain.get(_PARTITION) or labels.get(_PARTITION, "")).lower() in _PARTED:
        plain[INSTANCE] = labels.get("gpu_partition_id") or "0"
    number = labels.get(adapter.number, "").removeprefix("card")
    if number.isdecimal() and POWER_GPU in power_scope(plain[_MODEL])[0]:
        # Two dies are one module, of which the first, an even one, shows the watts.
        plain[INSTANCE], first = str(int(number) % 2), int(number) // 2 * 2
        plain[_UUID] = f"{plain.get(_HOST, '')}/{first}-{first + 1}"
    return {**labels, **{name: value for name, value in plain.items() if value}}


def _without_copies(names: Iterable[str]) -> frozenset[str]:
    """Those that are read: rows of a job would count a GPU again that has rows of its own."""
    shown = _NAMES & set(names)
    return frozenset(name for name in shown if "/" not in _ADAPTER_OF[name].gpu[0]) or shown


def _other_metrics(names: Iterable[str]) -> str:
    """Why names are not enough."""
    there = set(names)
    if program_names := sorted({_ADAPTER_OF[name].program for name in _NAMES & there}):
        labels = sorted({label for name in _NAMES & there for label in _ADAPTER_OF[name].gpu})
        return (
            f"it is {' and '.join(program_names)}, and no row has one of the labels "
            f"{', '.join(labels)}"
        )
    few = sorted(filter(str.isidentifier, there))[:5]
    what = f"{len(there)} other metrics, such as {', '.join(few)}" if few else "no metric"
    programs = ", ".join(dict.fromkeys(adapter.program for adapter in _ADAPTERS))
    return f"it has {what}, and none of {programs}"


def gpu_of(labels: Mapping[str, str]) -> str | None:
    """The GPU of a row, also of an instance of it; None: it names none, or an instance alone."""
    named = labels.get(_UUID)
    # The device plugin names the replicas of a shared GPU "<uuid>::<number>".
    return named.split("::")[0] if named and "MIG-" not in named else None


def write_lines(file: IO[bytes], series: Iterable[Series]) -> None:
    """Append series, each as a line."""
    for row in series:
        values = [[t, f"{v:.15g}"] for t, v in zip(row.times_s, row.values, strict=True)]
        file.write(json.dumps({"metric": row.labels, "values": values}).encode() + b"\n")


@dataclass(slots=True)
class _Index:
    """Where the lines of a GPU begin, and what time they cover."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    begins_s: "array[float]" = field(default_factory=lambda: array("d"))
    ends_s: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, offset: int, times_s: Sequence[float]) -> None:
        """One more line."""
        self.offsets.append(offset)
        self.begins_s.append(min(times_s))
        self.ends_s.append(max(times_s))


class SeriesFile:
    """The metrics of GPUs in a file; of it only places of lines are kept in memory.

    Raises:
        InputError: it cannot be read, has a line that is no series, or none of a GPU.
    """

    def __init__(
        self,
        path: Path,
        *,
        step_s: float,
        families: Sequence[_Family] = FAMILIES,
        url: str = "",
    ) -> None:
        self.url, self.step_s, self.counts = url or str(path), step_s, _SourceCounts()
        self._path, self.families = path, families
        self._gpus: dict[str, _Index] = {}
        self._models: dict[str, str] = {}
        carriers, names, cardless = set[str](), set[str](), set[tuple[str, str]]()
        for offset, row in self._lines():
            carriers.update(_carriers_of(row.labels, families))
            names.add(row.metric)
            gpu = gpu_of(row.labels)
            if gpu and row.metric in _INFOS:
                self._models[gpu] = row.labels.get(_MODEL, "")
            elif gpu is None and row.labels.get(_UUID):
                cardless.add((row.metric, row.labels[_UUID]))
            elif gpu and row.times_s and row.metric in _NAMES:
                self._gpus.setdefault(gpu, _Index()).add(offset, row.times_s)
        there = _without_copies(names)
        self.metrics = metrics_for(there)
        self.counts.cardless |= {instance for name, instance in cardless if name in there}
        self.carriers = frozenset(carriers)
        if not self._gpus or not self.metrics:
            raise InputError(
                f"{self.url} has no metric of a GPU",
                why=_other_metrics(names),
                fix="write what a range query of Prometheus answers, a line for each series",
            )
        self._leave_out_strays()
        begin_s = min(min(index.begins_s) for index in self._gpus.values())
        self.begin_s = step_s * (begin_s // step_s) - step_s
        self.end_s = max(max(index.ends_s) for index in self._gpus.values())
        longest_s = max(
            end - begin
            for index in self._gpus.values()
            for begin, end in zip(index.begins_s, index.ends_s, strict=True)
        )
        # A long line is read once, not for each of many short pages.
        self.page_s = max(_PAGE_S, step_s * (longest_s // step_s + 1))
        gpus, size = sorted(self._gpus), max(1, int(_GPUS_OF_PAGE * _PAGE_S / self.page_s))
        self.groups = tuple(tuple(gpus[n : n + size]) for n in range(0, len(gpus), size))

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series of a group of GPUs that have a sample there."""
        with self._path.open("rb") as file:
            for gpu in self.groups[group]:
                index = self._gpus[gpu]
                for offset, first_s, last_s in zip(
                    index.offsets, index.begins_s, index.ends_s, strict=True
                ):
                    if first_s <= end_s and last_s > begin_s:
                        file.seek(offset)
                        yield _of_model(_series(json.loads(file.readline())), self._models)

    def _leave_out_strays(self) -> None:
        """Or one clock that began in 1970 would make years of empty pages."""
        ends = sorted(end for index in self._gpus.values() for end in index.ends_s)
        # A sample more than a year from the middle one is of a clock that was wrong.
        low, high = (ends[len(ends) // 2] + side * 366 * 86400.0 for side in (-1, 1))
        for gpu, index in [*self._gpus.items()]:
            if low <= min(index.begins_s) and max(index.ends_s) <= high:
                continue
            near = self._gpus[gpu] = _Index()
            with self._path.open("rb") as file:
                for offset in index.offsets:
                    file.seek(offset)
                    times_s = _series(json.loads(file.readline())).times_s
                    kept = [t for t in times_s if low <= t <= high]
                    self.counts.strays += len(times_s) - len(kept)
                    if kept:
                        near.add(offset, kept)
            if not near.offsets:
                del self._gpus[gpu]

    def _lines(self) -> Iterator[tuple[int, Series]]:
        path, number, offset = self._path, 0, 0
        with InputError.instead_of(OSError, f"{path} cannot be read"), path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                with InputError.instead_of(
                    (ValueError, KeyError, TypeError, AttributeError),
                    f"line {number} of {path} is no series",
                    fix="each line is one, as a range query of Prometheus answers: "
                    '{"metric": {"__name__": NAME, "UUID": GPU}, "values": [[SECONDS, "VALUE"]]}',
                ):
                    yield offset, _series(json.loads(line))
                offset += len(line)


def as_series(path: Path, folder: Path) -> Path:
    """The file itself, or in the folder series of a whole answer or of a log of nvidia-smi.

    Raises:
        InputError: it cannot be read, or is cut off.
    """
    made, (csv_log, json_log) = folder / "made.jsonl", _ADAPTERS[-2:]
    made.unlink(missing_ok=True)
    with (
        InputError.instead_of(OSError, f"{path} cannot be read"),
        InputError.instead_of(_NONSENSE, f"{path} is no whole answer of a range query"),
        path.open(errors="replace") as file,
    ):
        begun = file.readline()
        file.seek(0)
        if any(_ADAPTER_OF.get(word.strip()) is csv_log for word in begun.split(",")):
            _write_log(_csv_rows(file), csv_log, made)
        elif re.match(r"[\d.]+ \{", begun):
            _write_log(_json_rows(file), json_log, made)
        elif begun.strip() == "{" or '"data"' in begun[:4096]:
            with made.open("wb") as series:
                write_lines(series, map(_series, json.load(file)["data"]["result"]))
    return made if made.exists() else path


def _csv_rows(file: Iterable[str]) -> Iterator[tuple[float, Mapping[str, str]]]:
    """Of nvidia-smi, with their times."""
    for row in csv.DictReader(file, skipinitialspace=True):
        with suppress(ValueError, TypeError):  # the line that was being written, or a second header
            yield datetime.strptime(row["timestamp"], "%Y/%m/%d %H:%M:%S.%f").timestamp(), row


def _json_rows(file: Iterable[str]) -> Iterator[tuple[float, Mapping[str, str]]]:
    """Of rocm-smi, which prints no time: it stands before each line."""
    for line in file:
        time_s, _, text = line.partition(" ")
        # The line that was being written, or a warning in it.
        with suppress(ValueError, TypeError, AttributeError):
            for card, row in json.loads(text).items():
                yield float(time_s), {**row, "card": card}


_ON_OFF = {"Enabled": 1.0, "Disabled": 0.0}


def _write_log(
    rows: Iterable[tuple[float, Mapping[str, str]]], adapter: _Adapter, made: Path
) -> None:
    """Rows as series; what has no number, such as [N/A] or N/A (Secondary die), was not read."""
    waiting = defaultdict[tuple[tuple[str, str], ...], list[tuple[float, float]]](list)
    log_labels = {*adapter.gpu, *(label for of in adapter.labels.values() for label in of)}
    for n, (time_s, row) in enumerate(rows, start=1):
        cells = {label: str(row[label] or "").strip("[]") for label in log_labels & row.keys()}
        labels = {label: value for label, value in cells.items() if value not in ("", "N/A")}
        for name in (word for word in row if _ADAPTER_OF.get(word) is adapter):
            value = str(row[name]).strip()
            number = re.search(r"-?\d+(\.\d+)?", value)
            if number or value in _ON_OFF:
                key = tuple(sorted({**labels, "__name__": name}.items()))
                read = float(number[0]) if number else _ON_OFF[value]
                waiting[key].append((time_s, read))
        if n % 10_000 == 0:
            _write(made, waiting)
    _write(made, waiting)


def _of_model(row: Series, models: Mapping[str, str]) -> Series:
    """With the model that another metric told of its GPU."""
    model = models.get(row.labels.get(_UUID, ""))
    return replace(row, labels={**row.labels, _MODEL: model}) if model else row


def _labels(given: Mapping[str, object]) -> Mapping[str, str]:
    return _with_plain_labels({str(name): str(value) for name, value in given.items()})


def _series(line: Mapping[str, Any]) -> Series:
    if not {"metric", "values"} <= line.keys():
        raise ValueError("it has no metric with values")
    values = line["values"]
    times_s = [float(t) for t, _ in values]
    if not all(map(math.isfinite, times_s)):
        raise ValueError("a time is no number")
    return Series(_labels(line["metric"]), times_s, [float(v) for _, v in values])


_GPUS_OF_PAGE, _PAGE_S = 100, 6 * 3600.0

# A page of an hour at each second has 1.1 million values; they take 100 bytes of memory each.
_LARGEST_BYTES, _MOST_VALUES = 64 * 2**20, 2_000_000
_TIMEOUT_S = (10.0, 120.0)
_TRIES, _LONGEST_WAIT_S = 8, 60.0
_BUSY = (408, 429, 500, 502, 503, 504)
_TOO_MUCH = re.compile(r"too many|exceeded|too large|too long|timed out|limit", re.IGNORECASE)
_ADDRESS = "name the address before /api/v1, such as http://prometheus:9090"

_NONSENSE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def _cause(error: BaseException) -> str:
    """Why there was no answer; the text of requests begins with the whole query."""
    while error.__context__:
        error = error.__context__
    return getattr(error, "strerror", None) or str(error)


def _without_account(url: str) -> tuple[str, tuple[str, str] | None]:
    """An address that can be shown, and the name and password that stood in it."""
    with SourceError.instead_of(ValueError, "this is no address", fix=_ADDRESS):
        account = get_auth_from_url(url)
    return re.sub(r"^([^/]*//)[^/]*@", r"\1", url), account if any(account) else None


# Status, body, and the seconds after which it may be asked again.
_Answer: TypeAlias = tuple[int, bytes, float | None]


@dataclass(slots=True)
class _SourceCounts:
    """What the server was asked so far.

    Attributes:
        waits: Times that it was busy, or not there.
        strays: Samples of a file that are left out, since they are years from the others.
        cardless: MIG instances of which no label names the GPU.
    """

    requests: int = 0
    received_bytes: int = 0
    waits: int = 0
    strays: int = 0
    cardless: set[str] = field(default_factory=set[str])


class Prometheus:
    """The metrics of GPUs between two moments, at steps.

    Attributes:
        groups: GPUs that are read together.
        metrics: Of each channel the metrics that the site has, and their factors.
        carriers: Workloads whose pods are of exporters or of workers, not of jobs.

    Raises:
        SourceError: it cannot be reached, refuses us, or has no metrics of GPUs.
    """

    page_s = _PAGE_S

    def __init__(
        self,
        url: str,
        session: requests.Session,
        *,
        begin_s: float,
        end_s: float,
        step_s: float,
        families: Sequence[_Family] = FAMILIES,
        sleep: Callable[[float], None] = time.sleep,
        # Of one answer, from the asking to its last byte; a page is a megabyte.
        longest_s: float = 180.0,
    ) -> None:
        self.url, account = _without_account(url.rstrip("/"))
        self.step_s, self.begin_s, self.end_s = step_s, begin_s, end_s
        self.counts, self.families = _SourceCounts(), families
        self._session, self._sleep, self._longest_s = session, sleep, longest_s
        session.auth = session.auth or account
        span = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}"}
        names = self._values("label/__name__/values", span)
        there = _without_copies(names)
        self.metrics = metrics_for(there)
        if not self.metrics:
            raise self._no_gpus(_other_metrics(names))
        # Each metric by its exact name: Google's managed Prometheus refuses patterns of names.
        self._named = defaultdict[str, tuple[str, frozenset[str]]](lambda: ("", frozenset()))
        carriers = set[str]()
        for name in sorted(there):
            where, row = {**span, "match[]": name}, {"__name__": name}
            adapter = _ADAPTER_OF[name]
            for labels in filter(None, (adapter.by, *adapter.gpu)):
                label, *others = labels.split("/")
                values = self._values(f"label/{label}/values", where)
                # Those that a label names together with another are read by the first.
                is_gpu = not others and label != adapter.by
                if gpus := frozenset(
                    gpu
                    for value in values
                    if (
                        gpu := gpu_of(_with_plain_labels({**row, label: value}))
                        if is_gpu
                        else value
                    )
                ):
                    self._named[name] = label, gpus
                    break
            label_names = set(self._values("labels", where))
            for finer, coarser in combinations((f for f in families if f.job in label_names), 2):
                where = {**span, "match[]": f'{name}{{{finer.job}!=""}}'}
                if coarser.part:
                    carriers.update(
                        map(workload_name, self._values(f"label/{coarser.job}/values", where))
                    )
        self.carriers = frozenset(carriers)
        if not self._named:
            raise self._no_gpus(_other_metrics(there))
        self._models = {
            labels.get(_UUID, ""): labels.get(_MODEL, "")
            for name in sorted(_INFOS.intersection(names))
            for row in self._listed("series", {**span, "match[]": name})
            if isinstance(row, dict)
            for labels in [_labels(cast("dict[str, object]", row))]
        }
        gpus = sorted({gpu for _, gpus_of_name in self._named.values() for gpu in gpus_of_name})
        self.groups = tuple(
            tuple(gpus[n : n + _GPUS_OF_PAGE]) for n in range(0, len(gpus), _GPUS_OF_PAGE)
        )

    def read(self, group: int, begin_s: float, end_s: float) -> Iterator[Series]:
        """All series of a group of GPUs, each value the mean of a step that ends then.

        Raises:
            SourceError: the server is gone for minutes, or answers nonsense.
        """
        powered = frozenset(g for n in self.metrics.get(POWER, ()) for g in self._named[n][1])
        for channel, names in self.metrics.items():
            # A total stands in for power; the next best is asked for GPUs without the best only.
            left = set(self.groups[group]) - (powered if channel == ENERGY else frozenset())
            for name in names:
                if gpus := left & self._named[name][1]:
                    yield from self._of(name, gpus, begin_s, end_s)
                left -= gpus

    def _of(self, name: str, gpus: Iterable[str], begin_s: float, end_s: float) -> Iterator[Series]:
        shown = (gpu.removeprefix(_ADAPTER_OF[name].cut) for gpu in sorted(gpus))
        which = "|".join(map(re.escape, shown)).replace("\\", "\\\\")
        matched = f'{name}{{{self._named[name][0]}=~"({which})(::.*)?"}}[{self.step_s:.0f}s]'
        # Of a total the newest; the mean of others, which has no value where nothing was seen.
        over = "max" if name in METRICS[ENERGY] else "avg"
        for row in self._range(f"{over}_over_time({matched})", begin_s, end_s):
            named = replace(row, labels=_with_plain_labels({**row.labels, "__name__": name}))
            if gpu_of(named.labels) is None and named.labels.get(_UUID):
                self.counts.cardless.add(named.labels[_UUID])
            yield _of_model(named, self._models)

    def _range(self, query: str, begin_s: float, end_s: float) -> Iterator[Series]:
        parameters = {"query": query, "step": f"{self.step_s:.0f}", "end": f"{end_s:.3f}"}
        try:
            result = self._get(
                "query_range", {**parameters, "start": f"{begin_s + self.step_s:.3f}"}, post=True
            )
        except TooMuchError as error:
            half_s = self.step_s * ((end_s - begin_s) // self.step_s // 2)
            if half_s < 5 * self.step_s:
                raise self._wrong(str(error)) from error
            yield from self._range(query, begin_s, begin_s + half_s)
            yield from self._range(query, begin_s + half_s, end_s)
            return
        try:
            series = [_series(row) for row in result["result"]]
        except _NONSENSE as error:
            raise self._wrong("its answer is not a series") from error
        yield from series

    def _values(self, path: str, where: Mapping[str, str]) -> list[str]:
        return [str(name) for name in self._listed(path, where)]

    def _listed(self, path: str, where: Mapping[str, str]) -> list[Any]:
        """Of a label, or the labels; these cannot be asked for in parts."""
        try:
            listed = self._get(path, where)
        except TooMuchError as error:
            raise self._wrong(str(error)) from error
        if not isinstance(listed, list):
            raise self._wrong(f"of {path} it has no list of names")
        return cast("list[Any]", listed)

    def _get(self, path: str, parameters: Mapping[str, str], *, post: bool = False) -> Any:
        """The data of an answer; a server that is busy or gone is asked again, later each time."""
        why = ""
        for n in range(_TRIES):
            if n:
                self.counts.waits += 1
            try:
                status, body, wait_s = self._once(path, parameters, post=post)
            except (requests.ConnectionError, requests.Timeout, urllib3.exceptions.HTTPError) as e:
                if not self.counts.received_bytes:  # most likely a wrong address
                    raise SourceError(
                        f"{self.url} does not answer",
                        why=_cause(e),
                        fix=f"see that it runs, or {_ADDRESS}",
                    ) from e
                status, body, wait_s, why = 503, b"", None, _cause(e)
            except OSError as e:  # an address or a certificate that no second try mends
                raise self._wrong(str(e)) from e
            if status not in _BUSY or (body and _TOO_MUCH.search(body.decode(errors="replace"))):
                return self._data(status, body)
            why = why or f"it answers HTTP {status}"
            if n + 1 < _TRIES:
                later_s = min(_LONGEST_WAIT_S, 2.0**n) * random.uniform(0.5, 1.5)
                self._sleep(later_s if wait_s is None else min(wait_s, 5 * _LONGEST_WAIT_S))
        raise SourceError(
            f"no answer from {self.url} after {_TRIES} tries",
            why=why,
            fix="see that it runs; the same command goes on where this one ended",
        )

    def _once(self, path: str, parameters: Mapping[str, str], *, post: bool) -> _Answer:
        """One answer, within its time and size."""
        self.counts.requests += 1
        given: dict[str, Any] = {"data": parameters} if post else {"params": parameters}
        # Said for each request, or REQUESTS_CA_BUNDLE goes before the ca_file.
        given["verify"] = ca if isinstance(ca := self._session.verify, str) else None
        status, headers, body = exchange(
            self._session,
            "POST" if post else "GET",
            f"{self.url}/api/v1/{path}",
            most_bytes=_LARGEST_BYTES,
            within_s=self._longest_s,
            timeout=_TIMEOUT_S,
            **given,
        )
        self.counts.received_bytes += len(body)
        wait_s = headers.get("Retry-After", "")
        return status, body, float(wait_s) if wait_s.isascii() and wait_s.isdigit() else None

    def _data(self, status: int, body: bytes) -> Any:
        if status in (401, 403):
            raise SourceError(
                f"{self.url} answers HTTP {status}: it does not let us in",
                fix="set ADVISOR_PROMETHEUS_TOKEN, or name --http-config FILE",
            )
        if values_in(body) > _MOST_VALUES:
            raise TooMuchError(f"it sent more than {_MOST_VALUES} values")
        try:
            answer = json.loads(body)
            if answer["status"] == "success":
                return answer["data"]
            said = " ".join(str(answer["error"]).split())  # no line of it passes for one of ours
        except _NONSENSE:
            raise self._wrong(f"HTTP {status} without JSON of Prometheus") from None
        if _TOO_MUCH.search(said):
            raise TooMuchError(said)
        raise self._wrong(said)

    def _wrong(self, said: str) -> SourceError:
        return SourceError(
            f"{self.url} does not answer the query",
            why=said,
            fix=_ADDRESS,
        )

    def _no_gpus(self, why: str) -> SourceError:
        return SourceError(
            f"{self.url} has no metrics of GPUs in these days",
            why=why,
            fix="name the Prometheus that scrapes an exporter of GPUs, or ask for other --days",
        )


Source: TypeAlias = Prometheus | SeriesFile
"""Where series come from, in groups of GPUs and pages of time."""

TOKEN = "ADVISOR_PROMETHEUS_TOKEN"

_PARTS = {
    "basic_auth": {"username", "password", "password_file"},
    "authorization": {"type", "credentials", "credentials_file"},
    "tls_config": {"ca_file", "cert_file", "key_file", "insecure_skip_verify"},
}
_HEADER = {"values", "secrets", "files"}
_RESERVED_HEADERS = {"authorization", "connection", "content-length", "content-type", "host"}


def session_for(secrets: Mapping[str, str], file: Path | None = None) -> requests.Session:
    """A session with what lets us in.

    The file is that of `promtool --http.config.file`
    (https://prometheus.io/docs/prometheus/latest/command-line/promtool/): `basic_auth`,
    `authorization`, `tls_config` and `http_headers` of it are known.

    Raises:
        InputError: the file cannot be read, or wants what is not done here.
    """
    session = requests.Session()
    config: Mapping[str, Any] = _read(file) if file else {}
    if unknown := sorted(_unknown(config)):
        parts = {**_PARTS, "http_headers: NAME": _HEADER}
        allowed = "; ".join(f"{part}: {', '.join(sorted(of))}" for part, of in parts.items())
        raise InputError(f"{file} has {', '.join(unknown)}", fix=f"leave only these: {allowed}")
    base = file.parent if file else Path()
    if given := config.get("authorization"):
        kind, value = given.get("type", "Bearer"), _secret(given, "credentials", base)
        session.auth = partial(_authorized, f"{kind} {value}")
    elif given := config.get("basic_auth"):
        session.auth = (str(given.get("username", "")), _secret(given, "password", base))
    elif token := secrets.get(TOKEN):
        session.auth = partial(_authorized, f"Bearer {token}")
    session.headers.update(
        {str(name): _header(of, base) for name, of in config.get("http_headers", {}).items()}
    )
    tls = config.get("tls_config", {})
    if tls.get("insecure_skip_verify"):
        raise InputError(
            "insecure_skip_verify is not supported",
            why="any host that answers would get the token",
            fix="give the CA of the server's certificate: ca_file",
        )
    if ca := tls.get("ca_file"):
        session.verify = str(base / ca)
    if cert := tls.get("cert_file"):
        session.cert = (str(base / cert), str(base / tls.get("key_file", cert)))
    return session


def _unknown(config: Mapping[str, Any]) -> Iterator[str]:
    """What would be passed over without a word, such as a rule for certificates."""
    for part, given in config.items():
        if part == "http_headers" and isinstance(given, dict):
            headers = cast("dict[object, object]", given).items()
            yield from (f"{part}.{name}" for name, of in headers if not _is_header(name, of))
        elif part not in _PARTS or not isinstance(given, dict):
            yield str(part)
        else:
            names = map(str, cast("dict[object, object]", given))
            yield from (f"{part}.{name}" for name in names if name not in _PARTS[part])


def _is_header(name: object, given: object) -> bool:
    parts = cast("dict[object, object]", given).items() if isinstance(given, dict) else [(0, 0)]
    is_plain = all(part in _HEADER and isinstance(of, list) for part, of in parts)
    return is_plain and str(name).lower() not in _RESERVED_HEADERS


def _header(given: Mapping[str, Sequence[object]], base: Path) -> str:
    """All values of a header, as one line of it."""
    plain = (str(value) for part in ("values", "secrets") for value in given.get(part, ()))
    return ", ".join(
        [*plain, *(_text_of(base / str(file_name)) for file_name in given.get("files", ()))]
    )


def _authorized(value: str, request: requests.PreparedRequest) -> requests.PreparedRequest:
    """As `auth` it goes before what a .netrc says, and to no other host."""
    request.headers["Authorization"] = value
    return request


def _secret(given: Mapping[str, Any], name: str, base: Path) -> str:
    named = given.get(f"{name}_file")
    return _text_of(base / named) if named else str(given.get(name, ""))


def _text_of(path: Path) -> str:
    with InputError.instead_of((OSError, ValueError), f"{path} cannot be read"):
        return path.read_text().strip()


def _read(file: Path) -> Mapping[str, Any]:
    with InputError.instead_of((OSError, ValueError, yaml.YAMLError), f"{file} cannot be read"):
        content: object = yaml.safe_load(file.read_text())
    if not isinstance(content, dict):
        raise InputError(f"{file} is no configuration of HTTP", fix="write basic_auth: in it")
    return cast("Mapping[str, Any]", content)


EVERY_S = 10.0
# A line holds so much: what is written survives an interruption.
_LINE_S = 60.0

_Row: TypeAlias = tuple[Mapping[str, str], float]


def record(
    read: Callable[[], Iterator[_Row]],
    path: Path,
    span_s: float,
    on_progress: Callable[[float], None],
    *,
    every_s: float = EVERY_S,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Append what is read to a file of series until the time is over.

    Raises:
        SourceError: the source is gone.
    """
    begin_s = written_s = clock()
    waiting: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    try:
        while True:
            now_s = clock()
            for labels, value in read():
                waiting[tuple(sorted(labels.items()))].append((now_s, value))
            over = now_s - begin_s >= span_s
            if now_s - written_s >= _LINE_S:
                _write(path, waiting)
                written_s = now_s
            on_progress(min(span_s, now_s - begin_s))
            if over:
                return
            sleep(max(0.0, every_s - (clock() - now_s)))
    finally:
        _write(path, waiting)  # also what Ctrl-C leaves


def _write(
    path: Path, waiting: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]
) -> None:
    with path.open("ab") as file:
        write_lines(
            file,
            (
                Series(dict(labels), [t for t, _ in pairs], [v for _, v in pairs])
                for labels, pairs in waiting.items()
            ),
        )
    waiting.clear()


def read_exporters(urls: Sequence[str]) -> Iterator[_Row]:
    """Every row of these exporters that an audit knows.

    Raises:
        SourceError: one of them does not answer, or not with metrics.
    """
    for url in urls:
        # As Prometheus calls it; not every exporter says of which host it is.
        instance = urlsplit(url).netloc.rpartition("@")[2]
        for name, labels, value in _rows_of(url):
            if name in _NAMES or name in _INFOS:
                yield _with_plain_labels({"instance": instance, **labels, "__name__": name}), value


def see_exporters(urls: Sequence[str]) -> None:
    """Look once whether each shows GPUs.

    Raises:
        SourceError: one of them does not answer, or shows none.
    """
    for url in urls:
        if not any(_UUID in labels for labels, _ in read_exporters([url])):
            raise SourceError(
                f"{_without_account(url)[0]} has no metrics of GPUs",
                why=_other_metrics(name for name, _, _ in _rows_of(url)),
                fix="name the address at which one of these programs shows its metrics",
            )


def _rows_of(url: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Of a counter the parser ends the name with _total; one that has it in itself keeps it."""
    for name, labels, value in samples(fetch(url), prefix=""):
        whole = f"{name}_total"
        yield whole if whole in _NAMES else name, labels, value


def read_host(host: HostGpus) -> Iterator[_Row]:
    """What the GPUs of this host read now, under the names of dcgm-exporter."""
    for look in host.look():
        labels = {"UUID": look.gpu.uuid, "modelName": look.gpu.model}
        yield from (
            ({**labels, "__name__": name}, value / scale)
            for column, value in look.means.items()
            for name, scale in [*METRICS.get(column, {}).items()][:1]
        )
