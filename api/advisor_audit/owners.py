"""Who holds a GPU: which labels say so, and what they are taken for.

Exporters, and what scrapes them, name who holds a GPU in labels of their own. `FAMILIES` are those
that are known, the finest first: a batch job goes before the pod of the worker that it runs in, and
the pod of a job before that of the exporter which tells of it. Pods of the latter two kinds carry
the labels of others: where they are named alone nobody holds the GPU.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_EXPORTER = "dcgm-exporter"
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
# Of pods: of a deployment, a job, or a set with numbers (k8s.io/apimachinery/pkg/util/rand).
_SUFFIXES = re.compile(rf"(-{_RANDOM}{{6,10}})?-{_RANDOM}{{5}}$|(-[0-9]+)+$")

# Of --within: what a family calls a namespace; any other is a label itself.
_NAMESPACE = "namespace"


class Owner(NamedTuple):
    """Who holds a GPU.

    Attributes:
        group: Namespace or user; only jobs of one group share.
        name: Of the pod, the batch job, or the GPU where nothing else is known.
        part: Container of the pod.
    """

    group: str
    name: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Labels that say together who holds a GPU.

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
_TARGET = Family("pod", "pod", "namespace", "container")

FAMILIES = (
    Family("hpc_job"),  # dcgm-exporter --hpc-job-mapping-dir, which a prolog of Slurm fills
    Family("slurm_job_id"),
    Family("slurmjobid"),  # slurm-job-exporter
    Family("jobid"),
    Family("exported_pod", "pod", "exported_namespace", "exported_container"),
    Family("pod_name", "pod", "pod_namespace", "container_name"),  # pod-devices-exporter
    Family("k8s_pod_name", "pod", "k8s_namespace_name", "k8s_container_name"),  # OpenTelemetry
    _TARGET,
)
"""Those that are known; of a row the first that is there counts."""


def families_of(job_label: str | None) -> Sequence[Family]:
    """All of them, that of a label which somebody names before the others."""
    made = Family(job_label or "", "job", _TARGET.group)
    chosen = next((f for f in FAMILIES if f.job == job_label), made)
    return (chosen, *(f for f in FAMILIES if f != chosen)) if job_label else FAMILIES


def workload_name(pod: str) -> str:
    """The name of a pod without what controllers add to it."""
    return _SUFFIXES.sub("", pod)


def carriers_of(labels: Mapping[str, str], families: Sequence[Family]) -> Iterator[str]:
    """Workloads of pods in a row that a finer label names: of an exporter, or a worker."""
    there = [f for f in families if labels.get(f.job)]
    yield from (workload_name(labels[f.job]) for f in there[1:] if f.part)


def owner_of(
    labels: Mapping[str, str],
    within: str,
    carriers: Collection[str],
    families: Sequence[Family] = FAMILIES,
) -> tuple[Owner, str] | None:
    """The owner of the GPU, and the label that names it; None: no label does.

    Args:
        labels: Of the row.
        within: Label; jobs share only where its value is equal.
        carriers: Workloads whose pods are of exporters or workers.
        families: Labels that may name the job, the first that does counts.
    """
    of_exporter = _is_of_exporter(labels)
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


def _is_of_exporter(labels: Mapping[str, str]) -> bool:
    """Whether the pod of a row is the target that was scraped."""
    pod, part = labels.get(_TARGET.job, ""), labels.get(_TARGET.part, "")
    # A monitor of services names its targets after the service, one of pods "namespace/name".
    scraped = {labels.get(name, "").rpartition("/")[2] for name in ("job", "service")} - {""}
    named = _EXPORTER in pod or _EXPORTER in part or part == "exporter"
    return named or workload_name(pod) in scraped
