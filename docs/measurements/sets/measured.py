"""What a measured window of a set is worth for the next answer about that set.

    python docs/measurements/sets/measured.py [RUN ...] [--gpu-model H200]

Of sets that were measured on two cards and hosts; campaigns are as rows.py has them: what
`advisor.predict.measured` says of the sets of one campaign, given jobs alone and, in the second
column, the window of the set, both of the other: the mean error in percent, and how many values its
bounds hold. Of sets of three jobs and more, each in both directions.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rows import Part, Row, campaigns, rows_of

from advisor.core.gpu import ADVISED_JOBS
from advisor.core.objectives import Interval
from advisor.predict.measured import MeasuredPredictor, Window
from advisor.predict.profiles import COLUMNS, Profile, kind_of, make_profile, make_profiles
from advisor.predict.sets import SetPredictor
from advisor_data.bundled import bundled_solo_points


@dataclass(frozen=True, slots=True)
class Value:
    """One measured quantity: what it is, and what was expected before and after."""

    name: str
    before: Interval
    after: Interval
    measured: float


def main() -> None:
    """Print both tables."""
    bundled = bundled_profiles()
    found: dict[str, list[Value]] = defaultdict(list)
    of_cards = [{row.key: row for row in rows_of(c)} for c in campaigns(__doc__)]
    for known, asked in itertools.permutations(of_cards, 2):
        for key in known.keys() & asked.keys():
            if len(known[key].parts) > ADVISED_JOBS:
                for value in values_of(known[key], asked[key], bundled):
                    found[value.name].append(value)
    print("| | n | error, % | with a window | held, % | with a window |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, values in sorted(found.items()):
        print(f"| {name} | {len(values)} | {' | '.join(columns(values))} |")


def values_of(known: Row, asked: Row, bundled: Mapping[str, Profile]) -> Iterator[Value]:
    """Of a set that both campaigns measured; jobs alone and window are the known one's."""
    profiles = [profile_of(part, bundled) for part in known.parts]
    names, window = [p.job for p in profiles], window_of(known)
    windows = {tuple(sorted(names)): [window]}
    of_law = SetPredictor()
    predictors = (of_law, MeasuredPredictor(of_law, windows, "another"))
    before, after = (p.predict(profiles, [window.split])[0] for p in predictors)
    yield Value("watts", before.power_w, after.power_w, asked.power_w)
    alone_w = [p.whole_gpu_power_w for p in profiles]
    pairs = zip(speeds(asked, profiles), alone_w, strict=True)
    energy = sum(map(math.prod, pairs)) / asked.power_w
    if before.efficiency and after.efficiency:
        yield Value("energy", before.efficiency, after.efficiency, energy)
    for n, profile in enumerate(profiles):
        if known.parts[n].whole.offered_rate is None:
            name = f"speed, {kind_of(profile)}"
            known_speed, speed = (speeds(row, profiles)[n] for row in (known, asked))
            # An answer says no more than what is possible alone, or was measured.
            most = max(1.0, known_speed)
            said, told = before.parts[n].speed, after.parts[n].speed
            yield Value(name, said, told, min(speed, most))


def profile_of(part: Part, bundled: Mapping[str, Profile]) -> Profile:
    """The job's readings of this campaign at 100 %, over shares as a bundled profile has it.

    A job without one (llm-serve-10, of which a tenth is asked) is as good at any share.
    """
    own = {name: float(getattr(part.whole, name) or 0.0) for name in COLUMNS}
    shape = bundled.get(part.whole.job)
    shares = np.array([10.0, 100.0]) if shape is None else shape.shares
    ones = np.ones(len(shares))
    values = {name: ones * of_whole for name, of_whole in own.items()}
    for name, column in shape.values.items() if shape else ():
        if (known := np.nan_to_num(column))[-1]:
            values[name] = known * (own[name] / known[-1])
    alone = make_profile([part.whole, replace(part.whole, share_percent=10.0)])
    return replace(alone, shares=shares, values=values, kernels=part.kernels)


def bundled_profiles() -> dict[str, Profile]:
    """By job; of an H100 where there is one."""
    known = make_profiles(bundled_solo_points())
    return {job: known[job, gpu_model] for job, gpu_model in sorted(known, reverse=True)}


def speeds(row: Row, profiles: Sequence[Profile]) -> list[float]:
    """What was measured, relative to other windows of the jobs alone."""
    pairs = zip(row.parts, profiles, strict=True)
    return [part.speed * part.whole.rate / profile.whole_gpu_rate for part, profile in pairs]


def window_of(row: Row) -> Window:
    """As an answer takes it in."""
    rates = tuple(part.speed * part.whole.rate for part in row.parts)
    return Window(row.split, rates, row.power_w, "one")


def columns(values: Sequence[Value]) -> Iterator[str]:
    """Errors and coverage before and after."""
    both = [[(v.before, v.measured) for v in values], [(v.after, v.measured) for v in values]]
    for told in both:
        yield f"{100 * statistics.fmean(abs(x.value / m - 1) for x, m in told):.1f}"
    for told in both:
        yield f"{100 * statistics.fmean(x.low <= m <= x.high for x, m in told):.0f}"


if __name__ == "__main__":
    main()
