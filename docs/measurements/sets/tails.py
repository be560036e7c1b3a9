"""How long the tails of servers are beside other jobs under MPS: the law, and what it is off by.

    python docs/measurements/sets/tails.py [RUN ...] [--gpu-model H200]

Of every window of a set, and of bundled ones of pairs, that has the p99
of a server: that over its p99 alone at its limit, the median of these or for pairs of
the profile. It prints the constants of `advisor.predict.sets` as they stand there. In the table
each half of the servers is predicted by the other, servers of one network together, and every
server counts the same, in sets and in pairs. A cell has how many of a hundred windows are within a
factor of 1.5, the mean factor that all are off by, and how many there are. "Met": nine tenths of
the demand or more; where less is served the queue ends with the window. Last, by class, the 5th,
50th and 95th percentile of measured over predicted where the law of speeds says that it is met, and
how far towards the last p99s stay with some chances: of all and of each half, and how many windows
of the other half that holds at nine of ten, by the number of jobs.
"""

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np
from fitting import alone
from law import percentiles
from rows import Row, measured_rows, rows_of_pairs

from advisor.decide.limits import CHANCES
from advisor.predict.profiles import Floats, make_profiles
from advisor.predict.sets import CLASSES, OF_SET, TAILS, JobsAlone, SetClass, Tails
from advisor_data.bundled import bundled_solo_points

NO_KERNEL_S = 1.0
"""So long between two that nothing waits for others."""

LAWS = tuple(
    Tails(*constants)
    for constants in itertools.product(
        [crowd / 4 for crowd in range(2, 13)],
        [kernel_us / 1e6 for kernel_us in (4, 6, 8, 10, 12, 15, 25, 1e6 * NO_KERNEL_S)],
        (0.001, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3),
        (3.0, 6.0, 12.0, 24.0, 48.0),
        (0.85,),
    )
)
MET = 0.9

HALF = ("bert", "embedding", "whisper")
"""Networks whose servers are predicted by those of the others, and the others by them."""


@dataclass(frozen=True, slots=True)
class Tail:
    """A server in one window: its place among these jobs, (jobs, 1) each.

    Attributes:
        longer: p99 for each 1 ms alone.
        is_met: Whether it served its demand.
    """

    server: str
    source: str
    mode: str
    longer: float
    is_met: bool
    place: int
    beside: JobsAlone

    @property
    def is_said(self) -> bool:
        """Whether the law of speeds says that its demand is met: others are not offered."""
        could = self.beside.sliced if self.mode == "time-sliced" else self.beside.could
        return float(could[self.place, 0]) >= MET

    @property
    def is_in_half(self) -> bool:
        return self.server.startswith(HALF)

    @property
    def is_apart(self) -> bool:
        return bool(self.beside.apart[0])

    @property
    def waits(self) -> bool:
        """Whether a job that fills the GPU makes kernels beside it, or it does."""
        return not self.is_apart and self.of_class != "none fills"

    @property
    def of_class(self) -> SetClass:
        if self.mode == "time-sliced":
            return "time-sliced"
        return OF_SET[CLASSES[int(self.beside.classes[self.place, 0])]]


def main() -> None:
    """Print constants and errors."""
    rows = measured_rows(__doc__)
    tails, guessed = (windows(rows, is_counted=counted) for counted in (True, False))
    mps = under_mps(tails)
    law, by_others = fitted(mps)
    print("TAILS =", law)
    print("TURN_MS =", turn_ms(tails))
    said = {
        "as long as alone": [1.0] * len(mps),
        "the law": by_others,
        "the law, kernels guessed": fitted(under_mps(guessed))[1],
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
    told = errors([*tails, *guessed], [*by_others, *said["the law, kernels guessed"]])
    for name, (low, middle, high, count) in told.items():
        print(f"P99_ERRORS, {name}: {low:.2f} {middle:.2f} {high:.2f} ({count} windows)")
    halves = {"of all": (True, False), "of one half": (True,), "of the other": (False,)}
    far = weights(mps, by_others)
    for name, half in halves.items():
        told = [weight for tail, weight in far if tail.is_in_half in half]
        print(f"P99_WEIGHTS {name}:", *np.round(np.quantile(told, CHANCES), 2))
    ends = [np.quantile([w for t, w in far if t.is_in_half == half], 0.9) for half in (True, False)]
    for jobs in ((2,), (3, 4), (5, 6, 7)):
        held = [w <= ends[tail.is_in_half] for tail, w in far if len(tail.beside.p99_ms) in jobs]
        print(f"0.9 of the other half holds {np.mean(held):.1%} of {len(held)} at {jobs} jobs")


def under_mps(tails: Iterable[Tail]) -> list[Tail]:
    """Windows that the law is of."""
    return [tail for tail in tails if tail.mode != "time-sliced"]


def fitted(mps: Sequence[Tail]) -> tuple[Tails, list[float]]:
    """The law of windows under MPS, and what those of the other half of servers say of each."""
    nearest = nearest_of(mps)
    rules = [by(nearest([t for t in mps if t.is_in_half != half])) for half in (False, True)]
    return nearest(mps), [rules[tail.is_in_half](tail) for tail in mps]


def turn_ms(tails: Iterable[Tail]) -> float:
    """`TURN_MS` of the smallest error of time-sliced windows."""
    sliced = [tail for tail in tails if tail.mode == "time-sliced" and tail.is_said]

    def off(ms: float) -> float:
        return sum(abs(math.log(t.longer / t.beside.later(ms)[t.place, 0])) for t in sliced)

    return min((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), key=off)


def ratios(
    tails: Sequence[Tail], said: Sequence[float]
) -> dict[SetClass, list[tuple[Tail, float]]]:
    """Of each class p99 over what is said."""
    found: dict[SetClass, list[tuple[Tail, float]]] = defaultdict(list)
    sliced = [(t, t.beside.later()[t.place, 0]) for t in tails if t.mode == "time-sliced"]
    for tail, value in [*zip(under_mps(tails), said, strict=True), *sliced]:
        if tail.is_said:
            found[tail.of_class].append((tail, tail.longer / value))
    return found


def errors(
    tails: Sequence[Tail], said: Sequence[float]
) -> dict[SetClass, tuple[float, float, float, int]]:
    """Three percentiles of each class, and how many windows it has."""
    return {
        name: (*percentiles([ratio for _, ratio in own]), len(own))
        for name, own in ratios(tails, said).items()
    }


def weights(tails: Sequence[Tail], said: Sequence[float]) -> list[tuple[Tail, float]]:
    """How far p99s lie towards the high end of their class, of logarithms."""
    return [
        (tail, math.log(ratio) / math.log(high))
        for own in ratios(tails, said).values()
        for high in [percentiles([ratio for _, ratio in own])[2]]
        for tail, ratio in own
    ]


CUTS: Mapping[str, Callable[[Tail], bool]] = {
    "sets, no limits": lambda tail: tail.source == "sets" and tail.mode == "uncapped",
    "sets, one limit": lambda tail: tail.source == "sets" and tail.mode == "limits",
    "pairs, no limits": lambda tail: tail.source == "pairs" and tail.mode == "uncapped",
    "pairs, limits": lambda tail: tail.source == "pairs" and tail.mode == "limits",
    "all": lambda tail: True,
    "all, demand met": lambda tail: tail.is_met,
    "met, no limits, none fills": lambda tail: _is_free(tail) and tail.of_class == "none fills",
    "met, no limits, one fills": lambda tail: _is_free(tail) and tail.of_class != "none fills",
}


def _is_free(tail: Tail) -> bool:
    """A server that serves its demand without limits."""
    return tail.is_met and tail.mode == "uncapped"


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
    offs = _offs([tail for tail in tails if not tail.is_apart], LAWS)

    def nearest(some: Sequence[Tail]) -> Tails:
        some = [tail for tail in some if tail.is_said]
        counts = Counter((tail.server, tail.source) for tail in some)

        def best(laws: Iterable[int], own: Iterable[Tail]) -> int:
            sums = np.zeros(1)
            for tail in own:
                sums = sums + offs[id(tail)] / counts[tail.server, tail.source]
            return min(laws, key=lambda n: float(sums[n]))

        # Crowds and bursts where nobody waits for long kernels, kernels where somebody does, then
        # the memory where each has SMs of its own.
        free, apart = ([t for t in some if t.is_apart == own] for own in (False, True))
        calm = (n for n, law in enumerate(LAWS) if law.kernel_s == NO_KERNEL_S)
        crowds = LAWS[best(calm, (tail for tail in free if not tail.waits))]
        alike = [(law.crowd, law.burst_ms) == (crowds.crowd, crowds.burst_ms) for law in LAWS]
        law = LAWS[best(np.flatnonzero(alike), (tail for tail in free if tail.waits))]
        laws = [replace(law, memory=part / 20) for part in range(8, 20)]
        offs.update(_offs(apart, laws))
        return laws[best(range(len(laws)), apart)]

    return nearest


def _offs(tails: Sequence[Tail], laws: Sequence[Tails]) -> dict[int, Floats]:
    """What each law is off by, of each window, of logarithms."""
    at_once = Tails(*np.array([astuple(law) for law in laws]).T)
    return {id(tail): np.abs(np.log(_longer(at_once, tail) / tail.longer)) for tail in tails}


def _longer(law: Tails, tail: Tail) -> Floats:
    return law.longer(tail.beside)[tail.place]


# windows


def windows(of_sets: Sequence[Row], *, is_counted: bool = True) -> list[Tail]:
    """Of measured sets, and of bundled pairs, whose tails alone are those of bundled profiles."""
    profiles = make_profiles(bundled_solo_points())
    found = list[Tail]()
    medians_ms = alone_in(of_sets)
    for source, those in (("sets", of_sets), ("pairs", rows_of_pairs())):
        for row, place, part in ((r, n, p) for r in those for n, p in enumerate(r.parts)):
            share = part.alone.share_percent
            profile = profiles.get((part.whole.job, row.gpu_model))
            if source == "sets":
                alone_ms = medians_ms.get((part.whole.job, share, row.mode == "time-sliced"))
            else:
                alone_ms = profile and profile.serving and profile.serving.p99_alone_ms(share)
            if part.p99_ms and part.serves and alone_ms:
                jobs = alone(row, is_counted=is_counted)
                found.append(
                    Tail(
                        server=part.whole.job,
                        source=source,
                        mode=row.mode,
                        longer=part.p99_ms / alone_ms,
                        is_met=part.speed >= MET,
                        place=place,
                        beside=replace(jobs, p99_ms=np.full_like(jobs.p99_ms, alone_ms)),
                    )
                )
    return found


def alone_in(rows: Sequence[Row]) -> Mapping[tuple[str, float, bool], float]:
    """The p99 of each server alone, by its limit and whether without MPS, ms."""
    seen = {(id(p.alone), row.mode == "time-sliced"): p.alone for row in rows for p in row.parts}
    found: dict[tuple[str, float, bool], list[float]] = defaultdict(list)
    for (_, in_turns), point in seen.items():
        if point.latency_p99_ms:
            found[point.job, point.share_percent, in_turns].append(point.latency_p99_ms)
    return {key: statistics.median(values) for key, values in found.items()}


if __name__ == "__main__":
    main()
