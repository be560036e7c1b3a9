"""Published data of two clusters audited: what is said, and what cannot be.

    .venv/bin/python docs/measurements/audit/published.py ACME ALIBABA

from clones of two repositories, as in docs/measurements/cluster/mixes.py:

- github.com/InternLM/AcmeTrace (6d6ac9c, CC-BY-4.0): distributions of SM activity, memory and power
  of the GPUs of Seren. Which value belongs to which is not published: they are joined by rank,
  which is assumed, and all GPUs are taken at the same moment.
- github.com/alibaba/clusterdata (7a6c496, no licence in its folder, so nothing of it is kept here):
  duty cycle and memory of the pods of an image service, a reading a minute (GenTD26).
"""

import argparse
import csv
import io
import json
import pickle
import subprocess
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from truth import run_audit

from advisor_audit.result import Audit
from advisor_audit.sources.lines import SeriesFile

A100 = "NVIDIA A100-SXM4-80GB"


def main() -> None:
    """Print what an audit says of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("acme")
    parser.add_argument("alibaba")
    asked = parser.parse_args()
    _show("Acme, Seren", _acme(asked.acme), "all")
    _show("GenTD26", _image_service(asked.alibaba), "namespace")


def _show(name: str, lines: Iterator[str], within: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "series.jsonl"
        file.write_text("\n".join(lines) + "\n")
        said = run_audit(SeriesFile(file, step_s=60.0), Path(folder) / "pages", within)
    print(f"## {name}\n")
    print(*_sentences(said), sep="\n")
    print(*(f"- not seen: {one}" for one in said.not_seen), sep="\n")
    print()


def _sentences(said: Audit) -> Iterator[str]:
    now, shared = said.now, said.shared
    yield (
        f"- today: {now.gpus} GPUs, {now.cards} held at once, {now.gpu_hours:.0f} GPU hours held, "
        f"{now.paused_hours:.0f} of them waiting, {now.free_hours:.0f} free, "
        f"{'no power' if now.kwh is None else f'{now.kwh:.1f} kWh'}"
    )
    for what in ("cards", "gpu_hours", "kwh", "kwh_idle"):
        if (of := getattr(shared, what)) is not None:
            yield f"- {shared.basis}, {what}: {of.value:.1f} ({of.low:.1f} to {of.high:.1f})"
    yield f"- left as they are, GPU hours: {shared.apart_hours}"
    read = [job.activity_percent for job in said.jobs if job.activity_percent is not None]
    servers = sum(job.is_server for job in said.jobs)
    yield (
        f"- {len(said.jobs)} jobs listed; activity: median {np.median(read):.0f} %, "
        f"{sum(a < 50 for a in read)} below half; {servers} look like servers"
    )


def _acme(clone: str) -> Iterator[str]:
    seren = _arrays(clone, "util_gpu_seren.pkl")
    watts = np.sort(_arrays(clone, "gpu_power_seren.pkl")[0])
    memory, active = np.sort(seren[2]), np.sort(seren[4])
    ranks = (np.arange(1000) + 0.5) / 1000
    for gpu, rank in enumerate(ranks):
        used = float(np.quantile(memory, rank)) / 100 * 81920
        values = {
            "DCGM_FI_DEV_FB_USED": used if used > 819 else 4.0,
            "DCGM_FI_DEV_POWER_USAGE": float(np.quantile(watts, rank)),
            "DCGM_FI_PROF_SM_ACTIVE": float(np.quantile(active, rank)) / 100,
        }
        for name, value in values.items():
            labels = {"__name__": name, "UUID": f"GPU-{gpu:04d}", "modelName": A100}
            times = [[60.0 * n, str(value)] for n in range(1, 61)]
            yield json.dumps({"metric": labels, "values": times})


def _image_service(clone: str) -> Iterator[str]:
    for file, name, scale in (
        ("pod_gpu_duty_cycle_anon", "DCGM_FI_DEV_GPU_UTIL", 1.0),
        ("pod_gpu_memory_used_bytes_anon", "DCGM_FI_DEV_FB_USED", 2.0**-20),
    ):
        packed = io.BytesIO(_file(clone, f"cluster-trace-v2026-GenAI/{file}.tar.gz"))
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        with tarfile.open(fileobj=packed) as folder:
            member = next(m for m in folder.getmembers() if Path(m.name).name == f"{file}.csv")
            text = folder.extractfile(member)
            assert text is not None
            for row in csv.DictReader(io.TextIOWrapper(text)):
                pod = row["container_ip"]
                found[pod].append((float(row["timestamp_anon"]), float(row["value"]) * scale))
        for pod, pairs in found.items():
            labels = {"__name__": name, "UUID": f"GPU-{pod}", "modelName": "not said"}
            labels |= {"namespace": "service", "pod": f"pod{pod}", "container": "main"}
            values = [[t, str(v)] for t, v in sorted(pairs)]
            yield json.dumps({"metric": labels, "values": values})


class _Arrays(pickle.Unpickler):
    """Of numpy arrays and nothing else: a pickle may run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if name in ("_reconstruct", "ndarray", "dtype", "_frombuffer"):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} is no array")


def _arrays(clone: str, name: str) -> Any:
    return _Arrays(io.BytesIO(_file(clone, f"data/utilization/util_pkl/{name}"))).load()


def _file(clone: str, path: str) -> bytes:
    command = ["git", "-C", clone, "show", f"HEAD:{path}"]
    return subprocess.run(command, capture_output=True, check=True).stdout


if __name__ == "__main__":
    main()
