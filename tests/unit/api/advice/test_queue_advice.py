"""Who starts on an empty GPU and who joins, by profiles that come with advisor."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from advised import settings_of

from advisor.core.gpu import Gpu, Sharing, Split
from advisor.core.job import Job
from advisor.decide.decision import Running
from advisor.decide.limits import Request, floor
from advisor.launch.folder import LaunchFolder, joins, list_folders
from advisor.launch.run_queue import QueueFile, see
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.wire.requests import LaunchRequest
from advisor_advice.launching import ResolvedLaunch
from advisor_advice.queue import OpenCard, QueueCard, QueueRun, planned, read_card

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
    return read_card(jobs, ResolvedLaunch(request=request, card=gpu), settings_of(home))


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
        (TWO, [("time-sliced", *TWO)]),
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


def test_jobs_whose_work_is_known_keep_what_fits_beside_those_that_fill(
    card: QueueCard, tmp_path: Path
) -> None:
    """By the plan of a queue, the longest set first; else a limit would outlive its neighbours."""
    small = ("mobilenet-train-b2", "resnet50-train-b2")
    names = ("gemm", "triad", *small, *small)
    jobs, settings = [Job(name=name, command=("true",)) for name in names], settings_of(tmp_path)
    works = dict.fromkeys(names, 3600.0) | {"triad": 7200.0, small[0]: 7200.0}

    def queue(works_s: dict[str, float]) -> QueueRun:
        return QueueRun(jobs, [card], QueueFile(tmp_path / "queue"), settings, None, works_s)

    ((_, (unknown,)),) = queue({}).first_sets()
    assert {*unknown.split.shares} == {100.0}
    sets = launched_by(queue(works), tmp_path)
    found = [sorted(job.name for job in one.jobs) for one in sets]
    assert sorted(name for one in found for name in one) == sorted(names)
    assert {*names[:2]} <= {name for one in found if {*one} & {*small} for name in one}


def test_a_job_that_fills_joins_below_normal_priority(tmp_path: Path) -> None:
    """Beside one that runs alone and leaves room."""
    jobs = [Job(name=name, command=("true",)) for name in ("resnet50-infer-b2", "fft", "gemm")]
    files = tmp_path / "jobs"
    files.mkdir()
    for job in jobs:
        (files / f"{job.name}.yaml").write_text("command: ['true']\n")
    settings = settings_of(tmp_path, ADVISOR_JOBS=str(files))
    gpu = Gpu(uuid="GPU-1", model="NVIDIA H200", units_total=132, memory_mib=143_771)
    request = LaunchRequest.of(*(job.name for job in jobs))
    there = read_card(jobs, ResolvedLaunch(request=request, card=gpu), settings)
    alone = QueueRun(jobs[:1], [there], file := QueueFile(tmp_path / "queue"), settings)
    alone.act(alone.look())
    (folder,) = list_folders(tmp_path / "home" / "launches")
    seen = see(folder)
    running = tuple(replace(job.status, outcome="running") for job in seen.jobs)
    folder.write_status(replace(seen.status, state="running", jobs=running))
    queue = QueueRun(jobs, [there], file, settings)
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


def supervise(folder: LaunchFolder, steps: float = 0.0) -> None:
    """Batch jobs finish at once, servers when they are stopped."""
    seen = see(folder)
    served = "stopped" if seen.stop_asked else "running"
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
    served = floor(asked.profiles["bert-serve-10"], asked.request)
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
    ((_, _, split),) = planned((OpenCard(card=card, able=frozenset(TWO), brief=frozenset()),), TWO)
    assert spec.pairs[0].split.shares == split.shares
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
