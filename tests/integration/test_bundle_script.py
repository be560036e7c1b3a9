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

from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import to_row
from advisor_data.bundled import bundled_pair_points, bundled_reference_points
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


def built(folder: Path, points: list[PairPoint], solos: list[SoloPoint]) -> list[PairPoint]:
    """What the script keeps of pair points."""
    write_points(folder / "p.jsonl", points)
    write_points(folder / "s.csv", solos)
    bundle(folder / "into", folder / "p.jsonl", folder / "s.csv")
    return [p for p in read_points(folder / "into/pairs.jsonl") if isinstance(p, PairPoint)]


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
    files = (tmp_path / name for name in ("solos.jsonl", "two.parquet", "one.csv"))
    bundle(other, *files)
    bundle(again, *(first / name for name in names[:3]))
    for name in names:
        assert len({(folder / name).read_bytes() for folder in (first, other, again)}) == 1, name


def test_pairs_that_are_not_whole_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without 50/50 a pair on its card is left out, and nothing else; the count is said."""
    whole = made_up.pair_points(PAIRS)
    torn = [
        p for p in made_up.pair_points(PAIRS[:1], gpu_uuid="GPU-2") if p.shares_percent[0] != 50
    ]
    write_points(tmp_path / "all.parquet", [*whole, *torn])
    bundle(tmp_path / "into", tmp_path / "all.parquet")
    assert sorted(read_points(tmp_path / "into/pairs.jsonl"), key=str) == sorted(whole, key=str)
    said = capsys.readouterr().out
    assert f"{len(torn)} of 1 pairs that are not whole left out" in said
    assert f"{len(torn)} of climber + sitter (first, GPU-2)" in said


def test_five_splits_of_a_job_beside_itself_are_whole(tmp_path: Path) -> None:
    """90/10 is 10/90 there; four are not enough, and neither are five without uncapped."""
    points = [
        p for p in made_up.pair_points(PAIRS[1:]) if p.shares_percent[0] not in (60, 70, 80, 90)
    ]
    kept = built(tmp_path, points, [])
    # The last one is time-sliced.
    assert len(kept) == len(points) == 5 + 1 + 1
    for less in (
        [p for p in points if p.shares_percent[0] != 30],
        [p for p in points if p.mode != "uncapped"],
    ):
        write_points(tmp_path / "less.csv", less)
        with pytest.raises(SystemExit, match="nothing to bundle: 6 of 1 pairs that are not whole"):
            bundle(tmp_path / "less", tmp_path / "less.csv")
        assert not (tmp_path / "less/pairs.jsonl").exists()


def test_references_are_those_of_the_pairs_runs(tmp_path: Path) -> None:
    """Profiles and other runs stay out: they would stand for the wrong card or hour."""
    solos = [
        *made_up.solo_points(run="first"),
        *made_up.solo_points(run="other"),
        *made_up.solo_points(run="first", gpu_uuid="GPU-without-pairs"),
    ]
    built(tmp_path, made_up.pair_points(PAIRS), [p for p in solos if p.share_percent == 100])
    kept = read_points(tmp_path / "into/references.jsonl")
    assert {(to_row(p)["run"], to_row(p)["gpu_uuid"]) for p in kept} == {("first", "GPU-made-up-0")}
    assert sorted(p.job for p in kept if isinstance(p, SoloPoint)) == sorted(
        job.name for job in made_up.JOBS
    )


def test_whole_sweeps_of_the_pairs_runs_are_profiles(tmp_path: Path) -> None:
    """Their points at 100 % are references, too, and stand in one file; a torn sweep is none."""
    solos = [
        *made_up.solo_points(run="other"),
        *(p for p in made_up.solo_points(run="first") if p.job != "hog" or p.share_percent >= 50),
    ]
    built(tmp_path, made_up.pair_points(PAIRS), solos)
    files = (read_points(tmp_path / f"into/{name}.jsonl") for name in ("solo", "references"))
    rows = (map(to_row, points) for points in files)
    profiles, references = (
        {(row["job"], row["run"]) for row in found if row["gpu_model"] == made_up.GPU_MODEL}
        for found in rows
    )
    assert references == {("hog", "first")}
    assert profiles == {(job.name, "first") for job in made_up.JOBS if job.name != "hog"}


def test_two_values_of_one_measurement_are_refused(tmp_path: Path) -> None:
    """A merge never chooses silently."""
    points = made_up.pair_points(PAIRS)
    write_points(tmp_path / "a.csv", points)
    write_points(tmp_path / "b.csv", [replace(points[0], power_w=1.0)])
    says = r"b\.csv has a measurement that another file has with other values"
    with pytest.raises(SystemExit, match=says):
        bundle(tmp_path / "into", tmp_path / "a.csv", tmp_path / "b.csv")
    assert not (tmp_path / "into/pairs.jsonl").exists()


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
