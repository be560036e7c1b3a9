"""The script that builds the bundled pairs, and what is bundled."""

import random
import re
import runpy
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic_pairs as made_up

from advisor.formats.rows import to_row
from advisor_data.bundled import (
    bundled_pair_points,
    bundled_reference_points,
    bundled_set_points,
    bundled_solo_points,
)
from advisor_data.files import read_points, write_points

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs/measurements/pairs/bundle.py"
BUNDLED = ROOT / "data/advisor_data/bundled"

PAIRS = [(made_up.CLIMBER, made_up.SITTER), (made_up.HOG, made_up.HOG)]


def bundle(into: Path, *files: Path | str) -> None:
    """Run the script in this process; the folder gets a data card first.

    Raises:
        SystemExit: it ended with this message.
    """
    into.mkdir(exist_ok=True)
    shutil.copy(BUNDLED / "README.md", into)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(SCRIPT.parent), *sys.path])
        patch.setattr(sys, "argv", [str(SCRIPT), *map(str, files), "--into", str(into)])
        runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.mark.slow
def test_the_same_points_give_the_same_bytes(tmp_path: Path) -> None:
    """In whichever order, format and number of files they come; and once more from the result."""
    pairs, solos = made_up.pair_points(PAIRS), made_up.solo_points(run="first")
    write_points(tmp_path / "pairs.jsonl", pairs)
    write_points(tmp_path / "solos.jsonl", solos)
    mixed = random.Random(1).sample(pairs, len(pairs))
    write_points(tmp_path / "one.csv", mixed[:15])
    write_points(tmp_path / "two.parquet", mixed[10:])
    names = ("pairs.jsonl", "references.jsonl", "solo.jsonl", "README.md")
    first, other, again = (tmp_path / name for name in ("first", "other", "again"))
    bundle(first, tmp_path / "pairs.jsonl", tmp_path / "solos.jsonl")
    bundle(other, *(tmp_path / name for name in ("solos.jsonl", "two.parquet", "one.csv")))
    bundle(again, *(first / name for name in names[:3]))
    for name in names:
        assert len({(folder / name).read_bytes() for folder in (first, other, again)}) == 1, name


def test_two_values_of_one_measurement_are_refused(tmp_path: Path) -> None:
    """A merge never chooses silently."""
    points = made_up.pair_points(PAIRS)
    write_points(tmp_path / "a.csv", points)
    write_points(tmp_path / "b.csv", [replace(points[0], power_w=1.0)])
    says = r"b\.csv has a measurement that another file has with other values"
    with pytest.raises(SystemExit, match=says):
        bundle(tmp_path / "into", tmp_path / "a.csv", tmp_path / "b.csv")
    assert not (tmp_path / "into/pairs.jsonl").exists()


@pytest.mark.slow
def test_the_card_counts_what_is_bundled(tmp_path: Path) -> None:
    """Built anew from what is bundled, the points and the data card are the ones that lie there."""
    bundle(tmp_path, BUNDLED / "pairs.jsonl", "--alone", BUNDLED / "references.jsonl")
    remedy = f"run: {SCRIPT.relative_to(ROOT)} with all files of points"
    assert (tmp_path / "README.md").read_text() == (BUNDLED / "README.md").read_text(), remedy
    for name in ("pairs.jsonl", "references.jsonl"):
        assert read_points(tmp_path / name) == read_points(BUNDLED / name), remedy


def test_bundled_points_name_no_machine() -> None:
    """No column tells where the host stands: no address, path or name of a domain."""
    points = [*bundled_pair_points(), *bundled_reference_points()]
    texts = {value for p in points for value in to_row(p).values() if isinstance(value, str)}
    assert not [text for text in texts if re.search(r"[/\\@]|\d+\.\d+\.\d+\.\d+|\.[a-z]{2,}", text)]
    assert {p.host for p in points} <= {None, "vm"}


def test_jobs_of_all_sets_can_be_asked_for() -> None:
    """Each job that was measured in a set has a profile of its own on an H200."""
    in_sets = {job for point in bundled_set_points() for job in point.jobs}
    assert (
        len(in_sets & {p.job for p in bundled_solo_points() if p.gpu_model.endswith("H200")}) == 61
    )
