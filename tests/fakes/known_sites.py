"""Made-up sites whose truth is known: who held which card, and what it drew, by the minute.

Jobs are bundled profiles. What is true is counted before any exporter writes it down.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np

from advisor.predict.profiles import Floats, Profile, make_profiles
from advisor_audit.audit import Audit, Wanted, audit
from advisor_audit.sources import SeriesFile, families_of
from advisor_data.bundled import bundled_solo_points
from advisor_models.single_window import bundled_head

STEP_S, BEGIN_S, MINUTES = 60.0, 1_700_000_400.0, 360
H200, MI300X = "NVIDIA H200", "AMD Instinct MI300X OAM"

Rows = Iterable[dict[str, object]]
Form = Mapping[str, tuple[str, float]]
"""Of each counter the metric, and its factor from watts, joules, MiB, MHz or percent."""

PROFILING: Form = {
    "power": ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    "used": ("DCGM_FI_DEV_FB_USED", 1.0),
    "free": ("DCGM_FI_DEV_FB_FREE", 1.0),
    "clock": ("DCGM_FI_DEV_SM_CLOCK", 1.0),
    "sm": ("DCGM_FI_PROF_SM_ACTIVE", 0.01),
    "dram": ("DCGM_FI_PROF_DRAM_ACTIVE", 0.01),
    "busy": ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.01),
}
DEFAULT: Form = {name: PROFILING[name] for name in ("power", "used", "free", "clock")} | {
    "busy": ("DCGM_FI_DEV_GPU_UTIL", 1.0)
}
NO_POWER: Form = {name: of for name, of in DEFAULT.items() if name != "power"}
BY_ENERGY: Form = NO_POWER | {"energy": ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000.0)}
AMD: Form = {
    "power": ("amd_gpu_package_power", 1.0),
    "used": ("amd_gpu_used_vram", 1.0),
    "total": ("amd_gpu_total_vram", 1.0),
    "busy": ("amd_gpu_gfx_activity", 1.0),
}
NO_LABELS: Mapping[str, str] = {}
FREE = {"power": 76.0, "used": 0.0, "sm": 0.0, "busy": 0.0, "dram": 0.0, "clock": 345.0}
WRONG = {"power": 1e9, "used": -5000.0, "busy": 4e9, "energy": 1e9}
"""What no card can show; energy is added to the total."""


@functools.cache
def profiles() -> Mapping[tuple[str, str], Profile]:
    """Batch jobs by GPU model and name; an MI300X is taken to be as fast."""
    own = {
        job: of
        for (job, model), of in make_profiles(bundled_solo_points()).items()
        if model == H200 and not of.serving and job in busy_percent()
    }
    return {
        (model, job): replace(of, gpu_model=model)
        for job, of in own.items()
        for model in (H200, MI300X)
    }


@functools.cache
def busy_percent() -> Mapping[str, float]:
    """Of each job on the whole card: what GPU_UTIL says."""
    return {
        point.job: point.gpu_busy_percent
        for point in bundled_solo_points()
        if (point.gpu_model, point.share_percent) == (H200, 100) and point.gpu_busy_percent
    }


def counters(job: str) -> dict[str, float]:
    """What a window on the whole card shows; no job: a free one."""
    if not job:
        return FREE
    one = profiles()[H200, job]
    at = {name: float(values[-1]) for name, values in one.values.items()}
    return {
        "power": at["power_w"],
        "used": one.memory_used_mib or 4000.0,
        "sm": at["sm_active_percent"],
        "busy": busy_percent()[job],
        "dram": at["dram_active_percent"],
        "clock": at["sm_clock_mhz"],
    }


@dataclass(slots=True)
class Site:
    """Cards that are written down as they are added, by what happens to be drawn.

    Attributes:
        rows: As its exporters write it: 3 % of noise, and 2 % of the samples are lost.
        clean: As one exporter with every counter would write all of it.
        held: Cards held in each minute.
        hours: GPU hours held, by how: `whole`, `mig`, `shared`, `dark`.
        kwh: Of cards while they are held.
    """

    random: np.random.Generator
    rows: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    clean: list[dict[str, object]] = field(default_factory=list[dict[str, object]])
    held: Floats = field(default_factory=lambda: np.zeros(MINUTES))
    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    kwh: float = 0.0
    _numbers: "count[int]" = field(default_factory=count)

    def card(
        self,
        form: Form = PROFILING,
        *,
        how: str = "whole",
        held_by: Mapping[str, str] | None = None,
        carrier: Mapping[str, str] | None = None,
        parts: Sequence[Mapping[str, str]] = (NO_LABELS,),
        wrong: float = 0.0,
    ) -> None:
        """A card with one job after the other, of two hours and a half in the mean.

        Args:
            form: What is written of it.
            how: It is held, as `hours` counts it.
            held_by: Labels of a job, with its number for {}; None: those of a pod.
            carrier: Labels that are there also between jobs.
            parts: Labels of each row of a job: of instances, or of the pods that share the card.
            wrong: Part of the samples that no card can show.
        """
        number, model = next(self._numbers), MI300X if form is AMD else H200
        card = {"UUID": f"GPU-{number:04}", "modelName": model, "Hostname": f"n{number // 4}"}
        told = card
        if form is AMD:
            told = {"serial_number": f"69{number:04}", "card_series": model, "hostname": "amd"}
        seen = {name: np.full(MINUTES, value) for name, value in FREE.items()}
        spans, at = list[tuple[int, int, dict[str, str], dict[str, str]]](), 0
        while (begin := at + int(self.random.exponential(20))) < MINUTES - 30:
            end = min(MINUTES, begin + max(30, int(self.random.exponential(150))))
            job = str(self.random.choice(sorted({job for _, job in profiles()})))
            for name, value in counters(job).items():
                seen[name][begin:end] = value
            pod = {"namespace": "team", "pod": f"{job}-{next(self._numbers)}", "container": "main"}
            labels = {n: text.format(next(self._numbers)) for n, text in (held_by or pod).items()}
            spans += [(at, begin, {}, {}), (begin, end, labels, pod)]
            self.held[begin:end] += 1
            self.hours[how] += (end - begin) / 60
            self.kwh += float(seen["power"][begin:end].sum()) / 60_000
            at = end
        seen["total"] = np.full(MINUTES, 143_771.0)
        seen["free"] = seen["total"] - seen["used"]
        seen["energy"] = np.cumsum(STEP_S * seen["power"])
        for begin, end, labels, pod in (*spans, (at, MINUTES, {}, {})):
            for part in parts if labels else (NO_LABELS,):
                own = {name: labels.get(name, "") + text for name, text in part.items()}
                row = {**told, **(carrier or {}), **labels, **own}
                self.rows += self._rows(row, seen, form, (begin, end), wrong)
                plain = {name: pod.get(name, "") + text for name, text in part.items()}
                self.clean += self._rows({**card, **pod, **plain}, seen, PROFILING, (begin, end))

    def _rows(
        self,
        labels: Mapping[str, str],
        seen: Mapping[str, Floats],
        form: Form,
        span: tuple[int, int],
        wrong: float | None = None,
    ) -> list[dict[str, object]]:
        found = list[dict[str, object]]()
        for counter, (name, factor) in form.items():
            minutes = np.arange(*span)
            values, kept = seen[counter][slice(*span)], np.ones(len(minutes), dtype=bool)
            if wrong is not None:
                values = self._noisy(counter, values, wrong)
                kept = self.random.random(len(values)) > 0.02
            times = BEGIN_S + STEP_S * (minutes + 1)
            at = [[t, f"{v * factor:.9g}"] for t, v in zip(times[kept], values[kept], strict=True)]
            found.append({"metric": {**labels, "__name__": name}, "values": at})
        return found

    def _noisy(self, counter: str, values: Floats, wrong: float) -> Floats:
        if counter not in ("used", "free", "total", "energy"):
            values = values * self.random.normal(1, 0.03, len(values))
        if counter in ("sm", "busy", "dram"):
            values = np.minimum(values, 100.0)
        is_wrong = self.random.random(len(values)) < wrong * (counter in WRONG)
        return np.where(is_wrong, WRONG.get(counter, 0.0) + values * (counter == "energy"), values)


def _slurm(site: Site, number: int) -> None:
    """Workers in Kubernetes; a prolog names the job on two nodes of three, else an exporter.

    Of every second the scrape names the exporter's own pod as well.
    """
    worker = {"namespace": "slurm", "pod": f"worker-{number}", "container": "slurmd"}
    if number % 2:
        worker = {f"exported_{name}": text for name, text in worker.items()}
        worker |= {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-b7x2k"}
    site.card(held_by={"hpc_job" if number % 3 else "slurmjobid": "4{}"}, carrier=worker)


def _mig(site: Site, number: int) -> None:
    instances = [{"GPU_I_ID": str(n), "pod": f"-{n}"} for n in (7, 8)]
    site.card(how="whole" if number % 4 else "mig", parts=(NO_LABELS,) if number % 4 else instances)


def _time_sliced(site: Site, number: int) -> None:
    pods = [{"pod": f"-{n}"} for n in (1, 2)]
    site.card(how="whole" if number % 4 else "shared", parts=(NO_LABELS,) if number % 4 else pods)


SITES: Mapping[str, Callable[[Site, int], None]] = {
    "mixed counters": lambda site, n: site.card(PROFILING if n % 2 else DEFAULT),
    "MIG beside whole": _mig,
    "time slicing": _time_sliced,
    "Slurm in Kubernetes": _slurm,
    "AMD beside NVIDIA": lambda site, n: site.card(PROFILING if n % 2 else AMD),
    "impossible samples": lambda site, n: site.card(BY_ENERGY if n % 3 else DEFAULT, wrong=0.01),
    "half without power": lambda site, n: (
        site.card(NO_POWER, how="dark") if n % 2 else site.card(PROFILING)
    ),
}
"""Each adds a card by its number."""


def known_site(name: str, seed: int, cards: int = 12) -> Site:
    """One of `SITES`."""
    site = Site(np.random.default_rng(seed))
    for number in range(cards):
        SITES[name](site, number)
    return site


def audited(
    folder: Path,
    series: Iterable[Rows],
    *,
    job_label: str | None = None,
    within: str = "namespace",
    known: Mapping[tuple[str, str], Profile] | None = None,
) -> Audit:
    """Of a file of series; its pages and itself lie in the folder."""
    file, pages = folder / "series.jsonl", folder / "pages"
    pages.mkdir(parents=True)
    file.write_text("".join(json.dumps(one) + "\n" for of_gpu in series for one in of_gpu))
    source = SeriesFile(file, step_s=STEP_S, families=families_of(job_label))
    wanted = Wanted(head=bundled_head(), within=within, profiles=known or {})
    return audit(source, pages, wanted, lambda _what, _done, _of: None)[0]
