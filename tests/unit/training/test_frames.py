"""Points as data frames."""

import sys
from pathlib import Path

import numpy as np
import pytest

from advisor import load_dataset
from advisor.core.gpu import EQUAL
from advisor.errors import InputError
from advisor_data.bundled import bundled_pair_points, bundled_reference_points, bundled_solo_points
from advisor_data.files import read_points
from advisor_training.rows import make_pairs


def test_the_data_set_is_a_frame(tmp_path: Path) -> None:
    """One row for each point with flat columns; what comes out of a frame is read again."""
    frame = load_dataset(relative=False)
    assert len(frame) == len(bundled_pair_points())
    assert {"job_1", "job_2", "share_1_percent", "rate_2", "power_w"} <= set(frame.columns)
    assert frame.loc[0, "job_1"] == bundled_pair_points()[0].parts[0].job
    frame.head(50).to_parquet(tmp_path / "p.parquet")
    assert read_points(tmp_path / "p.parquet") == bundled_pair_points()[:50]
    assert len(load_dataset("solo")) == len(bundled_solo_points())
    assert len(load_dataset(tmp_path / "p.parquet")) == 50
    with pytest.raises(InputError, match=r"no data set paris. pairs, sets, solo, references"):
        load_dataset("paris")


def test_speeds_are_those_that_training_learns() -> None:
    """Of another reference, or one of another run, analyses and model would not agree."""
    points = bundled_pair_points(["bert-infer", "fft"])
    pairs, _ = make_pairs(points, [*bundled_reference_points(), *bundled_solo_points()])
    (pair,) = (each for each in pairs if each.jobs == ("bert-infer", "fft"))
    frame = load_dataset()
    for measurement in pair.measurements:
        ours = frame[
            (frame["job_1"] == "bert-infer")
            & (frame["job_2"] == "fft")
            & (frame["run"] == measurement.run)
            & (frame["gpu_uuid"] == measurement.gpu_uuid)
            & (frame["share_1_percent"] == 50)
            & (frame["share_2_percent"] == 50)
        ]
        expected = [measurement.nine[EQUAL].speeds, (measurement.nine[EQUAL].energy_saved,)]
        for columns, each in zip((["speed_1", "speed_2"], ["energy_saved"]), expected, strict=True):
            np.testing.assert_allclose(ours[columns].median(), each, rtol=1e-9)


def test_a_set_has_a_speed_for_each_job() -> None:
    frame = load_dataset("sets")
    seven = frame[frame["job_7"].notna()].iloc[0]
    assert 0 < seven["speed_7"] < 1.2
    assert seven["energy_saved"] > 0


def test_a_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        load_dataset()
