"""A third head from its declaration to its predictions, with nothing else changed."""

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import synthetic_pairs as made_up
from made_up_rows import solo_points

from advisor.core.split import NINE, UNCAPPED
from advisor.errors import ModelError
from advisor.predict.features import Side, power_features
from advisor.predict.profiles import Floats, make_profiles
from advisor_models.heads import HEADS, Head
from advisor_models.manifest import Manifest, read_manifest, write_artefact
from advisor_models.model_predictor import ModelPredictor
from advisor_training.described import make_artefact
from advisor_training.learn.head_learners import HEAD_LEARNERS, HeadLearner
from advisor_training.train import Trained, TrainingSet, fit_model, make_training_set

pytestmark = pytest.mark.figures


def _both(sides: Sequence[Side], features: dict[str, Floats]) -> Floats:
    return features["prior_kept"] * (sides[0].relative_rate + sides[1].relative_rate)


THROUGHPUT = Head(
    name="throughput",
    of="pair",
    target="system throughput: the sum of both relative speeds",
    unit="1",
    prior="prior_kept x both relative rates alone",
    features_of=power_features,
    prior_of=_both,
)
LEARNER = HeadLearner(head=THROUGHPUT, measured=lambda rows: (rows.speed_a + rows.speed_b)[:, None])

THREE = (*HEADS, THROUGHPUT)
SPLITS = [*NINE, UNCAPPED]


@functools.cache
def made_from() -> TrainingSet:
    return make_training_set(made_up.pair_points(), solo_points(), heads=THREE)


@functools.cache
def trained() -> Trained:
    """Fitted by the first test that asks, not by every process that collects this file."""
    points, learners = made_from(), (*HEAD_LEARNERS, LEARNER)
    return fit_model(points.rows, blind=points.blind, learners=learners)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("three")
    made = make_artefact(made_from(), trained(), datetime(2026, 1, 31, tzinfo=UTC))
    write_artefact(folder, made)
    return folder


def test_the_manifest_describes_it_as_the_others(folder: Path) -> None:
    manifest: Manifest = read_manifest(folder)
    assert [head.name for head in manifest.heads] == ["speed", "power", "throughput"]
    head = manifest.head("throughput")
    assert head.unit == "1"
    assert "throughput.trees" in manifest.files
    assert set(head.intervals) == {"split", "uncapped"}
    assert manifest.other_gpu.widening["throughput"] == 2
    assert (manifest.no_counters or {})["throughput"] >= 1
    # Conformal bounds hold about what they promise; five made-up jobs are too few for more.
    assert manifest.figures["throughput_coverage_percent"] > 60
    assert 0 < manifest.figures["throughput_mean_error_percent"] < 20


def test_it_predicts_what_was_measured_of_known_jobs(folder: Path) -> None:
    """And its intervals hold it; the other heads say what they say in a model of two heads."""
    predictor, profiles = ModelPredictor(folder, THREE), make_profiles(solo_points())
    a, b = (profiles[name, made_up.GPU_MODEL] for name in ("hog", "slow"))
    ((*found,),) = predictor.values([a, b], SPLITS)["throughput"]
    rows = made_from().rows
    rows = rows.take((rows.job_a == "hog") & (rows.job_b == "slow"))
    measured = rows.speed_a + rows.speed_b
    np.testing.assert_allclose([each.value for each in found], measured, rtol=0.1)
    assert all(each.low < each.value < each.high for each in found)
    held = [each.low <= m <= each.high for each, m in zip(found, measured, strict=True)]
    assert np.mean(held) >= 0.8
    pair = predictor.predict([a, b], SPLITS)
    expected = trained().regressors(rows)
    speeds = [[part.speed.value for part in p.parts] for p in pair]
    np.testing.assert_allclose(speeds, expected.speed, rtol=1e-5)
    np.testing.assert_allclose([p.power_w.value for p in pair], expected.power_w, rtol=1e-5)


def test_a_version_without_it_says_so(folder: Path) -> None:
    """It has trees for it, and nobody there knows what to give them."""
    with pytest.raises(ModelError, match=r"predicts throughput\. .*install a newer sm-advisor"):
        ModelPredictor(folder)
