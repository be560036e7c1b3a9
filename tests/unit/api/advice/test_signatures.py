"""Signatures of the bundled jobs, and how unlike pairs of them are."""

import dataclasses

import numpy as np
import pytest

from advisor.core.records import SoloPoint
from advisor_advice.power.signatures import signature, unlike_pairs, unlikeness
from advisor_data.files.bundled import GPU_MODEL, bundled_solo_points
from advisor_power.components.weights import ComponentWeights, fit_components, trusted


@pytest.fixture(scope="module")
def points() -> list[SoloPoint]:
    """Of one GPU model."""
    return [p for p in trusted(bundled_solo_points()) if p.gpu_model == GPU_MODEL]


@pytest.fixture(scope="module")
def weights(points: list[SoloPoint]) -> ComponentWeights:
    """Fitted to all of them."""
    return fit_components(points)


def whole(points: list[SoloPoint], job: str) -> SoloPoint:
    """A window of the job on the whole GPU."""
    return next(p for p in points if p.job == job and p.share_percent == 100)


def test_a_copy_and_a_product_are_unlike_and_each_is_like_itself(
    points: list[SoloPoint], weights: ComponentWeights
) -> None:
    """Length 1, symmetric, between 0 and 1; a stream is more like a stream than like a product."""
    names = ["triad", "transpose", "matmul-bf16"]
    found = {
        name: own for name in names if (own := signature(weights, whole(points, name))) is not None
    }
    assert {round(float(np.linalg.norm(own)), 9) for own in found.values()} == {1.0}
    unlike = unlike_pairs(names, found)
    assert unlike == pytest.approx(unlike.T)
    assert np.diag(unlike) == pytest.approx(0, abs=1e-9)
    assert 0 <= unlike.min() <= unlike.max() <= 1
    assert unlike[0, 2] > 5 * unlike[0, 1]


def test_memory_that_was_measured_changes_no_signature(
    points: list[SoloPoint], weights: ComponentWeights
) -> None:
    """Else a job with the sensor could not be compared with one without."""
    point = whole(points, "triad")
    read = dataclasses.replace(point, memory_power_w=100.0)
    assert signature(weights, read) == pytest.approx(signature(weights, point))


def test_a_job_without_counters_is_preferred_beside_nobody(
    points: list[SoloPoint], weights: ComponentWeights
) -> None:
    """It has no signature, and is as like as can be to all."""
    point = dataclasses.replace(whole(points, "triad"), dram_active_percent=None)
    assert signature(weights, point) is None
    known = {"a": np.array([1.0, 0.0]), "c": np.array([0.0, 1.0])}
    assert unlike_pairs(["a", "b", "c"], known).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert unlikeness(known["a"], known["c"]) == 1
