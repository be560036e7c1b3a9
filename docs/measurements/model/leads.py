"""Prints what leads of ways without limits do to choices from every way, leaving one workload out.

    .venv/bin/python docs/measurements/model/leads.py

A lead is how much more than a split a way must be worth to be taken (advisor/decide/choice.py).
Mean and
worst fraction of the oracle in %, and how often each way is chosen.
"""

from collections import Counter

from advisor.core.objectives import OBJECTIVES
from advisor.decide import choice
from advisor.decide.recommend import TIE
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_data.files.dataset import select
from advisor_training.evaluation.choices import Question, choose
from advisor_training.evaluation.data import make_data
from advisor_training.learn.held_out import leave_one_job_out
from advisor_training.learn.learners import LEARNERS
from advisor_training.train import SCORED

LEADS = ((0.0, 0.0), (0.02, 0.02), (0.05, 0.02), (0.05, 0.05), (0.1, 0.1))
"""Of uncapped, and of exclusive."""


def main() -> None:
    """One line for each objective and couple of leads; the ones in use among them."""
    data = make_data(
        select(bundled_pair_points()).points, bundled_solo_points(), bundled_reference_points()
    )
    held_out = leave_one_job_out(data.rows, LEARNERS["extra-trees"])
    print("| objective | uncapped, exclusive ahead by | mean | worst | chosen of these |")
    print("| --- | --- | --- | --- | --- |")
    for name in SCORED:
        for uncapped, exclusive in LEADS:
            choice.MARGINS = {"split": 0.0, "uncapped": uncapped, "exclusive": exclusive}
            found = choose(data, held_out, Question(OBJECTIVES[name], "every way"), TIE)
            parts = [100 * each.fraction for each in found]
            ways = Counter(each.chosen for each in found)
            print(
                f"| {name} | {uncapped:.0%}, {exclusive:.0%} | {sum(parts) / len(parts):.2f} "
                f"| {min(parts):.1f} | {ways['uncapped']}, {ways['exclusive']} |"
            )


if __name__ == "__main__":
    main()
