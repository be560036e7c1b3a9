"""Prints what the factor of a card is worth on measured pairs of cards that a model has not seen.

    .venv/bin/python docs/measurements/model/card_factor_cards.py

Each card with jobs alone on it that can be compared is left out of training with all its pairs; the
factor is learned from those jobs alone, none from its pairs. Points at splits, as trained from.
Intervals are bootstraps over cards. Takes some minutes on one core.
"""

import statistics

import numpy as np
from card_factor import PROFILES, References, bootstrap, of_cards

from advisor.core.flags import DOUBTFUL
from advisor.predict.card_factor import BELOW_LIMIT, card_factor, on_card
from advisor_data.files.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_solo_points,
)
from advisor_training.dataset.pairs import make_pairs
from advisor_training.dataset.rows import Rows, make_rows
from advisor_training.described import LEARNER
from advisor_training.learn.held_out import predicted
from advisor_training.learn.learners import LEARNERS


def main() -> None:
    """A line for each card, then all of them."""
    references = of_cards()
    points = [p for p in bundled_pair_points() if DOUBTFUL.isdisjoint(p.flags)]
    solos = bundled_solo_points()
    pairs, _ = make_pairs(points, [*bundled_reference_points(), *solos], full=False)
    rows = make_rows(pairs, PROFILES)
    print(
        "| card | points | factor, % | mean log error without, % | with | absolute without | with |"
    )
    print("|" + " --- |" * 7)
    gains: list[list[float]] = []
    means: list[tuple[float, float]] = []
    for model, cards in references.items():
        for card in cards:
            asked = (rows.card == card) & (rows.kind != "uncapped")
            if not asked.any():
                continue
            percent, before, after = of_card(card, model, asked, rows, pairs, references[model])
            if not len(before):
                continue
            gains.append((np.abs(after) - np.abs(before)).tolist())
            means.append((float(before.mean()), float(after.mean())))
            cells = (before.mean(), after.mean(), np.abs(before).mean(), np.abs(after).mean())
            shown = " | ".join(f"{100 * cell:+.1f}" for cell in cells)
            print(f"| {card[4:12]} | {len(before)} | {percent} | {shown} |", flush=True)
    low, high = bootstrap(gains)
    spread = [statistics.pstdev(of) for of in zip(*means, strict=True)]
    mean = statistics.fmean(gain for card in gains for gain in card)
    print(
        f"\nabsolute error with less without, %: "
        f"{100 * mean:+.2f} [{100 * low:+.2f} {100 * high:+.2f}]"
    )
    print(
        f"spread of the means of cards: {100 * spread[0]:.1f} % without, {100 * spread[1]:.1f} with"
    )


def of_card(
    card: str, model: str, asked: np.ndarray, rows: Rows, pairs: list, references: References
) -> tuple[str, np.ndarray, np.ndarray]:
    """The factor, and log errors of power below the limit without and with it."""
    factor = card_factor(card, references, {})
    assert factor
    there = make_rows(
        pairs, {k: on_card(p, factor) if k[1] == model else p for k, p in PROFILES.items()}
    )
    fitted = LEARNERS[LEARNER](rows.take(rows.card != card))
    expected = [predicted(fitted, each, asked, card).power_w for each in (rows, there)]
    measured, limit_w = rows.power_w[asked], rows.power_limit_w[asked]
    below = np.maximum(measured, expected[0]) < BELOW_LIMIT * limit_w
    before, after = (np.log(measured / each)[below] for each in expected)
    return f"{100 * factor.log_factor:+.1f} ± {100 * factor.log_stderr:.1f}", before, after


if __name__ == "__main__":
    main()
