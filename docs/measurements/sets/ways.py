"""How often each way is the answer to drawn sets, by how many jobs there are and how many fill.

    python docs/measurements/sets/ways.py [--sets 100] [--seed 1]

Of the jobs with a bundled profile on each GPU model, so many sets of each size and number of jobs
that fill the GPU are drawn, jobs with putting back, and asked as `advisor recommend` asks without
options and prices, with nothing measured together. `one
limit` and `several` are limits for jobs that fill; `a call` saves GPU hours and less energy than is
asked for. A second table: what one limit gives where just one job fills, against no limits.
"""

import argparse
import random
import statistics
from collections.abc import Iterator, Sequence
from functools import partial

from advisor.core.gpu import WHOLE
from advisor.core.split import ADVISED_JOBS, MOST_JOBS
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import RatedSplit, Request
from advisor.decide.ways import SetDecision, recommend_set
from advisor.errors import NoSplitError
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sets import AnyWay, SetPredictor, fills
from advisor.settings import read_settings
from advisor.wire.requests import MIN_GAIN
from advisor_data.bundled import bundled_solo_points
from advisor_data.known import checked_counts
from advisor_models.registry import Registry

WAYS = ("no limits", "one limit", "several", "in turns", "a call", "apart")
REQUEST = Request(min_gain=MIN_GAIN)
SETTINGS = read_settings()
MODEL = AnyWay(Registry(SETTINGS.home / "models").open_champion())


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    known = make_profiles(bundled_solo_points())
    sizes, found = range(ADVISED_JOBS, MOST_JOBS + 1), dict[str, list[SetDecision]]()
    print(f"| GPU | fill | answer, % of {options.sets} | {' | '.join(map(str, sizes))} |")
    print(f"|---|--:|---|{'--:|' * len(sizes)}")
    for gpu in sorted({gpu for _, gpu in known}):
        own = [profile for (_, model), profile in sorted(known.items()) if model == gpu]
        drawn = partial(sets_of, own, options.sets, random.Random(options.seed))
        for fill in ("0", "1", "2 or more"):
            answers = [list(map(answer, drawn(jobs, fill))) for jobs in sizes]
            for way in WAYS:
                parts = [sum(found == way for found, _ in of) / len(of) for of in answers]
                if any(parts):
                    cells = " | ".join(f"{100 * part:.0f}" for part in parts)
                    print(f"| {gpu} | {fill} | {way} | {cells} |")
            if fill == "1":
                found[gpu] = [d for of in answers for _, d in of if d]
    print("\n| GPU | sets with one that fills | only one limit keeps them | no limit does, too |")
    print("|---|--:|---|---|")
    for gpu, decisions in found.items():
        print(f"| {gpu} | {len(decisions)} | {' | '.join(of_one_limit(decisions))} |")


def sets_of(
    known: Sequence[Profile], count: int, chance: random.Random, jobs: int, fill: str
) -> Iterator[list[Profile]]:
    """So many sets of so many jobs, of which so many fill."""
    big, small = ([p for p in known if fills(p) is wanted] for wanted in (True, False))
    for _ in range(count):
        many = int(fill) if fill.isdigit() else chance.randint(2, jobs)
        yield [*chance.choices(big, k=many), *chance.choices(small, k=jobs - many)]


def answer(profiles: Sequence[Profile]) -> tuple[str, SetDecision | None]:
    """The way that `advisor recommend` answers with, and how it came to it."""
    checked = checked_counts(SETTINGS.home, profiles[0].gpu_model, profiles[0].units_total)
    try:
        if len(profiles) == ADVISED_JOBS:
            pair = recommend(profiles, MODEL, REQUEST, checked)
            return "a call" if pair.call else name_of(pair.choice), None
        decision = recommend_set(profiles, SetPredictor(), REQUEST, checked)
    except NoSplitError:
        return "apart", None
    return "a call" if decision.call else name_of(decision.choice), decision


def name_of(way: RatedSplit | None) -> str:
    """In the words of the table."""
    if way is None or way.sharing == "exclusive":
        return "apart"
    if way.sharing == "limited":
        return (
            "one limit" if sum(s < WHOLE for s in way.prediction.split.shares) == 1 else "several"
        )
    return "no limits" if way.sharing == "uncapped" else "in turns"


def of_one_limit(decisions: Sequence[SetDecision]) -> Iterator[str]:
    """Sets that keep their limits only with one, and what it saves where both do."""
    ways = [{w.sharing: w for w in d.ways} for d in decisions]
    kept = [{n: w for n, w in of.items() if not w.violations} for of in ways]
    only = [of["limited"] for of in kept if "limited" in of and "uncapped" not in of]
    both = [of for of in kept if {"limited", "uncapped"} <= of.keys()]
    yield f"{len(only)}, energy {mean([w.prediction.energy_saved.value for w in only])} less"
    saved = [[of[n].prediction.energy_saved.value for of in both] for n in ("limited", "uncapped")]
    yield f"{len(both)}, {mean(saved[0])} for {mean(saved[1])} less"


def mean(parts: Sequence[float]) -> str:
    """In percent."""
    return f"{100 * statistics.fmean(parts):.0f} %" if parts else "-"


if __name__ == "__main__":
    main()
