"""Measured inputs that come with the package, and the model that is made of them."""

import dataclasses
from pathlib import Path

import pytest
from made_up_input_points import made_up_model, points

from advisor.errors import InputError, ModelError
from advisor_data import known
from advisor_data.known import bundled_input_points, input_points_sha256
from advisor_power.data import predictor
from advisor_power.data.predictor import POINTS, read_input_model


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the bundled files of a made-up installation lie."""

    def files(_: str) -> Path:
        return tmp_path

    monkeypatch.setattr(known.resources, "files", files)
    (tmp_path / "bundled").mkdir()
    return tmp_path / "bundled"


def test_bundled_points_are_those_of_the_model(package: Path) -> None:
    """The file next to a model can be bundled as it is, and has the digest of its manifest."""
    assert bundled_input_points() == ()
    made_up_model(package / "model", groups=3)
    (package / "inputs.jsonl").write_bytes((package / "model" / POINTS).read_bytes())
    manifest, _ = read_input_model(package / "model")
    found = bundled_input_points()
    assert len(found) == manifest.dataset.points
    assert input_points_sha256(found) == manifest.dataset.sha256
    other = dataclasses.replace(found[0], power_w=found[0].power_w + 1)
    assert input_points_sha256([other, *found[1:]]) != manifest.dataset.sha256


def test_a_damaged_line_is_named(package: Path) -> None:
    text = known.input_points_text(points()[:2])
    (package / "inputs.jsonl").write_bytes(text[:-20])
    with pytest.raises(InputError, match=r"bundled inputs\.jsonl, line 2"):
        bundled_input_points()


def test_the_model_of_the_host_goes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    assert predictor.find_input_model(tmp_path / "home") is None
    for folder in ("bundled/nvidia-z", "bundled/nvidia-b", "home/input-model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
        assert predictor.find_input_model(tmp_path / "home") == tmp_path / folder
        named = "home/input-model" if folder.startswith("home") else "bundled/nvidia-z"
        assert predictor.find_input_model(tmp_path / "home", "NVIDIA Z") == tmp_path / named


def test_a_model_of_another_gpu_goes_after_that_of_the_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was measured here is of cards that are here; of others it says nothing."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    home, own = tmp_path / "home", tmp_path / "home/input-model"
    made_up_model(own, groups=3, gpu_model="NVIDIA B")
    for folder in ("bundled/nvidia-a", "bundled/nvidia-b"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    assert predictor.find_input_model(home) == own
    assert predictor.find_input_model(home, "NVIDIA B") == own
    assert predictor.find_input_model(home, "NVIDIA A") == tmp_path / "bundled/nvidia-a"
    # Of neither: the answer is that of the host, which says what was measured here.
    assert predictor.find_input_model(home, "NVIDIA C") == own
    with pytest.raises(InputError, match="NVIDIA C has no inputs: there are measured ones of"):
        predictor.load_input_model(home, "NVIDIA C").manifest.known.card("NVIDIA C")


def test_a_damaged_model_of_the_host_is_not_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever loads it is told what is wrong, in place of an answer by another model."""
    monkeypatch.setattr(predictor, "BUNDLED", tmp_path / "bundled")
    for folder in ("bundled/nvidia-a", "home/input-model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
    with pytest.raises(ModelError, match="input-model"):
        predictor.load_input_model(tmp_path / "home", "NVIDIA A")


@pytest.mark.parametrize("gpu_model", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_bundled_models_are_of_their_gpu_and_better_than_what_is_simple(gpu_model: str) -> None:
    """Expected of data whose pattern was left out; their points are among those bundled."""
    folder = predictor.bundled_folder(gpu_model)
    manifest, _ = read_input_model(folder)
    assert [card.gpu_model for card in manifest.known.cards] == [gpu_model]
    bundled = known.input_points_text(bundled_input_points()).splitlines()
    assert set((folder / POINTS).read_bytes().splitlines()) <= set(bundled)
    names = ("model", "median", "two-metrics", "zeros")
    off = {name: manifest.figures[f"{name}_power_mean_error_percent"] for name in names}
    assert off["model"] <= 3
    assert off["model"] < 0.7 * min(off[name] for name in names[1:])
