"""A request to join a launch that runs: what was asked for those that run is kept."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import CARD, gives, model, points_file, settings_of
from joining import to_join
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, UNCAPPED, Split
from advisor.core.job import Job
from advisor.errors import InputError, NoSplitError, UnsafeCountError
from advisor.launch.folder import LaunchFolder, ask_join, create_folder, first_status
from advisor.launch.spec import JobStatus, LaunchPart, LaunchSet, LaunchSpec
from advisor.settings import Settings
from advisor.validity.safe_counts import keep_check
from advisor.wire.requests import LaunchRequest
from advisor_advice.launching import ResolvedLaunch, make_join
from advisor_models.registry import Registry

A, B = (Job(name=name, command=("true",)) for name in "ab")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A host on which `a` and `b` are defined, and any speed is enough."""
    monkeypatch.setattr(Registry, "open_champion", gives(model({EQUAL: (0.5, 0.5, 300.0)})))
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncommand: ['true']\n")
    return settings_of(tmp_path, ADVISOR_MIN_SPEED="0")


def running(
    settings: Settings, *more: LaunchPart, split: Split = UNCAPPED, **limits: Any
) -> LaunchFolder:
    """A launch of both in which all run; `limits` are of the first, `more` have joined."""
    parts = (LaunchPart(job=A, **limits), LaunchPart(job=B))
    spec = LaunchSpec(launch_id="l", gpu="0", pairs=(LaunchSet(split=split, parts=parts),))
    folder = create_folder(settings.home / "launches", spec)
    status = first_status(spec, "now")
    seats = [*status.jobs]
    for part in more:
        joined = JobStatus(job=part.job.name, rate_unit="steps", share_percent=100)
        seats.append(replace(joined, join_id=ask_join(folder, to_join(part))))
    all_run = tuple(replace(job, outcome="running") for job in seats)
    folder.write_status(replace(status, state="running", jobs=all_run))
    return folder


def asked(
    folder: LaunchFolder, file: Path, settings: Settings, share_percent: float | None = None
) -> LaunchSpec:
    request = LaunchRequest.of("b", gpu_model=CARD)
    wanted = ResolvedLaunch(request=request, profiles=file, asked_by="me")
    return make_join(folder, "b", share_percent, wanted, settings)


def test_a_request_names_beside_whom_and_what_is_expected(
    settings: Settings, tmp_path: Path
) -> None:
    said = asked(running(settings), points_file(tmp_path), settings, share_percent=100.0)
    (made,) = said.pairs
    assert ([job.name for job in made.jobs], made.split.shares[-1]) == (["a", "b", "b"], 100.0)
    assert made.forecast
    assert len(made.forecast.jobs) == 3


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"min_speed": 1.0}, "below 100 %"), ({"max_power_w": 100.0}, "at most 100 W are allowed")],
)
def test_what_was_asked_for_those_that_run_refuses_a_newcomer(
    settings: Settings, tmp_path: Path, limits: dict[str, Any], words: str
) -> None:
    """Whether they were launched with it or have joined with it."""
    file = points_file(tmp_path)
    with pytest.raises(NoSplitError, match=words):
        asked(running(settings, **limits), file, settings)
    joined = running(settings_of(tmp_path / "other"), LaunchPart(job=A, **limits))
    with pytest.raises(NoSplitError, match=words):
        asked(joined, file, settings)


def test_an_unsafe_share_is_refused_of_the_newcomer_alone(
    settings: Settings, tmp_path: Path
) -> None:
    """By the option that was given, and whatever those that run have."""
    keep_check(checked_with(132, {66}, gpu_model=CARD), settings.home)
    folder = running(settings, split=Split((50.0, 90.0)))
    with pytest.raises(UnsafeCountError, match=r"64 and 68 SMs \(.* in --share\)"):
        asked(folder, points_file(tmp_path), settings, share_percent=50.0)
    (made,) = asked(folder, points_file(tmp_path), settings, share_percent=40.0).pairs
    assert made.split.shares == (50.0, 90.0, 40.0)


def test_nobody_joins_jobs_of_which_one_is_below_normal_priority(
    settings: Settings, tmp_path: Path
) -> None:
    folder = running(settings, split=Split((100.0, 100.0), "uncapped", below_normal=(0,)))
    with pytest.raises(NoSplitError, match="nobody joins l beside a below normal priority"):
        asked(folder, points_file(tmp_path), settings, share_percent=100.0)


def test_a_launch_that_cannot_be_read_is_not_joined(settings: Settings, tmp_path: Path) -> None:
    folder = running(settings, LaunchPart(job=A))
    (request,) = (folder.path / "joins").iterdir()
    request.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        asked(folder, points_file(tmp_path), settings)


def test_nobody_joins_a_way_on_trial(settings: Settings, tmp_path: Path) -> None:
    """Its share would be of a way that may not be kept."""
    folder = running(settings)
    folder.write_status(replace(folder.read_status(), try_s=10.0))
    with pytest.raises(InputError, match=r"way 1 of 1 on trial.*once one way is kept"):
        asked(folder, points_file(tmp_path), settings)
