"""Which kinds of jobs a cluster runs, by what is published of real ones.

    .venv/bin/python docs/measurements/cluster/mixes.py ACME ALIBABA AZURE

prints the figures from clones of three repositories:

- github.com/InternLM/AcmeTrace (6d6ac9c, CC-BY-4.0; Hu et al., "Characterization of Large Language
  Model Development in the Datacenter", NSDI 2024): data/utilization/util_pkl/util_gpu_seren.pkl,
  which figure cdf_resource_util there shows.
- github.com/alibaba/clusterdata (7a6c496; Weng et al., "Beware of Fragmentation", USENIX ATC 2023):
  cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv. Its folder has no licence, so that only
  these sums stand here.
- github.com/Azure/AzurePublicDataset (b469a11, CC-BY-4.0; Patel et al., "Splitwise", ISCA 2024):
  data/AzureLLMInferenceTrace_code.csv and _conv.csv.

Acme: SM activity and memory used of GPUs of the cluster Seren, as cumulative distributions. GPUs
with less than 1 % of memory used run no job. Of the others, activity and memory are joined by their
rank, which is assumed: the least active have least memory. A job is taken to be a GPU.

Alibaba: what tasks of one GPU ask of it, taken to be their SM activity, and how long they ran. By
hours, of a day at most, as many are small. What they need of memory is not said: it is that of the
profiles. Of tasks that ask for less than a GPU 25 % are latency-sensitive: so many of those are
servers here. Their demand is 10, 30 or 60 % of the capacity, whichever is nearest to the minutes of
Azure's two services (code and conversation, an hour each, in 2023) with their busiest minute as the
capacity.
"""

import argparse
import csv
import io
import pickle
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from workload import LONGEST_S, PHILLY, RunTimes, log_normal

from advisor.core.gpu import MEMORY_MIB
from advisor.predict.profiles import Profile

EDGES = (0.0, 10.0, 50.0, 75.0, 100.1)
"""Of classes of SM activity, percent."""

LEVELS = (10, 30, 60)
"""Demand of servers, percent of their capacity."""


@dataclass(frozen=True, slots=True)
class Mix:
    """Jobs of a cluster.

    Attributes:
        parts: Of all jobs that end, for each class of SM activity.
        memory_percent: Of the card, for each class; empty: as profiled.
        servers: Part of the jobs.
        levels: Of the servers, for each of `LEVELS`.
    """

    parts: tuple[float, ...]
    memory_percent: tuple[float, ...] = ()
    servers: float = 0.0
    levels: tuple[float, ...] = ()
    run_times: RunTimes = PHILLY

    def weights(self, profiles: Mapping[str, Profile]) -> dict[str, float]:
        """How likely each kind is; all of a class, or of a level, are as likely."""
        drawn: dict[tuple[bool, int], list[str]] = {}
        for kind, profile in sorted(profiles.items()):
            drawn.setdefault((bool(profile.serving), _class_of(profile)), []).append(kind)
        found: dict[str, float] = {}
        for (serves, number), kinds in drawn.items():
            part = self._part(serves, number)
            found |= {kind: part / len(kinds) for kind in kinds if part}
        return found

    def with_memory(self, profiles: Mapping[str, Profile]) -> dict[str, Profile]:
        """Profiles that need as much memory as is published."""
        if not self.memory_percent:
            return dict(profiles)
        return {
            kind: replace(
                p,
                memory_used_mib=self.memory_percent[_class_of(p)] / 100 * MEMORY_MIB[p.gpu_model],
            )
            for kind, p in profiles.items()
            if not p.serving
        }

    def _part(self, serves: bool, number: int) -> float:
        if serves:
            return self.servers * self.levels[number] if self.servers else 0.0
        return (1 - self.servers) * self.parts[number]


def _class_of(profile: Profile) -> int:
    """Of SM activity; of a server the level of its demand, by its name."""
    if profile.serving:
        return LEVELS.index(int(profile.job.rsplit("-", 1)[1]))
    active = float(profile.values["sm_active_percent"][-1])
    return int(np.searchsorted(EDGES, active, side="right")) - 1


MIXES: Mapping[str, Mix] = {
    "Acme": Mix((0.124, 0.202, 0.376, 0.299), (20.8, 32.7, 50.0, 79.6)),
    "Alibaba": Mix(
        (0.001, 0.228, 0.057, 0.714),
        servers=0.25 * 0.44,
        levels=(0.28, 0.13, 0.59),
        run_times=log_normal(655, 7233),
    ),
}


def main() -> None:
    """Print the figures of the mixes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name in ("acme", "alibaba", "azure"):
        parser.add_argument(name)
    clones = parser.parse_args()
    seren = _Arrays(_file(clones.acme, "data/utilization/util_pkl/util_gpu_seren.pkl")).load()
    print("Acme: parts, and memory in percent", *_acme(np.sort(seren[2]), np.sort(seren[4])))
    path = "cluster-trace-gpu-v2023/csv/openb_pod_list_default.csv"
    tasks = [task for task in _rows(clones.alibaba, path) if task["num_gpu"] == "1"]
    asked = np.array([float(task["gpu_milli"]) / 10 for task in tasks])
    print("Alibaba: parts", np.histogram(asked, EDGES)[0] / len(asked))
    small = [task["qos"] for task in tasks if float(task["gpu_milli"]) < 1000]
    print(
        "Alibaba: less than a GPU",
        len(small) / len(tasks),
        "of it LS",
        small.count("LS") / len(small),
    )
    ran = [task for task in tasks if task["scheduled_time"] and task["deletion_time"]]
    spans_s = [float(task["deletion_time"]) - float(task["scheduled_time"]) for task in ran]
    print("Alibaba: run times, s, median and 90th percentile", np.quantile(spans_s, (0.5, 0.9)))
    asked = [float(task["gpu_milli"]) / 10 for task in ran]
    hours = np.histogram(asked, EDGES, weights=np.minimum(spans_s, LONGEST_S))[0]
    print("Alibaba: parts by hours", hours / hours.sum())
    for service in ("code", "conv"):
        print("Azure:", service, _levels(clones.azure, service))


def _acme(memory: np.ndarray, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    idle = float(np.mean(memory < 1))
    cuts = np.array([max(idle, float(np.mean(active < edge))) for edge in EDGES])
    return np.diff(cuts) / (1 - idle), np.quantile(memory, (cuts[1:] + cuts[:-1]) / 2)


def _levels(clone: str, service: str) -> np.ndarray:
    """Part of the whole minutes nearest to each level."""
    rows = _rows(clone, f"data/AzureLLMInferenceTrace_{service}.csv")
    times = np.array([np.datetime64(row["TIMESTAMP"]) for row in rows])
    minutes = ((times - times.min()) / np.timedelta64(60, "s")).astype(int)
    per_minute = np.bincount(minutes)[:-1]
    away = abs(100 * per_minute[:, None] / per_minute.max() - np.array(LEVELS))
    return np.bincount(away.argmin(axis=1), minlength=len(LEVELS)) / len(per_minute)


def _rows(clone: str, path: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(_file(clone, path).read().decode())))


def _file(clone: str, path: str) -> io.BytesIO:
    command = ["git", "-C", clone, "show", f"HEAD:{path}"]
    return io.BytesIO(subprocess.run(command, capture_output=True, check=True).stdout)


class _Arrays(pickle.Unpickler):
    """Of numpy arrays and nothing else: a pickle may run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if name in ("_reconstruct", "ndarray", "dtype", "_frombuffer"):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} is no array")


if __name__ == "__main__":
    main()
