"""What somebody wants launched, as a spec."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from advised import CARD, UUID, gives, model, points_file, settings_of, solo_points
from joining import to_join
from unsafe_counts import checked_with

from advisor.core.gpu import EQUAL, UNCAPPED, Gpu, Sharing, Split
from advisor.core.job import Job
from advisor.decide.decision import Running
from advisor.decide.limits import Request
from advisor.errors import InputError, NoSplitError, UnsafeCountError, install
from advisor.formats.moments import now
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    create_folder,
    first_status,
    joins,
    list_folders,
)
from advisor.launch.run_queue import QueueFile, see
from advisor.launch.spec import JobStatus, LaunchPart, LaunchSet, LaunchSpec
from advisor.settings import Settings
from advisor.validity.safe_counts import keep_check
from advisor.wire.requests import JobRequest, LaunchRequest
from advisor_advice.launching import (
    ResolvedLaunch,
    make_join,
    make_spec,
)
from advisor_advice.queue import OpenCard, QueueCard, QueueRun, planned
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


def test_a_given_split_keeps_what_was_asked_for(settings: Settings, tmp_path: Path) -> None:
    """With profiles what holds at a recommended one, too; without, no more than was asked for."""
    served = solo_points("a", offered_rate=100.0, latency_p99_ms=8.0)

    def kept(file: Path, *, split: str | None = "30/70", **of_a: float) -> list[tuple[Any, ...]]:
        jobs = (JobRequest(job="a", **of_a), JobRequest(job="b"))
        asked = LaunchRequest(jobs=jobs, split=split, max_power_w=500.0)
        (pair,) = make_spec(ResolvedLaunch(request=asked, card=GPU, profiles=file), settings).pairs
        return [(part.min_speed, part.promised_p99_ms, part.max_power_w) for part in pair.parts]

    both = points_file(tmp_path, served, solo_points("b"))
    assert kept(both, min_speed=0.0) == [(0.0, 40.0, 500.0), (0.4, None, 500.0)]
    assert kept(both, min_speed=0.0, max_p99_ms=70.0)[0] == (0.0, 70.0, 500.0)
    with pytest.raises(InputError, match="no latency of a was measured"):
        kept(points_file(tmp_path), max_p99_ms=70.0)
    unknown = points_file(tmp_path, solo_points("b"))
    assert kept(unknown, max_p99_ms=70.0) == [(None, 70.0, 500.0), (None, None, 500.0)]


def test_a_given_split_that_breaks_a_limit_is_launched_with_a_word(
    settings: Settings, file: Path
) -> None:
    spec = make_spec(wanted(file, split="30/70", min_speed=0.7), settings)
    assert "expected: a at 0.60 of its speed, below 0.70" in spec.notes


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


def test_memory_is_bounded_by_what_the_others_leave_of_a_card_that_is_known() -> None:
    jobs = replace(A, memory_mib=1000), replace(B, memory_mib=2000)
    pair = LaunchSet(split=EQUAL, parts=tuple(LaunchPart(job=job) for job in jobs))
    # 95 % of the card, less need and 512 MiB of the other.
    assert [share.memory_mib for share in pair.shares(10_000)] == [9500 - 2512, 9500 - 1512]
    assert [share.memory_mib for share in pair.shares(None)] == [None, None]


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
    status = first_status(spec, now())
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
    for folder in (
        running(slow_settings, **limits),
        running(settings_of(tmp_path / "other"), LaunchPart(job=A, **limits)),
    ):
        with pytest.raises(NoSplitError, match=words):
            asked(folder, file, slow_settings)


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
    with pytest.raises(NoSplitError, match="no job can join l beside a below normal priority"):
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


# Who starts on an empty GPU and who joins, by profiles that come with advisor.


NAMES = ("triad", "resnet50-train-b2", "bert-serve-10", "gemm", "mobilenet-train-b2")
"""Two that fill the GPU, a server, and two that leave most of it."""

SHARING = ("bert-infer", "resnet50-train-waiting", "resnet50-train-b2")

TWO = ("resnet50-train-b2", "matmul-fp16")


@pytest.fixture(autouse=True)
def no_supervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    spawn = Mock(return_value=Mock(poll=lambda: None))
    monkeypatch.setattr("advisor_advice.queue.spawn_supervisor", spawn)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> QueueCard:
    names = (*NAMES, *SHARING, *TWO, "unknown")
    request = LaunchRequest.of(*NAMES)
    jobs = [Job(name=name, command=("true",)) for name in names]
    gpu = Gpu(uuid="GPU-1", model="NVIDIA H100 80GB HBM3", units_total=132, memory_mib=81_559)
    home = tmp_path_factory.mktemp("home")
    return QueueCard.read(jobs, ResolvedLaunch(request=request, card=gpu), settings_of(home))


def first_sets(card: QueueCard, jobs: Sequence[str], gpus: int = 1) -> list[tuple[str, ...]]:
    empty = OpenCard(card=card, able=frozenset(jobs))
    return [names for _, names, _ in planned((empty,) * gpus, tuple(jobs))]


def beside(
    card: QueueCard, running: Sequence[str], *jobs: str, sharing: Sharing = "limited"
) -> OpenCard:
    there = Running(split=Split((100.0,) * len(running), sharing), cap_percent=100.0)
    return OpenCard(card=card, able=frozenset(jobs), running=tuple(running), there=there)


def test_no_gpu_stays_empty_that_a_job_could_have(card: QueueCard) -> None:
    pair, nine = ("resnet50-train-b2", "mobilenet-train-b2"), (*NAMES, *["mobilenet-train-b2"] * 4)
    for jobs, gpus, sizes in ((pair, 1, [2]), (pair, 2, [1, 1]), (SHARING, 1, [3]), (nine, 1, [7])):
        assert [len(names) for names in first_sets(card, jobs, gpus)] == sizes


def test_who_joins_leaves_shares_as_they_are(card: QueueCard) -> None:
    """One joins at a time, where that is worth while; an empty GPU starts at the same time."""
    waiting = ("gemm", "mobilenet-train-b2")
    small = beside(card, ["resnet50-train-b2"], *waiting)
    ((where, names, split),) = planned((small,), waiting)
    assert (where, names, split.shares[0]) == (card, ("mobilenet-train-b2",), 100.0)
    assert planned((beside(card, ["triad"], "gemm"),), ("gemm",)) == []
    empty = OpenCard(card=replace(card), able=frozenset(waiting))
    found = {names: where for where, names, _ in planned((small, empty), waiting)}
    assert found == {("mobilenet-train-b2",): card, ("gemm",): empty.card}


def test_jobs_that_run_in_turns_are_joined_in_turns(card: QueueCard) -> None:
    """Under MPS a job runs on as it is: none can join it in turns."""
    first, second = TWO
    ((_, _, split),) = planned((beside(card, [first], second, sharing="time-sliced"),), (second,))
    assert str(split) == "time-sliced"
    ((_, _, split),) = planned((beside(card, [first], second),), (second,))
    assert split.sharing == "limited"


def launched_by(queue: QueueRun, folder: Path) -> list[LaunchSet]:
    for _ in range(9):
        queue.act(queue.look())
        for launch in list_folders(folder / "home" / "launches"):
            supervise(launch)
    assert queue.done(queue.look())
    return [one.read_spec().pairs[0] for one in list_folders(folder / "home" / "launches")]


@pytest.mark.parametrize(
    ("names", "launches"),
    [
        (TWO, [("limited", *reversed(TWO))]),
        (("bert-serve-10", "unknown"), [("limited", "unknown")]),
        (
            ("bert-serve-10", "bert-infer", *TWO),
            [
                ("limited", "bert-serve-10", "bert-infer", "resnet50-train-b2"),
                ("limited", "matmul-fp16"),
            ],
        ),
    ],
)
def test_a_queue_ends(
    card: QueueCard,
    tmp_path: Path,
    names: Sequence[str],
    launches: Sequence[tuple[str, ...]],
) -> None:
    """A server ends with the last job that shares with it; without one it does not begin."""
    rates = {"bert-serve-10": 10.0}
    jobs = [Job(name=name, command=("true",), offered_rate=rates.get(name)) for name in names]
    queue = QueueRun(jobs, [card], QueueFile(tmp_path / "queue"), settings_of(tmp_path))
    sets = launched_by(queue, tmp_path)
    found = [(one.split.sharing, *(job.name for job in one.jobs)) for one in sets]
    assert sorted(found) == launches


SMALL = ("mobilenet-train-b2", "resnet50-train-b2")


@pytest.mark.parametrize("works_s", [{}, dict.fromkeys((*SMALL, "gemm", "triad"), 3600.0)])
@pytest.mark.parametrize(("times", "sizes"), [(1, [2, 2]), (3, [1, 1, 6])])
def test_jobs_that_leave_room_start_together_or_beside_those_that_fill(
    card: QueueCard, tmp_path: Path, works_s: dict[str, float], times: int, sizes: list[int]
) -> None:
    """Whichever takes less GPU time by the plan of a queue; unknown works are as long as others."""
    names = ("gemm", "triad", *SMALL * times)
    jobs, settings = [Job(name=name, command=("true",)) for name in names], settings_of(tmp_path)
    queue = QueueRun(jobs, [card], QueueFile(tmp_path / "queue"), settings, None, works_s)
    ((_, (first,)),) = queue.first_sets()
    assert len({job.name for job in first.jobs} & {"gemm", "triad"}) == (times == 1)
    assert sorted(len(one.jobs) for one in launched_by(queue, tmp_path)) == sizes


@pytest.mark.parametrize("done", [0.5, 1.5])
def test_a_pair_waits_for_no_job_that_has_done_its_work(
    card: QueueCard, tmp_path: Path, done: float
) -> None:
    """Its remaining time is unknown, so jobs that leave it room join it."""
    jobs = [Job(name=name, command=("true",)) for name in (SMALL[0], "gemm", SMALL[1])]
    works_s, steps = (
        {job.name: 60.0 for job in jobs},
        done * 60 * card.profiles[SMALL[0]].whole_gpu_rate,
    )
    queue, folder = first_runs(tmp_path, card, jobs, works_s, steps)
    assert queue.act(queue.look()) == (done > 1)
    assert [asked.pairs[0].jobs[-1].name for asked, _ in joins(folder)] == [SMALL[1]] * (done > 1)


def test_a_job_that_fills_joins_below_normal_priority(tmp_path: Path) -> None:
    """Beside one that runs alone and leaves room."""
    jobs = [Job(name=name, command=("true",)) for name in ("resnet50-infer-b2", "fft", "gemm")]
    gpu = Gpu(uuid="GPU-1", model="NVIDIA H200", units_total=132, memory_mib=143_771)
    wanted = ResolvedLaunch(request=LaunchRequest.of(*(job.name for job in jobs)), card=gpu)
    there = QueueCard.read(jobs, wanted, settings_of(tmp_path))
    queue, folder = first_runs(tmp_path, there, jobs, {})
    assert queue.act(queue.look())
    ((asked, _),) = joins(folder)
    assert str(asked.pairs[0].split) == "100/100:low"
    assert asked.pairs[0].forecast


def test_equal_jobs_take_as_long_as_the_first_one(card: QueueCard, tmp_path: Path) -> None:
    jobs, clock = [Job(name="gemm", command=("true",))] * 2, Mock(return_value=0.0)
    file, settings = QueueFile(tmp_path / "queue"), settings_of(tmp_path)
    queue = QueueRun(jobs, [card], file, settings, due_s={"gemm": 1e6}, clock_s=clock)
    queue.act(queue.look())
    assert queue.spare_s("gemm") == 1e6
    (folder,) = list_folders(tmp_path / "home" / "launches")
    supervise(folder, steps=100.0)
    queue.look()
    alone_s = 100.0 / card.profiles["gemm"].whole_gpu_rate
    assert queue.spare_s("gemm") == pytest.approx(1e6 - alone_s, abs=1e-6)


def first_runs(
    home: Path, card: QueueCard, jobs: Sequence[Job], works_s: dict[str, float], steps: float = 0.0
) -> tuple[QueueRun, LaunchFolder]:
    """A queue of jobs of which the first one runs; those that join are read from their files."""
    (files := home / "jobs").mkdir()
    for job in jobs:
        (files / f"{job.name}.yaml").write_text("command: ['true']\n")
    settings, file = settings_of(home, ADVISOR_JOBS=str(files)), QueueFile(home / "queue")
    alone = QueueRun(jobs[:1], [card], file, settings)
    alone.act(alone.look())
    (folder,) = list_folders(home / "home" / "launches")
    seen = see(folder)
    running = tuple(replace(job.status, outcome="running", steps=steps) for job in seen.jobs)
    folder.write_status(replace(seen.status, state="running", jobs=running))
    return QueueRun(jobs, [card], file, settings, None, works_s), folder


def supervise(folder: LaunchFolder, steps: float = 0.0) -> None:
    """Batch jobs finish at once, servers when they are stopped."""
    seen = see(folder)
    served = "stopped" if seen.stop_requested else "running"
    jobs = tuple(
        replace(
            job.status, outcome=served if job.part.job.offered_rate else "finished", steps=steps
        )
        for job in seen.jobs
    )
    state = "running" if any(job.outcome == "running" for job in jobs) else "finished"
    folder.write_status(replace(seen.status, state=state, jobs=jobs))


def test_of_who_is_unknown_nothing_is_expected(card: QueueCard) -> None:
    assert (set(card.lacking), first_sets(card, ())) == ({"unknown"}, [])
    assert card.expected(["triad"], Split((100.0,)))
    assert card.expected(["triad", "unknown"], Split((100.0, 100.0))) is None


def test_launches_know_what_jobs_are_held_to(card: QueueCard) -> None:
    """A limit of all servers is none of those that answer nobody; of the unknown nothing is."""
    asked = replace(card, request=Request(min_speed={"gemm": 0.5}, default_max_p99_ms=50.0))
    jobs = [Job(name=name, command=("true",)) for name in ("bert-serve-10", "gemm", "unknown")]
    parts = [asked.held_to(LaunchPart(job=job)) for job in jobs]
    limits = [(part.min_speed, part.max_p99_ms) for part in parts]
    served = asked.request.floor(asked.profiles["bert-serve-10"])
    assert limits == [(served, 50.0), (0.5, None), (None, None)]
    assert served > 0.9


@pytest.mark.parametrize("is_restartable", [True, False])
def test_a_set_whose_jobs_may_be_started_again_is_tried(
    card: QueueCard, tmp_path: Path, is_restartable: bool
) -> None:
    """The way that was planned first; who joins later finds the limits of all in each way."""
    tried = replace(card.wanted, request=replace(card.wanted.request, tries=2))
    jobs = [
        Job(name=name, command=("true",), restartable=is_restartable or name != TWO[0])
        for name in TWO
    ]
    settings = settings_of(tmp_path)
    queue = QueueRun(jobs, [replace(card, wanted=tried)], QueueFile(tmp_path / "queue"), settings)
    ((_, ways),) = queue.first_sets()
    queue.act(queue.look())
    (folder,) = list_folders(tmp_path / "home" / "launches")
    spec = folder.read_spec()
    assert [way.split for way in spec.pairs] == [way.split for way in ways]
    assert (len(ways), spec.try_s) == ((2, 10.0) if is_restartable else (1, None))
    assert len({way.split for way in ways}) == len(ways)
    assert all(part.min_speed for way in ways for part in way.parts)


@pytest.mark.parametrize("due", ["triad", "gemm"])
def test_jobs_with_a_deadline_go_first_at_the_speed_that_they_need(
    card: QueueCard, tmp_path: Path, due: str
) -> None:
    """They share where that leaves them enough; what can no longer be in time is told."""
    clock = Mock(return_value=0.0)
    jobs = [Job(name=name, command=("true",)) for name in ("triad", "gemm", *TWO)]
    file, settings = QueueFile(tmp_path / "queue"), settings_of(tmp_path)
    works = dict.fromkeys((due, "matmul-fp16"), 3_400.0)
    times = {due: 3_600.0, "matmul-fp16": 36_000.0}
    queue = QueueRun(jobs, [card], file, settings, None, works, times, clock)
    ((_, (made,)),) = queue.first_sets()
    seats = {part.job.name: n for n, part in enumerate(made.parts)}
    assert due in seats
    assert made.parts[seats[due]].min_speed == 0.95
    expected = queue.cards[0].expected([*seats], made.split)
    assert expected
    assert expected.parts[seats[due]].speed.value > 0.95 - 1e-9
    clock.return_value = 300.0
    assert queue.late_text("matmul-fp16") is None
    assert queue.late_text(due) == "cannot be done in time: 57 min alone, 55 min left"
    ((_, (made, *_)),) = queue.first_sets()
    assert "matmul-fp16" in [job.name for job in made.jobs]


def test_a_deadline_is_not_counted_anew_when_the_queue_goes_on(
    card: QueueCard, tmp_path: Path
) -> None:
    """Unless another one is asked for."""
    clock, file = Mock(return_value=1000.0), QueueFile(tmp_path / "queue")
    jobs, settings = [Job(name="gemm", command=("true",))], settings_of(tmp_path)

    def queue(due_s: float) -> QueueRun:
        works, due = {"gemm": 600.0}, {"gemm": due_s}
        return QueueRun(jobs, [card], file, settings, None, works, due, clock)

    first = queue(3600.0)
    first.act(first.look())
    clock.return_value = 2000.0
    assert [queue(due_s).spare_s("gemm") for due_s in (3600.0, 7200.0)] == [2000.0, 6600.0]
