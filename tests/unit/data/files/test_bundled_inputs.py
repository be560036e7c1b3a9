"""Measured inputs that come with the package, and the model that is made of them."""

import dataclasses
from pathlib import Path

import pytest
from made_up_input_points import made_up_model, points

from advisor.errors import InputError
from advisor_data.files import input_points
from advisor_data.files.input_points import bundled_input_points, input_points_sha256
from advisor_models.input_power import find
from advisor_models.input_power.manifest import POINTS, read_input_model


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the bundled files of a made-up installation lie."""

    def files(_: str) -> Path:
        return tmp_path

    monkeypatch.setattr(input_points.resources, "files", files)
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
    text = input_points.input_points_text(points()[:2])
    (package / "inputs.jsonl").write_bytes(text[:-20])
    with pytest.raises(InputError, match=r"bundled inputs\.jsonl, line 2"):
        bundled_input_points()


def test_the_model_of_the_host_goes_before_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(find, "BUNDLED", tmp_path / "bundled")
    assert find.find_input_model(tmp_path / "home") is None
    for folder in ("bundled/nvidia-z", "bundled/nvidia-b", "home/input-model"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "manifest.json").touch()
        assert find.find_input_model(tmp_path / "home") == tmp_path / folder
        named = "home/input-model" if folder.startswith("home") else "bundled/nvidia-z"
        assert find.find_input_model(tmp_path / "home", "NVIDIA Z") == tmp_path / named


@pytest.mark.parametrize("gpu_model", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_bundled_models_are_of_their_gpu_and_better_than_what_is_simple(gpu_model: str) -> None:
    """Expected of data whose pattern was left out; their points are among those bundled."""
    folder = find.bundled_folder(gpu_model)
    manifest, _ = read_input_model(folder)
    assert [card.gpu_model for card in manifest.known.cards] == [gpu_model]
    bundled = input_points.input_points_text(bundled_input_points()).splitlines()
    assert set((folder / POINTS).read_bytes().splitlines()) <= set(bundled)
    names = ("model", "median", "two-metrics", "zeros")
    off = {name: manifest.figures[f"{name}_power_mean_error_percent"] for name in names}
    assert off["model"] <= 3
    assert off["model"] < 0.7 * min(off[name] for name in names[1:])
