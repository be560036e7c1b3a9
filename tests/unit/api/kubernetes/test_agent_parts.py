"""The parts of a node's agent that need no GPU, no daemon and no Kubernetes."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from kube_serving import placed

from advisor.errors import InputError
from advisor.progress import Progress as JobProgress
from advisor_kubernetes.agent import GpuHours, pod_in, progress_file, read_pod
from advisor_node.meters import read_progress

UID = "0f8b1a52-3c0e-4d57-9d3c-5b1e8a7f6c21"


# Pods


def test_a_pod_is_read_as_the_chooser_has_left_it() -> None:
    """With the share exactly as its containers see it."""
    found = read_pod(placed(UID, "gemm", "38.5"))
    assert found is not None
    assert (found.share_text, found.share.percent) == ("38.5", 38.5)
    assert (found.namespace, found.name, found.over) == ("team", "gemm-pod", False)


@pytest.mark.parametrize(
    ("phase", "state", "over"),
    [
        ("Running", "running", False),
        ("Succeeded", "finished", True),
        ("Failed", "failed", True),
        ("Unknown", "running", False),
    ],
)
def test_how_a_pod_ended_is_in_its_phase(phase: str, state: str, over: bool) -> None:
    """One that is deleted while it runs has neither finished nor failed."""
    raw = placed(UID, "gemm", "50") | {"status": {"phase": phase}}
    found = read_pod(raw)
    assert found is not None
    assert (found.state, found.over) == (state, over)


@pytest.mark.parametrize("name", ["job", "share-percent", "gpu-uuid"])
def test_a_pod_without_a_gpu_of_ours_is_left_alone(name: str) -> None:
    """One that runs alone without a limit, on a claim, or that only has the label."""
    raw = placed(UID, "gemm", "30")
    del raw["metadata"]["annotations"][f"advisor.dev/{name}"]
    assert read_pod(raw) is None


@pytest.mark.parametrize(
    ("uid", "job", "share"),
    [
        (UID, "gemm", "0"),
        (UID, "gemm", "many"),
        (UID, "gemm", "nan"),
        (UID, "../x", "30"),
        ("../..", "gemm", "30"),
    ],
)
def test_annotations_that_nobody_can_have_chosen_are_refused(
    uid: str, job: str, share: str
) -> None:
    """0 is no limit at all for the driver, and the uid becomes a path."""
    with pytest.raises(InputError, match="were not written"):
        read_pod(placed(uid, job, share))


def test_the_pods_of_a_gpu_hold_all_of_it() -> None:
    """By what they book; who is alone holds the whole, and who has ended holds nothing."""
    limits = {"limits": {"advisor.dev/share": "25"}}
    small = read_pod(placed(UID, "gemm", "50", containers=[{"name": "m", "resources": limits}]))
    half = read_pod(placed("another", "fft", "50"))
    assert small is not None
    assert half is not None
    assert (small.booked_percent, half.booked_percent) == (25, 50)
    hours = GpuHours()
    hours.look(100.0, [small])
    hours.look(160.0, [small, half])
    assert hours.held == {UID: 1 / 3, "another": 2 / 3}
    hours.look(190.0, [small, replace(half, state="finished")])
    assert hours.held == {UID: 1.0}
    assert hours.total_s == {UID: 70.0, "another": 20.0}
    hours.look(200.0, [small])
    assert hours.total_s == {UID: 80.0}


UNDERSCORED = UID.replace("-", "_")


@pytest.mark.parametrize(
    "line",
    [
        f"0::/kubepods/besteffort/pod{UID}/abc",
        f"0::/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-abc.scope",
        f"0::/../../kubepods-burstable-pod{UNDERSCORED}.slice/crio-abc.scope",
        f"11:devices:/kubepods/burstable/pod{UID}/abc\n10:memory:/kubepods/burstable/pod{UID}/abc",
    ],
)
def test_the_pod_of_a_process_is_in_its_control_group(line: str) -> None:
    """Of both drivers and both versions, seen from the host or from another namespace."""
    assert pod_in(line) == UID


@pytest.mark.parametrize("line", ["", "0::/", "0::/user.slice/user-0.slice", "0::/podman/abc"])
def test_a_process_of_the_host_is_of_no_pod(line: str) -> None:
    assert pod_in(line) is None


# Progress files


def test_a_job_makes_its_file_where_the_agent_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library of the job on one side, the agent on the other."""
    file = progress_file(tmp_path, UID)
    file.parent.mkdir(parents=True)
    monkeypatch.setenv("ADVISOR_PROGRESS_FILE", str(file))
    progress = JobProgress()
    progress.add(3, value=math.nan)
    found = read_progress(file)
    assert found is not None
    assert (found.steps, found.reported.not_finite) == (3, 1)
    assert [path.name for path in file.parent.iterdir()] == ["progress"]
    JobProgress()  # another process of the job begins with what is there
    again = read_progress(file)
    assert again is not None
    assert again.steps == 3


def test_nothing_in_a_folder_of_a_pod_is_followed(tmp_path: Path) -> None:
    """A link to a file of the host, a pipe that would block, a folder, nothing."""
    place = progress_file(tmp_path, UID)
    place.parent.mkdir(parents=True)
    assert read_progress(place) is None
    place.symlink_to("/etc/passwd")
    assert read_progress(place) is None
    place.unlink()
    os.mkfifo(place)
    assert read_progress(place) is None
    place.unlink()
    place.mkdir()
    assert read_progress(place) is None
