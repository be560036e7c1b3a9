"""A week of a cluster whose jobs are known, as series that exporters would have written.

Jobs are recorded profiles (`data/advisor_data/bundled`). Half of the namespaces run a mix, in the
others the jobs of a measured set run at the same time. What is true is known by the minute; what is
written has gaps, restarts, late and renamed labels, clocks that are off, and NaN.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.core.records import PairPoint
from advisor.predict.profiles import Profile, make_profiles, relative_capacity
from advisor.predict.sets import active_idle_w
from advisor_audit.phases import Segment
from advisor_audit.sources.series import METRICS, POWER, USED, Owner, Series
from advisor_data.files.bundled import (
    bundled_set_points,
    bundled_set_references,
    bundled_solo_points,
)

MODEL = "NVIDIA H100 80GB HBM3"
MINUTE_S, DAY = 60.0, 24 * 60
LEVELS = 4
"""Of what is asked of a server, for each 1, in what is true."""

OF_NODE = 8

CHANNELS = (
    *(POWER, USED, "sm_active_percent", "gpu_busy_percent", "dram_active_percent"),
    *("memory_busy_percent", "pcie_tx_mib_per_s", "pcie_rx_mib_per_s", "sm_clock_mhz"),
)


@dataclass(frozen=True, slots=True)
class Part:
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


@dataclass(slots=True)
class Week:
    """What is true.

    Attributes:
        sets: Of the namespaces of measured sets, the measured points.
    """

    gpus: int
    minutes: int
    profiles: Mapping[str, Profile]
    jobs: list[TrueJob] = field(default_factory=list[TrueJob])
    sets: dict[str, PairPoint] = field(default_factory=dict[str, PairPoint])

    def segments(self) -> Iterator[Segment]:
        """What an audit would find if nothing was lost, each job under the name of its profile."""
        for job in self.jobs:
            for name, profile, begin, end, waits in self._stretches(job):
                pod = job.owner.name.removeprefix(f"app-{job.app}")
                yield Segment(
                    gpu=gpu_name(job.gpu),
                    model=MODEL,
                    host=f"node{job.gpu // OF_NODE}",
                    owner=Owner(job.owner.group, f"{name}{pod}", "main"),
                    state="paused" if waits else "busy",
                    phase=0,
                    begin_s=begin * MINUTE_S,
                    end_s=end * MINUTE_S,
                    seen_s=(end - begin) * MINUTE_S,
                    means=means(profile, waits=waits),
                    spread=0.0,
                )

    def _stretches(self, job: TrueJob) -> Iterator[tuple[str, Profile, int, int, bool]]:
        """Name, profile, minutes, and whether it waits; of servers by the load of each hour."""
        for part in job.parts:
            name = part.kind or job.app
            profile = self.profiles[name]
            if job.load is None:
                yield name, profile, part.begin, part.end, part.kind is None
                continue
            for begin in range(part.begin, part.end, 60):
                end = min(begin + 60, part.end)
                asked = job.load[begin - job.begin : end - job.begin].mean()
                level = max(round(asked * LEVELS), 1) / LEVELS
                yield f"{name}@{level}", at_load(profile, level), begin, end, False

    def known(self) -> dict[str, Profile]:
        """All profiles by the names of `segments`."""
        loads = {
            f"{name}@{n / LEVELS}": at_load(p, n / LEVELS)
            for name, p in self.profiles.items()
            if p.serving
            for n in range(1, 4 * LEVELS)
        }
        return {**self.profiles, **loads}


@functools.cache
def at_load(profile: Profile, level: float) -> Profile:
    """Of a server, with so much asked of it for each 1: what it has room for at each share."""
    assert profile.serving
    most = profile.whole_gpu_rate * relative_capacity(profile, profile.shares)
    rate = np.minimum(level * profile.whole_gpu_rate, most)
    part = rate / profile.values["rate"]
    idle_w = active_idle_w(profile)
    values = {
        name: np.minimum(part * v, 100.0) if name.endswith("_percent") else part * v
        for name, v in profile.values.items()
    }
    values |= {
        "rate": rate,
        "sm_clock_mhz": profile.values["sm_clock_mhz"],
        "power_w": idle_w + part * (profile.values["power_w"] - idle_w),
    }
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
    found = {
        POWER: at["power_w"],
        USED: profile.memory_used_mib or 1000.0,
        "sm_active_percent": sm,
        "gpu_busy_percent": min(100.0, 1.3 * sm),
        **{name: at[name] for name in CHANNELS[4:]},
    }
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
    random, known = np.random.default_rng(seed), profiles()
    known = {name: p for name, p in known.items() if name in jobs or not jobs}
    week = Week(gpus, days * DAY, known)
    of_sets = [
        point
        for point in bundled_set_points()
        if point.gpu_model == MODEL
        and point.mode == "uncapped"
        and len(point.parts) > 2
        and all(part.job in known for part in point.parts)
    ]
    free = iter(range(gpus))
    left = gpus
    for number, place in enumerate(random.permutation(len(of_sets))):
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
    week.sets[group] = point
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
        length = int(np.clip(random.lognormal(np.log(median), 1.2), 5, 4 * DAY))
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
    letters = "bcdfghjklmnpqrstvwxz2456789"
    first, last = ("".join(random.choice([*letters], n)) for n in (9, 5))
    return f"app-{app}-{first}-{last}"


@dataclass(slots=True)
class Written:
    """The week as exporters write it, a few hours at a time.

    Attributes:
        begin_s: Unix time of minute 0.
        metrics: Of each channel that is collected its name, and the factor to its unit.
    """

    week: Week
    begin_s: float
    seed: int = 1
    metrics: dict[str, tuple[str, float]] = field(init=False)
    _by_gpu: dict[int, list[TrueJob]] = field(init=False)
    _skew_s: np.ndarray = field(init=False)
    _gaps: list[list[tuple[int, int]]] = field(init=False)
    _late: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        random, week = np.random.default_rng(self.seed), self.week
        self.metrics = {c: next(iter(METRICS[c].items())) for c in CHANNELS}
        self.metrics[POWER] = ("DCGM_FI_DEV_POWER_USAGE", 1.0)
        self._by_gpu = {gpu: [] for gpu in range(week.gpus)}
        for job in week.jobs:
            self._by_gpu[job.gpu].append(job)
        nodes = -(-week.gpus // OF_NODE)
        self._skew_s = random.uniform(-25, 25, nodes)
        self._skew_s[:2] = (150, -200)
        self._gaps = [_gaps(week.minutes, random) for _ in range(nodes)]
        # Labels of pods that come some minutes late.
        self._late = {
            job.owner.name: int(random.integers(1, 4))
            for job in week.jobs
            if random.random() < 0.05
        }

    def lines(self, begin: int, end: int) -> Iterator[str]:
        """OpenMetrics of some minutes, without the last line."""
        for one in self.series(range(self.week.gpus), begin, end):
            labels = ",".join(f'{k}="{v}"' for k, v in one.labels.items() if k != "__name__")
            for t, value in zip(one.times_s, one.values, strict=True):
                yield f"{one.metric}{{{labels}}} {value:.6g} {t:.3f}".replace(" nan ", " NaN ")

    def series(self, gpus: Iterable[int], begin: int, end: int) -> Iterator[Series]:
        """Of some GPUs in some minutes, as they would be read."""
        for gpu in gpus:
            random = np.random.default_rng((self.seed, begin, gpu))
            for labels, minutes, table in self._rows(gpu, begin, end, random):
                seconds = self.begin_s + minutes * MINUTE_S + self._skew_s[gpu // OF_NODE]
                table[random.random(table.shape) < 0.003] = np.nan
                for channel, (name, scale) in self.metrics.items():
                    values = (table[CHANNELS.index(channel)] / scale).tolist()
                    yield Series({"__name__": name, **labels}, seconds.tolist(), values)

    def _rows(
        self, gpu: int, begin: int, end: int, random: np.random.Generator
    ) -> Iterator[tuple[dict[str, str], np.ndarray, np.ndarray]]:
        """Labels, minutes and values of each stretch under one set of labels."""
        minutes = np.arange(begin, end)
        seen = np.ones(len(minutes), dtype=bool)
        for a, b in self._gaps[gpu // OF_NODE]:
            seen &= (minutes < a) | (minutes >= b)
        who = np.full(len(minutes), -1)
        table = np.zeros((len(CHANNELS), len(minutes)))
        idle = {POWER: 70.0, USED: 4.0, "sm_clock_mhz": 345.0}
        table += np.array([idle.get(channel, 0.0) for channel in CHANNELS])[:, None]
        jobs = [j for j in self._by_gpu[gpu] if j.begin < end and j.end > begin]
        for number, job in enumerate(jobs):
            for part in job.parts:
                a, b = max(part.begin, begin) - begin, min(part.end, end) - begin
                if a < b:
                    table[:, a:b] = self._values(job, part, a + begin, b + begin)
                    who[a:b] = number
            named = job.begin + self._late.get(job.owner.name, 0) - begin
            late = (who == number) & (np.arange(len(who)) < named)
            who[late] = -1
            # Now and then the kubelet does not answer for a minute or two.
            lost = int(random.integers(0, 8 * len(minutes)))
            who[(who == number) & (abs(np.arange(len(who)) - lost) < 1)] = -1
        table *= random.normal(1, 0.03, table.shape).clip(0.8, 1.2)
        for number in (-1, *range(len(jobs))):
            own = seen & (who == number)
            if own.any():
                owner = jobs[number].owner if number >= 0 else None
                for renamed in (False, True):
                    when = own & ((minutes >= self.week.minutes * 4 // 7) == renamed)
                    if when.any():
                        yield self._labels(gpu, owner, renamed), minutes[when], table[:, when]

    def _values(self, job: TrueJob, part: Part, begin: int, end: int) -> np.ndarray:
        profile = self.week.profiles[part.kind or job.app]
        found = means(profile, waits=part.kind is None)
        column = np.array([found.get(channel, 0.0) for channel in CHANNELS])[:, None]
        if part.kind and job.load is not None:
            load = job.load[begin - job.begin : end - job.begin]
            idle_w = active_idle_w(profile)
            rows = np.outer(column[:, 0], load)
            rows[0] = idle_w + (column[0] - idle_w) * load
            rows[1], rows[-1] = column[1], column[-1]
            for row, channel in enumerate(CHANNELS):
                if channel.endswith("_percent"):
                    np.minimum(rows[row], 100.0, out=rows[row])
            return rows
        return np.repeat(column, end - begin, axis=1)

    def _labels(self, gpu: int, owner: Owner | None, later: bool) -> dict[str, str]:
        """From the fourth day on one half of the nodes is scraped without `honor_labels`."""
        node = gpu // OF_NODE
        labels = {
            "gpu": str(gpu % OF_NODE),
            "UUID": gpu_name(gpu),
            "modelName": MODEL,
            "Hostname": f"node{node}",
        }
        renamed = later and node % 2 == 0
        if renamed:
            labels |= {"namespace": "gpu-operator", "pod": f"nvidia-dcgm-exporter-{node:05d}"}
        if owner:
            names = {"namespace": owner.group, "pod": owner.name, "container": owner.part}
            labels |= {f"exported_{k}" if renamed else k: v for k, v in names.items()}
        return labels


def _gaps(minutes: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Restarts of the exporter, of a minute or two, and longer times without readings."""
    spans = [*random.integers(1, 4, 3), *random.integers(6, 60, 2)]
    return [
        (int(a), int(a + b)) for a, b in zip(random.integers(0, minutes, 5), spans, strict=True)
    ]


def _demand(minutes: int, random: np.random.Generator) -> np.ndarray:
    """Of a server: by the hour of the day, and by chance; 1 in the mean."""
    wave = 1 + 0.5 * np.sin(2 * np.pi * np.arange(minutes) / DAY + random.uniform(0, 6))
    found = wave * random.lognormal(0, 0.35, minutes)
    return found / max(found.mean(), 1e-9)
