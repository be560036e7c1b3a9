"""A made week as exporters would have written it.

With gaps, restarts, late and renamed labels, clocks that are off, and NaN.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import numpy as np
from week import CHANNELS, MINUTE_S, MODEL, OF_NODE, PERCENTS, Part, TrueJob, Week, gpu_name, means

from advisor.predict.sets import active_idle_w
from advisor_audit.sources.series import METRICS, POWER, USED, Owner, Series


class Written:
    """The week as exporters write it, a few hours at a time."""

    metrics: Mapping[str, tuple[str, float]] = {
        **{channel: next(iter(METRICS[channel].items())) for channel in CHANNELS},
        POWER: ("DCGM_FI_DEV_POWER_USAGE", 1.0),
    }
    """Of each channel that is collected its name, and the factor to its unit."""

    def __init__(self, week: Week, begin_s: float, seed: int = 1) -> None:
        """Minute 0 is at `begin_s`, Unix time."""
        random, nodes = np.random.default_rng(seed), -(-week.gpus // OF_NODE)
        self.week, self.begin_s, self.seed = week, begin_s, seed
        self._skew_s = [150, -200, *random.uniform(-25, 25, nodes)[2:]]
        self._gaps = [_gaps(week.minutes, random) for _ in range(nodes)]
        names = [job.owner.name for job in week.jobs]
        # Labels of pods that come some minutes late.
        self._late = {n: int(random.integers(1, 4)) for n in names if random.random() < 0.05}

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
        minutes, who = np.arange(begin, end), np.full(end - begin, -1)
        table = np.repeat(_column({POWER: 70.0, USED: 4.0, "sm_clock_mhz": 345.0}), len(who), 1)
        jobs = [j for j in self.week.jobs if j.gpu == gpu and j.begin < end and j.end > begin]
        for number, job in enumerate(jobs):
            for part in job.parts:
                a, b = max(part.begin, begin), min(part.end, end)
                if a < b:
                    table[:, a - begin : b - begin] = self._values(job, part, a, b)
                    who[a - begin : b - begin] = number
            # Now and then the kubelet does not answer for a minute or two.
            lost = begin + int(random.integers(0, 8 * len(minutes)))
            unnamed = minutes < job.begin + self._late.get(job.owner.name, 0)
            who[(who == number) & (unnamed | (minutes == lost))] = -1
        table *= random.normal(1, 0.03, table.shape).clip(0.8, 1.2)
        seen = np.ones(len(minutes), dtype=bool)
        for a, b in self._gaps[gpu // OF_NODE]:
            seen &= (minutes < a) | (minutes >= b)
        later = minutes >= self.week.minutes * 4 // 7
        for (number, owner), renamed in product(
            [(-1, None), *enumerate(j.owner for j in jobs)], (False, True)
        ):
            when = seen & (who == number) & (later == renamed)
            if when.any():
                yield _labels(gpu, owner, later=renamed), minutes[when], table[:, when]

    def _values(self, job: TrueJob, part: Part, begin: int, end: int) -> np.ndarray:
        profile = self.week.profiles[part.kind or job.app]
        column = _column(means(profile, waits=part.kind is None))
        if part.kind is None or job.load is None:
            return column
        load, idle_w = job.load[begin - job.begin : end - job.begin], active_idle_w(profile)
        rows = column * load
        rows[0] = idle_w + (column[0] - idle_w) * load
        rows[1], rows[-1] = column[1], column[-1]
        of_percents = [channel in PERCENTS for channel in CHANNELS]
        rows[of_percents] = np.minimum(rows[of_percents], 100.0)
        return rows


def _column(found: Mapping[str, float]) -> np.ndarray:
    return np.array([found.get(channel, 0.0) for channel in CHANNELS])[:, None]


def _labels(gpu: int, owner: Owner | None, *, later: bool) -> dict[str, str]:
    """From the fourth day on one half of the nodes is scraped without `honor_labels`."""
    node, of_node = divmod(gpu, OF_NODE)
    labels = {"gpu": str(of_node), "UUID": gpu_name(gpu)}
    labels |= {"modelName": MODEL, "Hostname": f"node{node}"}
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
