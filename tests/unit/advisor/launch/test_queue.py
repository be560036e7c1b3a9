"""What is kept of a queue, and where it stands by the folders of its launches."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from joining import to_join

from advisor.core.gpu import Split
from advisor.core.job import Job
from advisor.errors import BusyError, InputError
from advisor.formats.moments import now
from advisor.launch.folder import (
    LaunchFolder,
    answer,
    ask_join,
    create_folder,
)
from advisor.launch.run_queue import (
    EndedJob,
    QueueRecord,
    account_for,
    former_works,
    must_be_alone,
    open_queue,
    see,
    waiting,
)
from advisor.launch.spec import (
    JobOutcome,
    JobStatus,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
)

SERVER = Job(name="server", command=("true",), offered_rate=10.0)


def part(name: str, rate: float = 10.0) -> LaunchPart:
    job = SERVER if name == "server" else Job(name=name, command=("true",))
    return LaunchPart(job=job, solo_rate=rate, solo_power_w=300.0)


def launched(root: Path, *names: str) -> LaunchFolder:
    made = LaunchSet(split=Split((100.0,) * len(names)), parts=tuple(map(part, names)))
    return create_folder(root / "launches", LaunchSpec(launch_id="l1", gpu="GPU-0", pairs=(made,)))


def ended(folder: LaunchFolder, code: str | None = None, **outcomes: JobOutcome) -> None:
    folder.write_status(
        LaunchStatus(
            launch_id="l1",
            state="failed" if code else "finished",
            updated_at="2026-01-31T12:00:30Z",
            started_at="2026-01-31T12:00:00Z",
            ended_at="2026-01-31T12:00:30Z",
            code=code,
            cause=code and "said so",
            whole_energy_j=5500.0,
            starts_energy_j=900.0,
            unwatched_s=1.5,
            overlap_s=20.0,
            jobs=tuple(
                JobStatus(
                    job=n.replace("_", "-"), rate_unit="steps", share_percent=100.0, outcome=o,
                    steps=100.0,
                )
                for n, o in outcomes.items()
            ),
        )
    )  # fmt: skip


def accounted(
    root: Path,
    code: str | None = None,
    *,
    stopped: bool = False,
    record: QueueRecord | None = None,
    **outcomes: JobOutcome,
) -> QueueRecord:
    folder = launched(root, *outcomes)
    ended(folder, code, **outcomes)
    if stopped:
        folder.ask_stop()
    before = record or QueueRecord(launches=("l1",))
    return account_for(before, see(folder), dict.fromkeys(outcomes, 1))


def came(record: QueueRecord) -> dict[str, str]:
    return {one.job: one.came for one in record.ended}


def test_what_is_over_is_accounted_for_once(tmp_path: Path) -> None:
    """Its jobs, its GPU time and its energy; steps are told as the time that they take alone."""
    record = accounted(tmp_path, a="finished", b="failed")
    assert (record.launches, came(record)) == ((), {"a": "finished", "b": "failed"})
    assert (record.held_s, record.energy_j) == (30.0, 5500.0)
    assert (record.starts_j, record.unwatched_s) == (900.0, 1.5)
    assert (record.ended[0].alone_s, record.ended[0].alone_j) == (10.0, 3000.0)


@pytest.mark.parametrize(("spread", "alone_s"), [(0.5, None), (0.0, 10.0)])
def test_what_work_takes_alone_is_not_told_by_a_profile_of_another_host(
    tmp_path: Path, spread: float, alone_s: float | None
) -> None:
    """A speed above 114 % is none of this host."""
    made = LaunchSet(split=Split((100.0,)), parts=(replace(part("a"), host_spread=spread),))
    folder = create_folder(tmp_path, LaunchSpec(launch_id="l1", gpu="GPU-0", pairs=(made,)))
    ended(folder, a="finished")
    (job,) = (status := folder.read_status()).jobs
    folder.write_status(replace(status, jobs=(replace(job, mean_speed=1.43),)))
    record = account_for(QueueRecord(launches=("l1",)), see(folder), {"a": 1})
    assert (record.ended[0].alone_s, record.ended[0].alone_j) == (alone_s, alone_s and 3000.0)


@pytest.mark.parametrize(("spread", "alone_j"), [(0.5, None), (0.07, 3000.0)])
def test_nothing_is_compared_with_a_rate_alone_that_this_host_may_halve(
    tmp_path: Path, spread: float, alone_j: float | None
) -> None:
    """Twelve jobs took 196 s "instead of 178 s" by profiles, and 270 s alone on their host.

    The work stays known: it orders a queue well enough.
    """
    made = LaunchSet(split=Split((100.0,)), parts=(replace(part("a"), host_spread=spread),))
    folder = create_folder(tmp_path, LaunchSpec(launch_id="l1", gpu="GPU-0", pairs=(made,)))
    ended(folder, a="finished")
    record = account_for(QueueRecord(launches=("l1",)), see(folder), {"a": 1})
    assert (record.ended[0].alone_s, record.ended[0].alone_j) == (10.0, alone_j)


@pytest.mark.parametrize(
    ("status", "energy_j", "held_s"),
    [
        ({"ended_at": None}, 5600.0, 30.0),
        # Of one that never ran nothing is missing; of one that ran it cannot be made up.
        ({"whole_energy_j": None, "overlap_s": 0.0, "started_at": None}, 100.0, 0.0),
        ({"whole_energy_j": None}, None, 30.0),
        ({"ended_at": "2026-01-31T11:00:00Z"}, 5600.0, 0.0),
    ],
)
def test_energy_that_was_not_read_is_not_made_up(
    tmp_path: Path, status: dict[str, Any], energy_j: float | None, held_s: float
) -> None:
    folder = launched(tmp_path, "a")
    ended(folder, a="finished")
    folder.write_status(replace(folder.read_status(), **status))
    record = account_for(QueueRecord(launches=("l1",), energy_j=100.0), see(folder), {"a": 1})
    assert (record.energy_j, record.held_s) == (energy_j, held_s)


def test_work_is_known_from_launches_in_which_the_same_job_finished(tmp_path: Path) -> None:
    """On that GPU model, at the rate alone of that time; the median of several."""

    def before(number: int, rate: float, model: str = "H200", **outcomes: JobOutcome) -> None:
        parts = tuple(part(name, rate) for name in outcomes)
        made = LaunchSet(split=Split((100.0,) * len(parts)), parts=parts)
        spec = LaunchSpec(launch_id=f"l{number}", gpu="GPU-0", pairs=(made,))
        ended(folder := create_folder(tmp_path, spec), **outcomes)
        folder.write_status(replace(folder.read_status(), gpu_model=model))

    for number, rate in enumerate((10.0, 4.0, 1.0)):
        before(number, rate, a="finished", b="failed", server="finished")
    before(3, 100.0, "H100", a="finished")
    (tmp_path / "broken").mkdir()
    changed = replace(part("b").job, command=("false",))
    before(4, 5.0, b="finished")
    jobs = [part("a").job, part("b").job, SERVER]
    assert former_works(tmp_path, jobs, "H200") == {"a": 25.0, "b": 20.0}
    assert former_works(tmp_path, [changed], "H200") == {}


LOW = JobStatus(
    job="a", rate_unit="steps", share_percent=100.0, below_normal=True, outcome="running"
)


@pytest.mark.parametrize(
    ("running", "status", "has_room"),
    [
        (1, {}, True),
        (6, {}, True),
        (7, {}, False),
        (0, {}, False),
        (1, {"state": "starting"}, False),
        (1, {"silent_s": 12}, False),
        (1, {"try_s": 10.0}, False),
        (2, {"jobs": (LOW, replace(LOW, below_normal=False))}, False),
        (2, {"jobs": (replace(LOW, outcome="finished"), LOW)}, True),
        (2, {"jobs": (replace(LOW, outcome="finished"), replace(LOW, below_normal=False))}, True),
    ],
)
def test_a_job_is_sent_where_a_place_is_free_and_nobody_waits_for_it(
    tmp_path: Path, running: int, status: dict[str, Any], has_room: bool
) -> None:
    names = "abcdefg"[: running or 1]
    folder = launched(tmp_path, *names)
    outcomes: dict[str, JobOutcome] = dict.fromkeys(names, "running" if running else "finished")
    ended(folder, **outcomes)
    heard = {"state": "running", "ended_at": None, "updated_at": now()}
    more: dict[str, Any] = {**heard, **status}
    folder.write_status(replace(folder.read_status(), **more))
    assert see(folder).has_room == has_room
    ask_join(folder, to_join(part("x"))) if running % 2 else folder.ask_stop()
    assert not see(folder).has_room


def test_who_is_lost_begins_once_more_alone(tmp_path: Path) -> None:
    record = accounted(tmp_path, "mps-fault", a="taken-down", b="taken-down", c="finished")
    assert came(record) == {"a": "lost", "b": "lost", "c": "finished"}
    assert must_be_alone(record) == ({"a", "b"}, set())
    assert waiting(("a", "b", "c"), record, ()) == ("a", "b")
    again = accounted(tmp_path / "again", "supervisor-gone", record=record, a="running")
    assert [one.came for one in again.ended if one.job == "a"] == ["lost", "failed"]
    start = accounted(tmp_path / "start", "job", a="stopped", b="stopped")
    assert must_be_alone(start) == (set(), {"a", "b"})
    assert came(accounted(tmp_path / "own", "job", a="stopped")) == {"a": "failed"}


def test_who_was_lost_beside_others_is_never_blamed_for_them(tmp_path: Path) -> None:
    """However often that is; alone it has no excuse the second time."""
    record = accounted(tmp_path, "job", a="failed", b="stopped")
    again = accounted(tmp_path / "again", "mps-fault", record=record, c="failed", b="taken-down")
    assert [one.came for one in again.ended if one.job == "b"] == ["lost", "lost"]
    alone = accounted(tmp_path / "alone", "mps-fault", record=again, b="taken-down")
    assert [one.came for one in alone.ended if one.job == "b"] == ["lost", "lost", "failed"]


def test_a_launch_whose_jobs_have_ended_is_about_to_let_go_of_its_gpu(tmp_path: Path) -> None:
    folder = launched(tmp_path, "a")
    assert not see(folder).is_ending
    ended(folder, a="finished")
    folder.write_status(replace(folder.read_status(), state="running", ended_at=None))
    assert see(folder).is_ending
    ask_join(folder, to_join(part("b")))
    assert not see(folder).is_ending


def test_who_is_stopped_waits_again(tmp_path: Path) -> None:
    stopped = accounted(tmp_path, stopped=True, a="finished", b="stopped", server="stopped")
    assert came(stopped) == {"a": "finished"}
    record = QueueRecord(launches=("l1",), servers_ended=True)
    last = accounted(tmp_path / "last", stopped=True, record=record, a="finished", server="stopped")
    assert came(last) == {"a": "finished", "server": "ended"}


def test_joined_jobs_are_seen_before_the_status_has_them(tmp_path: Path) -> None:
    folder = launched(tmp_path, "a", "b")
    names = [ask_join(folder, to_join(part(n))) for n in "cde"]
    seen = see(folder)
    assert [job.status.job for job in seen.jobs] == ["a", "b", "c", "d", "e"]
    assert seen.joining
    for name, job, outcome, code in zip(
        names, "cde", ("running", "refused", "refused"), (None, "no-split", "job"), strict=True
    ):
        said = JobStatus(job=job, rate_unit="steps", share_percent=50)
        answer(folder, replace(said, join_id=name, outcome=outcome, code=code))
    seen = see(folder)
    assert [(job.status.job, job.status.outcome) for job in seen.jobs[2:]] == [
        ("c", "running"),
        ("e", "failed"),
    ]
    assert seen.refused == {"d"}
    assert not seen.joining
    assert waiting(("a", "b", "c", "c", "d", "e"), QueueRecord(), [seen]) == ("c", "d")


def test_the_same_jobs_are_the_same_queue(tmp_path: Path) -> None:
    home = tmp_path / "home"
    kept = QueueRecord(
        launches=("l2",),
        ended=(
            EndedJob(job="a", launch_id="l1", came="finished", steps=3.0),
            EndedJob(job="b", launch_id="l1", came="failed"),
        ),
        servers_ended=True,
        held_s=3.5,
        energy_j=None,
    )
    with open_queue(home, tmp_path, "ab") as file:
        assert file.read() == QueueRecord()
        file.write(kept)
        with pytest.raises(BusyError), open_queue(home, tmp_path, "ba"):
            pass
        with (
            open_queue(home, tmp_path, "abb") as more,
            open_queue(home, tmp_path / "other", "ab") as elsewhere,
        ):
            assert more.read() == elsewhere.read() == QueueRecord()
    with open_queue(home, tmp_path, "ab") as file:
        assert (file.read(), came(file.read().to_go_on())) == (kept, {"a": "finished"})
        file.remove()
        assert file.read() == QueueRecord()


@pytest.mark.parametrize("text", ['{"launches":["1"],"end', '{"of_a_newer_version":1}', None])
def test_a_record_that_cannot_be_read_begins_no_job_again(tmp_path: Path, text: str | None) -> None:
    """As an empty one it did: what was done ran twice, and what ran got a second copy."""
    with open_queue(tmp_path / "home", tmp_path, "ab") as file:
        file.path.mkdir() if text is None else file.path.write_text(text)
        with pytest.raises(InputError, match=r"cannot be read.*remove the file"):
            file.read()


def test_a_set_may_be_open_to_more_than_it_has() -> None:
    """The MPS server is set to that when it starts: it cannot be raised for who joins."""
    made = LaunchSet(split=Split((30.0, 20.0)), parts=(part("a"), part("b")))
    assert [replace(made, open_percent=most).cap_percent for most in (0.0, 100.0)] == [30, 100]
