"""Builds the bundled pairs and their references from files of points, and counts them for the card.

    .venv/bin/python docs/measurements/pairs/bundle.py FILES... [--into FOLDER]

Takes what `advisor data import` takes. The same points give the same bytes, in whichever order
and however often they come. FOLDER is data/advisor_data/bundled if not given; its README.md, the
data card, gets the new counts between its markers. Flagged points stay in, and points whose power
betrays wrong results are flagged here, by the bundled profiles; left out are:

- Splits of a pair that is not whole: on one card in one run the nine splits and uncapped are there,
  or failed. A job beside itself has five splits and uncapped.
- Other splits (time-sliced, exact counts of units, over-subscribed) of a pair that is whole in no
  run on that card.
- Solo points other than those at 100 % from the runs and cards of the pairs that stay.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from card import renewed

from advisor.degenerate import with_pair_flags, with_solo_flags
from advisor.errors import AdvisorError, InputError
from advisor.flags import DEGENERATE
from advisor.records import PairPoint, Point, SoloPoint
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points, write_points
from advisor_data.points import in_order
from advisor_training.pairs import kind_of

ROOT = Path(__file__).resolve().parents[3]
BUNDLED = ROOT / "data/advisor_data/bundled"

Place = tuple[str, str, str]
"""Both jobs and the card."""


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Build the bundled pairs and their references.")
    parser.add_argument("files", nargs="+", type=Path, help="Points, as for advisor data import")
    parser.add_argument("--into", type=Path, default=BUNDLED, help="Folder with the data card")
    given = parser.parse_args()
    try:
        bundle(given.files, given.into)
    except AdvisorError as error:
        sys.exit(str(error))


def bundle(files: Iterable[Path], into: Path) -> None:
    """Write the pairs, the references and the counts of the card into a folder.

    Raises:
        InputError: a file cannot be used, or no pair is whole.
        StoreError: a file cannot be written.
    """
    points = merged(files)
    pairs = [point for point in points if isinstance(point, PairPoint)]
    solos = [point for point in points if isinstance(point, SoloPoint)]
    kept = with_pair_flags(whole(pairs), with_solo_flags(bundled_solo_points()))
    references = references_of(kept, solos)
    if not kept:
        raise InputError(f"nothing to bundle: {left_out(pairs, kept)}")
    card = into / "README.md"
    text = renewed(card.read_text("utf-8"), kept, references)
    write_points(into / "pairs.parquet", kept)
    write_points(into / "references.parquet", references)
    card.write_text(text, "utf-8")
    print(f"{len(kept)} pair points kept, {left_out(pairs, kept)}")
    others = len(solos) - len(references)
    print(f"{len(references)} references kept, {others} other solo points left out")


def merged(files: Iterable[Path]) -> list[Point]:
    """The points of all files, each once, in the order of time.

    Raises:
        InputError: a file cannot be read, or two hold the same measurement with other values.
    """
    points: dict[str, Point] = {}
    for file in files:
        for point in map(unflagged, read_points(file)):
            if points.setdefault(point.point_id, point) != point:
                raise InputError(
                    f"{file} has a measurement that another file has with other values: {point}",
                    fix="find out which one is right, and give that file alone",
                )
    return in_order(points.values())


def unflagged(point: Point) -> Point:
    """The point as it was measured: this flag is worked out from others, and here again."""
    return replace(point, flags=tuple(flag for flag in point.flags if flag != DEGENERATE))


def whole(points: Sequence[PairPoint]) -> list[PairPoint]:
    """The points without those of pairs that are not whole."""
    measured: defaultdict[tuple[Place, str], set[tuple[float, ...]]] = defaultdict(set)
    for point in filter(makes_whole, points):
        measured[place(point), point.run].add(split(point))
    good = {key for key, splits in measured.items() if len(splits) == splits_wanted(key[0])}
    places = {at for at, _ in good}
    return [
        p for p in points
        if ((place(p), p.run) in good if makes_whole(p) else place(p) in places)
    ]  # fmt: skip


def makes_whole(point: PairPoint) -> bool:
    """Whether it is at one of the nine splits, or uncapped."""
    return kind_of(point) in ("nine", "uncapped")


def place(point: PairPoint) -> Place:
    """What is compared with each other: one pair on one card."""
    return (*point.pair, point.gpu_uuid)


def split(point: PairPoint) -> tuple[float, ...]:
    """Its shares; of a job beside itself the smaller one first."""
    shares = (point.share_a_percent, point.share_b_percent)
    return tuple(sorted(shares)) if point.job_a == point.job_b else shares


def splits_wanted(at: Place) -> int:
    """How many splits, uncapped among them, make the pair whole."""
    return 6 if at[0] == at[1] else 10


def references_of(pairs: Iterable[PairPoint], solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The jobs alone at 100 % in the runs of the pairs, on their cards."""
    kept = {(point.run, point.gpu_uuid) for point in pairs}
    return [p for p in solos if p.share_percent == 100 and (p.run, p.gpu_uuid) in kept]


def left_out(points: Sequence[PairPoint], kept: Sequence[PairPoint]) -> str:
    """How many points of how many pairs were left out, and which."""
    names = {point.point_id for point in kept}
    lost = Counter(
        f"{' + '.join(p.pair)} ({p.run}, {p.gpu_uuid})" for p in points if p.point_id not in names
    )
    first = f"{lost.total()} of {len(lost)} pairs that are not whole left out"
    return "\n".join([first, *(f"  {count:3} of {pair}" for pair, count in sorted(lost.items()))])


if __name__ == "__main__":
    main()
