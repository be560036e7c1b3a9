"""Sets that are advised though two of their jobs alone are not: whether they pay.

    python docs/measurements/sets/refused.py

Of measured windows of three jobs and more under MPS that the law of sets would advise (each job
keeps 0.4 and a server its demand, 3 % less energy at least), those that hold two jobs which
`advisor recommend` answers with a card each or one after the other, and the others: how many kept
that, the energy saved as it was said and measured, freed cards off, and the mean error.
"""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Sequence

from pairs import MET, MIN_GAIN, MIN_SPEED, split_of
from rows import Row, bundled_campaigns, rows_of

from advisor.core.split import ADVISED_JOBS
from advisor.decide.constraints import violations
from advisor.decide.limits import UNSURE_BELOW, Limits, floor
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import Request
from advisor.errors import NoSplitError
from advisor.predict.profiles import Profile, make_profiles
from advisor.predict.sets import AnyWay, SetPredictor
from advisor_data.bundled import bundled_set_references, bundled_solo_points
from advisor_models.model_predictor import ModelPredictor
from advisor_models.registry import BUNDLED

LIMITS = Limits(default_min_speed=MIN_SPEED, unsure_below=UNSURE_BELOW)
REQUEST = Request(min_gain=MIN_GAIN)
OF_PAIRS, OF_SETS = AnyWay(ModelPredictor(BUNDLED)), SetPredictor()

Window = tuple[bool, float, float]
"""Whether all kept what they were to, and the energy saved, said and measured."""


def main() -> None:
    """Print the table."""
    known = make_profiles([*bundled_set_references(), *bundled_solo_points()])
    found = defaultdict[tuple[str, bool], list[Window]](list)
    for row in itertools.chain.from_iterable(map(rows_of, bundled_campaigns())):
        profiles = [known[key] for p in row.parts if (key := (p.whole.job, row.gpu_model)) in known]
        if ADVISED_JOBS < len(row.parts) == len(profiles) and row.mode != "time-sliced":
            pairs = itertools.combinations(profiles, ADVISED_JOBS)
            if window := advised(row, profiles):
                found[row.mode, any(map(is_refused, pairs))].append(window)
    print("| sharing | holds a refused pair | windows | kept | said, % | saved, % | off, points |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for (mode, is_held), own in sorted(found.items()):
        kept, said, did = zip(*own, strict=True)
        off = statistics.fmean(abs(a - b) for a, b in zip(said, did, strict=True))
        cells = (f"{100 * x:.1f}" for x in (statistics.fmean(said), statistics.fmean(did), off))
        held = "yes" if is_held else "no"
        print(f"| {mode} | {held} | {len(own)} | {sum(kept)} | {' | '.join(cells)} |")


def advised(row: Row, profiles: Sequence[Profile]) -> Window | None:
    """What the law says of a window, beside what was measured; None where it would not advise."""
    split = split_of(row)
    if any(s < p.shares[0] for s, p in zip(split.shares, profiles, strict=True)):
        return None
    (told,) = OF_SETS.predict(profiles, [split])
    if violations(told, profiles, LIMITS) or told.energy_saved.value < MIN_GAIN:
        return None
    parts = list(zip(row.parts, profiles, strict=True))
    kept = all(part.speed >= min(floor(p, LIMITS), MET) for part, p in parts)
    alone_w = sum(min(1.0, part.speed) * (part.whole.power_w or 0.0) for part in row.parts)
    return kept, told.energy_saved.value, 1 - row.power_w / alone_w


def is_refused(pair: Sequence[Profile]) -> bool:
    """Whether two jobs are not to share, as the command line answers without options."""
    try:
        decision = recommend(pair, OF_PAIRS, REQUEST)
    except NoSplitError:
        return True
    return decision.call is None and decision.choice.sharing == "exclusive"


if __name__ == "__main__":
    main()
