"""Whether the time that a GPU is busy tells which tails are longer than the law of tails says.

    python docs/measurements/sets/bursts.py [RUN ...] [--gpu-model H200]

A job that is busy for a tenth of the time and active on nearly all SMs then computes in bursts; one
with small kernels is busy for longer than SM activity says. So a job that neither serves nor fills
the GPU bursts by `busy` where its SM activity is `WIDE` of the time it is busy or more, alone; by
`watts` where these swing, as tails.py has it. Busy time is known of jobs alone since 2026-11-27: it
is their median there, and a window counts where it is known of all jobs beside the server. To the
law as it stands, which has seen all windows, a burst adds a factor or milliseconds that fit best to
windows of other families of servers. Windows are those without turns in which the server met its
demand and no job fills the GPU. A cell is how many of a hundred are within a factor of 1.5, the
mean factor, and how many there are.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from rows import Part, measured_rows
from tails import Tail, by, of_sets, under_mps

from advisor.predict.set_law import TAILS
from advisor_data.files.bundled import bundled_set_references
from advisor_training.learn.protocols import family_of

WIDE = 0.6
FACTORS = [1 + step / 4 for step in range(21)]
ADDED_MS = [float(ms) for ms in range(31)]


@dataclass(frozen=True, slots=True)
class Seen:
    """A window of a server: its p99, that alone and said of it, and what bursts beside it."""

    family: str
    p99_ms: float
    alone_ms: float
    said_ms: float
    by_busy: bool
    by_watts: bool


Rule = Callable[[Seen, float], float]
"""The p99 that is said, ms, with a constant."""


def main() -> None:
    """Print both tables."""
    windows = seen(__doc__)
    rules: dict[str, tuple[Rule, Sequence[float]]] = {
        "the law as it stands": (lambda w, _: w.said_ms, [0.0]),
        "a factor, by busy": (lambda w, x: w.said_ms * (x if w.by_busy else 1), FACTORS),
        "ms, by busy": (lambda w, x: w.said_ms + x * w.by_busy, ADDED_MS),
        "a factor, by watts": (lambda w, x: w.said_ms * (x if w.by_watts else 1), FACTORS),
        "ms, by watts": (lambda w, x: w.said_ms + x * w.by_watts, ADDED_MS),
    }
    offs = {name: left_out(windows, *rule) for name, rule in rules.items()}
    cuts: dict[str, Callable[[Seen], bool]] = {
        "all": lambda w: True,
        "bursts by busy": lambda w: w.by_busy,
        "by watts": lambda w: w.by_watts,
        "by neither": lambda w: not (w.by_busy or w.by_watts),
    }
    table("family of servers left out", windows, offs, cuts)
    of_families = {name: partial(is_beside, name) for name in sorted({w.family for w in windows})}
    table("beside bursts by busy", windows, offs, of_families)


def is_beside(family: str, window: Seen) -> bool:
    """Whether that is a server of this family beside a job that bursts."""
    return window.by_busy and window.family == family


def seen(text: str | None) -> list[Seen]:
    """The windows of which busy time is known of every job."""
    rows, widths = measured_rows(text), wide_jobs()
    seats = [
        (row, part)
        for row in rows
        for part in row.parts
        if part.p99_ms and part.alone.latency_p99_ms
    ]
    found = list[Seen]()
    for tail, (row, part) in zip(of_sets(rows), seats, strict=True):
        others = [other for other in row.parts if other is not part]
        is_known = all(key_of(other) in widths for other in others)
        if is_known and tail.is_met and tail.of_class == "no filling" and under_mps([tail]):
            found.append(seen_of(tail, part, others, widths))
    return found


def seen_of(
    tail: Tail, part: Part, others: Sequence[Part], widths: Mapping[tuple[str, float], float]
) -> Seen:
    """One window."""
    alone_ms = (part.p99_ms or math.nan) / tail.longer
    return Seen(
        family_of(part.whole.job),
        part.p99_ms or math.nan,
        alone_ms,
        alone_ms * by(TAILS)(tail),
        any(not o.serves and not o.fills and widths[key_of(o)] >= WIDE for o in others),
        tail.pulses,
    )


def key_of(part: Part) -> tuple[str, float]:
    """Of a job at its limit."""
    return part.whole.job, part.alone.share_percent


def wide_jobs() -> dict[tuple[str, float], float]:
    """SM activity of jobs alone while they are busy, 0 to 1, by job and share."""
    ratios: dict[tuple[str, float], list[float]] = defaultdict(list)
    for point in bundled_set_references():
        if point.gpu_busy_percent and point.sm_active_percent is not None:
            where = point.job, point.share_percent
            ratios[where].append(point.sm_active_percent / point.gpu_busy_percent)
    return {where: statistics.median(values) for where, values in ratios.items()}


def left_out(windows: Sequence[Seen], rule: Rule, constants: Sequence[float]) -> list[float]:
    """The logarithm of measured over said, with the constant that other families fit best."""
    best: dict[str, float] = {}
    for family in {w.family for w in windows}:
        others = [w for w in windows if w.family != family]
        best[family] = min(constants, key=lambda x: sum(abs(off(w, rule, x)) for w in others))
    return [off(w, rule, best[w.family]) for w in windows]


def off(window: Seen, rule: Rule, constant: float) -> float:
    """The logarithm of measured over said."""
    return math.log(window.p99_ms / rule(window, constant))


def table(
    title: str,
    windows: Sequence[Seen],
    offs: Mapping[str, Sequence[float]],
    cuts: Mapping[str, Callable[[Seen], bool]],
) -> None:
    """Print how near each rule comes, by cut."""
    print(f"\n| {title} | {' | '.join(cuts)} |")
    print(f"|---|{'--:|' * len(cuts)}")
    for name, values in offs.items():
        cells = [
            [v for w, v in zip(windows, values, strict=True) if cut(w)] for cut in cuts.values()
        ]
        print(f"| {name} | {' | '.join(map(_cell, cells))} |")


def _cell(offs: Sequence[float]) -> str:
    if not offs:
        return ""
    near = 100 * statistics.fmean(abs(value) < math.log(1.5) for value in offs)
    return f"{near:.0f}, {math.exp(statistics.fmean(map(abs, offs))):.2f} ({len(offs)})"


if __name__ == "__main__":
    main()
