"""Prints what the intervals of power hold on cards left out, and why: by GPU model, not by card.

    .venv/bin/python docs/measurements/model/power_intervals.py

No launch is looked at but in the last table. Errors are logarithms of measured over predicted power
of models that saw neither the job (or neither of the two), nor the run, nor its cards. Bounds are
made of the errors on all other cards, and the part that they hold of each card's errors counts the
same for each card: of all GPU models together, as they were until 2026-11-23, and by GPU model.
Then the same with the factor of the card (jobs alone on it, and its other pairs): with the bounds
as they are, and with 4 % between cards taken off, as it was. Takes two minutes on one core.
"""

import math
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
from card_factor import PROFILES, Launch, holds, of_cards, read
from launches import recorded

from advisor.predict.card_factor import (
    BELOW_LIMIT,
    CARD_SPREAD,
    SAME_RATES,
    CardFactor,
    card_factor,
)
from advisor_cli.learn.measured import read_measured
from advisor_models.intervals import SPLIT, LogBounds
from advisor_training.dataset.rows import Rows
from advisor_training.learn.calibration import left_out
from advisor_training.learn.conformal import bounds_of
from advisor_training.learn.head_learners import HEAD_LEARNERS, POWER_LEARNER
from advisor_training.learn.held_out import HeldOut, Mask
from advisor_training.learn.learners import Fitted, extra_trees, fit
from advisor_training.learn.protocols import Draw, answer_draws
from advisor_training.learn.residuals import Residuals, residuals_of
from advisor_training.train import make_training_set

_NORMAL_90 = 1.645


@dataclass(frozen=True, eq=False)
class Errors:
    """Of held-out power, with what each is of."""

    name: str
    rows: Rows
    held_out: HeldOut
    residuals: Residuals

    @property
    def gpu_model(self) -> np.ndarray:
        return self.rows.gpu_model[self.held_out.row]

    @property
    def card(self) -> np.ndarray:
        return self.rows.card[self.held_out.row]

    @property
    def pair(self) -> np.ndarray:
        return self.rows.pair[self.held_out.row]


def main() -> None:
    """Spread, coverage, the factor, and the launches."""
    rows = training_rows()
    found = [errors(rows, *each) for each in (
        ("one job new", left_out(rows, learner)),
        ("both jobs new", both_new(rows)),
    )]  # fmt: skip
    print("| left out | GPU model | errors below the limit | cards | mean | between cards | "
          "between pairs of a card |\n|" + " --- |" * 7)  # fmt: skip
    for each in found:
        for model in np.unique(rows.gpu_model):
            print(spread_line(each, str(model)))
    print("\n| left out | GPU model | power | cards | bounds of all | hold | by GPU model | hold |")
    print("|" + " --- |" * 8)
    for each in found:
        for line in coverage_lines(each, found[0]):
            print(line)
    print("\n| left out | cards | pairs | error without factor | with | held without | with | "
          "with, 4 % taken off |\n|" + " --- |" * 8)  # fmt: skip
    for each in found:
        print(factor_line(each, found[0]))
    launches()


def training_rows() -> Rows:
    """What the bundled model is trained from."""
    points = read_measured(None, None)
    return make_training_set(points.pairs, points.profiled, points.references).rows


def learner(rows: Rows) -> Fitted:
    """The bundled model's."""
    return fit(extra_trees, rows, HEAD_LEARNERS)


def both_new(rows: Rows) -> HeldOut:
    """Each pair in each run, of a model without its jobs, the run and every card of that run."""
    return answer_draws(rows, learner, _draws(rows), lambda: None).held_out


def _draws(rows: Rows) -> Iterator[Draw]:
    for pair in np.unique(rows.pair):
        for run in np.unique(rows.run[rows.pair == pair]):
            asked = (rows.pair == pair) & (rows.run == run)
            first = int(np.flatnonzero(asked)[0])
            a, b = str(rows.job_a[first]), str(rows.job_b[first])
            cards = np.unique(rows.card[rows.run == run])
            unseen = rows.of(a) | rows.of(b) | (rows.run == run) | np.isin(rows.card, cards)
            yield Draw(a, ~unseen, asked)


def errors(rows: Rows, name: str, held_out: HeldOut) -> Errors:
    """Of power."""
    return Errors(name, rows, held_out, residuals_of(rows, held_out, POWER_LEARNER))


def spread_line(its: Errors, model: str) -> str:
    """Standard deviations by the method of moments, of medians of pairs."""
    which = (its.residuals.stratum == SPLIT) & (its.gpu_model == model)
    of_card = [
        [float(np.median(its.residuals.values[which & (its.card == card) & (its.pair == pair)]))
         for pair in np.unique(its.pair[which & (its.card == card)])]
        for card in np.unique(its.card[which])
    ]  # fmt: skip
    several = [(np.var(pairs, ddof=1), len(pairs) - 1) for pairs in of_card if len(pairs) > 1]
    within = sum(v * n for v, n in several) / sum(n for _, n in several)
    means = [np.mean(pairs) for pairs in of_card]
    noise = np.mean([within / len(pairs) for pairs in of_card])
    between = math.sqrt(max(0.0, np.var(means, ddof=1) - noise))
    mean = its.residuals.values[which].mean()
    return (f"| {its.name} | {model} | {which.sum()} | {len(of_card)} | {100 * mean:+.1f} % | "
            f"{100 * between:.1f} % | {100 * math.sqrt(within):.1f} % |")  # fmt: skip


def coverage_lines(its: Errors, made_of: Errors) -> Iterator[str]:
    """By stratum and GPU model, what bounds of all other cards hold; the mean of the cards."""
    for stratum in np.unique(its.residuals.stratum):
        for model in np.unique(its.gpu_model):
            which = (its.residuals.stratum == stratum) & (its.gpu_model == model)
            cards = np.unique(its.card[which])
            cells: list[str] = []
            for one_for_all in (True, False):
                parts: list[float] = []
                bounds: list[LogBounds] = []
                for card in cards:
                    own = bounds_without(card, str(stratum), str(model), made_of, one_for_all)
                    values = its.residuals.values[which & (its.card == card)]
                    parts.append(float(np.mean((own.low <= values) & (values <= own.high))))
                    bounds.append(own)
                low, high = (100 * math.expm1(np.mean([getattr(b, end) for b in bounds]))
                             for end in ("low", "high"))  # fmt: skip
                cells += [f"{low:+.1f} to {high:+.1f} %", f"{100 * np.mean(parts):.0f} %"]
            name = f"{its.name} | {model} | {stratum}"
            yield f"| {name} | {len(cards)} | {' | '.join(cells)} |"


def bounds_without(
    card: str, stratum: str, model: str, made_of: Errors, one_for_all: bool
) -> LogBounds:
    """Bounds of the errors on all other cards, of all GPU models or of one."""
    others = made_of.residuals.stratum == stratum
    others &= made_of.card != card
    if not one_for_all:
        others &= made_of.gpu_model == model
    few = made_of.residuals.take(others)
    return bounds_of(Residuals(few.values, few.left_out, few.beside, few.stratum))[stratum]


def factor_line(its: Errors, made_of: Errors) -> str:
    """What the factor of a card is worth on each pair below the limit, without the pair itself."""
    references, rows, row = of_cards(), its.rows, its.held_out.row
    measured, speeds = rows.power_w[row], np.column_stack([rows.speed_a[row], rows.speed_b[row]])
    below = np.maximum(measured, its.held_out.power_w) < BELOW_LIMIT * rows.power_limit_w[row]
    asked: Mask = (its.residuals.stratum == SPLIT) & below & unprofiled(its)
    tells = asked & (np.abs(speeds / its.held_out.speed - 1) < SAME_RATES).all(axis=1)
    off: list[tuple[float, float]] = []
    held: list[list[tuple[bool, bool, bool]]] = []
    pairs = 0
    for card in np.unique(its.card[asked]):
        model = str(its.gpu_model[its.card == card][0])
        bounds = bounds_without(card, SPLIT, model, made_of, one_for_all=False)
        of_this: list[tuple[bool, bool, bool]] = []
        for pair in np.unique(its.pair[asked & (its.card == card)]):
            seen = {
                (str(other),): its.residuals.values[
                    tells & (its.card == card) & (its.pair == other)
                ].tolist()
                for other in np.unique(its.pair[tells & (its.card == card)])
                if other != pair
            }
            factor = card_factor(str(card), references.get(model, {}), seen)
            if factor is None:
                continue
            pairs += 1
            for error in its.residuals.values[asked & (its.card == card) & (its.pair == pair)]:
                left = error - factor.log_factor
                off.append((abs(error), abs(left)))
                of_this.append((
                    within(error, bounds), within(left, bounds),
                    within(left, narrowed(bounds, factor)),
                ))  # fmt: skip
        if of_this:
            held.append(of_this)
    before, after = (100 * float(np.mean(column)) for column in zip(*off, strict=True))
    parts = np.mean([np.mean(card, axis=0) for card in held], axis=0)
    shown = " | ".join(f"{100 * part:.0f} %" for part in parts)
    return f"| {its.name} | {len(held)} | {pairs} | {before:.2f} % | {after:.2f} % | {shown} |"


def unprofiled(its: Errors) -> Mask:
    """On cards that none of the profiles is of: those leave profiles as they are."""
    rows, row = its.rows, its.held_out.row
    return np.array([
        not any(card in PROFILES[str(job), str(model)].gpu_uuids for job in jobs)
        for card, model, *jobs in zip(
            its.card, its.gpu_model, rows.job_a[row], rows.job_b[row], strict=True
        )
    ])  # fmt: skip


def within(error: float, bounds: LogBounds) -> bool:
    """Whether the bounds hold the error."""
    return bool(bounds.low <= error <= bounds.high)


def narrowed(bounds: LogBounds, factor: CardFactor) -> LogBounds:
    """As it was: what is not known of the card in the place of 4 % between all cards."""
    cards, left = _NORMAL_90 * CARD_SPREAD, _NORMAL_90 * factor.log_stderr

    def moved(bound: float) -> float:
        far = math.sqrt(max(0.0, bound**2 - cards**2) + left**2)
        return bound if abs(bound) <= cards else math.copysign(far, bound)

    return LogBounds(moved(bounds.low), moved(bounds.high))


def launches() -> None:
    """What today's model holds of the recorded launches, drawn again by pair and by card."""
    every = [launch for seen in recorded() if (launch := read(seen))]
    right = [launch for launch in every if not launch.seen["jobs_at_unsafe_counts"]]
    print("\n| launches | n | power held | drawn again by pair on a card (95 %) | by card |")
    print("|" + " --- |" * 5)
    models = dict.fromkeys(launch.seen["gpu_model"] for launch in right)
    for name in ("all", *models):
        its = [launch for launch in right if name in ("all", launch.seen["gpu_model"])]
        cells = [held_again(its, lambda launch: launch.pair), held_again(its, lambda x: x.card)]
        part = mean_of([[holds(launch.expected, launch) for launch in its]])
        print(f"| {name} | {len(its)} | {100 * part:.0f} % | {' | '.join(cells)} |")


def held_again(its: list[Launch], group_of: Callable[[Launch], Hashable]) -> str:
    """Groups, and the interval of the part that is held."""
    groups: dict[Hashable, list[bool]] = {}
    for launch in its:
        groups.setdefault(group_of(launch), []).append(holds(launch.expected, launch))
    low, high = drawn(list(groups.values()), mean_of)
    return f"{len(groups)}: {100 * low:.0f} to {100 * high:.0f} %"


def mean_of(groups: list[list[bool]]) -> float:
    """Part of all that is held."""
    return sum(map(sum, groups)) / sum(map(len, groups))


def drawn(
    groups: list[list[bool]], figure: Callable[[list[list[bool]]], float], draws: int = 10_000
) -> tuple[float, float]:
    """95 % interval of a figure over groups that are drawn again."""
    dice = random.Random(1)
    found = sorted(figure(dice.choices(groups, k=len(groups))) for _ in range(draws))
    return found[int(0.025 * draws)], found[int(0.975 * draws)]


if __name__ == "__main__":
    main()
