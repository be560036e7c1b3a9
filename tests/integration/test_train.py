"""`advisor train` from outside, and the model that comes with the package."""

import dataclasses
import functools
import json
import random
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic_pairs as made_up
from command_line import Advisor
from made_up_rows import solo_points
from retraining import few_trees

import advisor_models
from advisor.predict.profiles import feature_names_of
from advisor_data.files import read_points, write_points
from advisor_models.model_predictor import HEADS
from advisor_models.registry import read_artefact, trees_file
from advisor_training.learners import extra_trees, fit
from advisor_training.rows import LeftOut, read_measured
from advisor_training.train import LIBRARIES, forest_bytes, make_training_set

BUNDLED = Path(advisor_models.__file__).parent / "bundled"
WHEN = ("--created-at", "2026-02-01T10:00:00+02:00")


@pytest.fixture
def run(advisor: Advisor) -> Iterator[Advisor]:
    """The command with options, by a model of few trees."""
    with few_trees(20):
        yield functools.partial(advisor, "train")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with points of every made-up pair, one of them doubtful, in no order."""
    write_shuffled(tmp_path, random.Random(str(tmp_path)))
    return tmp_path


def write_shuffled(folder: Path, dice: random.Random) -> None:
    first, *others = made_up.pair_points()
    pairs = [dataclasses.replace(first, flags=("counter-mismatch",)), *others]
    solos = solo_points()
    write_points(folder / "pairs.parquet", dice.sample(pairs, len(pairs)))
    write_points(folder / "solo.csv", dice.sample(solos, len(solos)))


FILES = ("--pairs", "pairs.parquet", "--solo", "solo.csv")


@pytest.mark.slow
def test_a_model_and_what_is_said_of_it(data: Path, run: Advisor) -> None:
    """One command: what was left out, how good it is, how long it took, and the files.

    JSON says the same, and the same points in another order give the same files, byte for byte.
    """
    done = run(*FILES, *WHEN)
    assert done.code == 0, done.err
    for part in (
        "1 point left out: pair points flagged counter-mismatch",
        "throughput-per-watt: ",
        "fitted in ",
        "written: model/speed.trees, model/power.trees, model/manifest.json",
    ):
        assert part in done.out
    manifest = read_artefact(data / "model").manifest
    assert manifest.version.startswith("20260201-")
    assert manifest.created_at == "2026-02-01T08:00:00+00:00"
    facts = manifest.dataset
    assert (manifest.gpu_models, facts.jobs, facts.pairs, facts.pair_points) == (
        (made_up.GPU_MODEL,), ("climber", "hog", "middle", "sitter", "slow"), 15, 179
    )  # fmt: skip
    write_shuffled(data, random.Random(0))
    answer = json.loads(run(*FILES, *WHEN, "--out", "here", "--json").out)
    names = ("speed.trees", "power.trees", "manifest.json")
    expected = {
        "files": [f"here/{name}" for name in names],
        "left_out": [{"reason": "pair points flagged counter-mismatch", "points": 1}],
        "figures": dict(manifest.figures),
        "version": manifest.version,
    }
    assert {**answer, **expected} == answer
    assert 0 < answer["fit_s"] < answer["total_s"]
    for name in names:
        assert (data / "model" / name).read_bytes() == (data / "here" / name).read_bytes()


def test_pairs_without_the_nine_splits_are_too_little(data: Path, run: Advisor) -> None:
    """Nothing would tell how good a choice is; said before anything is fitted."""
    few = [p for p in made_up.pair_points() if p.shares_percent[0] in (10, 90, 100)]
    write_points(data / "pairs.parquet", few)
    done = run(*FILES, *WHEN)
    assert done.code == 2
    assert "no pair was measured at enough of the nine splits" in done.err


def test_own_points_beside_the_bundled_ones(data: Path) -> None:
    files = data / "pairs.parquet", data / "solo.csv"
    own, both = read_measured(*files), read_measured(*files, with_bundled=True)
    bundled = read_measured(None, None)
    assert both.pairs == (*own.pairs, *bundled.pairs)
    assert both.profiled == (*own.profiled, *bundled.profiled)
    assert (both.references, own.references) == (bundled.references, ())
    assert read_measured(None, None, with_bundled=True) == bundled


def test_unlike_copies_of_a_window_teach_nothing(data: Path) -> None:
    files, more = (
        (data / "pairs.parquet", data / "solo.csv"),
        (data / "more.parquet", data / "m.csv"),
    )
    whole = read_measured(*files)
    changes: list[dict[str, Any]] = [{"power_w": 1.0, "written_by": "a"}, {"rate": 1.0, "run": "x"}]
    for file, copy, change in zip(files, more, changes, strict=True):
        points = read_points(file)
        write_points(copy, [*points, dataclasses.replace(points[0], **change)])
    left = read_measured(*more)
    assert LeftOut("unlike copies of a window", 3) in left.left_out
    assert (len(left.pairs), len(left.profiled)) == (len(whole.pairs), len(whole.profiled) - 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--created-at", "yesterday"), "yesterday is not a time"),
        (("--pairs", "solo.csv"), "solo.csv has solo points where pair points are wanted"),
    ],
)
def test_what_cannot_be_used_is_said(
    data: Path, run: Advisor, options: tuple[str, ...], said: str
) -> None:
    done = run(*FILES, *options, "--json")
    assert done.code == 2
    assert said in json.loads(done.out)["error"]["message"]
    assert "Traceback" not in done.err
    assert not (data / "model").exists()


def test_idle_power_that_nobody_measured_is_asked_for(data: Path, run: Advisor) -> None:
    """Without it there is no power to predict from; one profile that has it is enough."""
    solos = made_up.solo_points()
    write_points(data / "solo.csv", solos)
    done = run(*FILES)
    assert (done.code, "has the power of the idle GPU" in done.err) == (2, True)
    one = [dataclasses.replace(p, idle_power_w=80.0) if p.job == "hog" else p for p in solos]
    made_from = make_training_set(made_up.pair_points(), one)
    assert made_from.fill["idle_power_w"] == 80
    assert not np.isnan(made_from.rows.heads["power"][..., 0]).any()


@pytest.mark.slow
def test_bundled_model_is_of_the_bundled_points() -> None:
    """Points or features that changed without a new model show here: docs/training.md."""
    measured = read_measured(None, None)
    made_from = make_training_set(measured.pairs, measured.profiled, measured.references)
    artefact = read_artefact(BUNDLED)
    manifest = artefact.manifest
    assert manifest.dataset == made_from.facts
    for trained, head in zip(manifest.heads, HEADS, strict=True):
        assert (trained.name, trained.features) == (head.name, feature_names_of(head.features_of))
    assert dict(manifest.fill) == made_from.fill
    if manifest.libraries == {name: metadata.version(name) for name in LIBRARIES}:
        again = fit(extra_trees, made_from.rows).by_head
        for head in HEADS:
            assert artefact.files[trees_file(head.name)] == forest_bytes(
                again[head.name].regressor_
            )
