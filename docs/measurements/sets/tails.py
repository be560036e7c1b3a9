"""How long the tails of servers are beside other jobs under MPS: the law, and what it is off by.

    python docs/measurements/sets/tails.py [RUN ...] [--gpu-model H200]

Of every window of a set, and of bundled ones of pairs, that has the p99
of a server: that over its p99 alone at its limit, the median of these or for pairs of
the profile. It prints the constants of `advisor.predict.sets` as they stand there. In the table
each server is predicted by the others, and every server counts the same, in sets and in pairs. A
cell has how many of a hundred windows are within a factor of 1.5, the mean factor that all are off
by, and how many there are. "Met": nine tenths of the demand or more; where less is served the queue
ends with the window. Last, by class, the 5th, 50th and 95th percentile of measured over predicted.
"""

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from fitting import active
from law import percentiles
from rows import Row, measured_rows

from advisor.predict.profiles import Floats, computes_in_bursts, make_profiles
from advisor.predict.sets import TAILS, SetClass, Tails, class_of, filling_beside, fills
from advisor_data.bundled import bundled_pair_points, bundled_solo_points, select

LAWS = tuple(
    Tails(*constants)
    for constants in itertools.product(
        [crowd / 4 for crowd in range(2, 13)],
        [waiting / 4 for waiting in range(17)],
        (12.0, 24.0),
        (3.0, 6.0, 12.0, 24.0, 48.0),
    )
)
MET = 0.9


@dataclass(frozen=True, slots=True)
class Tail:
    """A server in one window: its place among jobs with these activities, (jobs, 1) each.

    Attributes:
        longer: p99 for each 1 ms alone.
        is_met: Whether it served its demand.
        in_bursts: 1 for jobs that compute in bursts.
        jobs: Their names.
    """

    server: str
    source: str
    mode: str
    longer: float
    is_met: bool
    place: int
    sm: Floats
    fills: Floats
    in_bursts: Floats
    alone_ms: float
    jobs: tuple[str, ...]

    @property
    def of_class(self) -> SetClass:
        filling = float(filling_beside(self.sm, self.fills)[self.place, 0])
        return class_of("time-sliced" if self.mode == "time-sliced" else "uncapped", filling)

    @property
    def pulses(self) -> bool:
        """A job beside it computes in bursts; it does not itself."""
        return bool(self.in_bursts.any())

    @property
    def neighbours(self) -> int:
        """That count for its class."""
        return len(self.sm) - 1 if self.of_class == "no filling" else 1


Fit = Callable[[Sequence[Tail]], Callable[[Tail], float]]


def main() -> None:
    """Print constants and errors."""
    tails = [*of_sets(measured_rows(__doc__)), *of_pairs()]
    mps = under_mps(tails)
    law, by_others = fitted(mps)
    print("TAILS =", law)
    said = {
        "as long as alone": [1.0] * len(mps),
        "the median of its class": left_out(mps, medians),
        "the law": by_others,
        "the law as it stands": list(map(by(TAILS), mps)),
    }
    print(f"\n| p99 under MPS | {' | '.join(CUTS)} |")
    print(f"|---|{'--:|' * len(CUTS)}")
    for name, longer in said.items():
        offs = [
            (tail, math.log(tail.longer / value)) for tail, value in zip(mps, longer, strict=True)
        ]
        cells = (_cell([off for tail, off in offs if cut(tail)]) for cut in CUTS.values())
        print(f"| {name} | {' | '.join(cells)} |")
    by_bursts(mps, by_others)
    for name, (low, middle, high, windows) in errors(tails, said["the law"]).items():
        print(f"P99_ERRORS, {name}: {low:.2f} {middle:.2f} {high:.2f} ({windows} windows)")


def by_bursts(mps: Sequence[Tail], by_others: Sequence[float]) -> None:
    """Of servers of sets whose demand is met, beside jobs that compute in bursts, by both."""
    nearest = nearest_of(mps)
    without = left_out(mps, lambda free: by(replace(nearest(free), burst_ms=1e-9)))
    offs: dict[tuple[bool, str], list[tuple[float, float]]] = defaultdict(list)
    for tail, one, other in zip(mps, without, by_others, strict=True):
        if _is_calm(tail) and tail.pulses:
            off = math.log(tail.longer / one), math.log(tail.longer / other)
            bursts = {n for n, found in zip(tail.jobs, tail.in_bursts, strict=True) if found}
            for key in [(False, name) for name in bursts] + [(True, tail.server)]:
                offs[key].append(off)
    print("\n| beside, then of | as if they did not | the law |\n|---|--:|--:|")
    for (_, name), found in sorted(offs.items()):
        print(f"| {name} | {' | '.join(_cell(column) for column in zip(*found, strict=True))} |")


def under_mps(tails: Iterable[Tail]) -> list[Tail]:
    """Windows that the law is of."""
    return [tail for tail in tails if tail.mode != "time-sliced"]


def fitted(mps: Sequence[Tail]) -> tuple[Tails, list[float]]:
    """The law of windows under MPS, and what it says of each by those of other servers."""
    nearest = nearest_of(mps)
    return nearest(mps), left_out(mps, lambda free: by(nearest(free)))


def errors(
    tails: Sequence[Tail], said: Sequence[float]
) -> dict[SetClass, tuple[float, float, float, int]]:
    """Three percentiles of each class, and how many windows it has.

    Of the p99 over what is said of windows under MPS; in turns over that alone.
    """
    classes: dict[SetClass, list[float]] = defaultdict(list)
    for tail, value in zip(under_mps(tails), said, strict=True):
        classes[tail.of_class].append(tail.longer / value)
    for tail in tails:
        if tail.mode == "time-sliced":
            classes[tail.of_class].append(tail.longer)
    return {name: (*percentiles(values), len(values)) for name, values in classes.items()}


CUTS: Mapping[str, Callable[[Tail], bool]] = {
    "sets, no limits": lambda tail: tail.source == "sets" and tail.mode == "uncapped",
    "sets, one limit": lambda tail: tail.source == "sets" and tail.mode == "limits",
    "pairs, no limits": lambda tail: tail.source == "pairs" and tail.mode == "uncapped",
    "pairs, limits": lambda tail: tail.source == "pairs" and tail.mode == "limits",
    "all": lambda tail: True,
    "all, demand met": lambda tail: tail.is_met,
    "sets, met, none fills or pulses": lambda tail: _is_calm(tail) and not tail.pulses,
    "sets, met, none fills, one pulses": lambda tail: _is_calm(tail) and tail.pulses,
}


def _is_calm(tail: Tail) -> bool:
    """A server of a set that serves its demand beside jobs of which none fills the GPU."""
    return tail.source == "sets" and tail.is_met and tail.of_class == "no filling"


def _cell(offs: Sequence[float]) -> str:
    if not offs:
        return ""
    near = 100 * statistics.fmean(abs(off) < math.log(1.5) for off in offs)
    return f"{near:.0f}, {math.exp(statistics.fmean(map(abs, offs))):.2f} ({len(offs)})"


# rules


def by(law: Tails) -> Callable[[Tail], float]:
    """What a law says of windows."""
    return lambda tail: float(_longer(law, tail)[0])


def nearest_of(tails: Sequence[Tail]) -> Callable[[Sequence[Tail]], Tails]:
    """What finds the law that errs least on some of the windows."""
    all_laws = Tails(*np.array([astuple(law) for law in LAWS]).T)
    offs = {id(tail): np.abs(np.log(_longer(all_laws, tail) / tail.longer)) for tail in tails}

    def nearest(some: Sequence[Tail]) -> Tails:
        counts = Counter((tail.server, tail.source) for tail in some)
        sums = sum(offs[id(tail)] / counts[tail.server, tail.source] for tail in some)
        return LAWS[int(np.argmin(sums))]

    return nearest


def _longer(law: Tails, tail: Tail) -> Floats:
    return law.longer(tail.sm, tail.fills, tail.in_bursts, np.array(tail.alone_ms))[tail.place]


def medians(free: Sequence[Tail]) -> Callable[[Tail], float]:
    """The median of each class; where no job beside fills the GPU, of each neighbour."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for tail in free:
        ratios[tail.of_class].append(tail.longer / tail.neighbours)
    found = {name: statistics.median(own) for name, own in ratios.items()}
    return lambda tail: tail.neighbours * found.get(tail.of_class, 1.0)


def left_out(tails: Sequence[Tail], fit: Fit) -> list[float]:
    """What each server's windows are said to be by those of the others."""
    rules = {
        server: fit([tail for tail in tails if tail.server != server])
        for server in {tail.server for tail in tails}
    }
    return [rules[tail.server](tail) for tail in tails]


# windows


def of_sets(rows: Sequence[Row]) -> Iterator[Tail]:
    """Of measured sets."""
    alone: dict[tuple[str, float, bool], list[float]] = defaultdict(list)
    seen = [(row, n, part) for row in rows for n, part in enumerate(row.parts)]
    windows = {(id(part.alone), row.mode == "time-sliced"): part.alone for row, _, part in seen}
    for (_, in_turns), point in windows.items():
        if point.latency_p99_ms:
            alone[point.job, point.share_percent, in_turns].append(point.latency_p99_ms)
    for row, n, part in seen:
        where = (part.whole.job, part.alone.share_percent, row.mode == "time-sliced")
        if part.p99_ms and where in alone:
            alone_ms = statistics.median(alone[where])
            yield Tail(
                server=part.whole.job,
                source="sets",
                mode=row.mode,
                longer=part.p99_ms / alone_ms,
                is_met=part.speed >= MET,
                place=n,
                sm=active(row),
                fills=row.column(lambda p: p.fills),
                in_bursts=row.column(lambda p: computes_in_bursts(p.whole)),
                alone_ms=alone_ms,
                jobs=tuple(p.whole.job for p in row.parts),
            )


def of_pairs() -> Iterator[Tail]:
    """Of bundled pairs, by bundled profiles."""
    profiles = make_profiles(bundled_solo_points())
    for point in select(bundled_pair_points()).points:
        jobs = [profiles.get((part.job, point.gpu_model)) for part in point.parts]
        seats = [(job, part) for job, part in zip(jobs, point.parts, strict=True) if job]
        if len(seats) < len(jobs) or any(p.share_percent < job.shares[0] for job, p in seats):
            continue
        sm = np.array([job.at([p.share_percent])["sm_active_percent"] for job, p in seats]) / 100
        filling = np.array([[float(fills(job))] for job, _ in seats])
        bursts = np.array([[float(job.in_bursts)] for job, _ in seats])
        mode = "limits" if point.mode == "mps" else point.mode
        for n, (job, part) in enumerate(seats):
            alone_ms = job.serving and job.serving.p99_alone_ms(part.share_percent)
            if part.latency_p99_ms and part.offered_rate and alone_ms and not np.isnan(sm).any():
                yield Tail(
                    server=part.job,
                    source="pairs",
                    mode=mode,
                    longer=part.latency_p99_ms / alone_ms,
                    is_met=(part.rate or 0) / part.offered_rate >= MET,
                    place=n,
                    sm=sm,
                    fills=filling,
                    in_bursts=bursts,
                    alone_ms=alone_ms,
                    jobs=tuple(p.job for p in point.parts),
                )


if __name__ == "__main__":
    main()
