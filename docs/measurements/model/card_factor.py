"""Prints why recorded launches drew what they drew, and what a factor for each card is worth.

    .venv/bin/python docs/measurements/model/card_factor.py

The launches of launches.py at a split. The factor of a card is learned from jobs alone on it (the
bundled references, and those that same-work.json has beside its launches) and from the other
launches on it: all but the one that is predicted, or all of other pairs. Cards that jobs were
profiled on are left as they are. Errors are of the log of power; intervals are bootstraps over
pairs of a card.
"""

import dataclasses
import json
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from launches import BUNDLED, MEASUREMENTS, recorded

from advisor.core.split import Split
from advisor.predict.card_factor import (
    BELOW_LIMIT,
    CardFactor,
    CardPredictor,
    card_factor,
    observation_ratio,
    reference_logs,
)
from advisor.predict.predictions import Prediction
from advisor.predict.profiles import Profile, make_profiles
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_models.model_predictor import ModelPredictor

LIMIT_W = 700.0
"""Of H100 and H200 alike."""

PREDICTOR = ModelPredictor(BUNDLED)
PROFILES = make_profiles(bundled_solo_points())
References = dict[str, dict[str, float]]


@dataclass(frozen=True, eq=False)
class Launch:
    """One recorded launch at a split."""

    seen: dict[str, Any]
    profiles: tuple[Profile, ...]
    expected: Prediction

    @property
    def card(self) -> str:
        return self.seen["gpu_uuid"]

    @property
    def pair(self) -> tuple[str, ...]:
        return (self.card, *sorted(p.job for p in self.profiles))

    @property
    def rates(self) -> list[float]:
        return [job["rate"] for job in self.seen["jobs"]]

    @property
    def is_below_limit(self) -> bool:
        return max(self.seen["power_w"], self.expected.power_w.value) < BELOW_LIMIT * LIMIT_W

    def error(self, expected: Prediction) -> float:
        """Observed over expected power, less 1."""
        return self.seen["power_w"] / expected.power_w.value - 1

    def ratio(self) -> float | None:
        return observation_ratio(self.seen["power_w"], self.rates, self.expected, LIMIT_W)


def main() -> None:
    """Why, then what the factor is worth."""
    every = [launch for seen in recorded() if (launch := read(seen))]
    right = [launch for launch in every if not launch.seen["jobs_at_unsafe_counts"]]
    references = {model: dict(of) for model, of in of_cards().items()}
    why(every, right, references)
    for name, is_other in (
        ("leave one launch out", lambda a, b: a is not b),
        ("leave its pair out", lambda a, b: a.pair != b.pair),
    ):
        worth(name, right, references, is_other)


def read(seen: dict[str, Any]) -> Launch | None:
    """A launch under limits, of jobs with profiles."""
    profiles = [PROFILES.get((job["job"], seen["gpu_model"])) for job in seen["jobs"]]
    known = tuple(profile for profile in profiles if profile)
    if seen["mode"] != "mps" or len(known) < len(profiles):
        return None
    split = Split(tuple(job["share_percent"] for job in seen["jobs"]))
    (expected,) = PREDICTOR.predict(known, [split])
    return Launch(seen, known, expected)


def of_cards() -> dict[str, References]:
    """By GPU model, card and job, the log of power alone over the profile's."""
    points = [*bundled_reference_points(), *beside_launches()]
    models = dict.fromkeys(point.gpu_model for point in points)
    return {model: reference_logs(points, PROFILES, model) for model in models}


def beside_launches() -> Iterator[Any]:
    """Jobs alone on the cards of same-work.json, each once, as points."""
    points = bundled_reference_points()
    seen: set[tuple[str, str]] = set()
    for launch in json.loads((MEASUREMENTS / "same-work.json").read_text("utf-8")):
        for job, alone in zip(launch["pair"], launch["alone"], strict=True):
            if (job, alone["gpu_uuid"]) not in seen:
                seen.add((job, alone["gpu_uuid"]))
                fields = {**alone, "flags": tuple(alone["flags"])}
                yield dataclasses.replace(points[0], job=job, **fields)


def why(every: list[Launch], right: list[Launch], references: dict[str, References]) -> None:
    """Card by card: what jobs alone say of it, what pairs did, and how warm it was."""
    print("| card | alone, same rate, below the limit: % over profile | launches below the limit: "
          "% over expected | of these at expected rates | at the limit | °C |")  # fmt: skip
    print("|" + " --- |" * 6)
    points = [*bundled_pair_points(), *bundled_reference_points()]
    for card in dict.fromkeys(launch.card for launch in right):
        its = [launch for launch in right if launch.card == card]
        below = [launch for launch in its if launch.is_below_limit]
        alone = next((cards[card] for cards in references.values() if card in cards), {})
        warm = [p.temperature_c for p in points if p.gpu_uuid == card and p.temperature_c]
        columns = (
            card[:12],
            ", ".join(f"{job} {100 * log:+.1f}" for job, log in alone.items()) or "none",
            errors_text(below),
            errors_text([launch for launch in below if launch.ratio() is not None]),
            errors_text([launch for launch in its if not launch.is_below_limit]),
            f"{statistics.mean(warm):.0f}" if warm else "not recorded",
        )
        print(f"| {' | '.join(columns)} |")
    for job, here, there in clocks_at_limit({launch.card for launch in right}):
        print(f"{job} at the power limit: {here[0][4:12]} {here[1]:.0f} MHz, others {there}")
    wrong = [launch for launch in every if launch not in right]
    print(f"\nlaunches with a job at an unsafe count, left out: {errors_text(wrong)}")
    for model, cards in references.items():
        means = {card: statistics.mean(jobs.values()) for card, jobs in cards.items()}
        warm = {
            card: [p.temperature_c for p in points if p.gpu_uuid == card and p.temperature_c]
            for card in means
        }
        shown = ", ".join(
            f"{card[4:12]} {100 * log:+.1f}"
            + (f" ({statistics.mean(warm[card]):.0f} °C)" if warm[card] else "")
            for card, log in means.items()
        )
        print(f"{model}, alone: {shown}")
    within = [
        statistics.variance(of.values())
        for cards in references.values() for of in cards.values() if len(of) > 1
    ]  # fmt: skip
    print(f"between jobs of one card {100 * statistics.mean(within) ** 0.5:.1f} %\n")


def clocks_at_limit(launched: set[str]) -> Iterator[tuple[str, tuple[str, float], str]]:
    """Clocks of one job alone, held back by the limit, on a card of the launches and on others."""
    clocks: dict[str, dict[str, list[float]]] = {}
    for point in bundled_reference_points():
        if "throttled" in point.flags and point.sm_clock_mhz and (point.power_w or 0) > 680:
            cards = clocks.setdefault(f"{point.job} on {point.gpu_model}", {})
            cards.setdefault(point.gpu_uuid, []).append(point.sm_clock_mhz)
    for job, cards in clocks.items():
        mean = {card: statistics.mean(mhz) for card, mhz in cards.items()}
        for card in launched & mean.keys():
            others = sorted(mhz for other, mhz in mean.items() if other != card)
            if others:
                yield job, (card, mean[card]), ", ".join(f"{mhz:.0f}" for mhz in others)


def errors_text(launches: Sequence[Launch]) -> str:
    """Mean error and how many."""
    if not launches:
        return "none"
    mean = statistics.mean(launch.error(launch.expected) for launch in launches)
    return f"{100 * mean:+.1f} (of {len(launches)})"


def worth(
    name: str,
    launches: list[Launch],
    references: dict[str, References],
    is_other: Callable[[Launch, Launch], bool],
) -> None:
    """Errors with and without, and how many launches the intervals hold."""
    with_factor = [on_its_card(launch, launches, references, is_other) for launch in launches]
    print(
        f"## {name}\n\n| launch | card | factor, % | off without, % | with, % | held | held with |"
    )
    print("|" + " --- |" * 7)
    for launch, (factor, there) in zip(launches, with_factor, strict=True):
        both = (launch.expected, there)
        off = [f"{100 * launch.error(p):+.1f}" for p in both]
        ok = ["yes" if holds(p, launch) else "no" for p in both]
        used = f"{100 * factor.log_factor:+.1f} ± {100 * factor.log_stderr:.1f}" if factor else "-"
        print(f"| {', '.join(launch.pair[1:])}, {launch.expected.split} | {launch.card[4:12]} | "
              f"{used} | {' | '.join(off)} | {' | '.join(ok)} |")  # fmt: skip
    rows = [
        (launch, launch.expected, there)
        for launch, (_, there) in zip(launches, with_factor, strict=True)
    ]
    below = [row for row in rows if row[0].is_below_limit]
    changed = [row for row in rows if row[1].power_w != row[2].power_w]
    print("\n| launches | n | mean error without | with | difference (95 %) | held without | with "
          "| mean width without | with |\n|" + " --- |" * 9)  # fmt: skip
    for title, some in (("all", rows), ("below the limit", below), ("with a factor", changed)):
        print(f"| {title} | {len(some)} | {summary(some)} |")
    print()


def on_its_card(
    launch: Launch,
    launches: list[Launch],
    references: dict[str, References],
    is_other: Callable[[Launch, Launch], bool],
) -> tuple[CardFactor | None, Prediction]:
    """The factor without the launch, and what is expected of the launch with it."""
    seen: dict[tuple[str, ...], list[float]] = {}
    for other in launches:
        ratio = other.ratio()
        usual = not any(other.card in p.gpu_uuids for p in other.profiles)
        if other.card == launch.card and is_other(launch, other) and usual and ratio is not None:
            seen.setdefault(other.pair, []).append(ratio)
    factor = card_factor(launch.card, references.get(launch.seen["gpu_model"], {}), seen)
    if factor is None or any(launch.card in p.gpu_uuids for p in launch.profiles):
        return None, launch.expected
    there = CardPredictor(PREDICTOR, launch.profiles, factor)
    (expected,) = there.predict(there.brought(launch.profiles), [launch.expected.split])
    return factor, expected


def holds(expected: Prediction, launch: Launch) -> bool:
    """Whether the interval has what was observed."""
    return expected.power_w.low <= launch.seen["power_w"] <= expected.power_w.high


def summary(rows: list[tuple[Launch, Prediction, Prediction]]) -> str:
    """Mean absolute errors, their difference, what is held, and how wide the intervals are."""
    errors = [[abs(row[0].error(row[n])) for row in rows] for n in (1, 2)]
    held = [statistics.mean(holds(row[n], row[0]) for row in rows) for n in (1, 2)]
    width = [
        statistics.mean(
            (row[n].power_w.high - row[n].power_w.low) / row[n].power_w.value for row in rows
        )
        for n in (1, 2)
    ]
    gains: dict[tuple[str, ...], list[float]] = {}
    for row, before, after in zip(rows, *errors, strict=True):
        gains.setdefault(row[0].pair, []).append(after - before)
    low, high = bootstrap(list(gains.values()))
    means = [statistics.mean(of) for of in errors]
    cells = (
        f"{100 * means[0]:.2f} %", f"{100 * means[1]:.2f} %",
        f"{100 * (means[1] - means[0]):+.2f} [{100 * low:+.2f} {100 * high:+.2f}]",
        f"{100 * held[0]:.0f} %", f"{100 * held[1]:.0f} %",
        f"{100 * width[0]:.1f} %", f"{100 * width[1]:.1f} %",
    )  # fmt: skip
    return " | ".join(cells)


def bootstrap(groups: list[list[float]], draws: int = 10_000) -> tuple[float, float]:
    """95 % interval of the mean over values whose groups are drawn again."""
    draw = random.Random(1)
    means = sorted(
        statistics.fmean(v for group in draw.choices(groups, k=len(groups)) for v in group)
        for _ in range(draws)
    )
    return means[int(0.025 * draws)], means[int(0.975 * draws)]


if __name__ == "__main__":
    main()
