"""Manifests of schema 2: models in registries that were trained before heads."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import small_model
from small_model import SPLITS, make_profile

from advisor.core.interval import Interval
from advisor.errors import ModelError
from advisor_models.manifest import MANIFEST, MODEL, SCHEMA, read_manifest, sha256
from advisor_models.onnx_predictor import OnnxPredictor
from advisor_models.registry import Registry

FIXTURE = Path(__file__).parents[2] / "fixtures/manifest-schema-2.json"
"""The manifest of a bundled model, as it was written before heads."""


def text() -> dict[str, Any]:
    return json.loads(FIXTURE.read_text())


def saved(folder: Path, old: dict[str, Any]) -> Path:
    """A model of schema 2 with the graph of the small one."""
    folder.mkdir()
    (folder / MODEL).write_bytes(small_model.graph())
    old["files"] = {MODEL: sha256(small_model.graph())}
    (folder / MANIFEST).write_text(json.dumps(old))
    return folder


def test_every_number_is_the_same(tmp_path: Path) -> None:
    """Features, ranges and bounds as they were written; what has no head is as before."""
    old, found = text(), read_manifest(saved(tmp_path / "m", text()))
    for name in ("speed", "power"):
        head = found.head(name)
        assert list(head.features) == old[f"{name}_features"]
        assert [list(pair) for pair in head.ranges] == old[f"{name}_ranges"]
    speed, power = found.head("speed").intervals, found.head("power").intervals
    for bounds in old["intervals"]["speed"]:
        share = bounds["share_percent"]
        known = speed["uncapped" if share == 100 else f"{share:g}"]
        assert (known.low, known.high) == (bounds["low"], bounds["high"])
    assert len(speed) == len(old["intervals"]["speed"])
    words = {"split": "split", "uncapped": "uncapped", "limited": "at the power limit"}
    for name, word in words.items():
        known, bounds = power[word], old["intervals"]["power"][name]
        assert (known.low, known.high) == (bounds["low"], bounds["high"])
    assert found.coverage == old["intervals"]["coverage"]
    assert found.efficiency
    assert found.efficiency.high == old["intervals"]["efficiency"]["high"]
    other = old["other_gpu"]
    assert found.other_gpu.widening == {n: other[f"{n}_widening"] for n in ("speed", "power")}
    assert found.no_counters == old["no_counters"]
    for name in ("version", "created_at", "fill", "figures", "libraries"):
        assert getattr(found, name) == old[name]
    assert found.schema == SCHEMA


def test_it_predicts_and_its_bounds_are_those_written(tmp_path: Path) -> None:
    """On a GPU model that it has seen, below its power limit; the numbers are the graph's."""
    old = text()
    predictor = OnnxPredictor(saved(tmp_path / "m", old))
    small = OnnxPredictor(small_model.save_model(tmp_path / "small"))
    limits = {"power_limit_w": 1e4}
    a, b = (make_profile(n, i, gpu_model="NVIDIA H200", **limits) for i, n in enumerate("ab"))
    low = {s["share_percent"]: math.exp(s["low"]) for s in old["intervals"]["speed"]}
    power = old["intervals"]["power"]
    for split, new, known in zip(
        SPLITS, predictor.predict([a, b], SPLITS), small.predict([a, b], SPLITS), strict=True
    ):
        for one, other, share in zip(new.parts, known.parts, split.shares, strict=True):
            assert low_of(one.speed) == low_of(other.speed, low[share])
        bounds = power["split" if split.is_limited else "uncapped"]
        assert low_of(new.power_w) == low_of(known.power_w, math.exp(bounds["low"]))


def low_of(interval: Interval, factor: float | None = None) -> tuple[float, float]:
    """Value and lower bound; the bound by a factor where one is given."""
    return interval.value, interval.low if factor is None else interval.value * factor


def test_a_registry_takes_it_in(tmp_path: Path) -> None:
    """And keeps it as this version writes manifests, with the same content."""
    folder, registry = saved(tmp_path / "m", text()), Registry(tmp_path / "home")
    added = registry.add(folder)
    kept = registry.folder(added.version)
    assert read_manifest(kept) == read_manifest(folder) == added
    assert json.loads((kept / MANIFEST).read_text())["schema"] == SCHEMA
    assert registry.add(folder) == added


@pytest.mark.parametrize(
    "name", ["intervals", "speed_features", "power_ranges", "other_gpu", "fill"]
)
def test_what_is_missing_is_named(tmp_path: Path, name: str) -> None:
    old = text()
    del old[name]
    with pytest.raises(ModelError, match=f"missing: {name}"):
        read_manifest(saved(tmp_path / "m", old))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("intervals", [], "not what schema 2 has there"),
        ("other_gpu", None, "not what schema 2 has there"),
        ("speed_ranges", [[0.0, 1.0]], "a feature of speed has no range"),
        ("more", 1, "unknown: more"),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, name: str, value: Any, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        read_manifest(saved(tmp_path / "m", {**text(), name: value}))


def test_shares_must_ascend(tmp_path: Path) -> None:
    old = text()
    old["intervals"]["speed"].reverse()
    with pytest.raises(ModelError, match="do not ascend"):
        read_manifest(saved(tmp_path / "m", old))
