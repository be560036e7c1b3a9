"""A queue as people and programs see it, and how its record is taken up."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from advised import settings_of
from command_line import Advisor

from advisor.core.job import Job
from advisor.launch.run_queue import (
    EndedJob,
    LaunchedJob,
    QueueFile,
    QueueRecord,
    SeenLaunch,
    open_queue,
)
from advisor.launch.spec import JobStatus, LaunchPart, LaunchStatus
from advisor_advice.queue import QueueLook, QueueRun
from advisor_cli.run import end_screen, event_lines, run_state

NAMES = ("a", "a", "b", "server")

JOBS = {
    name: Job(name=name, command=("true",), offered_rate=10.0 if name == "server" else None)
    for name in NAMES
}

FINISHED = EndedJob(
    job="a", launch_id="l1", came="finished", steps=1000.0, alone_s=100.0, alone_j=30_000.0
)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[QueueFile]:
    with open_queue(tmp_path / "home", tmp_path, NAMES) as file:
        yield file


def queue_of(file: QueueFile, folder: Path, works_s: dict[str, float] | None = None) -> QueueRun:
    return QueueRun([JOBS[name] for name in NAMES], (), file, settings_of(folder), None, works_s)


def running(*names: str, steps: float, speed: float) -> SeenLaunch:
    return SeenLaunch(
        launch_id="l2",
        gpu="GPU-0",
        status=LaunchStatus(launch_id="l2", state="running", updated_at=""),
        jobs=tuple(
            LaunchedJob(
                LaunchPart(job=JOBS[name], solo_rate=10.0),
                JobStatus(
                    job=name,
                    rate_unit="steps",
                    share_percent=50.0,
                    outcome="running",
                    steps=steps,
                    relative_speed=speed,
                ),
            )
            for name in names
        ),
        refused=frozenset(),
        joining=False,
        stop_asked=False,
    )


def test_what_is_left_follows_from_work_and_pace(file: QueueFile, tmp_path: Path) -> None:
    """An equal job needs as much as the one before it; a server has no end of its own."""
    launch = running("a", "server", steps=400.0, speed=0.5)
    file.write(record := QueueRecord(ended=(FINISHED,)))
    look = QueueLook(record=record, launches=(launch,), waiting=("b",))
    known = run_state(queue_of(file, tmp_path, {"b": 20.0}), look)
    assert [(job.job, job.state, job.progress) for job in known.jobs] == [
        ("a", "done", 1.0),
        ("a", "running", 0.4),
        ("b", "waiting", None),
        ("server", "running", None),
    ]
    assert known.left_s == (60 + 20) / 0.5
    assert run_state(queue_of(file, tmp_path), look).left_s is None
    assert known.headline == "1 of 4 jobs done, 2 run, 1 wait; about 3 min left"


def test_lines_tell_what_has_changed(file: QueueFile, tmp_path: Path) -> None:
    queue = queue_of(file, tmp_path)
    before = run_state(queue, QueueLook(record=QueueRecord(), launches=(), waiting=NAMES))
    launch = running("b", steps=0.0, speed=0.5)
    look = QueueLook(record=QueueRecord(), launches=(launch,), waiting=("a", "a", "server"))
    assert [*event_lines(before, run_state(queue, look))] == [
        "b running (0 of 4 jobs done, 1 run, 3 wait)"
    ]
    hurried = QueueRun(
        [JOBS["b"]], (), file, settings_of(tmp_path), None, {"b": 120.0}, {"b": 60.0}
    )
    waits = QueueLook(record=QueueRecord(), launches=(), waiting=("b",))
    (late,) = event_lines(None, run_state(hurried, waits))
    assert late.startswith("b cannot be done in time: 2 min alone, ")
    sliced = replace(launch, status=replace(launch.status, sharing="time-sliced"))
    queue.cards = (Mock(gpu=Mock(uuid="GPU-0", index=3), expected=Mock(return_value=None)),)
    (turn,) = event_lines(before, run_state(queue, replace(look, launches=(sliced,))))
    assert turn.startswith("b running on GPU 3, time-sliced (")


def test_the_end_stands_beside_each_job_alone(file: QueueFile, tmp_path: Path) -> None:
    """The server was ended, so its work counts as well; what failed is named with its launch."""
    failed = EndedJob(job="b", launch_id="l1", came="failed", error="no such file")
    server = EndedJob(
        job="server", launch_id="l1", came="ended", steps=500.0, alone_s=50.0, alone_j=10_000.0
    )
    record = QueueRecord(
        ended=(FINISHED, FINISHED, failed, server), held_s=150.0, energy_j=60_000.0
    )
    queue, look = queue_of(file, tmp_path), QueueLook(record=record, launches=(), waiting=())
    state = run_state(queue, look)
    assert (state.state, state.alone_s, state.alone_j) == ("failed", 250.0, 70_000.0)
    lines = dict(end_screen(state).lines)
    assert lines["GPUs"] == "held for 3 min; each alone, by its profile, 4 min: 40 % less"
    assert lines["Energy"].endswith("19.4 Wh: 14 % less")
    assert lines["Failed"] == "b: no such file; advisor launches show l1"
    file.write(record)
    queue.finish(look)
    assert file.read() == record


def test_a_launch_that_was_noted_and_never_made_is_forgotten(
    file: QueueFile, tmp_path: Path
) -> None:
    file.write(QueueRecord(launches=("20260131-120000-3f2a91",), ended=(FINISHED,)))
    queue = queue_of(file, tmp_path)
    queue.take_up()
    look = queue.look()
    assert (look.launches, look.waiting) == ((), ("a", "b", "server"))
    assert file.read().launches == ()
    assert not queue.done(look)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("one/a.yaml", "two/b.yaml"), "in 2 folders"),
        (("empty",), "empty has no job files"),
        (("one/a.yaml", "b"), "'one/a.yaml' is not a valid job name"),
    ],
)
def test_job_files_are_of_one_folder(
    advisor: Advisor, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    for folder in ("one", "two", "empty"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one" / "a.yaml").write_text("command: 'true'")
    (tmp_path / "two" / "b.yaml").write_text("command: 'true'")
    refused = advisor("run", *words)
    assert (refused.code, said in refused.err) == (2, True), refused
