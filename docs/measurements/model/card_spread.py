"""Prints how much the power of one job alone differs from card to card at the same rate.

    .venv/bin/python docs/measurements/model/card_spread.py

`advisor.predict.card_factor.CARD_SPREAD` is from here: what jobs alone on the whole GPU
draw beside the pairs, against their profiles. Only jobs that run within 2 % of the profile's
rate, on cards below 95 % of the power limit; no training, which fills the SMs differently from
run to run.
"""

import math
import statistics
from collections.abc import Iterator, Mapping

from advisor.core.records import SoloPoint
from advisor.predict.profiles import make_profiles
from advisor_data.files.bundled import bundled_reference_points, bundled_solo_points
from advisor_training.dataset.solo import whole_gpu

SAME_RATE = 0.02
BELOW_LIMIT = 0.95


def main() -> None:
    """A line for each card, then the spread between cards and between jobs of one card."""
    cards: dict[tuple[str, str], dict[str, list[float]]] = {}
    for point, ratio in ratios():
        jobs = cards.setdefault((point.gpu_model, point.gpu_uuid), {})
        jobs.setdefault(point.job, []).append(ratio)
    print("| card | jobs | log of power over the profile's, % |\n| --- | --- | --- |")
    of_card = {key: [statistics.median(v) for v in jobs.values()] for key, jobs in cards.items()}
    for (model, uuid), found in of_card.items():
        shown = ", ".join(f"{100 * ratio:+.1f}" for ratio in found)
        print(f"| {model} {uuid[:12]} | {len(found)} | {shown} |")
    for what, found in (("power", of_card), ("power above idle", above_idle())):
        between, within = spread(found)
        print(f"\n{what}: between cards {100 * between:.1f} %, between jobs of one card "
              f"{100 * within:.1f} %")  # fmt: skip
    for model in dict.fromkeys(model for model, _ in of_card):
        idle_w = {p.gpu_uuid: p.idle_power_w for p, _ in ratios() if p.gpu_model == model}
        known = [watts for watts in idle_w.values() if watts is not None]
        print(f"idle power of {len(known)} cards of {model}: {statistics.mean(known):.1f} W, "
              f"standard deviation {statistics.stdev(known):.1f} W")  # fmt: skip


def ratios() -> Iterator[tuple[SoloPoint, float]]:
    """Points that can be compared, and the log of their power over the profile's."""
    profiles = make_profiles(bundled_solo_points())
    for point in whole_gpu(bundled_reference_points()):
        profile = profiles.get((point.job, point.gpu_model))
        if profile is None or "train" in point.job or point.power_w is None:
            continue
        limit_w = profile.power_limit_w or math.inf
        below = max(point.power_w, profile.whole_gpu_power_w) < BELOW_LIMIT * limit_w
        if below and abs(point.rate / profile.whole_gpu_rate - 1) < SAME_RATE:
            yield point, math.log(point.power_w / profile.whole_gpu_power_w)


def above_idle() -> dict[tuple[str, str], list[float]]:
    """The same of power less idle power, by card."""
    profiles = make_profiles(bundled_solo_points())
    cards: dict[tuple[str, str], dict[str, list[float]]] = {}
    for point, _ in ratios():
        profile = profiles[point.job, point.gpu_model]
        above_w = (point.power_w or math.nan) - (point.idle_power_w or math.nan)
        usual_w = profile.whole_gpu_power_w - profile.idle_power_w
        jobs = cards.setdefault((point.gpu_model, point.gpu_uuid), {})
        jobs.setdefault(point.job, []).append(math.log(above_w / usual_w))
    return {key: [statistics.median(v) for v in jobs.values()] for key, jobs in cards.items()}


def spread(of_card: Mapping[tuple[str, str], list[float]]) -> tuple[float, float]:
    """Standard deviations between cards, and between jobs of one card, by the method of moments."""
    several = [statistics.variance(found) for found in of_card.values() if len(found) > 1]
    within = statistics.mean(several)
    means = [statistics.mean(found) for found in of_card.values()]
    noise = statistics.mean(within / len(found) for found in of_card.values())
    return math.sqrt(max(0.0, statistics.variance(means) - noise)), math.sqrt(within)


if __name__ == "__main__":
    main()
