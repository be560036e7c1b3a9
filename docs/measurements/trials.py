"""What a trial of the best ways gains over the advised one, by measured pairs and sets.

    .venv/bin/python docs/measurements/trials.py         # five minutes; no GPU

Decided as in policy.py. Work per joule lost is against the best measured option that keeps all
limits, separate GPUs among them. A trial goes by one window of each way; the others judge it, where
there are any. Brackets: 95 %, by a bootstrap over sets.
"""

from collections import defaultdict

import numpy as np
from policy import Ways, among, held_limits, questions, saved

from advisor.core.split import ADVISED_JOBS, Split
from advisor.decide.decision import Decision, decide
from advisor.decide.limits import Request
from advisor.settings import read_settings
from advisor_advice.forecasting import ways_to_try


def judged(decision: Decision, ways: Ways, most: int, *, free: bool) -> tuple[float, bool, bool]:
    """Part of the work per joule lost, whether a limit broke, and whether the jobs share.

    `free`: jobs that should not share are tried, too. Where no way that is tried keeps all limits
    and saves energy, they are separated.
    """
    limits = decision.profiles, decision.request
    judges = {split: windows[1:] or windows for split, windows in ways.items()}
    kept = [split for split in ways if all(held_limits(judges[split], *limits))]
    best = max([0.0, *(saved(judges[split]) for split in kept)])
    tried = [way.prediction.split for way in ways_to_try(decision, most)]

    def worth(split: Split) -> tuple[int, float]:
        return sum(held_limits(ways[split][:1], *limits)), ways[split][0].per_joule

    split = max(tried, key=worth, default=None)
    keeps = split and all(held_limits(ways[split][:1], *limits)) and saved(ways[split][:1]) > 0
    tries = free or most > 1
    if split is None or (tries and not keeps) or not (free or decision.choice):
        return best, False, False
    return max(0.0, 1 - (1 - best) / (1 - saved(judges[split]))), split not in kept, True


def main() -> None:
    """A table, a row for each way of deciding."""
    request, found = Request(policy=read_settings().policy), defaultdict[str, list[object]](list)
    for of, predictor in questions(request):
        kind = "two" if len(of.jobs) == ADVISED_JOBS else "three to seven"
        decision = decide(among(of, predictor), request)
        known = {split: of.ways[split] for split in of.held}
        for most, name in ((1, "as advised"), (2, "`launch --try 2`"), (2, "`colocate --try 2`")):
            row = judged(decision, known, most, free="colocate" in name)
            found[f"{kind}, {name}"].append(row)
    print("| jobs | n | shared | work per joule lost, % | a limit broke, % |\n|---|" + "--:|" * 4)
    for name, rows in sorted(found.items()):
        table = 100 * np.array(rows, float)
        means = table[np.random.default_rng(1).integers(len(rows), size=(2000, len(rows)))].mean(1)
        (low, high), mean = np.quantile(means, (0.025, 0.975), axis=0), table.mean(0)
        cells = (f"{mean[n]:.1f} [{low[n]:.1f} {high[n]:.1f}]" for n in (0, 1))
        print(f"| {name} | {len(rows)} | {table[:, 2].sum() / 100:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
