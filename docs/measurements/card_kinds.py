"""Are the cards of one model alike in what moving data costs them?

    .venv/bin/python docs/measurements/card_kinds.py

prints rate and power of two memory-bound jobs alone on the whole GPU, for each card that the
bundled points have them of, in the order of the rate.
"""

from collections.abc import Iterator
from itertools import groupby
from statistics import fmean

from advisor.core.records import SoloPoint
from advisor_data.files.bundled import bundled_reference_points, bundled_solo_points

JOBS = ("triad", "reduction")


def main() -> None:
    """Print the table."""
    print("| GPU model | job | card | rate | W | of that memory, W | windows |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for line in rows([*bundled_solo_points(JOBS), *bundled_reference_points()]):
        print(line)


def rows(points: list[SoloPoint]) -> Iterator[str]:
    """A line for each job on each card."""
    whole = [p for p in points if p.job in JOBS and p.share_percent == 100 and p.rate]
    whole.sort(key=lambda p: (p.gpu_model, p.job, p.gpu_uuid))
    by_card = groupby(whole, key=lambda p: (p.gpu_model, p.job, p.gpu_uuid))
    cards = [(key, list(own)) for key, own in by_card]
    for (model, job, uuid), own in sorted(cards, key=lambda c: (c[0][:2], _rate(c[1]))):
        memory = [p.memory_power_w for p in own if p.memory_power_w is not None]
        cells = (
            model,
            job,
            uuid.removeprefix("GPU-")[:4],
            f"{_rate(own):.1f}",
            f"{fmean(p.power_w for p in own):.0f}",
            f"{fmean(memory):.0f}" if memory else "",
            str(len(own)),
        )
        yield f"| {' | '.join(cells)} |"


def _rate(points: list[SoloPoint]) -> float:
    return fmean(p.rate for p in points)


if __name__ == "__main__":
    main()
