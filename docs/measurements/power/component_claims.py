"""C1 and C2 of CompPow, and two aims of the component model, where the memory has a sensor.

    .venv/bin/python docs/measurements/power/component_claims.py [FILES...]

FILES are points as `advisor data import` takes them (.parquet, .csv, .jsonl); the bundled points
are always among them. Only windows that passed every cross-check count. One line for each test and
GPU model says what was found, what confirms it, and the verdict: confirmed, refuted, or open where
nothing or too little was measured. Intervals are 95 %, from jobs drawn again with all their
windows.

- C1, copies: R2 of the memory's power over the time in which the memory moves data, for each job
  that copies, at five shares or more. The least of them counts.
- C1, work: the memory's power beside products from L2 or registers, by their counters, less that
  of an idle context.
- C1, all jobs: Spearman's correlation of the memory's power with the time in which it moves data,
  the least of what is expected of "rises with bytes" (confirmed from 0.8, refuted up to 0.4), and
  the slopes for 100 % of that time and for 100 % of the busiest pipe, fitted together.
- C2: the memory's part of the power of triad over that of a product of bf16, on the whole GPU.
- Cards: the parts of one job on the whole of two cards, the largest gap in points of share, where
  both did the same work in a second. Where one did less, its host was slower, not the card.
- Memory: its power by weights fitted without the job, of all cards and of each by itself, and how
  far windows of the same work are apart (memory_errors.py).
"""

import argparse
import itertools
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from memory_errors import again, left_out, left_out_on_each_card, other_card
from memory_rises import Test, Verdict, all_jobs, copies, work

from advisor.core.gpu import WHOLE
from advisor.core.records import SoloPoint
from advisor.errors import AdvisorError, InputError
from advisor.predict.profiles import Floats
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import read_points
from advisor_power.components.activity import activity_of
from advisor_power.components.parts import components
from advisor_power.components.weights import (
    ComponentWeights,
    fit_components,
    trusted,
)

STREAM, PRODUCTS = "triad", ("matmul-bf16", "product-random")
"""Products of bf16 of random numbers: of 8192 cubed, and of 4096 in points of data_pairs.py."""

TIMES_AS_LARGE = 2.0

SIGNATURE_POINTS = 3.0
SAME_WORK = 0.03
"""Rates that differ by no more are of the same work."""


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="C1 and C2 of CompPow, from points.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES")
    try:
        print("\n".join(table(solo_points(parser.parse_args(words).files))))
    except AdvisorError as error:
        parser.error(str(error))


def solo_points(files: Iterable[Path]) -> list[SoloPoint]:
    """Trusted windows of jobs alone, of files and bundle; the same window counts once."""
    read = [p for file in files for p in read_points(file) if isinstance(p, SoloPoint)]
    return trusted({p.point_id: p for p in (*bundled_solo_points(), *read)}.values())


def table(points: Sequence[SoloPoint]) -> Iterator[str]:
    """Markdown."""
    yield "| claim | GPU model | windows with the memory's power | found | confirmed if | verdict |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for model in sorted({p.gpu_model for p in points}):
        mine = [p for p in points if p.gpu_model == model]
        # What cannot be is no reading: as `components` has it.
        read = [p for p in mine if p.memory_power_w and 0 < p.memory_power_w < (p.power_w or 0.0)]
        weights = fitted(mine)
        of_parts = (classes(mine, read, weights), cards(mine, weights))
        for t in (
            copies(read),
            work(read),
            all_jobs(read),
            *of_parts,
            left_out(read),
            *left_out_on_each_card(read),
            other_card(read),
            again(read),
        ):
            yield f"| {t.claim} | {model} | {len(read)} | {t.found} | {t.needs} | {t.verdict} |"


def fitted(points: Sequence[SoloPoint]) -> ComponentWeights | None:
    """Component weights; None: too few jobs were measured on this GPU model."""
    try:
        return fit_components(points)
    except InputError:
        return None


def classes(
    points: Sequence[SoloPoint], read: Sequence[SoloPoint], weights: ComponentWeights | None
) -> Test:
    """C2: every window of triad against every one of a product."""
    shares = {
        job: [
            (p.memory_power_w or 0.0) / (p.power_w or 0.0)
            for p in read
            if p.job == job and p.share_percent == WHOLE
        ]
        for job in (STREAM, *PRODUCTS)
    }
    products = [share for job in PRODUCTS for share in shares[job]]
    ratios = [a / b for a, b in itertools.product(shares[STREAM], products)]
    claim = f"C2: the memory's part is larger for {STREAM} than for products of bf16"
    bar = f"at least {TIMES_AS_LARGE:g} times"
    if not ratios:
        return Test(claim, _estimated_shares(points, weights), bar, "open")
    least, most = min(ratios), max(ratios)
    verdict: Verdict = "open"
    if least >= TIMES_AS_LARGE or most < TIMES_AS_LARGE:
        verdict = "confirmed" if least >= TIMES_AS_LARGE else "refuted"
    times = f"{statistics.median(ratios):.2f} times ({least:.2f} to {most:.2f} over windows)"
    parts = ", ".join(f"{job} {statistics.median(of):.1%}" for job, of in shares.items() if of)
    return Test(claim, f"{times}; {parts}", bar, verdict)


def _estimated_shares(points: Sequence[SoloPoint], weights: ComponentWeights | None) -> str:
    """What weights make of it, which is no test."""
    found: dict[str, list[float]] = {}
    for p in points:
        a = activity_of(p)
        if weights and a and p.job in (STREAM, *PRODUCTS) and p.share_percent == WHOLE:
            share = components(weights, a, p.power_w or 0.0).share("memory")
            found.setdefault(p.job, []).append(share)
    said = [f"{job} {statistics.median(shares):.1%}" for job, shares in found.items()]
    return f"not measured; estimated {', '.join(said)}" if len(said) > 1 else "not measured"


def cards(points: Sequence[SoloPoint], weights: ComponentWeights | None) -> Test:
    """Aim: signatures of two cards; the newest window of a job on the whole of each.

    A measured memory is only compared with a measured one; without it, all parts are estimated.
    """
    newest = sorted((p for p in points if p.share_percent == WHOLE), key=lambda p: p.started_at)
    on_card = {(p.job, p.gpu_uuid): p for p in newest if activity_of(p) is not None}
    pairs = [(a, b) for a, b in itertools.combinations(on_card.values(), 2) if a.job == b.job]
    alike = [(a, b) for a, b in pairs if abs(a.rate / b.rate - 1) <= SAME_WORK]
    claim, bar = "two cards' signatures", f"within {SIGNATURE_POINTS:g} points, all"
    if weights is None or not alike:
        return Test(claim, "no job on two cards", bar, "open")
    gaps = [(_gap(weights, a, b, measured=True), a.job) for a, b in alike]
    within, (most, job) = sum(gap <= SIGNATURE_POINTS for gap, _ in gaps), max(gaps)
    estimated = [_gap(weights, a, b, measured=False) for a, b in alike]
    median = statistics.median(gap for gap, _ in gaps)
    return Test(
        claim,
        f"{within} of {len(gaps)} within, {sum(e <= SIGNATURE_POINTS for e in estimated)} as "
        f"estimated; median {median:.1f}, most {most:.1f} ({job}); {len(pairs) - len(alike)} more "
        "pairs at unlike rates",
        bar,
        "confirmed" if within == len(gaps) else "refuted",
    )


def _gap(weights: ComponentWeights, a: SoloPoint, b: SoloPoint, *, measured: bool) -> float:
    """The largest, in points."""
    both = measured and None not in (a.memory_power_w, b.memory_power_w)
    shares: list[Floats] = []
    for p in (a, b):
        found = activity_of(p)
        assert found is not None  # cards() looks
        parts = components(weights, found, p.power_w or 0.0, p.memory_power_w if both else None)
        shares.append(np.array([100 * parts.share(part) for part in parts.parts_w]))
    return float(np.abs(shares[0] - shares[1]).max())


if __name__ == "__main__":
    main()
