"""Measure, train, promote, ask: the loop of somebody whose GPU the bundled model has not seen."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic_pairs as made_up
from command_line import Advisor
from made_up_rows import solo_points
from new_database import keep
from reading import answer_of, some
from retraining import few_trees, launched

from advisor.core.objectives import POLICY
from advisor.core.records import OBSERVED_SOURCE, Observation, ObservedPart
from advisor.settings import read_settings
from advisor_data.bundled import bundled_pair_points
from advisor_models.registry import Registry, read_artefact
from advisor_training.evaluation import evaluate_local
from advisor_training.rows import (
    BUNDLED,
    MEASURED_HERE,
    OF_LAUNCHES,
    make_data,
    read_local,
    read_measured,
    with_launches,
)


@pytest.fixture(scope="module", autouse=True)
def small_models() -> Iterator[None]:
    with few_trees(20):
        yield


@pytest.fixture
def home(advisor: Advisor, tmp_path: Path) -> Path:
    return tmp_path / "home"


def keep_pairs(home: Path, jobs: int, *, solos: bool = True) -> None:
    chosen = made_up.JOBS[:jobs]
    pairs = made_up.pair_points(itertools.combinations_with_replacement(chosen, 2))
    keep(home, *pairs, *(solo_points(chosen) if solos else []))


def test_training_takes_what_was_measured_here(home: Path, advisor: Advisor) -> None:
    keep_pairs(home, 3)
    first, second, *_ = advisor("train", "--out", "mine").out.splitlines()
    assert first == "learning from 72 pair points and 30 solo points that were measured here"
    assert "--with-bundled" in second
    assert read_artefact(Path("mine")).manifest.gpu_models == (made_up.GPU_MODEL,)
    both = some(read_local(read_settings(), with_bundled=True))
    assert [source.name for source in both.sources] == [MEASURED_HERE, BUNDLED]
    assert both.sources[1].pair_points == len(bundled_pair_points())


def launches(count: int) -> list[Observation]:
    """Of made-up pairs on another card, half of them with wrong results."""
    points = made_up.pair_points()[4::12][:count]
    seen = [replace(launched(p, n), gpu_uuid="GPU-launches") for n, p in enumerate(points)]
    return [
        replace(one, parts=tuple(replace(part, results="differ") for part in one.parts))
        if number % 2
        else one
        for number, one in enumerate(seen)
    ]


@pytest.mark.slow
def test_training_takes_what_launches_did(home: Path, advisor: Advisor) -> None:
    """Beside the measured pairs unless they are not wanted; wrong ones are counted, not learned."""
    keep_pairs(home, 3)
    keep(home, *launches(4))
    done = advisor("train")
    assert done.out.startswith(
        "learning from 72 pair points and 30 solo points that were measured here and "
        "2 pair points of launches\n"
    )
    assert "2 points left out: launches whose results were wrong" in done.out
    found, without = (
        json.loads(advisor("train", "--json", *more).out) for more in ((), ("--no-launches",))
    )
    assert found["sources"] == [
        {"name": MEASURED_HERE, "pair_points": 72, "solo_points": 30},
        {"name": OF_LAUNCHES, "pair_points": 2, "solo_points": 0},
    ]
    assert found["fault"] is None
    assert (found["rows"] - without["rows"], len(without["sources"])) == (2, 1)


def test_launches_alone_are_learned_from_beside_the_bundled_pairs(home: Path) -> None:
    point = next(p for p in bundled_pair_points() if p.jobs == ("mobilenet-train-b2", "triad"))
    seen = replace(launches(1)[0], parts=tuple(
        ObservedPart(job=p.job, share_percent=50.0, units=66, rate=p.rate, results="right")
        for p in point.parts
    ), gpu_model=point.gpu_model)  # fmt: skip
    keep(home, seen)
    bundled = read_measured(None, None)
    both = with_launches(bundled, read_settings())
    assert [source.name for source in both.sources] == [BUNDLED, OF_LAUNCHES]
    assert (both.pairs[:-1], both.pairs[-1].source) == (bundled.pairs, OBSERVED_SOURCE)


def test_nothing_measured_here_means_the_bundled_points(home: Path) -> None:
    """Without a store none is made, and a store of profiles alone has nothing to learn from."""
    assert read_local(read_settings()) is None
    assert not home.exists()
    keep(home, *made_up.solo_points())
    assert read_local(read_settings()) is None


def test_two_jobs_are_too_few(home: Path, advisor: Advisor) -> None:
    """Their intervals held nothing of what was measured, and the model was written."""
    keep_pairs(home, 2)
    done = advisor("train")
    assert (done.code, Path("model").exists()) == (2, False)
    assert "cannot be learned from pairs of climber and sitter alone" in done.err
    assert "--with-bundled" in done.err


KEYS = {
    "model", "objective", "pairs", "jobs", "splits", "known_jobs", "new_gpu_models",
    "oracle_percent", "oracle_worst_percent", "rate_mean_error_percent",
    "rate_median_error_percent", "power_mean_error_percent", "rate_coverage_percent",
    "power_coverage_percent", "coverage_percent", "left_out",
}  # fmt: skip


@pytest.mark.slow
def test_the_loop_on_a_gpu_that_the_model_has_not_seen(home: Path, advisor: Advisor) -> None:
    """After measuring, train and promote the answer comes from the own model, as one it knows.

    The bundled one knows nothing of own pairs; one learned from them is nearer to them.
    """
    keep_pairs(home, 5)
    ask = ("recommend", "climber", "hog", "--json")
    assert made_up.GPU_MODEL not in json.loads(advisor(*ask).out)["model"]["gpu_models"]
    before = answer_of(advisor("evaluate", "--own", "--json").out)
    trained = json.loads(advisor("train", "--json").out)
    assert advisor("models", "promote", "./model").code == 0
    assert json.loads(advisor(*ask).out)["model"] == {
        "version": trained["version"], "gpu_models": [made_up.GPU_MODEL]
    }  # fmt: skip
    after = answer_of(advisor("evaluate", "--own", "--json").out)
    assert set(before) == set(after) == KEYS
    assert (before["pairs"], before["jobs"]) == (15, 5)
    assert [one["new_gpu_models"] for one in (before, after)] == [[made_up.GPU_MODEL], []]
    assert after["known_jobs"] == ["climber", "hog", "middle", "sitter", "slow"]
    for figure in ("rate_mean_error_percent", "power_mean_error_percent"):
        assert after[figure] < before[figure]
    assert before["oracle_worst_percent"] <= before["oracle_percent"] <= 100
    assert f"model {after['model']} on 15 pairs of 5 jobs" in advisor("evaluate", "--own").out
    assert not Path("report").exists()


def test_own_pairs_that_are_predicted_exactly_have_no_error(home: Path) -> None:
    keep_pairs(home, 3)
    measured = some(read_local(read_settings()))
    data = make_data(measured.pairs, measured.profiled)
    predictor, rows = Registry(home / "models").open_champion(), data.rows
    numbers = [np.flatnonzero(rows.measurement == n) for n in range(len(data.measurements))]
    asked = zip(data.measurements, map(rows.splits, numbers), strict=True)
    found = [p for m, splits in asked for p in predictor.predict(data.profiles_of(m), splits)]
    speeds = np.array([[part.speed.value for part in p.parts] for p in found])
    watts = np.array([p.power_w.value for p in found])
    exact = rows.assign(speed_a=speeds[:, 0], speed_b=speeds[:, 1], power_w=watts)
    own = evaluate_local(predictor, dataclasses.replace(data, rows=exact))
    # Of splits that are worth the same but for the tie, the more even one is chosen.
    assert own["oracle_worst_percent"] >= 100 * (1 - POLICY.tie)
    assert own["rate_mean_error_percent"] == own["power_mean_error_percent"] == 0
    assert own["rate_coverage_percent"] == own["power_coverage_percent"] == 100


def test_own_needs_pairs(advisor: Advisor) -> None:
    done = advisor("evaluate", "--own")
    assert (done.code, "no pairs were measured here" in done.err) == (2, True)
    assert advisor("evaluate", "--own", "--quick").code == 2
