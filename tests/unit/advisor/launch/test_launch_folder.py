"""The folder of a launch: one supervisor ever, and a status that is whole or none."""

import fcntl
import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ended_launches import PAIR
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.job import Job
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.errors import BusyError, InputError
from advisor.formats.job_file import load_job
from advisor.formats.moments import to_text
from advisor.launch.folder import (
    LaunchFolder,
    StatusWriter,
    create_folder,
    dumps,
    find_folder,
    half_removed,
    join_status,
    loads,
    remove,
)
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.launch.status import JobStatus, LaunchStatus

SPEC = LaunchSpec(launch_id="20260131-120000-3f2a91", gpu="0", pairs=(PAIR,), notes=("a note",))


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
    with folder.supervising():
        job = JobStatus(job="gemm", rate_unit="steps", share_percent=30, proven=True, proof="set")
        runs, done = (replace(job, outcome=outcome, rate=9.0) for outcome in ("running", "failed"))
        StatusWriter(folder, SPEC).enter("running", jobs=(runs, done))
        assert folder.read_status().jobs[0].proven
    gone = folder.read_status()
    assert (gone.state, gone.code) == ("failed", "supervisor-gone")
    assert (gone.jobs[0].proven, gone.jobs[0].proof, gone.jobs[0].rate) == (False, None, None)
    assert [one.outcome for one in gone.jobs] == ["stopped", "failed"]
    StatusWriter(folder, SPEC).close("stopped")
    assert folder.read_status().state == "stopped"


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


def test_first_fault_is_the_one_that_is_told(folder: LaunchFolder) -> None:
    writer = StatusWriter(folder, SPEC)
    writer.blame("job", "it died")
    writer.blame("partition", "then the daemon went")
    writer.close("failed")
    assert folder.read_status().cause == "it died"


def test_what_a_pair_did_is_not_what_the_next_one_does(folder: LaunchFolder) -> None:
    spec = replace(SPEC, pairs=(PAIR, PAIR))
    writer = StatusWriter(folder, spec)
    writer.blame("job", "it died")
    writer.warn("look")
    writer.enter("running", gpu_uuid="GPU-1", started_at="then", energy_j=5.0, jobs=())
    before = writer.status
    writer.begin_pair(spec, 1)
    now = folder.read_status()
    assert (now.pair_number, now.pairs, now.state, now.energy_j) == (1, 2, "starting", None)
    assert now.jobs[0] == JobStatus(job="gemm", rate_unit="steps", share_percent=30)
    kept = ("code", "cause", "gpu_uuid", "started_at", "supervisor_pid", "warnings")
    assert all(getattr(now, name) == getattr(before, name) for name in kept)


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


@given(st.sampled_from([*NINE, UNCAPPED, TIME_SLICED, Split((20.0, 30.0, 50.0))]))
def test_documents_are_read_as_they_were_written(split: Split) -> None:
    parts = tuple(LaunchPart(job=A) for _ in split.shares)
    spec = LaunchSpec(launch_id="x", gpu="0", pairs=(LaunchSet(split=split, parts=parts),))
    text = dumps(spec)
    (pair,) = json.loads(text)["pairs"]
    assert pair["split"] == {"shares": list(split.shares), "sharing": split.sharing}
    assert [part["job"]["command"] for part in pair["jobs"]] == [["a"]] * len(split.shares)
    assert loads(LaunchSpec, text) == spec


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
        with pytest.raises(ValueError, match=r"\w"):
            loads(kind, text)


def test_a_job_of_a_spec_has_the_hash_of_its_file(tmp_path: Path) -> None:
    """Numbers come back as floats; what a launch did is found by what was measured of the job."""
    file = tmp_path / "job.yaml"
    for more in ("", "warm_up_s: 2\n", "warm_up_s: 0\n"):
        file.write_text(f"command: [train]\nprogress: {{kind: runs, unit: runs}}\n{more}")
        parts = (LaunchPart(job=load_job(file)), LaunchPart(job=B))
        pair = LaunchSet(split=Split((30, 70)), parts=parts)
        spec = loads(LaunchSpec, dumps(LaunchSpec(launch_id="x", gpu="0", pairs=(pair,))))
        assert [job.job_hash for job in spec.pairs[0].jobs] == [job.job_hash for job in pair.jobs]
