"""Launches of jobs with other data than profiled: what is expected, kept, and learned from."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Advisor, in_this_process
from host import FakeHost
from launch_server import LaunchServer, launch_server, make_tokens
from launched import launch, no_leftovers

from advisor.core.flags import OTHER_DATA
from advisor.core.job import InputData, Job
from advisor.core.split import EQUAL
from advisor.errors import InputError
from advisor.formats.wire import write
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.spec import Forecast, LaunchPair
from advisor.settings import Settings, read_settings
from advisor.wire.launch_request import LaunchRequest
from advisor.wire.requests import JobData, JobRequest
from advisor_advice.forecasting import recommended, with_forecast
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_data.files.bundled import bundled_solo_points
from advisor_data.files.files import write_points
from advisor_power.operands.of_job import input_fingerprint, told_data

GPU_MODEL = "NVIDIA H200"
NAMES = ("bert-infer-b2", "triad")
A, B = (Job(name=name, command=("true",)) for name in NAMES)
ZEROS = JobData(dtype="bf16", operands="zeros")
FP16 = JobData(dtype="fp16", operands="zeros")
ROUTE = "/v1/launches"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings({"ADVISOR_HOME": str(tmp_path / "home")})


def asked(data: JobData | None, **more: Any) -> ResolvedLaunch:
    jobs = (JobRequest(job=NAMES[0], data=data), JobRequest(job=NAMES[1]))
    request = LaunchRequest(jobs=jobs, gpu_model=GPU_MODEL)
    return ResolvedLaunch(asked=request, data=told_data(request.data_by_job), **more)


def at_equal(wanted: ResolvedLaunch, settings: Settings) -> tuple[LaunchPair, tuple[str, ...]]:
    return with_forecast(
        LaunchPair(split=EQUAL, parts=tuple(map(wanted.part, (A, B)))), wanted, settings
    )


def forecast(pair: LaunchPair) -> Forecast:
    assert pair.forecast
    return pair.forecast


# what is expected


def test_given_split_is_forecast_for_the_data_that_were_told(settings: Settings) -> None:
    """Together, alone, and in the rest; below the power limit rates are those of the profile."""
    before, _ = at_equal(asked(None), settings)
    after, notes = at_equal(asked(ZEROS), settings)
    assert forecast(after).power_w.value < forecast(before).power_w.value - 10
    usual = [job.rate.value for job in forecast(before).jobs]
    assert [job.rate.value for job in forecast(after).jobs] == pytest.approx(usual, rel=1e-3)
    solo_w = [[part.solo_power_w for part in pair.parts] for pair in (before, after)]
    assert (solo_w[1][0] or 0) < (solo_w[0][0] or 0) - 10
    assert solo_w[1][1] == solo_w[0][1]
    rests = [forecast(pair).jobs[0].rest_energy_saved for pair in (before, after)]
    assert rests[0] != rests[1]
    assert any("corrected for the data of bert-infer-b2" in note for note in notes)


def test_recommended_split_is_by_the_data_that_were_told(settings: Settings) -> None:
    """As `advisor recommend --data`, and the part says what it was told."""
    before, _ = recommended([A, B], asked(None), settings)
    after, notes = recommended([A, B], asked(ZEROS), settings)
    assert forecast(after).power_w.value < forecast(before).power_w.value
    assert (after.parts[0].solo_power_w or 0) < (before.parts[0].solo_power_w or 0)
    assert [part.data for part in before.parts] == [None, None]
    assert [part.data for part in after.parts] == [ZEROS, None]
    assert len([note for note in notes if "the data of bert-infer-b2" in note]) == 1


def test_type_that_was_not_profiled_widens_the_forecast(settings: Settings) -> None:
    """The expected power stays, and a note says why its bounds are wide."""
    before, _ = at_equal(asked(None), settings)
    after, notes = at_equal(asked(FP16), settings)
    assert forecast(after).power_w.value == forecast(before).power_w.value
    assert forecast(after).power_w.low < forecast(before).power_w.low
    assert any("it was profiled in bf16, not in fp16" in note for note in notes)


def test_bounds_are_numbers_where_the_idle_power_is_not_known(
    settings: Settings, tmp_path: Path
) -> None:
    """It is that of the other profile, as everywhere in advice."""
    solo = [
        replace(p, idle_power_w=None) if p.job == NAMES[0] else p
        for p in bundled_solo_points(set(NAMES))
        if p.gpu_model == GPU_MODEL
    ]
    write_points(tmp_path / "solo.csv", solo)
    for data in (ZEROS, FP16):
        pair, notes = at_equal(asked(data, profiles=tmp_path / "solo.csv"), settings)
        power_w = forecast(pair).power_w
        assert power_w.low < power_w.value <= power_w.high
        assert all((part.solo_power_w or 0) > 0 for part in pair.parts)
        assert not any("nan" in note for note in notes)


def test_data_that_were_profiled_are_no_other_data(settings: Settings, tmp_path: Path) -> None:
    """Who always says what will run loses no launch to learn from."""
    kept = input_fingerprint(InputData(dtype="bf16", data="zeros"))
    assert kept is not None
    solo = [
        replace(p, input_fingerprint=write(kept)) if p.job == NAMES[0] else p
        for p in bundled_solo_points(set(NAMES))
        if p.gpu_model == GPU_MODEL
    ]
    write_points(tmp_path / "solo.csv", solo)
    pair, _ = at_equal(asked(ZEROS, profiles=tmp_path / "solo.csv"), settings)
    assert [part.data for part in pair.parts] == [None, None]


def test_job_without_a_profile_keeps_what_was_told(settings: Settings) -> None:
    """There is no forecast to correct, but what ran with other data stays marked."""
    wanted = asked(ZEROS)
    there = replace(wanted, asked=replace(wanted.asked, gpu_model="NVIDIA A100"))
    pair, (note, *_) = at_equal(there, settings)
    assert note.startswith("no forecast: no profile on NVIDIA A100")
    assert [part.data for part in pair.parts] == [ZEROS, None]


# the command


@pytest.fixture
def advisor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Advisor:
    """With job files of both names, and no GPU."""
    (tmp_path / "jobs").mkdir()
    for name in NAMES:
        (tmp_path / "jobs" / f"{name}.yaml").write_text(
            '{command: "true", progress: {kind: counter, unit: steps}}'
        )
    monkeypatch.setenv("ADVISOR_JOBS", str(tmp_path / "jobs"))
    return in_this_process(capsys, monkeypatch, tmp_path)


def planned(advisor: Advisor, *words: str) -> dict[str, Any]:
    found = advisor("launch", *NAMES, "--gpu-model", GPU_MODEL, "--dry-run", "--json", *words)
    assert found.code == 0, found.err
    return json.loads(found.out)


@pytest.mark.parametrize("way", [(), ("--split", "50/50")])
def test_dry_run_shows_the_power_with_the_data(advisor: Advisor, way: tuple[str, ...]) -> None:
    """At a recommended split and at a given one; pairs that follow are told as well."""
    zeros = ("--data", "bert-infer-b2=bf16 zeros", "--then", "triad+bert-infer-b2")
    before, after = planned(advisor, *way, *zeros[2:]), planned(advisor, *way, *zeros)
    for then, now in zip(before["pairs"], after["pairs"], strict=True):
        assert now["forecast"]["power_w"]["value"] < then["forecast"]["power_w"]["value"]
    told = [note for note in after["notes"] if "the data of bert-infer-b2" in note]
    assert len(told) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--data", "gemm=bf16 zeros"), "is for a job that is not there"),
        (("--data", "triad=zeros"), "does not say job, type and operands"),
        (("--data", "triad=bf16 normal(0,1)|nonsense(1)"), "line 1, column 13"),
        (
            ("--data", "triad=bf16 zeros", "--split", "time-sliced"),
            "data of triad would change nothing",
        ),
        (("--split", "50/50", "--max-power", "400"), "a split is given or recommended, not both"),
    ],
)
def test_data_that_cannot_be_meant(advisor: Advisor, words: tuple[str, ...], said: str) -> None:
    found = advisor("launch", *NAMES, "--gpu-model", GPU_MODEL, "--dry-run", *words)
    assert found.code == InputError.exit_code
    assert said in found.err


# what runs


@pytest.fixture
def h200(host: FakeHost) -> Iterator[FakeHost]:
    """A host whose GPU is one that bundled profiles are of, with jobs of the same names."""
    with no_leftovers(host):
        for name in NAMES:
            host.write_job(name)
        (host.folder / "nvml" / "gpu0" / "name").write_text(GPU_MODEL)
        yield host


def test_launch_keeps_what_was_told(h200: FakeHost) -> None:
    """In its folder, and by a flag of its observation; the forecast is for these data."""
    words = (*NAMES, "--split", "50/50", "--duration", "4", "--data", "bert-infer-b2=bf16 zeros")
    last = launch(h200, *words)
    spec = LaunchFolder(h200.folder / "home" / "launches" / last["launch_id"]).read_spec()
    assert [part.data for part in spec.pairs[0].parts] == [ZEROS, None]
    assert any("corrected for the data of bert-infer-b2" in note for note in spec.notes)
    (seen,) = last["observations"]
    assert OTHER_DATA in seen["flags"]
    assert seen["predicted_power_w"] == last["forecast"]["power_w"]["value"]


@pytest.fixture
def server(h200: FakeHost) -> Iterator[LaunchServer]:
    with launch_server(h200, make_tokens(h200, "data"), "--launching") as server:
        yield server


def test_the_same_over_http(server: LaunchServer) -> None:
    """Planned with the data of a job; what somebody else sends names no file."""

    def sent(**more: Any) -> Any:
        jobs = [{"job": NAMES[0], **more.pop("of_a", {})}, {"job": NAMES[1]}]
        return server.ask("POST", ROUTE, {"jobs": jobs, "dry_run": True, **more}, "launch")

    zeros = {"data": {"dtype": "bf16", "operands": "zeros"}}
    for way in ({}, {"split": "50/50"}):
        before, after = (
            sent(of_a=of, **way).json["pairs"][0]["forecast"]["power_w"] for of in ({}, zeros)
        )
        assert after["value"] < before["value"]
    for operands, words in (
        ('file("/etc/passwd")', "a file cannot be named here"),
        ("nonsense(1)", "line 1, column 1"),
    ):
        refused = sent(of_a={"data": {"dtype": "bf16", "operands": operands}})
        assert (refused.status, refused.code) == (422, "bad-input")
        assert words in refused.text
    refused = sent(of_a=zeros, split="time-sliced")
    assert (refused.status, refused.code) == (422, "bad-input")
    assert "would change nothing" in refused.text
