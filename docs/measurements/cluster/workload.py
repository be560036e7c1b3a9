"""Jobs of single GPUs that arrive over some days, drawn from what is published of real clusters.

Run times are log-normal. `PHILLY` goes through the median and the 90th percentile of the 83,154 run
times of the Philly trace (Jeon et al., USENIX ATC 2019) that
github.com/alibaba/clusterdata has in cluster-trace-gpu-v2020/analysis/philly_runtime.csv: 19.8 and
214.3 minutes. `HELIOS` has the mean and the median of the 1,580,464 GPU jobs of Helios (Hu et al.,
SC 2021), 6,651.7 and 206 s, in helios_cluster_summary.csv of
github.com/S-Lab-System-Group/HeliosArtifact. Both were measured on jobs of one GPU and of more.

Arrivals are a Poisson process with a daily wave. In figure "Diurnal pattern of the clusters in
Helios" of the same repository GPU jobs per hour on Saturn go from about 85 at 7 h to about 240 at
16 h: `WAVE` and `PEAK_H`.

Assumed, without a source: `LONGEST_S`, `SHORTEST_S`, `KINDS_OF_A_USER`, users whose number of jobs
falls with their rank (`ZIPF`), and that each kind of job is as likely as any other.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

HOUR_S, DAY_S = 3600.0, 86400.0

WAVE, PEAK_H = 0.48, 16.0
LONGEST_S, SHORTEST_S = DAY_S, 60.0
KINDS_OF_A_USER = 3
ZIPF = 1.0
GPUS_OF_A_USER = 8
"""So many GPUs are there for each user."""

_P90 = 1.2816
"""Standard deviations from the median to the 90th percentile of a normal distribution."""


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Log-normal run times: the median, and the standard deviation of the logarithm."""

    median_s: float
    sigma: float

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Seconds alone on the whole GPU, within `SHORTEST_S` and `LONGEST_S`; shape (count,)."""
        drawn = self.median_s * np.exp(rng.normal(0.0, self.sigma, count))
        return np.clip(drawn, SHORTEST_S, LONGEST_S)

    @property
    def mean_s(self) -> float:
        """Within the bounds: of 200,000 that are always the same."""
        return float(self.draw(np.random.default_rng(0), 200_000).mean())


def log_normal(median_s: float, p90_s: float) -> RunTimes:
    """Through the median and the 90th percentile."""
    return RunTimes(median_s, math.log(p90_s / median_s) / _P90)


PHILLY = log_normal(19.77 * 60, 214.32 * 60)
AN_HOUR = RunTimes(HOUR_S, 0.0)
HELIOS = RunTimes(206.0, math.sqrt(2 * math.log(6651.681 / 206.0)))


@dataclass(frozen=True, slots=True)
class Job:
    """One job of one GPU.

    Attributes:
        number: In the order of arrival.
        kind: Name of the profiled job that it is.
        work_s: Seconds that it takes alone on the whole GPU.
    """

    number: int
    user: str
    kind: str
    gpu_model: str
    arrival_s: float
    work_s: float


def draw_jobs(
    kinds: Mapping[str, Sequence[str]],
    gpus: Mapping[str, int],
    load: float,
    days: float,
    seed: int,
    run_times: RunTimes = PHILLY,
    likely: Mapping[str, float] | None = None,
) -> list[Job]:
    """All jobs of all GPU models, by their arrival.

    Args:
        kinds: Kinds of jobs by GPU model.
        gpus: How many GPUs there are of each model.
        load: Work that arrives, for each one that all GPUs do one job at a time.
        days: How long jobs arrive.
        seed: The same one gives the same jobs.
        run_times: How long they take alone.
        likely: How likely each kind is; None: all as likely.
    """
    rows: list[tuple[float, str, str, str, float]] = []
    for n, (model, count) in enumerate(sorted(gpus.items())):
        rng = np.random.default_rng([seed, n])
        arrivals_s = _arrivals(rng, load * count / run_times.mean_s, days * DAY_S)
        users = _users(rng, kinds[model], max(2, count // GPUS_OF_A_USER), likely)
        weights = np.arange(1, len(users) + 1) ** -ZIPF
        theirs: list[int] = rng.choice(
            len(users), len(arrivals_s), p=weights / weights.sum()
        ).tolist()
        picks: list[int] = rng.integers(0, KINDS_OF_A_USER, len(arrivals_s)).tolist()
        works_s: list[float] = run_times.draw(rng, len(arrivals_s)).tolist()
        for at, user, pick, work_s in zip(arrivals_s, theirs, picks, works_s, strict=True):
            rows.append((at, model, f"{model} user {user}", users[user][pick], work_s))
    rows.sort()
    return [Job(n, user, kind, model, at, w) for n, (at, model, user, kind, w) in enumerate(rows)]


def _arrivals(rng: np.random.Generator, per_s: float, until_s: float) -> list[float]:
    """A Poisson process with a daily wave: drawn at its highest rate, and thinned."""
    most = per_s * (1 + WAVE)
    drawn = np.sort(rng.uniform(0, until_s, rng.poisson(most * until_s)))
    phase = 2 * math.pi * (drawn / HOUR_S - PEAK_H) / 24
    keeps = rng.uniform(0, 1 + WAVE, len(drawn)) < 1 + WAVE * np.cos(phase)
    return drawn[keeps].tolist()


def _users(
    rng: np.random.Generator,
    kinds: Sequence[str],
    count: int,
    likely: Mapping[str, float] | None,
) -> list[list[str]]:
    """The kinds of jobs of each user."""
    p = None
    if likely:  # without them other random numbers are drawn than with equal ones
        own = np.array([likely[kind] for kind in kinds])
        p = own / own.sum()
    return [[str(k) for k in rng.choice(kinds, KINDS_OF_A_USER, p=p)] for _ in range(count)]
