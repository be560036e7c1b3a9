"""The folder of a launch: one supervisor ever, and a status that is whole or none."""

import fcntl
import json
import os
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import ANY

import pytest
from ended_launches import PAIR, launch_id
from hypothesis import given, strategies as st

from advisor.core.gpu import ALL_GPUS, NINE, TIME_SLICED, UNCAPPED, Split
from advisor.core.job import Job
from advisor.core.objectives import Interval
from advisor.errors import BusyError, InputError
from advisor.formats.job_file import load_job
from advisor.formats.moments import to_text
from advisor.formats.wire import read, write
from advisor.launch.folder import (
    EndedLaunch,
    LaunchFolder,
    StatusWriter,
    ask_join,
    beyond,
    close_unclaimed,
    create_folder,
    ended_launch,
    find_folder,
    half_removed,
    join_requests,
    join_status,
    joins,
    observation_lines,
    read_history,
    remove,
)
from advisor.launch.spec import (
    Forecast,
    JobForecast,
    JobStatus,
    LaunchPart,
    LaunchSet,
    LaunchSpec,
    LaunchStatus,
)
from advisor.settings import Retention

RATE = Interval(50, 40, 60)
FORECAST = Forecast(
    model_version="m", jobs=(JobForecast(rate=RATE, solo_rate=100.0),) * 2,
    power_w=Interval(500, 450, 550), work_per_joule=Interval(0.002, 0.001, 0.003), coverage=0.9,
)  # fmt: skip
PAIRS = (replace(PAIR, forecast=FORECAST),)
SPEC = LaunchSpec(launch_id="20260131-120000-3f2a91", gpu="0", pairs=PAIRS, notes=("a note",))


@pytest.fixture
def folder(tmp_path: Path) -> LaunchFolder:
    return create_folder(tmp_path, SPEC)


def test_reader_does_not_keep_a_supervisor_out(folder: LaunchFolder) -> None:
    """Who asks whether one lives holds its lock for an instant."""
    (folder.path / "alive").touch()
    with (folder.path / "alive").open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        timer = threading.Timer(0.2, lambda: fcntl.flock(reader, fcntl.LOCK_UN))
        timer.start()
        with folder.supervising():
            assert folder.supervised()
            timer.join()


def test_there_is_one_supervisor_ever(
    folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.launch.folder._READERS_S", 0.05)
    refused = pytest.raises(BusyError, match="has or had a supervisor")
    with folder.supervising():
        assert folder.claimed()
        with refused, folder.supervising():
            pytest.fail("there are two")
    assert not folder.supervised()
    with refused, folder.supervising():
        pytest.fail("it began again")


def test_status_follows_the_supervisor(folder: LaunchFolder) -> None:
    """Accepted before it begins; failed where it went without a last word; else its last word."""
    first = folder.read_status()
    assert (first.state, first) == ("accepted", folder.read_status())
    assert (first.forecast, first.predicted_power_w) == (FORECAST, FORECAST.power_w)
    assert [job.predicted_rate for job in first.jobs] == [RATE, RATE]
    with folder.supervising():
        job = JobStatus(job="gemm", rate_unit="steps", share_percent=30, proven=True, proof="set")
        runs, done = (replace(job, outcome=outcome, rate=9.0) for outcome in ("running", "failed"))
        StatusWriter(folder, SPEC).enter("running", jobs=(runs, done))
        assert folder.read_status().jobs[0].proven
    gone = folder.read_status()
    assert (gone.state, gone.code) == ("failed", "supervisor-gone")
    ended = EndedLaunch(launch_id=SPEC.launch_id, ended_at=gone.updated_at, size_bytes=ANY)
    assert ended_launch(folder) == ended
    assert (gone.jobs[0].proven, gone.jobs[0].proof, gone.jobs[0].rate) == (False, None, None)
    assert [one.outcome for one in gone.jobs] == ["stopped", "failed"]
    StatusWriter(folder, SPEC).close("stopped")
    assert folder.read_status().state == "stopped"
    folder.write_status(replace(gone, updated_at="no moment"))
    assert folder.read_status().updated_at == first.updated_at


def test_a_launch_that_is_closed_is_never_begun(folder: LaunchFolder) -> None:
    close_unclaimed(folder, "failed", "supervisor-gone", "it did not begin")
    close_unclaimed(folder, "stopped")
    status = folder.read_status()
    assert (status.state, status.code, status.cause) == (
        "failed", "supervisor-gone", "it did not begin"
    )  # fmt: skip
    assert (folder.claimed(), folder.supervised()) == (True, False)


@pytest.mark.parametrize(("age_s", "silent"), [(9, False), (34, True), (-34, True)])
def test_what_is_old_is_shown_as_old_and_never_as_proven(
    folder: LaunchFolder, age_s: int, silent: bool
) -> None:
    """A supervisor that hangs writes no more; nor does the clock that is set back hide it."""
    job = JobStatus(job="gemm", rate_unit="steps", share_percent=30, proven=True)
    written = to_text(datetime.now(UTC) - timedelta(seconds=age_s))
    status = LaunchStatus(launch_id="x", state="running", updated_at=written, jobs=(job,))
    with folder.supervising():
        folder.write_status(status)
        seen = folder.read_status()
    assert (seen.silent_s is not None, seen.jobs[0].proven) == (silent, not silent)
    assert seen.standing.startswith("running, not heard of for 3" if silent else "running")
    assert (seen.state, seen.updated_at) == ("running", written)


def test_a_launch_that_no_supervisor_begins_is_shown_with_its_age(folder: LaunchFolder) -> None:
    """As where the power went between the two."""
    made_s = time.time() - 70
    os.utime(folder.path / "spec.json", (made_s, made_s))
    assert folder.read_status().standing.startswith("accepted, not heard of for 7")


@pytest.mark.parametrize("name", ["alive", "spec.json", "status.json", "history.json", "joins"])
def test_nothing_in_the_folder_of_a_launch_is_waited_for(folder: LaunchFolder, name: str) -> None:
    """A job of it may put a FIFO in the place of any record: readers go on without that one."""
    place = folder.path / name
    if name == "joins":
        ask_join(folder, SPEC, "one")
        place /= "one.asked.json"
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    assert folder.read_status().state == "accepted"
    assert (read_history(folder), [*joins(folder)], observation_lines(folder)) == (None, [], [])
    assert [*join_requests(folder)] == ([("one", None)] if name == "joins" else [])


def test_a_removal_that_was_killed_is_found(
    folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, left = folder.path.parent, folder.path.with_name(f".{folder.path.name}.removed")
    with monkeypatch.context() as killed:
        killed.setattr("shutil.rmtree", Path.exists)
        remove(folder.path)
    assert half_removed(root) == [left]
    remove(left)
    assert not [*root.iterdir()]


def test_a_launch_that_has_ended_refuses_who_asks_to_join(folder: LaunchFolder) -> None:
    assert join_status(folder, "1", SPEC).outcome == "waiting"
    StatusWriter(folder, SPEC).close("finished")
    refused = join_status(folder, "1", SPEC)
    assert (refused.outcome, refused.error) == ("refused", "the launch has ended meanwhile.")


def test_warnings_are_bounded(folder: LaunchFolder) -> None:
    writer = StatusWriter(folder, SPEC)
    writer.warn(*(f"warning {number}" for number in range(100)))
    assert (writer.status.warnings[0], len(writer.status.warnings)) == ("a note", 50)


def test_status_that_cannot_be_written_is_tried_again(
    folder: LaunchFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True, True, False]

    def write(_folder: LaunchFolder, status: LaunchStatus) -> None:
        if full.pop(0):
            raise OSError(28, "No space left on device")
        written.append(status)

    written: list[LaunchStatus] = []
    monkeypatch.setattr(LaunchFolder, "write_status", write)
    writer = StatusWriter(folder, SPEC)
    writer.enter("running")
    writer.close("stopped")
    (last,) = written
    assert last.state == "stopped"
    assert last.warnings == (
        "a note", "the status could not be written for a while: No space left on device"
    )  # fmt: skip


def test_only_names_of_launches_are_found(folder: LaunchFolder, tmp_path: Path) -> None:
    assert find_folder(tmp_path, SPEC.launch_id) == folder
    (tmp_path / "other").mkdir()
    for name in ("../" + tmp_path.name, "", ".", "other", "x" * 101, "a/b", "nobody"):
        with pytest.raises(InputError, match="there is no launch"):
            find_folder(tmp_path / "sub" / "..", name)


def test_damaged_spec_is_told(folder: LaunchFolder) -> None:
    (folder.path / "spec.json").write_bytes(b'{"launch_id": "x"')
    with pytest.raises(InputError, match="has no readable spec"):
        folder.read_spec()


A, B = (Job(name=name, command=(name,)) for name in "ab")


LOW = Split((50.0, 100.0), below_normal=(0,))
ON_TWO = Split((100.0, 50.0), gpus=(ALL_GPUS, 1))


@given(st.sampled_from([*NINE, UNCAPPED, TIME_SLICED, LOW, ON_TWO, Split((20.0, 30.0, 50.0))]))
def test_documents_are_read_as_they_were_written(split: Split) -> None:
    parts = tuple(LaunchPart(job=A) for _ in split.shares)
    spec = LaunchSpec(launch_id="x", gpu="0", pairs=(LaunchSet(split=split, parts=parts),))
    text = write(spec).encode()
    (pair,) = json.loads(text)["pairs"]
    low = list(split.below_normal)
    wanted = {"shares": list(split.shares), "sharing": split.sharing, "below_normal": low}
    assert pair["split"] == {**wanted, "gpus": list(split.gpus)}
    assert [part["job"]["command"] for part in pair["jobs"]] == [["a"]] * len(split.shares)
    assert read(LaunchSpec, text) == spec


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"pairs": [1]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    for kind in (LaunchSpec, LaunchStatus):
        with pytest.raises(InputError, match=r"\w"):
            read(kind, text)


def test_a_job_of_a_spec_has_the_hash_of_its_file(tmp_path: Path) -> None:
    """Numbers come back as floats; what a launch did is found by what was measured of the job."""
    file = tmp_path / "job.yaml"
    for more in ("", "warm_up_s: 2\n", "warm_up_s: 0\n"):
        file.write_text(f"command: [train]\nprogress: {{kind: runs, unit: runs}}\n{more}")
        parts = (LaunchPart(job=load_job(file)), LaunchPart(job=B))
        pair = LaunchSet(split=Split((30, 70)), parts=parts)
        spec = read(LaunchSpec, write(LaunchSpec(launch_id="x", gpu="0", pairs=(pair,))))
        assert [job.job_hash for job in spec.pairs[0].jobs] == [job.job_hash for job in pair.jobs]


@given(
    st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 2**40)), max_size=12),
    st.floats(0.1, 1000),
    st.floats(1e-6, 1000),
)
def test_exactly_what_is_beyond_a_bound_goes(
    launches: list[tuple[float, int]], days: float, gib: float
) -> None:
    """Nothing older than allowed is left, what is left fits, and the newest that fit are left."""
    now_s = 2e9
    ended = [
        _ended(number, now_s - age * 86_400, size) for number, (age, size) in enumerate(launches)
    ]
    bounds = Retention(launch_days=days, launch_gib=gib, audit_days=1, output_mib=2)
    beyond_them = beyond(ended, bounds, now_s)
    gone = [replace(launch, reason=None) for launch in beyond_them]
    kept = [launch for launch in ended if launch not in gone]
    assert all(now_s - launch.ended_s <= days * 86_400 for launch in kept)
    assert sum(launch.size_bytes for launch in kept) <= gib * 2**30
    assert gone == sorted(gone, key=lambda launch: (launch.ended_s, launch.launch_id))
    for launch in beyond_them:
        newer = [one for one in ended if one.ended_s >= launch.ended_s]
        if launch.reason == "size":
            assert sum(one.size_bytes for one in newer) > gib * 2**30


def _ended(number: int, at_s: float, size: int) -> EndedLaunch:
    at = datetime.fromtimestamp(round(at_s), UTC).isoformat()
    return EndedLaunch(launch_id=launch_id(number), ended_at=at, size_bytes=size)
