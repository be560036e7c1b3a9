"""Forecasts of launched pairs on a GPU model that the bundled model has not seen."""

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.core.job import Job
from advisor.core.split import EQUAL
from advisor.launch.records.spec import LaunchPart, LaunchSet
from advisor.settings import Settings, read_settings
from advisor.wire.launch_request import LaunchRequest
from advisor_advice.forecasting import recommended, with_forecast
from advisor_advice.launching import ResolvedLaunch
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import write_points

NAMES = ("bert-train-b2", "fft")
A, B = (Job(name=name, command=("true",)) for name in NAMES)
UNSEEN = "the model has not seen the NVIDIA A100, only "


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"ADVISOR_HOME": str(tmp_path / "home")})


@pytest.fixture
def wanted(tmp_path: Path) -> ResolvedLaunch:
    """Both jobs with profiles of another GPU model."""
    bundled = (p for p in bundled_solo_points() if p.gpu_model == "NVIDIA H200")
    solo = [replace(p, gpu_model="NVIDIA A100") for p in bundled if p.job in NAMES]
    write_points(tmp_path / "solo.csv", solo)
    return ResolvedLaunch(request=asked("NVIDIA A100"), profiles=tmp_path / "solo.csv")


def asked(gpu_model: str) -> LaunchRequest:
    return LaunchRequest.of(*NAMES, gpu_model=gpu_model)


def test_given_split_has_a_forecast_and_a_note(wanted: ResolvedLaunch, settings: Settings) -> None:
    """It is forecast with wider intervals, and the launch says why they are wide."""
    pair = LaunchSet(split=EQUAL, parts=(LaunchPart(job=A), LaunchPart(job=B)))
    there, (note,) = with_forecast(pair, wanted, settings)
    known = replace(wanted, request=asked("NVIDIA H200"), profiles=None)
    here, notes = with_forecast(pair, known, settings)
    assert there.forecast
    assert here.forecast
    assert note.startswith(UNSEEN)
    assert notes == ()
    # Active idle power is known of an H200, and of an unseen model what all draw.
    rate = here.forecast.jobs[0].rate.value
    assert there.forecast.jobs[0].rate.value == pytest.approx(rate, rel=0.01)
    assert there.forecast.jobs[0].rate.low < here.forecast.jobs[0].rate.low
    # Both end where no job can be faster.
    assert there.forecast.jobs[0].rate.high == here.forecast.jobs[0].rate.high
    # How much wider power is, is learned; the bundled model needs no more for another GPU model.
    wide, known_w = there.forecast.power_w, here.forecast.power_w
    width = (wide.high - wide.low) / wide.value
    assert width == pytest.approx((known_w.high - known_w.low) / known_w.value, rel=0.1)


def test_recommended_split_says_so_too(wanted: ResolvedLaunch, settings: Settings) -> None:
    """The same warning as `advisor recommend` gives."""
    sharing = LaunchRequest.of(*NAMES, gpu_model="NVIDIA A100", min_gain=0.0)
    pair, notes = recommended([A, B], replace(wanted, request=sharing), settings)
    assert pair.forecast
    assert any(note.startswith(UNSEEN) for note in notes)


def test_gpu_without_a_profile_has_no_forecast(settings: Settings) -> None:
    """Profiles of another GPU model are no guess: the launch goes on without a forecast."""
    pair = LaunchSet(split=EQUAL, parts=(LaunchPart(job=A), LaunchPart(job=B)))
    wanted = ResolvedLaunch(request=asked("NVIDIA A100"))
    found, (note,) = with_forecast(pair, wanted, settings)
    assert found.forecast is None
    assert note.startswith("no forecast: no profile on NVIDIA A100: bert-train-b2, fft. profiled")
