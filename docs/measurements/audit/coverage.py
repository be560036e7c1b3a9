"""How often the ranges of an audit hold what is true, over made weeks of jobs it never saw.

    .venv/bin/python docs/measurements/audit/coverage.py --first 200 --weeks 12

Each week has 50 to 200 GPUs and jobs of six families that were drawn, and is audited by a head that
has seen none of these: its trees and its errors are of the other families alone. Series go straight
to the audit, without a server, as `written.py` has them. True is what the same packing makes of
whole profiles, where sets do what the law says; and, drawn, where they do what measured sets did.
Hours and energy are those of the time that was seen, as an audit says. Every second week is audited
without SM activity, too.
"""

import argparse
import multiprocessing
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from straight import Straight
from truth import Truth, run_audit, truth
from week import Week, make_week, profiles
from written import Written

from advisor.core.interval import NORMAL_90, Interval
from advisor.core.objectives import Prices
from advisor.predict.profiles import make_profiles
from advisor_data.files.bundled import bundled_set_references, bundled_solo_points
from advisor_models.one_window import OneWindowHead, OneWindowModel
from advisor_training.held_out import family_of
from advisor_training.one_window import fit_one_window, learnable, left_out_errors

BEGIN_S = 1_790_006_400.0
UNSEEN = 6
"""Families of a week."""

PRICES = Prices(gpu_hour=2.0, kwh=0.3)
LACKING: Mapping[str, Collection[str]] = {
    "all counters": (),
    "default counters": ("sm_active_percent",),
}
FIGURES = ("cards", "gpu_hours", "kwh", "cost")


def main() -> None:
    """Print a line for each audit, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--first", type=int, default=200, help="seed of the first week")
    parser.add_argument("--weeks", type=int, default=12)
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    held: dict[tuple[str, str], list[Held]] = defaultdict(list)
    weeks = [(number, asked.days) for number in range(asked.first, asked.first + asked.weeks)]
    with multiprocessing.Pool(asked.processes) as pool:
        for name, found in chain.from_iterable(pool.imap_unordered(audited, weeks)):
            for figure, one in found.items():
                held[name, figure].append(one)
    print(*table(held), sep="\n")


def audited(week: tuple[int, int]) -> list[tuple[str, dict[str, "Held"]]]:
    """The audits of a week: its seed, and its days."""
    number, days = week
    head, jobs = unseen_head(number)
    gpus = int(np.random.default_rng(number).integers(50, 201))
    made = make_week(gpus, days, number, jobs)
    true, every = truth(made), list[tuple[str, dict[str, Held]]]()
    for name, lacking in [*LACKING.items()][: 2 - number % 2]:
        found = dict(judged(made, true, head, lacking))
        every.append((name, found))
        told = "; ".join(map(str, found.values()))
        print(f"week {number}, {gpus} GPUs, {name}: {told}", flush=True)
    return every


def unseen_head(number: int) -> tuple[OneWindowHead, list[str]]:
    """A head, and jobs of families that it has not seen."""
    names = sorted(profiles())
    families = sorted({family_of(name) for name in names})
    unseen = set(np.random.default_rng(number).choice(families, UNSEEN, replace=False).tolist())
    points = [*bundled_solo_points(), *bundled_set_references()]
    known = learnable(make_profiles(points).values())
    others = [p for p in known if family_of(p.job) not in unseen]
    head = OneWindowHead(
        model=OneWindowModel(fit_one_window(others)), left_out=tuple(left_out_errors(others))
    )
    return head, [name for name in names if family_of(name) in unseen]


@dataclass(frozen=True, slots=True)
class Held:
    """A figure of a week.

    Attributes:
        drawn: Part of what may be true that lies within.
    """

    said: Interval
    true: float
    drawn: float

    @property
    def is_held(self) -> bool:
        """Whether what is true lies within."""
        return self.said.low <= self.true <= self.said.high

    def __str__(self) -> str:
        one = self.said
        return f"{one.value:,.0f} ({one.low:,.0f} to {one.high:,.0f}) for {self.true:,.0f}"


def judged(
    week: Week, true: Truth, head: OneWindowHead, lacking: Collection[str]
) -> Iterator[tuple[str, Held]]:
    """Each figure of one audit."""
    source = Straight(Written(week, BEGIN_S), lacking)
    with tempfile.TemporaryDirectory() as folder:
        said = run_audit(source, Path(folder), head=head, prices=PRICES)
    assert true.now.kwh is not None
    # An audit says how much was not seen, and leaves it out of every figure.
    seen = said.now.gpu_hours / true.now.gpu_hours
    hours = seen * (true.now.gpu_hours - true.saved.freed_h.ravel())
    kwh = seen * (true.now.kwh - true.saved.kwh.ravel())
    real = {
        "cards": true.saved.cards.ravel(),
        "gpu_hours": hours,
        "kwh": kwh,
        "cost": PRICES.gpu_hour * hours + PRICES.kwh * kwh,
    }
    for figure, values in real.items():
        one: Interval = getattr(said.shared, figure)
        inside = (one.low <= values[1:]) & (values[1:] <= one.high)
        yield figure, Held(one, float(values[0]), float(inside.mean()))


def table(held: Mapping[tuple[str, str], list[Held]]) -> Iterator[str]:
    """Over all weeks."""
    yield (
        "| | | held, % | 90 % of that | the same, drawn | width, % | bias of the middle, % "
        "| mean error, % |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|"
    for (name, figure), own in held.items():
        off = np.array([one.said.value / one.true - 1 for one in own])
        wide = np.array([(one.said.high - one.said.low) / one.true for one in own])
        cells = [
            f"{100 * np.mean([one.is_held for one in own]):.0f}",
            share_text(sum(one.is_held for one in own), len(own)),
            f"{100 * np.mean([one.drawn for one in own]):.0f}",
            f"{100 * wide.mean():.0f}",
            f"{100 * off.mean():+.1f} ± {164.5 * off.std() / np.sqrt(len(off)):.1f}",
            f"{100 * abs(off).mean():.1f}",
        ]
        yield f"| {name} | {figure} | {' | '.join(cells)} |"


def share_text(held: int, of: int) -> str:
    """The ends of 90 % of a share that was counted (E. B. Wilson, 1927)."""
    part, z2 = held / of, NORMAL_90**2 / of
    middle, wide = part + z2 / 2, NORMAL_90 * np.sqrt((part * (1 - part) + z2 / 4) / of)
    low, high = (100 * (middle + way * wide) / (1 + z2) for way in (-1, 1))
    return f"{low:.0f} to {high:.0f}"


if __name__ == "__main__":
    main()
