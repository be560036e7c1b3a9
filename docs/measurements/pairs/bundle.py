"""Builds the bundled pairs and their references from files of points, and counts them for the card.

    .venv/bin/python docs/measurements/pairs/bundle.py FILES... [--alone FILES...] [--into FOLDER]

Takes what `advisor data import` takes. The same points give the same bytes, in whichever order
and however often they come. FOLDER is data/advisor_data/bundled if not given; its README.md, the
data card, gets the new counts between its markers. Flagged points stay in, and `degenerate-data`,
`slow-alone` and `results-unread` are worked out here; left out are:

- Splits of a pair that is not whole: on one card in one run the nine splits, in steps of 10 or at
  safe counts, and uncapped are there, or failed. A job beside itself has five splits and uncapped.
  Where the pair is whole elsewhere on that GPU model, so many of the nine do as an evaluation
  needs (`is_full`): a second take.
- Other splits (time-sliced, exact counts of units, over-subscribed) of a pair that is whole in no
  run on that card.
- Solo points from other runs and cards than those of the pairs that stay.

Solo points at 100 % are the references of the pairs. Jobs that a run measured alone at smaller
shares as well (`profiles: true`), at about as many as its other jobs, get a profile: their points
are added to those of solo.jsonl, the references among them. Solo points of the files after --alone
need no pair of their run: sweeps get a profile, the others are references of their card.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from pathlib import Path

from card import renewed
from unread import with_unread_flags

from advisor.core.gpu import Split
from advisor.core.records import DEGENERATE, SLOW_ALONE, UNREAD, PairPoint, Point, SoloPoint
from advisor.errors import AdvisorError, InputError
from advisor.validity.points import with_pair_flags, with_solo_flags
from advisor_data.bundled import bundled_solo_points
from advisor_data.files import read_points, write_points
from advisor_data.lists import position
from advisor_training.rows import how_many, is_full, kinds_of, split_of

ROOT = Path(__file__).resolve().parents[3]
BUNDLED = ROOT / "data/advisor_data/bundled"

WHOLE = frozenset({"nine", "uncapped"})
"""Kinds of splits that make a pair whole."""

OTHER_INPUT = frozenset({"h100-safe"})
"""Runs whose jobs drew their random input in larger pieces than today's do. Their values were
compared within the run; of a job of today they would say that its results differ."""

WORKED_OUT = frozenset({DEGENERATE, SLOW_ALONE, UNREAD})

SWEPT = 0.75
"""Part of the most shares of a run. The splits at safe counts give not all jobs as many shares."""

Place = tuple[str, ...]
"""The jobs and the card."""

RunOnCard = tuple[str, str]
"""A run and a card of it."""


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description="Build the bundled pairs and their references.")
    parser.add_argument("files", nargs="+", type=Path, help="Points, as for advisor data import")
    parser.add_argument("--alone", nargs="+", type=Path, default=[], help="Jobs without pairs")
    parser.add_argument("--into", type=Path, default=BUNDLED, help="Folder with the data card")
    given = parser.parse_args()
    try:
        bundle(given.files, given.alone, given.into)
    except AdvisorError as error:
        sys.exit(str(error))


def bundle(files: Sequence[Path], alone: Sequence[Path], into: Path) -> None:
    """Write the pairs, the references and the counts of the card into a folder.

    Raises:
        InputError: a file cannot be used, or no pair is whole.
        StoreError: a file cannot be written.
    """
    points = merged([*files, *alone])
    pairs = [point for point in points if isinstance(point, PairPoint)]
    solos = [point for point in points if isinstance(point, SoloPoint)]
    found = whole(pairs)
    if not found:
        raise InputError(f"nothing to bundle: {left_out(pairs, found)}")
    kept = {(p.run, p.gpu_uuid) for p in (*found, *merged(alone))}
    new = profiles_of(kept, solos)
    others = (p for p in {*solos} - {*new} if p.share_percent == 100)
    references = [p for p in others if (p.run, p.gpu_uuid) in kept]
    known = {p.point_id: unflagged(p) for p in (*bundled_solo_points(), *new)}
    solos_known = [p for p in sorted(known.values(), key=position) if isinstance(p, SoloPoint)]
    profiles = with_unread_flags(with_solo_flags(solos_known))
    used = with_unread_flags(with_pair_flags(found, profiles))
    card = into / "README.md"
    text = renewed(card.read_text("utf-8"), used, references, profiles)
    write_points(into / "solo.jsonl", profiles)
    write_points(into / "pairs.jsonl", used)
    write_points(into / "references.jsonl", sorted(references, key=position))
    card.write_text(text, "utf-8")
    print(f"{len(used)} pair points kept, {left_out(pairs, used)}")
    rest = len(solos) - len(references) - len(new)
    print(f"{len(references)} references kept, {len(new)} points of profiles, {rest} left out")


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
    return sorted(points.values(), key=position)


def unflagged(point: Point) -> Point:
    """The point as it was measured: these flags are worked out here again."""
    flags = tuple(flag for flag in point.flags if flag not in WORKED_OUT)
    if isinstance(point, SoloPoint) and point.run in OTHER_INPUT:
        return replace(point, flags=flags, reported=None)
    return replace(point, flags=flags)


def whole(points: Sequence[PairPoint]) -> list[PairPoint]:
    """The points without those of pairs that are not whole.

    Where a pair is whole on a GPU model, enough of its nine splits, taken again, stay, too: they
    say how far a measurement repeats.
    """
    measured: defaultdict[tuple[Place, str], set[Split]] = defaultdict(set)
    nine: defaultdict[tuple[Place, str], set[Split]] = defaultdict(set)
    kinds = kinds_of(points)
    for point, kind in zip(points, kinds, strict=True):
        for found in (measured, nine)[: 1 + (kind == "nine")] if kind in WHOLE else ():
            found[place(point), point.run].add(split_of(point))
    good = {
        key
        for key, splits in measured.items()
        if len(splits) == how_many(beside_itself=is_same(key[0])) + 1  # uncapped
    }
    places = {at for at, _ in good}
    known = {(p.jobs, p.gpu_model) for p in points if (place(p), p.run) in good}
    again = {key for key, splits in nine.items() if is_full(splits, beside_itself=is_same(key[0]))}
    return [
        p for p, kind in zip(points, kinds, strict=True)
        if (
            (place(p), p.run) in good
            or (kind not in WHOLE and place(p) in places)
            or ((place(p), p.run) in again and (p.jobs, p.gpu_model) in known)
        )
    ]  # fmt: skip


def place(point: PairPoint) -> Place:
    """What is compared with each other: one pair on one card."""
    return (*point.jobs, point.gpu_uuid)


def is_same(at: Place) -> bool:
    """Whether it is a job beside itself."""
    return at[0] == at[1]


def profiles_of(kept: Set[RunOnCard], solos: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points of jobs that runs on cards measured alone at nearly all shares."""
    shares: defaultdict[tuple[str, str, str], set[float]] = defaultdict(set)
    for point in (p for p in solos if (p.run, p.gpu_uuid) in kept):
        shares[point.run, point.gpu_uuid, point.job].add(point.share_percent)
    most: Counter[str] = Counter()
    for (run, *_), found in shares.items():
        most[run] = max(most[run], len(found))
    needed = {run: max(2.0, SWEPT * count) for run, count in most.items()}
    swept = {key for key, found in shares.items() if len(found) >= needed[key[0]]}
    return [p for p in solos if (p.run, p.gpu_uuid, p.job) in swept]


def left_out(points: Sequence[PairPoint], kept: Sequence[PairPoint]) -> str:
    """How many points of how many pairs were left out, and which."""
    names = {point.point_id for point in kept}
    lost = Counter(
        f"{' + '.join(p.jobs)} ({p.run}, {p.gpu_uuid})" for p in points if p.point_id not in names
    )
    first = f"{lost.total()} of {len(lost)} pairs that are not whole left out"
    return "\n".join([first, *(f"  {count:3} of {pair}" for pair, count in sorted(lost.items()))])


if __name__ == "__main__":
    main()
