"""What somebody wants launched, as a spec."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import CARD, UUID, gives, model, points_file, settings_of
from joining import to_join
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, UNCAPPED, Gpu, Split
from advisor.core.job import Job
from advisor.errors import InputError, NoSplitError, UnsafeCountError
from advisor.installed import install
from advisor.launch.folder import LaunchFolder, ask_join, create_folder, first_status
from advisor.launch.spec import JobStatus, LaunchPart, LaunchSet, LaunchSpec
from advisor.settings import Settings
from advisor.validity.safe_counts import keep_check
from advisor.wire.requests import JobRequest, LaunchRequest
from advisor_advice.launching import (
    ResolvedLaunch,
    make_join,
    make_spec,
)
from advisor_models.registry import Registry

GPU = Gpu(uuid="GPU-1", model=CARD, units_total=132, memory_mib=80_000)
MODEL = model({Split((30.0, 70.0)): (0.6, 0.9, 350.0), EQUAL: (0.5, 0.5, 300.0)})


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A host on which `a` and `b` are defined, and a model is in use."""
    monkeypatch.setattr(Registry, "open_champion", gives(MODEL))
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncommand: ['true']\n")
    return settings_of(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return points_file(tmp_path)


def wanted(file: Path | None = None, *jobs: str, **fields: Any) -> ResolvedLaunch:
    """A launch of `a` and `b` on a GPU that was seen."""
    asked = LaunchRequest.of(*(jobs or ("a", "b")), **fields)
    return ResolvedLaunch(request=asked, card=GPU, profiles=file, asked_by="me")


def test_a_spec_says_what_was_asked_for(settings: Settings, file: Path) -> None:
    then = ((JobRequest(job="b"), JobRequest(job="a")),)
    spec = make_spec(
        wanted(file, when_one_ends="stop", duration_s=60.0, hang_s=9.0, then=then), settings
    )
    assert (spec.gpu, spec.asked_by, spec.launch_id != "") == ("GPU-1", "me", True)
    assert (spec.when_one_ends, spec.duration_s, spec.hang_s) == ("stop", 60.0, 9.0)
    assert [[job.name for job in pair.jobs] for pair in spec.pairs] == [["a", "b"], ["b", "a"]]
    assert [str(pair.split) for pair in spec.pairs] == ["30/70", "30/70"]
    assert all(pair.forecast for pair in spec.pairs)
    assert (len(set(spec.notes)), spec.pairs[0].jobs[0].workdir) == (len(spec.notes), Path.cwd())


def test_without_numpy_a_given_split_is_launched_at_safe_counts(
    settings: Settings, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "advisor_advice.forecasting", None)
    monkeypatch.delattr("advisor_advice.forecasting", raising=False)
    spec = make_spec(wanted(file, split="50/50"), settings)
    assert spec.notes == ("no forecast: numpy is not installed",)
    with pytest.raises(InputError, match="recommendations need numpy") as raised:
        make_spec(wanted(file), settings)
    assert "advisor_advice" in raised.value.why
    assert raised.value.fix == f"{install('advise')}, or give --split"
    # What a check of the host found needs no model either.
    keep_check(checked_with(132, {66}, checked={66}, gpu_model=CARD), settings.home)
    with pytest.raises(UnsafeCountError):
        make_spec(wanted(file, split="50/50"), settings)
    spec = make_spec(wanted(file, split="50/50", allow_unsafe=True), settings)
    assert any(note.endswith("launched as asked, and watched") for note in spec.notes)


def test_a_priority_that_gives_nothing_is_refused_with_the_reason(
    settings: Settings, file: Path
) -> None:
    """Both fill the GPU. Of jobs without a profile nobody knows: as asked."""
    with pytest.raises(NoSplitError) as raised:
        make_spec(wanted(file, split="100/50:low"), settings)
    assert str(raised.value) == (
        "to run b below normal priority is not known to help. a fills the GPU, too; one that does "
        "was measured so, beside one that does not. leave :low out of the split."
    )
    spec = make_spec(wanted(file.with_name("none"), split="50:low/100"), settings)
    assert str(spec.pairs[0].split) == "50:low/100"


@pytest.mark.parametrize("field", ["duration_s", "hang_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan")])
def test_times_that_are_none_are_refused(field: str, value: float, settings: Settings) -> None:
    bad: dict[str, Any] = {field: value}
    good: dict[str, Any] = {field: 0.5}
    with pytest.raises(InputError, match=f"{field} is .* give a number of seconds above 0"):
        make_spec(wanted(**bad, split="50/50"), settings)
    assert make_spec(wanted(**good, split="50/50"), settings)


@pytest.mark.parametrize("name", ["x/y", "x.yaml", "x.yml"])
def test_paths_are_no_names_of_jobs(name: str, settings: Settings) -> None:
    with pytest.raises(InputError, match="is not a valid job name") as raised:
        make_spec(wanted(None, name, "b", split="50/50"), settings)
    assert raised.value.why == "only jobs of the folder of jobs are launched"
    assert raised.value.fix == f"put its file into {settings.jobs_dir} and give its name"


def test_a_folder_that_is_not_there_is_said(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"name: a\ncommand: ['true']\nworkdir: {tmp_path / 'gone'}\n")
    with pytest.raises(
        InputError,
        match=r"the workdir of a, .*gone, does not exist.*correct workdir in the file of a",
    ):
        make_spec(wanted(split="50/50"), settings)
    (tmp_path / "gone").mkdir()
    assert make_spec(wanted(split="50/50"), settings).pairs[0].jobs[0].workdir == tmp_path / "gone"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("20/30/50", "20/30/50 has 3 shares, and there are 2 jobs. give one share for each"),
        ("nothing", "nothing"),
        ("exclusive", "jobs that run one after the other are not launched together. start each "
         "alone, or give shares such as 30/70"),
    ],
)  # fmt: skip
def test_splits_that_are_no_launch_are_refused(text: str, says: str, settings: Settings) -> None:
    with pytest.raises(InputError, match=says):
        make_spec(wanted(split=text), settings)


def test_two_to_seven_jobs_are_launched(settings: Settings) -> None:
    """Copies are jobs of their own; of each pair and set the split is what was given."""
    then = ((JobRequest(job="b"), JobRequest(job="a")),)
    spec = make_spec(wanted(None, "a", "a", "b", split="uncapped", then=then), settings)
    assert [[job.name for job in pair.jobs] for pair in spec.pairs] == [["a", "a", "b"], ["b", "a"]]
    assert [len(pair.split.shares) for pair in spec.pairs] == [3, 2]
    for jobs in (("a",), ("a",) * 8):
        with pytest.raises(InputError, match=f"{len(jobs)} jobs? cannot be launched together"):
            make_spec(wanted(None, *jobs, split="uncapped"), settings)
    with pytest.raises(InputError, match="2 shares, and there are 3 jobs"):
        make_spec(wanted(None, "a", "a", "b", split="30/70"), settings)


# counts


@pytest.mark.parametrize(
    ("split", "total", "said"),
    [
        ("50/50", 132, None),
        ("70/70", 132, "184 of 132 SMs"),
        ("50/51", None, None),
        ("50/52", None, "102 %"),
        ("uncapped", 132, None),
        ("uncapped", None, None),
        ("100/70", 132, None),
    ],
)
def test_limits_of_more_than_the_gpu(
    split: str, total: int | None, said: str | None, settings: Settings
) -> None:
    """Percentages are rounded up, so that two of them can reach 101."""
    asked = replace(wanted(split=split), card=replace(GPU, units_total=total))
    notes = make_spec(asked, settings).notes
    found = [text.split(": ")[1].split(",")[0] for text in notes if "over-subscribed" in text]
    assert found == ([said] if said else [])


def test_limits_of_a_set_are_looked_at_one_by_one(settings: Settings) -> None:
    """They may add up to more than the GPU; a job without a limit has no count."""
    keep_check(checked_with(132, {66}, checked={66}, gpu_model=CARD), settings.home)
    for split in ("100/50/100", "90/50/90"):
        with pytest.raises(UnsafeCountError, match=r"64 and 68 SMs \(.* in --split\)"):
            make_spec(wanted(None, "a", "b", "a", split=split), settings)
    notes = make_spec(wanted(None, "a", "b", "a", split="100/40/100"), settings).notes
    assert [note.split(",")[0] for note in notes if note.startswith("at ")] == ["at 52 SMs"]


# what is known of the GPU


def test_what_was_seen_of_the_gpu_counts_where_nothing_is_asked_for() -> None:
    seen, unseen = wanted(), replace(wanted(), card=None)
    assert [
        (one.gpu_model, one.gpu_uuid, one.units_total, one.memory_mib) for one in (seen, unseen)
    ] == [(CARD, "GPU-1", 132, 80_000), (None, None, None, None)]
    assert [wanted(memory_mib=m).memory_mib for m in (40_000.0, 90_000.0)] == [40_000, 80_000]
    assert wanted(gpu_model="Other").gpu_model == "Other"
    assert replace(wanted(memory_mib=40_000.0), card=None).memory_mib == 40_000


def test_jobs_begin_alone_where_a_profile_is_of_another_host_and_each_can_be_held(
    settings: Settings, file: Path, tmp_path: Path
) -> None:
    def seconds(gated: str, uuid: str, **asked: Any) -> float | None:
        for name in "ab":
            gate = "progress: {gate: true}\n" if name in gated else ""
            (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncommand: ['true']\n{gate}")
        known = replace(wanted(file, **asked), card=replace(GPU, uuid=uuid))
        return make_spec(known, settings).pairs[0].alone_s

    assert seconds("ab", "GPU-far") == 6.0
    assert (seconds("ab", UUID), seconds("a", "GPU-far")) == (None, None)
    assert (seconds("", UUID, alone=True), seconds("ab", "GPU-far", alone=False)) == (6.0, None)


A, B = (Job(name=name, command=("true",)) for name in "ab")


@pytest.fixture
def slow_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A host on which `a` and `b` are defined, and any speed is enough."""
    monkeypatch.setattr(Registry, "open_champion", gives(model({EQUAL: (0.5, 0.5, 300.0)})))
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\ncommand: ['true']\n")
    return settings_of(tmp_path, ADVISOR_MIN_SPEED="0")


def running(
    slow_settings: Settings, *more: LaunchPart, split: Split = UNCAPPED, **limits: Any
) -> LaunchFolder:
    """A launch of both in which all run; `limits` are of the first, `more` have joined."""
    parts = (LaunchPart(job=A, **limits), LaunchPart(job=B))
    spec = LaunchSpec(launch_id="l", gpu="0", pairs=(LaunchSet(split=split, parts=parts),))
    folder = create_folder(slow_settings.home / "launches", spec)
    status = first_status(spec, "now")
    seats = [*status.jobs]
    for part in more:
        joined = JobStatus(job=part.job.name, rate_unit="steps", share_percent=100)
        seats.append(replace(joined, join_id=ask_join(folder, to_join(part))))
    all_run = tuple(replace(job, outcome="running") for job in seats)
    folder.write_status(replace(status, state="running", jobs=all_run))
    return folder


def asked(
    folder: LaunchFolder, file: Path, slow_settings: Settings, share_percent: float | None = None
) -> LaunchSpec:
    request = LaunchRequest.of("b", gpu_model=CARD)
    wanted = ResolvedLaunch(request=request, profiles=file, asked_by="me")
    return make_join(folder, "b", share_percent, wanted, slow_settings)


def test_a_request_names_beside_whom_and_what_is_expected(
    slow_settings: Settings, tmp_path: Path
) -> None:
    said = asked(running(slow_settings), points_file(tmp_path), slow_settings, share_percent=100.0)
    (made,) = said.pairs
    assert ([job.name for job in made.jobs], made.split.shares[-1]) == (["a", "b", "b"], 100.0)
    assert made.forecast
    assert len(made.forecast.jobs) == 3


@pytest.mark.parametrize(
    ("limits", "words"),
    [({"min_speed": 1.0}, "below 100 %"), ({"max_power_w": 100.0}, "at most 100 W are allowed")],
)
def test_what_was_asked_for_those_that_run_refuses_a_newcomer(
    slow_settings: Settings, tmp_path: Path, limits: dict[str, Any], words: str
) -> None:
    """Whether they were launched with it or have joined with it."""
    file = points_file(tmp_path)
    with pytest.raises(NoSplitError, match=words):
        asked(running(slow_settings, **limits), file, slow_settings)
    joined = running(settings_of(tmp_path / "other"), LaunchPart(job=A, **limits))
    with pytest.raises(NoSplitError, match=words):
        asked(joined, file, slow_settings)


def test_an_unsafe_share_is_refused_of_the_newcomer_alone(
    slow_settings: Settings, tmp_path: Path
) -> None:
    """By the option that was given, and whatever those that run have."""
    keep_check(checked_with(132, {66}, gpu_model=CARD), slow_settings.home)
    folder = running(slow_settings, split=Split((50.0, 90.0)))
    with pytest.raises(UnsafeCountError, match=r"64 and 68 SMs \(.* in --share\)"):
        asked(folder, points_file(tmp_path), slow_settings, share_percent=50.0)
    (made,) = asked(folder, points_file(tmp_path), slow_settings, share_percent=40.0).pairs
    assert made.split.shares == (50.0, 90.0, 40.0)


def test_nobody_joins_jobs_of_which_one_is_below_normal_priority(
    slow_settings: Settings, tmp_path: Path
) -> None:
    folder = running(slow_settings, split=Split((100.0, 100.0), "uncapped", below_normal=(0,)))
    with pytest.raises(NoSplitError, match="nobody joins l beside a below normal priority"):
        asked(folder, points_file(tmp_path), slow_settings, share_percent=100.0)


def test_a_launch_that_cannot_be_read_is_not_joined(
    slow_settings: Settings, tmp_path: Path
) -> None:
    folder = running(slow_settings, LaunchPart(job=A))
    (request,) = (folder.path / "joins").iterdir()
    request.write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        asked(folder, points_file(tmp_path), slow_settings)


def test_nobody_joins_a_way_on_trial(slow_settings: Settings, tmp_path: Path) -> None:
    """Its share would be of a way that may not be kept."""
    folder = running(slow_settings)
    folder.write_status(replace(folder.read_status(), try_s=10.0))
    with pytest.raises(InputError, match=r"way 1 of 1 on trial.*once one way is kept"):
        asked(folder, points_file(tmp_path), slow_settings)
