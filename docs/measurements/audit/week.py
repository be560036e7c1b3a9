"""A week of a cluster whose jobs are known.

Jobs are recorded profiles (`data/advisor_data/bundled`). Half of the namespaces run a mix, in the
others the jobs of a measured set run at the same time. What is true is known by the minute;
`written.py` is what exporters make of it.
"""

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from advisor.core.records import PairPoint
from advisor.predict.profiles import Profile, make_profiles, relative_capacity
from advisor.predict.sets import active_idle_w
from advisor_audit.phases import Segment
from advisor_audit.sources.series import POWER, USED, Owner
from advisor_data.bundled import bundled_set_points, bundled_set_references, bundled_solo_points

MODEL = "NVIDIA H100 80GB HBM3"
MINUTE_S, DAY = 60.0, 24 * 60
LEVELS = 4
"""Of what is asked of a server, for each 1, in what is true."""

OF_NODE = 8

POD_LETTERS = [*"bcdfghjklmnpqrstvwxz2456789"]

CHANNELS = (
    *(POWER, USED, "sm_active_percent", "gpu_busy_percent", "dram_active_percent"),
    *("memory_busy_percent", "pcie_tx_mib_per_s", "pcie_rx_mib_per_s", "sm_clock_mhz"),
)
PERCENTS = {name for name in CHANNELS if name.endswith("_percent")}


class Part(NamedTuple):
    """A stretch of a job: its minutes, and the profile that it runs by; none: it waits."""

    begin: int
    end: int
    kind: str | None


@dataclass(slots=True)
class TrueJob:
    """One pod, on one GPU.

    Attributes:
        load: Of a server, what is asked of it minute by minute, 1 for its profile.
    """

    owner: Owner
    app: str
    gpu: int
    parts: list[Part]
    load: np.ndarray | None = None

    @property
    def begin(self) -> int:
        """First minute."""
        return self.parts[0].begin

    @property
    def end(self) -> int:
        """Minute after the last."""
        return self.parts[-1].end


@dataclass(frozen=True, slots=True)
class Week:
    """What is true."""

    gpus: int
    minutes: int
    profiles: Mapping[str, Profile]
    jobs: list[TrueJob]

    def segments(self) -> Iterator[Segment]:
        """What an audit would find if nothing was lost, each job under the name of its profile."""
        for job in self.jobs:
            for name, profile, (begin, end, kind) in self._stretches(job):
                pod = job.owner.name.removeprefix(f"app-{job.app}")
                yield Segment(
                    gpu=gpu_name(job.gpu),
                    model=MODEL,
                    host=f"node{job.gpu // OF_NODE}",
                    owner=Owner(job.owner.group, f"{name}{pod}", "main"),
                    state="busy" if kind else "paused",
                    phase=0,
                    begin_s=begin * MINUTE_S,
                    end_s=end * MINUTE_S,
                    seen_s=(end - begin) * MINUTE_S,
                    means=means(profile, waits=kind is None),
                    spread=0.0,
                )

    def _stretches(self, job: TrueJob) -> Iterator[tuple[str, Profile, Part]]:
        """Name, profile and minutes; of servers by the load of each hour."""
        for part in job.parts:
            name = part.kind or job.app
            if job.load is None:
                yield name, self.profiles[name], part
                continue
            for begin in range(part.begin, part.end, 60):
                end = min(begin + 60, part.end)
                asked = job.load[begin - job.begin : end - job.begin].mean()
                level = max(round(asked * LEVELS), 1) / LEVELS
                loaded = at_load(self.profiles[name], level)
                yield f"{name}@{level}", loaded, Part(begin, end, part.kind)

    def known(self) -> dict[str, Profile]:
        """All profiles by the names of `segments`."""
        servers = ((name, p) for name, p in self.profiles.items() if p.serving)
        levels = [n / LEVELS for n in range(1, 4 * LEVELS)]
        loads = {f"{name}@{n}": at_load(p, n) for (name, p), n in product(servers, levels)}
        return {**self.profiles, **loads}


@functools.cache
def at_load(profile: Profile, level: float) -> Profile:
    """Of a server, with so much asked of it for each 1: what it has room for at each share."""
    assert profile.serving
    most = profile.whole_gpu_rate * relative_capacity(profile, profile.shares)
    rate = np.minimum(level * profile.whole_gpu_rate, most)
    part = rate / profile.values["rate"]
    idle_w = active_idle_w(profile)
    own = profile.values
    values = {n: np.minimum(part * v, 100.0) if n in PERCENTS else part * v for n, v in own.items()}
    values |= {"rate": rate, "sm_clock_mhz": own["sm_clock_mhz"]}
    values["power_w"] = idle_w + part * (own["power_w"] - idle_w)
    offered = level * (profile.serving.offered_rate or profile.whole_gpu_rate)
    return replace(profile, values=values, serving=replace(profile.serving, offered_rate=offered))


def gpu_name(gpu: int) -> str:
    """Its UUID."""
    return f"GPU-{gpu:08x}-0000-4000-8000-{gpu:012x}"


def profiles() -> dict[str, Profile]:
    """Of all jobs that were measured alone on this GPU model, by name."""
    points = [*bundled_solo_points(), *bundled_set_references()]
    return {job: p for (job, model), p in make_profiles(points).items() if model == MODEL}


def means(profile: Profile, *, waits: bool = False) -> dict[str, float]:
    """What a window on the whole GPU shows."""
    at = {name: float(values[-1]) for name, values in profile.values.items()}
    sm = at["sm_active_percent"]
    found = {POWER: at["power_w"], USED: profile.memory_used_mib or 1000.0, "sm_active_percent": sm}
    found |= {"gpu_busy_percent": min(100.0, 1.3 * sm)} | {name: at[name] for name in CHANNELS[4:]}
    if waits:
        found |= {name: 0.0 for name in CHANNELS if name.endswith(("_percent", "_per_s"))}
        found[POWER] = active_idle_w(profile)
    return {name: value for name, value in found.items() if not np.isnan(value)}


def make_week(
    gpus: int, days: int, seed: int, jobs: Collection[str] = (), *, steady: bool = False
) -> Week:
    """A cluster of so many GPUs: half of them for a mix, half for measured sets; of these jobs.

    Where it is steady, what is asked of servers stays as it is.
    """
    random = np.random.default_rng(seed)
    known = {name: p for name, p in profiles().items() if name in jobs or not jobs}
    week = Week(gpus, days * DAY, known, [])
    of_sets = [
        point
        for point in bundled_set_points()
        if (point.gpu_model, point.mode) == (MODEL, "uncapped")
        and len(point.parts) > 2
        and all(part.job in known for part in point.parts)
    ]
    free, left = iter(range(gpus)), gpus
    for number, place in enumerate(map(int, random.permutation(len(of_sets)))):
        point = of_sets[place]
        if left - len(point.parts) < gpus // 2:
            break
        left -= len(point.parts)
        _of_set(week, f"set-{number:02d}", point, free, random)
    kinds, number = sorted(known), 0
    while left > 0:
        size = min(left, int(random.integers(6, 15)))
        own = [str(name) for name in random.choice(kinds, min(5, len(kinds)), replace=False)]
        for _ in range(size):
            _of_mix(week, f"team-{number:02d}", own, next(free), random)
        left, number = left - size, number + 1
    for n, job in enumerate(week.jobs):
        if known[job.app].serving and not steady:
            job.load = _demand(job.end - job.begin, np.random.default_rng((seed, n)))
    return week


def _of_set(
    week: Week, group: str, point: PairPoint, free: Iterator[int], random: np.random.Generator
) -> None:
    """Its jobs run for most of the week, from and to hours of their own, with one restart."""
    for part in point.parts:
        begin, end = random.integers(0, DAY), week.minutes - random.integers(0, DAY)
        middle = int(random.integers(begin + 60, end - 60))
        gpu = next(free)
        for a, b in ((int(begin), middle), (middle + int(random.integers(2, 30)), int(end))):
            owner = Owner(group, _pod(part.job, random), "main")
            week.jobs.append(TrueJob(owner, part.job, gpu, [Part(a, b, part.job)]))


def _of_mix(
    week: Week, group: str, kinds: Sequence[str], gpu: int, random: np.random.Generator
) -> None:
    """One job after the other; some wait for a while, some change what they do."""
    at = int(random.exponential(60))
    while at < week.minutes - 10:
        kind = str(random.choice(kinds))
        serves = week.profiles[kind].serving is not None
        median = 2 * DAY if serves else 100
        length = int(np.clip(float(random.lognormal(math.log(median), 1.2)), 5, 4 * DAY))
        end = min(at + length, week.minutes)
        parts, chance = [Part(at, end, kind)], random.random()
        if not serves and length > 90 and chance < 0.4:
            a = at + int(length * random.uniform(0.2, 0.6))
            b = min(end - 10, a + int(random.uniform(20, 90)))
            if chance < 0.2 and b > a:
                parts = [Part(at, a, kind), Part(a, b, None), Part(b, end, kind)]
            elif b > a:
                other = str(random.choice([k for k in kinds if not week.profiles[k].serving]))
                parts = [Part(at, a, kind), Part(a, end, other)]
        week.jobs.append(TrueJob(Owner(group, _pod(kind, random), "main"), kind, gpu, parts))
        at = end + 1 + int(random.exponential(20))


def _pod(app: str, random: np.random.Generator) -> str:
    first, last = ("".join(random.choice(POD_LETTERS, n)) for n in (9, 5))
    return f"app-{app}-{first}-{last}"


def _demand(minutes: int, random: np.random.Generator) -> np.ndarray:
    """Of a server: by the hour of the day, and by chance; 1 in the mean."""
    wave = 1 + 0.5 * np.sin(2 * np.pi * np.arange(minutes) / DAY + random.uniform(0, 6))
    found = wave * random.lognormal(0, 0.35, minutes)
    return found / max(found.mean(), 1e-9)
